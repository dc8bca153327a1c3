"""The linearised Laplace approximation: a network trained as usual, then a linear model in it.

Immer, Korzepa and Bauer 2021. The network is trained to the maximum a posteriori m of its weights,
with weights w = s v in units of their prior's scales s and v ~ N(0, I/δ). Around it, the functions

    f(x) = f(x; m) + J(x) (w - m),    J(x) = ∂f(x; m)/∂w,

are linear in w, and with the Hessian of minus the log-likelihood by f, Λ_n, its posterior is

    v ~ N(m/s, (H + δI)⁻¹),    H = Σ_n (J_n s)ᵀ Λ_n (J_n s) = U diag(λ) Uᵀ,

where Λ_n has no negative eigenvalues. The marginal likelihood chooses δ and, where the noise is
Gaussian, a factor τ of its variances, from this one eigendecomposition:

    log p(y | δ, τ) = log p(y | m, τ) - ½ δ ‖m/s‖² - ½ Σ_i log(1 + λ_i / τδ).

Networks of many weights are linearised in those of their last layer alone.
"""

import itertools
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from scipy.optimize import minimize

from dvip.batches import Batch
from dvip.layers import Perceptrons
from dvip.layers.layer import GaussianLayer
from dvip.likelihoods.gaussian import Gaussian
from dvip.neighbours.networks import in_a_row, jacobian, log_prior_scales, started, whitened
from dvip.objectives import DeepModel
from dvip.parameters import Fixed
from dvip.training import Data

__all__ = ["MAX_WEIGHTS", "Curvature", "LaplaceLayer", "num_linearised", "with_posterior"]

# A covariance of so many weights is kept; with more, only those of the last layer are random.
MAX_WEIGHTS = 3_000
# Rows that the Hessian is summed over, at most: they stand for all.
MAX_ROWS = 20_000
# Numbers of the Jacobian of a batch, and its rows, at most.
MAX_NUMBERS, MAX_BATCH = 2**22, 512
# Where log δ and log τ are looked for.
LOG_PRECISIONS, LOG_FACTORS = (-12.0, 12.0), (-4.0, 4.0)


def num_linearised(widths: tuple[int, ...]) -> tuple[int, int]:
    """The first layer of weights that is linearised, and the number of weights from it on."""
    sizes = [(before + 1) * after for before, after in itertools.pairwise(widths)]
    first = 0 if sum(sizes) <= MAX_WEIGHTS else len(sizes) - 1
    number = sum(sizes[first:])
    if number > MAX_WEIGHTS:
        raise ValueError(
            f"The last layer has {number:,} weights, and a covariance of more than "
            f"{MAX_WEIGHTS:,} is too large: use a smaller last width of hidden."
        )
    return first, number


class LaplaceLayer(GaussianLayer):
    """One network; behind the training, the covariance of its weights.

    While it is trained there is no covariance: `ready` is 0 and units have no variance.
    """

    network: Perceptrons
    # F with F Fᵀ the covariance of the weights, and whether there is one.
    factor: Fixed
    ready: Fixed
    prior_scale: float = eqx.field(static=True)
    first: int = eqx.field(static=True)

    @classmethod
    def create(
        cls, widths: tuple[int, ...], activation: str, prior_scale: float, key: PRNGKeyArray
    ) -> "LaplaceLayer":
        """A random network without a covariance."""
        network = started(1, widths, activation, key)
        first, number = num_linearised(widths)
        factor = jnp.zeros((number, number))
        return cls(network, Fixed(factor), Fixed(jnp.zeros(())), prior_scale, first)

    def with_factor(self, factor: Float[Array, "weights weights"]) -> "LaplaceLayer":
        """The layer with a covariance."""
        parts = (Fixed(factor), Fixed(jnp.ones(())))
        return eqx.tree_at(lambda layer: (layer.factor, layer.ready), self, parts)

    def without_factor(self) -> "LaplaceLayer":
        """The layer without a covariance, as it is trained."""
        return eqx.tree_at(lambda layer: layer.ready, self, Fixed(jnp.zeros(())))

    @property
    def scales(self) -> Float[Array, " weights"]:
        """s: the prior's scales of the weights that are linearised, where δ is 1."""
        return jnp.exp(in_a_row(log_prior_scales(self.network, 1.0), self.first))

    def marginals(
        self, inputs: Float[Array, "inputs batch"]
    ) -> tuple[Float[Array, "units batch"], Float[Array, "units batch"]]:
        """f(x; m), and the variance of J(x) w."""
        mean = self.network(inputs)[0]

        def variance() -> Float[Array, "units batch"]:
            of_weights = jax.lax.stop_gradient(jacobian(self.network, inputs, self.first))
            return jnp.sum(jnp.square(of_weights @ self.factor.value), axis=-1).T

        nothing = jnp.zeros_like(mean)
        return mean, jax.lax.cond(self.ready.value > 0, variance, lambda: nothing)

    def kl(self) -> Float[Array, ""]:
        """-log p(m), but for a constant: what the training adds to the fit of the data."""
        return 0.5 * jnp.sum(jnp.square(whitened(self.network, self.prior_scale)))

    def draw_function(self, key: PRNGKeyArray) -> Float[Array, " weights"]:
        """w - m."""
        factor = self.factor.value
        return factor @ jax.random.normal(key, factor.shape[1:])

    def evaluate(
        self, function: Float[Array, " weights"], inputs: Float[Array, "inputs batch"]
    ) -> Float[Array, "units batch"]:
        """f(x; m) + J(x) (w - m)."""
        of_weights = jacobian(self.network, inputs, self.first)
        return self.network(inputs)[0] + (of_weights @ function).T


