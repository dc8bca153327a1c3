"""Functional variational inference with generators of stochastic processes.

Ma and Hernández-Lobato 2021. A generator is a distribution over functions with a latent variable z,

    f(x_m) | z ~ N(g(x_m, z), σ²), independently,   g(x, z) = c_0(x, z) + c(x, z)ᵀ z / √d,

where (c_0, c) are the outputs of a network of x and z. The prior generator p, with z ~ N(0, I), is
fitted to functions that are drawn from an implicit process, along with all else. The parameters of
that process are fixed, and no target is looked at: the prior is not fitted to the data. The
posterior generator q has a network and a noise of its own, and z ~ N(m, diag s²). The objective is

    Σ_n E_q[log p(y_n | f(x_n))] - E_X KL(q(f_X) | p(f_X)),

with X a random finite set of points: the grid-functional KL. At given points the KL is
E_q[log q(f) - log p(f)], and neither density has a closed form. For any
densities t(z | f) and r(z | f),

    E_q[log q(f)] ≤ E_q[log q(f | z) + log q(z) - log t(z | f)],
    log p(f)      ≥ E_r[log p(f | z) + log p(z) - log r(z | f)],

the first because KL(q(z | f) | t(z | f)) ≥ 0, the second because KL(r(z | f) | p(z | f)) ≥ 0. Their
difference is thus an upper bound of the KL, and the objective with it a lower bound of the above.

t is what q(z | f) would be if g were linear in z, with its slope at m. r is the same of p, with the
slope at 0 and then, once more, at the mean that this leads to. Both are Gaussians in closed form
that depend on f and X alone, as they must, and for g that are linear in z both bounds are
equalities. The prior generator ascends the second bound.
"""

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from dvip.batches import Batch
from dvip.estimators.priors import Prior
from dvip.estimators.regression import DeepRegressor
from dvip.layers import Layer, Perceptrons
from dvip.likelihoods import Likelihood
from dvip.linear_algebra import inverse_factors
from dvip.neighbours.frame import with_shared_parameters
from dvip.neighbours.measurement import MeasuredEstimator, MeasurementPoints
from dvip.parameters import Auxiliary, Fixed
from dvip.processes import ImplicitProcess
from dvip.processes.bnn import ACTIVATIONS

__all__ = ["FVILayer", "FVIRegressor", "Generator", "grid_kl", "log_density_bound"]

# σ² of both generators at the start.
INITIAL_NOISE = 0.1
# How much z matters inside the networks at the start: g is nearly linear in z, bounds are tight.
NONLINEARITY = 0.1
# Functions of the prior that its generator is fitted to at a step.
NUM_FITTED = 16

Points = Float[Array, "inputs points"]
Latents = Float[Array, "samples latents"]
Values = Float[Array, "samples points"]
Densities = Float[Array, " samples"]


class Generator(eqx.Module):
    """g(x, z) and σ² of one random function, or with a first axis of several."""

    network: Perceptrons
    log_noise: Float[Array, "*units"]

    @classmethod
    def create(
        cls, num_units: int, widths: Sequence[int], activation: str, key: PRNGKeyArray
    ) -> "Generator":
        """Random functions of the inputs, `widths[0]`, and of latents, one less than outputs."""
        widths = (widths[0] + widths[-1] - 1, *widths[1:])
        network = Perceptrons.create(num_units, widths, activation=activation, key=key)
        num_latents = widths[-1] - 1
        first = network.weights[0].at[..., -num_latents:].multiply(NONLINEARITY)
        network = eqx.tree_at(lambda network: network.weights[0], network, first)
        return cls(network, jnp.full(num_units, np.log(INITIAL_NOISE)))

    def one(self, inputs: Points, latent: Float[Array, " latents"]) -> Float[Array, " points"]:
        """g(x, z) of one z."""
        (first, *others), (bias, *biases) = self.network.weights, self.network.biases
        # As Perceptrons do it, but what z brings to the first layer is the same for all inputs, and
        # there are derivatives in both directions, which `product` has not.
        num_inputs = len(inputs)
        from_latent = jnp.matmul(first[:, num_inputs:], latent)[:, None] + bias
        values = jnp.matmul(first[:, :num_inputs], inputs) + from_latent
        for weights, biases_of_layer in zip(others, biases, strict=True):
            values = ACTIVATIONS[self.network.activation](values)
            values = jnp.matmul(weights, values) + biases_of_layer
        return values[0] + latent @ values[1:] / np.sqrt(len(latent))

    def __call__(self, inputs: Points, latents: Latents) -> Values:
        """g(x, z) of several z."""
        return jax.vmap(self.one, (None, 0))(inputs, latents)

    def log_density(self, inputs: Points, values: Values, latents: Latents) -> Densities:
        """log N(f; g(x, z), σ²) of each sample."""
        difference = values - self(inputs, latents)
        return _log_normal(difference, 0.5 * self.log_noise)


