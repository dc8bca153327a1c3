"""Functional variational inference with stochastic process generators: FVIRegressor.

Ma and Hernández-Lobato 2021. The posterior over functions is a generator, a network of the inputs
and of a few latent variables (`generators.py`). The prior is a Gaussian process that is fitted to
the data first, or any implicit process, whose parameters are fixed: then a prior generator learns
to make functions as those that are drawn from it, along with all else, and never sees a target. The
objective is

    Σ_n E_q[log p(y_n | f(x_n))] - w E_X KL(q(f_X) | p(f_X)),

with X a random finite set of points: the grid-functional KL, in place of which there is an upper
bound. It has the weight, and the noise the guard, that functional BNNs need as well
(`measurement.py`, `fitted_gp.py`); in the first fifth of the training the weight rises from 0.
"""

from collections.abc import Sequence
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from dvip.estimators.priors import Prior
from dvip.estimators.regression import DeepRegressor
from dvip.layers import Layer
from dvip.likelihoods import Likelihood
from dvip.neighbours.fitted_gp import FITTED, NOISE
from dvip.neighbours.generators import (
    INITIAL_NOISE,
    Densities,
    Generator,
    GeneratorPosterior,
    LinearGenerator,
    Points,
    Values,
    grid_kl,
)
from dvip.neighbours.measurement import MeasuredEstimator, MeasurementPoints
from dvip.parameters import Auxiliary, Fixed
from dvip.processes import ImplicitProcess

__all__ = ["FVILayer", "FVIRegressor", "Imitation"]

# Functions of the prior that its generator is fitted to at a step, and its latent variables: with
# the default settings more than points, so that noise stands for nothing but that of the process.
NUM_FITTED, NUM_PRIOR_LATENTS = 16, 50


class Imitation(eqx.Module):
    """An implicit process, known by a generator that learns to make functions as its."""

    generator: Auxiliary  # around a LinearGenerator
    process: Fixed  # around an ImplicitProcess

    def log_density(self, points: Points, values: Values) -> Densities:
        """log p of the values, of the generator."""
        return self.generator.value.log_density(points, values)

    def loss(self, points: Points, key: PRNGKeyArray) -> Float[Array, ""]:
        """Minus log p of functions of the process, for each point."""
        process: ImplicitProcess = jax.lax.stop_gradient(self.process.value)
        functions = process(process.draw_noise(key, NUM_FITTED), points)
        return -jnp.mean(self.log_density(points, functions)) / points.shape[1]