@dataclass(frozen=True)
class Curvature:
    """What the rows say of the weights near m: all that the marginal likelihood depends on."""

    eigenvalues: Float[np.ndarray, " weights"]
    vectors: Float[np.ndarray, "weights weights"]
    # log p(y | m), and ‖m/s‖².
    fit: float
    square: float
    # Where the noise is Gaussian: the number of targets, and their squared residuals over σ².
    num_targets: float = 0.0
    residuals: float = 0.0

    def log_evidence(self, log_precision: float, log_factor: float = 0.0) -> float:
        """log p(y | δ, τ)."""
        spread = np.log1p(self.eigenvalues * np.exp(-log_precision - log_factor)).sum()
        change = self.residuals * -np.expm1(-log_factor) - self.num_targets * log_factor
        return self.fit + 0.5 * (change - np.exp(log_precision) * self.square - spread)

    def best(self) -> tuple[float, float]:
        """log δ and log τ of the largest marginal likelihood."""
        bounds = [LOG_PRECISIONS, LOG_FACTORS if self.num_targets else (0.0, 0.0)]
        found = minimize(lambda logs: -self.log_evidence(*logs), np.zeros(2), bounds=bounds)
        return float(found.x[0]), float(found.x[1])

    def factor(
        self, log_precision: float, log_factor: float = 0.0
    ) -> Float[np.ndarray, "weights weights"]:
        """F with F Fᵀ the covariance of v."""
        precisions = self.eigenvalues * np.exp(-log_factor) + np.exp(log_precision)
        return self.vectors / np.sqrt(precisions)


@eqx.filter_jit
def _of_batch(
    model: DeepModel, batch: Batch
) -> tuple[Float[Array, "weights weights"], Float[Array, ""]]:
    """A batch's part of H and of log p(y | m)."""
    layer = model.network.stages[0].layer
    assert isinstance(layer, LaplaceLayer)
    inputs, targets = batch.inputs.T, batch.targets.T

    def cost(values: Float[Array, " units"], target: Float[Array, " rows"]) -> Array:
        return -model.likelihood.log_prob(target[:, None], values[:, None])[0]

    values = layer.network(inputs)[0]
    hessians = jax.vmap(jax.hessian(cost), in_axes=(1, 1))(values, targets)
    curvatures, directions = jnp.linalg.eigh(hessians)
    sizes = jnp.sqrt(jnp.maximum(curvatures, 0) * batch.weights[:, None])
    roots = sizes[..., None] * jnp.swapaxes(directions, 1, 2)
    tall = roots @ (jacobian(layer.network, inputs, layer.first) * layer.scales)
    tall = tall.reshape(-1, tall.shape[-1])
    fit = jnp.sum(batch.weights * model.likelihood.log_prob(targets, values))
    return tall.T @ tall, fit


def curvature(model: DeepModel, data: Data, seed: int, num_data: float) -> Curvature:
    """One pass over the rows, each once, or over some of many; they stand for `num_data`."""
    layer, likelihood = model.network.stages[0].layer, model.likelihood
    assert isinstance(layer, LaplaceLayer)
    weights = in_a_row(layer.network, layer.first)
    num_rows = min(data.num_rows, MAX_ROWS)
    size = MAX_NUMBERS // (len(weights) * model.network.stages[0].num_units)
    size = max(1, min(size, MAX_BATCH, num_rows))
    total, fit, weight = np.zeros((len(weights), len(weights))), 0.0, 0.0
    num_targets = 0
    for step in range(-(-num_rows // size)):
        (inputs,), (targets,), (counts,) = data.batches(seed, step, 1, size)
        # Behind the last row the first come again: they do not count.
        counted = np.arange(step * size, (step + 1) * size) < num_rows
        batch = Batch(inputs, targets, counts * counted.astype(counts.dtype))
        part, of_part = _of_batch(model, batch)
        total += np.asarray(part, float)
        fit, weight = fit + float(of_part), weight + float(batch.weights.sum())
        num_targets = targets.shape[1]
    scale = num_data / num_rows
    square = float(jnp.sum(jnp.square(weights / layer.scales)))
    eigenvalues, vectors = np.linalg.eigh(scale * total)
    known = (np.maximum(eigenvalues, 0), vectors, scale * fit, square)
    if type(likelihood) is not Gaussian or num_targets > len(likelihood.variance):
        return Curvature(*known)
    log_variances = np.log(2 * np.pi * np.asarray(likelihood.variance, float))
    residuals = -scale * (2 * fit + weight * log_variances.sum())
    return Curvature(*known, scale * weight * num_targets, residuals)


def with_posterior(model: DeepModel, data: Data, seed: int, num_data: float) -> DeepModel:
    """The trained model with the covariance of its weights, and with τ times its noise."""
    found = curvature(model, data, seed, num_data)
    log_precision, log_factor = found.best()
    layer = model.network.stages[0].layer
    assert isinstance(layer, LaplaceLayer)
    factor = np.asarray(layer.scales, float)[:, None] * found.factor(log_precision, log_factor)
    layer = layer.with_factor(jnp.asarray(factor, layer.scales.dtype))
    model = eqx.tree_at(lambda model: model.network.stages[0].layer, model, layer)
    if log_factor == 0:
        return model
    log_variance = model.likelihood.log_variance
    changed = (log_variance + log_factor).astype(log_variance.dtype)
    return eqx.tree_at(lambda model: model.likelihood.log_variance, model, changed)