def _log_normal(difference: Array, log_scale: Array) -> Densities:
    """log N(difference; 0, scale²), summed over the last axis."""
    squares = jnp.square(difference * jnp.exp(-log_scale))
    return -0.5 * jnp.sum(squares + 2 * log_scale + np.log(2 * np.pi), axis=-1)


class Conditional(NamedTuple):
    """Gaussians over z, one for each sample; they may share the precision P."""

    mean: Latents
    precision: Float[Array, "samples_or_1 latents latents"]
    whitening: Float[Array, "samples_or_1 latents latents"]  # L⁻¹, where P = L Lᵀ

    @classmethod
    def of(
        cls,
        generator: Generator,
        inputs: Points,
        values: Values,
        around: Float[Array, "samples_or_1 latents"],
        prior: tuple[Float[Array, " latents"], Float[Array, " latents"]],
    ) -> "Conditional":
        """z given f, for a generator that is made linear around some z, and z ~ N(m, s²) before."""
        mean, log_scale = prior
        weights = jnp.exp(-2 * log_scale)
        expected = generator(inputs, around)
        slopes = jax.vmap(jax.jacfwd(generator.one, 1), (None, 0))(inputs, around)
        scaled = slopes * jnp.exp(-generator.log_noise)
        precision = jnp.matmul(jnp.swapaxes(scaled, 1, 2), slopes) + jnp.diag(weights)
        whitening, jitter = inverse_factors(precision)
        precision = precision + jitter[..., None] * jnp.eye(len(mean))
        # z - m has the mean P⁻¹ Jᵀ (f - g - J (m - around)) / σ².
        difference = values - expected - _each(slopes, mean - around)
        moved = _each(whitening, _each(jnp.swapaxes(scaled, 1, 2), difference))
        return cls(mean + _each(jnp.swapaxes(whitening, 1, 2), moved), precision, whitening)

    def draw(self, white: Latents) -> Latents:
        """mean + L⁻ᵀ white."""
        return self.mean + _each(jnp.swapaxes(self.whitening, 1, 2), white)

    def log_density(self, latents: Latents) -> Densities:
        """Of one z a sample. ‖Lᵀ(z - mean)‖ is ‖L⁻¹ P (z - mean)‖."""
        white = _each(self.whitening, _each(self.precision, latents - self.mean))
        log_scales = jnp.log(jnp.diagonal(self.whitening, axis1=1, axis2=2))
        return _log_normal(white, jnp.zeros(())) - jnp.sum(log_scales, axis=1)


def _each(
    matrices: Float[Array, "samples_or_1 rows columns"],
    vectors: Float[Array, "samples_or_1 columns"],
) -> Float[Array, "samples rows"]:
    """The product for each sample."""
    return jnp.matmul(matrices, vectors[..., None])[..., 0]


def log_density_bound(
    generator: Generator, inputs: Points, values: Values, key: PRNGKeyArray
) -> Densities:
    """An estimate of a lower bound of log p(f), for z ~ N(0, I)."""
    white = jax.random.normal(key, (len(values), _num_latents(generator)))
    nothing = jnp.zeros(white.shape[1])

    def joint(latents: Latents) -> Densities:
        return generator.log_density(inputs, values, latents) + _log_normal(latents, nothing)

    first = Conditional.of(generator, inputs, values, nothing[None], (nothing, nothing)).mean
    first = jax.lax.stop_gradient(first)
    guess = Conditional.of(generator, inputs, values, first, (nothing, nothing))
    # The second step may lead too far.
    better = joint(guess.mean) > joint(first)
    guess = guess._replace(mean=jnp.where(better[:, None], guess.mean, first))
    latents = guess.draw(white)
    return joint(latents) - guess.log_density(latents)


def _num_latents(generator: Generator) -> int:
    return generator.network.weights[-1].shape[-2] - 1


class Posterior(eqx.Module):
    """The posterior generator: with a Gaussian over its z."""

    generator: Generator
    mean: Float[Array, "*units latents"]
    log_scale: Float[Array, "*units latents"]

    def latents(self, white: Float[Array, "*samples latents"]) -> Array:
        """z from noise."""
        return self.mean + jnp.exp(self.log_scale) * white


def grid_kl(
    posterior: Posterior, prior: Generator, inputs: Points, num_samples: int, key: PRNGKeyArray
) -> Float[Array, ""]:
    """An estimate of an upper bound of KL(q(f) | p(f)) at these points, of one unit."""
    latent_key, noise_key, prior_key = jax.random.split(key, 3)
    generator = posterior.generator
    latents = posterior.latents(jax.random.normal(latent_key, (num_samples, len(posterior.mean))))
    clean = generator(inputs, latents)
    noise = jnp.exp(0.5 * generator.log_noise) * jax.random.normal(noise_key, clean.shape)
    values = clean + noise
    joint = _log_normal(noise, 0.5 * generator.log_noise)
    joint = joint + _log_normal(latents - posterior.mean, posterior.log_scale)
    of_latents = (posterior.mean, posterior.log_scale)
    guess = Conditional.of(generator, inputs, values, posterior.mean[None], of_latents)
    log_p = log_density_bound(prior, inputs, values, prior_key)
    return jnp.mean(joint - guess.log_density(latents) - log_p)