class FVILayer(Layer):
    """H units, each with a posterior generator; one prior for all."""

    posterior: GeneratorPosterior
    prior: Fixed | Imitation  # Fixed: around a FittedGP
    points: MeasurementPoints
    num_functions: int = eqx.field(static=True)

    def draw_sample_noise(self, key: PRNGKeyArray, num_samples: int) -> PyTree[Array]:
        """That of the latents."""
        return jax.random.normal(key, (*self.posterior.mean.shape, num_samples))

    def conditionals(
        self, inputs: Float[Array, "inputs samples_or_1 batch"], sample_noise: PyTree[Array]
    ) -> tuple[Float[Array, "units samples batch"], Float[Array, "units samples batch"]]:
        """g(x, z) of each sample of z, and σ²."""
        shared = inputs.shape[1] == 1

        def of_unit(
            posterior: GeneratorPosterior, white: Float[Array, "latents samples"]
        ) -> Values:
            of_samples = jax.vmap(posterior.generator.one, (None if shared else 1, 0))
            return of_samples(inputs[:, 0] if shared else inputs, posterior.latents(white.T))

        mean = jax.vmap(of_unit)(self.posterior, sample_noise)
        noise = jnp.exp(self.posterior.generator.log_noise)
        return mean, jnp.broadcast_to(noise[:, None, None], mean.shape)

    def kl_estimate(
        self, key: PRNGKeyArray, inputs: Float[Array, "inputs batch"] | None = None
    ) -> Float[Array, ""]:
        """An estimate of an upper bound of the grid-functional KL, weighed, over all units."""
        point_key, unit_key = jax.random.split(key)
        points = self.points(point_key, inputs)
        prior = self.prior if isinstance(self.prior, Imitation) else self.prior.value
        keys = jax.random.split(unit_key, len(self.posterior.mean))
        # One unit after another, as in `inverse_factors`.
        kls = jax.lax.map(
            lambda each: grid_kl(each[0], prior.log_density, points, self.num_functions, each[1]),
            (self.posterior, keys),
        )
        return self.points.weight.value * jnp.sum(kls)

    def auxiliary_loss(self, key: PRNGKeyArray) -> Float[Array, ""]:
        """Of the prior generator, where there is one."""
        if not isinstance(self.prior, Imitation):
            return jnp.zeros(())
        point_key, function_key = jax.random.split(key)
        return self.prior.loss(self.points(point_key), function_key)

    def draw_function(self, key: PRNGKeyArray) -> PyTree[Array]:
        """z of each unit, and its noise, which is the same for all inputs."""
        latent_key, noise_key = jax.random.split(key)
        latents = self.posterior.latents(jax.random.normal(latent_key, self.posterior.mean.shape))
        return latents, jax.random.normal(noise_key, (len(latents), 1))

    def evaluate(
        self, function: PyTree[Array], inputs: Float[Array, "inputs batch"]
    ) -> Float[Array, "units batch"]:
        """g(x, z) and the noise."""
        latents, white = function
        generator = self.posterior.generator
        values = jax.vmap(lambda one, latent: one.one(inputs, latent))(generator, latents)
        return values + jnp.exp(0.5 * generator.log_noise)[:, None] * white


