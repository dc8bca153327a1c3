"""Functional variational Bayesian neural networks.

Sun, Zhang, Shi and Grosse 2019: the posterior is a network with independent Gaussian weights, but
it is compared to a prior over functions, not over weights. The bound is the functional ELBO at a
finite set of measurement points x_1, ..., x_M,

    Σ_n E_q[log p(y_n | f(x_n))] - KL(q(f) | p(f)),   f = (f(x_1), ..., f(x_M)),

new points at every step: some rows of the batch, and some that are uniform in a box around the
training inputs. (The bound itself has the KL at the worst set of points, which nobody knows.) The
KL has no value that could be computed, as q(f) is implicit, but it has a gradient: with f = f(ε; φ),

    ∇_φ KL = E_ε[(∇_f log q(f) - ∇_f log p(f)) ∂f/∂φ].

∇ log q comes from samples of f by the spectral estimator (`stein.py`). A Gaussian process as the
prior has -(K + γ²I)⁻¹ f in closed form; of an implicit process it is estimated from samples as
well. Both q and p have a little noise of variance γ² added: the values of a network with few
weights would otherwise lie on a surface, at an infinite KL from any prior.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from threadpoolctl import threadpool_limits

from dvip.batches import Batch
from dvip.estimators.builder import check_count
from dvip.estimators.classification import DeepClassifier
from dvip.estimators.priors import ImplicitProcessEstimator, Prior
from dvip.estimators.regression import DeepRegressor
from dvip.kernels import squared_distances
from dvip.likelihoods import Likelihood
from dvip.linear_algebra import inverse_factor
from dvip.neighbours.frame import NetworkEstimator, with_shared_parameters
from dvip.neighbours.mean_field import GaussianWeights, MeanFieldLayer
from dvip.neighbours.stein import spectral_score
from dvip.parameters import Fixed
from dvip.processes import ImplicitProcess
from dvip.processes.simulator import simulators_of
from dvip.sum_kernel import GPData, SumKernel, fitted_kernel
from dvip.training import CheckpointFolder, Data

__all__ = ["FBNNClassifier", "FBNNLayer", "FBNNRegressor", "FittedGP", "functional_kl"]

# γ, beside functions of about the size 1.
NOISE = 0.05
# How far the box of points goes beyond the training inputs, as a share of their range.
MARGIN = 0.1
# Rows that the kernel of the prior is fitted to.
MAX_FITTED = 1_000
FITTED = "gp"

Points = Float[Array, "inputs points"]
Values = Float[Array, "samples points"]


class FittedGP(eqx.Module):
    """A Gaussian process with mean zero and the kernel of `sum_kernel.py`."""

    parameters: Float[Array, " parameters"]

    def covariance(self, points: Points) -> Float[Array, "points points"]:
        """k(x, x') between all points."""
        rows = self.parameters[1:].reshape(3, -1)
        variances, inverse = jnp.exp(rows[:, 0]), jnp.exp(-rows[:, 1:])
        scaled = [points * each[:, None] for each in inverse]
        distance = jnp.sqrt(3 * squared_distances(scaled[0], scaled[0]))
        rough = (1 + distance) * jnp.exp(-distance)
        smooth = jnp.exp(-0.5 * squared_distances(scaled[1], scaled[1]))
        linear = 1 + scaled[2].T @ scaled[2]
        return variances[0] * rough + variances[1] * smooth + variances[2] * linear

    def score(self, key: PRNGKeyArray, points: Points, values: Values) -> Values:
        """∇ log p of the values with noise, in closed form."""
        del key
        noise = NOISE**2 * jnp.eye(points.shape[1], dtype=points.dtype)
        whitening, _ = inverse_factor(self.covariance(points) + noise)
        return -(values @ whitening.T) @ whitening


class SampledPrior(eqx.Module):
    """An implicit process, known by its functions."""

    process: ImplicitProcess

    def score(self, key: PRNGKeyArray, points: Points, values: Values) -> Values:
        """∇ log p of the values with noise, from as many samples as there are values."""
        function_key, noise_key = jax.random.split(key)
        functions = self.process(self.process.draw_noise(function_key, len(values)), points)
        noise = NOISE * jax.random.normal(noise_key, functions.shape)
        return spectral_score(functions + noise, at=values)


def functional_kl(
    values: Values, prior: FittedGP | SampledPrior, points: Points, key: PRNGKeyArray
) -> Float[Array, ""]:
    """Zero, with the gradient of KL(q(f) | p(f)) by the values of f, samples of q."""
    noise_key, prior_key = jax.random.split(key)
    noisy = values + NOISE * jax.random.normal(noise_key, values.shape)
    constant = jax.lax.stop_gradient(noisy)
    slope = spectral_score(constant) - prior.score(prior_key, points, constant)
    surrogate = jnp.sum(jax.lax.stop_gradient(slope) * values) / len(values)
    return surrogate - jax.lax.stop_gradient(surrogate)


class FBNNLayer(MeanFieldLayer):
    """The layer of mean-field inference, with a prior over functions."""

    prior: Fixed  # around a FittedGP or a SampledPrior
    box: Fixed  # the smallest and the largest of each input
    weight: Fixed  # of the KL
    num_rows: int = eqx.field(static=True)
    num_covering: int = eqx.field(static=True)
    num_functions: int = eqx.field(static=True)

    def kl_estimate(
        self, key: PRNGKeyArray, inputs: Float[Array, "inputs batch"] | None = None
    ) -> Float[Array, ""]:
        """Zero, with the gradient of the functional KL, summed over the units."""
        point_key, weight_key, unit_key = jax.random.split(key, 3)
        points = self._points(point_key, inputs)
        networks = self.weights(self.weights.draw_noise(weight_key, self.num_functions))
        values = jnp.moveaxis(networks(points), 1, 0)
        keys = jax.random.split(unit_key, len(values))
        prior = self.prior.value
        # One unit after another: factorisations of a stack would wait for each other's threads.
        kls = jax.lax.map(
            lambda each: functional_kl(each[0], prior, points, each[1]), (values, keys)
        )
        return self.weight.value * jnp.sum(kls)

    def _points(self, key: PRNGKeyArray, inputs: Float[Array, "inputs batch"] | None) -> Points:
        """The first rows of a batch, which is in random order, and others in the box."""
        lowest, highest = self.box.value[..., None]
        shape = (len(lowest), self.num_covering)
        covering = lowest + (highest - lowest) * jax.random.uniform(key, shape, lowest.dtype)
        return covering if inputs is None else jnp.hstack([inputs[:, : self.num_rows], covering])


class _FBNN(NetworkEstimator, ImplicitProcessEstimator):
    """The parameters of functional inference and its layer."""

    n_functions: int
    n_points: tuple[int, int]

    # What else estimators with implicit processes have as parameters.
    n_prior_samples: int | None = None
    n_inducing: int | None = None
    shared_prior: bool | None = True
    fresh_noise: bool = False

    n_training_samples: int | None = 10
    _default_steps: ClassVar[tuple[int, int]] = (5_000, 20_000)
    # The fitted kernel's parameters and the weight of the KL, until the model has them.
    _kernel: np.ndarray | None = None
    _kl_weight: float = 1.0

    def __init__(
        self,
        hidden: Sequence[int] = (50,),
        activation: str = "tanh",
        prior: Prior = FITTED,
        n_functions: int = 50,
        n_points: tuple[int, int] = (20, 20),
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

    def check_parameters(self) -> None:
        """Raises an error, which says what to do, unless the parameters make sense."""
        super().check_parameters()
        check_count("n_functions", self.n_functions)
        if self.n_functions < 2:
            raise ValueError("n_functions=1: one function has no density, use at least 2.")
        given: Any = self.n_points
        if isinstance(given, str) or not isinstance(given, Sequence) or len(given) != 2:
            raise ValueError(
                f"n_points={given!r}: give two numbers, of rows and of points that cover the "
                "inputs, such as (20, 20)."
            )
        for number in given:
            check_count("n_points", number)
        process = self._input_process()
        if process.structured or simulators_of(process):
            raise ValueError(
                f"prior={self.prior!r} has no functions at points between the rows, or reads "
                "images or sequences: use another."
            )

    def _train_on(
        self, data: Data, inputs: np.ndarray, checkpoints: CheckpointFolder | None = None
    ) -> None:
        # The rows are the same for every training with this seed: also for one that is resumed.
        self._fit_prior(data.rows(self.seed_, 0, min(MAX_FITTED, data.num_rows)), data.num_rows)
        with threadpool_limits(1, user_api="blas"):  # as in `linear_algebra.py`
            super()._train_on(data, inputs, checkpoints)

    def _train_once(self, rows: Batch) -> None:
        if not hasattr(self, "model_"):
            some = Batch(*(np.asarray(part)[:MAX_FITTED] for part in rows))
            self._fit_prior(some, len(rows.inputs))
        with threadpool_limits(1, user_api="blas"):
            super()._train_once(rows)

    def _fit_prior(self, rows: Batch, num_rows: int) -> None:
        """The kernel's parameters that maximise the marginal likelihood of these rows."""
        self._kernel, self._kl_weight = None, max(1.0, num_rows / int(self.n_points[0]))
        counted = np.asarray(rows.weights) > 0
        if not (isinstance(self.prior, str) and self.prior == FITTED and counted.any()):
            return
        inputs, targets, weights = (np.asarray(part, dtype=float)[counted] for part in rows)
        targets, errors = np.split(targets, [self._num_outputs], axis=1)
        known = np.mean(np.square(errors), axis=1) if errors.shape[1] else None
        data = GPData(inputs, self._on_unit_scale(targets), weights, known)
        with threadpool_limits(1, user_api="blas"):
            self._kernel = fitted_kernel(data, np.arange(len(inputs))).parameters

    def _on_unit_scale(self, targets: np.ndarray) -> np.ndarray:
        """Targets as the units are to be: around 0, with a variance of 1."""
        return (targets - targets.mean(axis=0)) / np.maximum(targets.std(axis=0), 1e-6)

    def _make_layer(
        self, index: int, inputs: np.ndarray, num_units: int, key: PRNGKeyArray
    ) -> FBNNLayer:
        del index
        weight_key, prior_key = jax.random.split(key)
        num_inputs = inputs.shape[1]
        widths = self._widths(num_inputs, num_units)
        lowest, highest = inputs.min(axis=0), inputs.max(axis=0)
        margin = MARGIN * (highest - lowest)
        if isinstance(self.prior, str) and self.prior == FITTED:
            usual = SumKernel.usual(num_inputs).parameters
            parameters = usual if self._kernel is None else self._kernel
            prior: Any = FittedGP(jnp.asarray(parameters.astype(inputs.dtype)))
        else:
            prior = SampledPrior(self._process_of_inputs().initialise(num_inputs, prior_key))
        return FBNNLayer(
            GaussianWeights.create(widths, self.activation, 1.0, weight_key),
            Fixed(prior),
            Fixed(jnp.asarray(np.stack([lowest - margin, highest + margin]))),
            Fixed(jnp.asarray(self._kl_weight, inputs.dtype)),
            *map(int, self.n_points),
            int(self.n_functions),
        )


@with_shared_parameters
class FBNNRegressor(DeepRegressor, _FBNN):
    """Regression."""


@with_shared_parameters
class FBNNClassifier(DeepClassifier, _FBNN):
    """Classification."""

    def _on_unit_scale(self, targets: np.ndarray) -> np.ndarray:
        """Of each class whether a row is of it, as a number; of two classes one will do."""
        places = np.arange(self._num_outputs if self._num_outputs > 2 else 1)
        return super()._on_unit_scale((targets == places).astype(float))