class FVILayer(Layer):
    """H units, each with a posterior generator; one prior generator for all."""

    posterior: Posterior
    prior: Auxiliary  # around a Generator
    process: Fixed  # around an ImplicitProcess
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

        def of_unit(posterior: Posterior, white: Float[Array, "latents samples"]) -> Values:
            of_samples = jax.vmap(posterior.generator.one, (None if shared else 1, 0))
            return of_samples(inputs[:, 0] if shared else inputs, posterior.latents(white.T))

        mean = jax.vmap(of_unit)(self.posterior, sample_noise)
        noise = jnp.exp(self.posterior.generator.log_noise)
        return mean, jnp.broadcast_to(noise[:, None, None], mean.shape)

    def kl_estimate(
        self, key: PRNGKeyArray, inputs: Float[Array, "inputs batch"] | None = None
    ) -> Float[Array, ""]:
        """An estimate of an upper bound of the grid-functional KL, summed over the units."""
        point_key, unit_key = jax.random.split(key)
        points, prior = self.points(point_key, inputs), _single(self.prior.value)
        keys = jax.random.split(unit_key, len(self.posterior.mean))
        # One unit after another, as in `inverse_factors`.
        kls = jax.lax.map(
            lambda each: grid_kl(each[0], prior, points, self.num_functions, each[1]),
            (self.posterior, keys),
        )
        return jnp.sum(kls)

    def auxiliary_loss(self, key: PRNGKeyArray) -> Float[Array, ""]:
        """Of the prior generator: minus the bound of log p(f), for functions of the process."""
        point_key, function_key, noise_key = jax.random.split(key, 3)
        process: ImplicitProcess = jax.lax.stop_gradient(self.process.value)
        points = self.points(point_key)
        functions = process(process.draw_noise(function_key, NUM_FITTED), points)
        bounds = log_density_bound(_single(self.prior.value), points, functions, noise_key)
        return -jnp.mean(bounds) / points.shape[1]

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


def _single(generators: Generator) -> Generator:
    """The first of several."""
    return jax.tree.map(lambda leaf: leaf[0], generators)


@with_shared_parameters
class FVIRegressor(DeepRegressor, MeasuredEstimator):
    """Regression with a latent-variable model of functions as the posterior.

    A network of the inputs and of a few latent variables makes functions; another such network,
    which is trained along to make functions as those of the prior, is what it is compared to, at
    random points. The prior is not fitted to the data. Inputs and targets are scaled inside.
    Predictions are mixtures over samples of the latent variables.

    Parameters
    ----------
    {network}
    prior : str or ImplicitProcess, default "bnn"
        The prior over functions, a name or an object as of `DVIPRegressor`. Its parameters stay
        where they start. What reads images or sequences, or a `SimulatorPrior`, cannot be used.
    n_latents : int, default 10
        Latent variables of a function.
    n_functions : int, default 8
        Functions of the posterior that a step compares to the prior.
    n_points : pair of int, default (20, 5)
        Where it does: rows of the batch, and points that are uniform in a box around the training
        inputs.
    {training}
    {likelihood}
    {others}

    Attributes
    ----------
    {attributes}

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

    _counts: ClassVar[tuple[str, ...]] = (*MeasuredEstimator._counts, "n_latents")
    _default_steps: ClassVar[tuple[int, int]] = (4_000, 20_000)
    _kl_warm_up: ClassVar[float] = 0.2

    def __init__(
        self,
        hidden: Sequence[int] = (50,),
        activation: str = "tanh",
        prior: Prior = "bnn",
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

    def _look_at(self, rows: Batch, num_rows: int) -> None:
        """Nothing: the prior is not fitted to targets, and the KL counts once."""

    def _make_layer(
        self, index: int, inputs: np.ndarray, num_units: int, key: PRNGKeyArray
    ) -> FVILayer:
        del index
        generator_key, prior_key, point_key = jax.random.split(key, 3)
        num_inputs, num_latents = inputs.shape[1], int(self.n_latents)
        widths = self._widths(num_inputs, 1 + num_latents)

        def generators(number: int) -> Generator:
            return Generator.create(number, widths, self.activation, generator_key)

        zeros = jnp.zeros((num_units, num_latents))
        return FVILayer(
            Posterior(generators(num_units), zeros, zeros),
            Auxiliary(generators(1)),
            Fixed(self._process_of_inputs().initialise(num_inputs, prior_key)),
            self._points(inputs, point_key),
            int(self.n_functions),
        )