class FVIRegressor(DeepRegressor, MeasuredEstimator):
    """Regression with a latent-variable model of functions as the posterior.

    A network of the inputs and of a few latent variables makes functions. They are compared, at
    random points, to a Gaussian process that is fitted to the data first or, of any other prior, to
    one whose features are a network, which is trained along to make functions as the prior's.
    Inputs and targets are scaled inside. Predictions are mixtures over samples of the latent
    variables.

    Parameters
    ----------
    hidden : sequence of int, default (50,)
        Widths of the network's hidden layers.
    activation : {"tanh", "relu", "silu", "sigmoid", "softplus", "cos"}, default "tanh"
        Between its layers.
    prior : str or ImplicitProcess, default "gp"
        The prior over functions. "gp" is a Gaussian process whose kernel is fitted to the data
        before the training. All others, names or objects as of `DVIPRegressor`, stay as they are;
        `GaussianProcess()` is such a prior that is not fitted. What reads images or sequences, or
        a `SimulatorPrior`, cannot be used. With any prior, a process is fitted to up to 1,000 rows
        to know the weight of the KL and how little Gaussian noise there may be.
    n_latents : int, default 10
        Latent variables of a function.
    n_functions : int, default 8
        Functions of the posterior that a step compares to the prior.
    n_points : pair of int, default (20, 5)
        Where it does: rows of the batch, and points that are uniform in a box around the training
        inputs. Their KL has the weight that `FBNNRegressor` gives it.
    max_iter : int, optional
        Training steps. By default 4,000 for up to 2,000 rows, then as the square root of the
        number of rows, up to 20,000.
    batch_size : int, default 100
        Rows a step.
    learning_rate : float, default 0.01
        Of Adam at the first step; it falls to zero along a cosine.
    n_predictive_samples : int, default 100
        The samples of a prediction: the components of the mixture.
    likelihood : str or Regression, default "auto"
        The noise of the data: a name, or an object of a class of your own. "auto" is Gaussian
        noise, "gaussian". "heteroscedastic" is Gaussian noise whose size depends on the inputs,
        "student-t" has heavy tails, "heteroscedastic-student-t" both; "log-normal" is for
        positive numbers, "poisson" and "negative-binomial" for counts.
    n_members : int, optional
        Train an ensemble of so many models, side by side; the prediction is the mean of their
        distributions. By default there is one model.
    validation_fraction : float, optional
        The share of the rows that is left out of the training to stop it when nothing improves
        any more and to keep the best. Each member of an ensemble leaves out another part.
    calibrate : bool, default False
        Whether to correct predictions by rows that were left out of the training:
        `validation_fraction` of them or, if it is not given, a tenth, or of an ensemble all rows,
        each by one member.
    max_seconds : float, optional
        How long `fit` may take; the training is shortened to it.
    precision : {"float32", "float64"}, default "float32"
        Of all computations of the model.
    random_state : int, RandomState or None, default 0
        The same number gives the same model.
    verbose : bool, default False
        Whether to show a progress bar; where there is no terminal, a line a minute.

    Attributes
    ----------
    model_ : DeepModel or Ensemble
        The trained network and likelihood, or with `n_members` all of them.
    bound_history_ : array
        The mean of the objective over successive stretches of the training.
    calibration_ : Calibration
        How predictions are corrected, with `calibrate`.
    validation_scores_ : array of shape (scores, 3)
        Member, step and mean log-density of left-out rows, on the scale of the model.
    n_iter_ : int
        Training steps done.
    encoder_ : TableEncoder
        How a table became numbers; only where one was needed.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from dvip import FVIRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = FVIRegressor(hidden=(10,), n_latents=3, max_iter=100).fit(X, y)
    >>> mean, std = model.predict(X[:5], return_std=True)
    >>> std.shape
    (5,)
    """

    n_latents: int
    n_training_samples: int | None = 10

    _counts: ClassVar[tuple[str, ...]] = (*MeasuredEstimator._counts, "n_latents")
    _default_steps: ClassVar[tuple[int, int]] = (4_000, 20_000)
    _kl_warm_up: ClassVar[float] = 0.2

    def __init__(
        self,
        hidden: Sequence[int] = (50,),
        activation: str = "tanh",
        prior: Prior = FITTED,
        n_latents: int = 10,
        n_functions: int = 8,
        n_points: tuple[int, int] = (20, 5),
        max_iter: int | None = None,
        batch_size: int = 100,
        learning_rate: float = 0.01,
        n_predictive_samples: int = 100,
        likelihood: str | Likelihood = "auto",
        n_members: int | None = None,
        validation_fraction: float | None = None,
        calibrate: bool = False,
        max_seconds: float | None = None,
        precision: str = "float32",
        random_state: int | np.random.RandomState | None = 0,
        verbose: bool = False,
    ):
        self._store(locals())

    def _initialised(self, likelihood: Likelihood) -> Likelihood:
        return self._guarded(super()._initialised(likelihood))

    def _make_layer(
        self, index: int, inputs: np.ndarray, num_units: int, key: PRNGKeyArray
    ) -> FVILayer:
        del index
        generator_key, prior_key, point_key = jax.random.split(key, 3)
        num_inputs, num_latents = inputs.shape[1], int(self.n_latents)
        widths = self._widths(num_inputs, 1 + num_latents)

        if self._fits_prior:
            prior: Fixed | Imitation = Fixed(self._fitted_gp(inputs))
            noise = NOISE**2  # as the process has it
        else:
            process_key, imitator_key = jax.random.split(prior_key)
            of_prior = self._widths(num_inputs, 1 + NUM_PRIOR_LATENTS)
            imitator = LinearGenerator.create(of_prior, self.activation, imitator_key)
            process = self._process_of_inputs().initialise(num_inputs, process_key)
            prior, noise = Imitation(Auxiliary(imitator), Fixed(process)), INITIAL_NOISE
        generator = Generator.create(num_units, widths, self.activation, generator_key, noise)
        zeros = jnp.zeros((num_units, num_latents))
        return FVILayer(
            GeneratorPosterior(generator, zeros, zeros),
            prior,
            self._points(inputs, point_key),
            int(self.n_functions),
        )
