"""Tractable function-space variational inference: a KL between linearised networks.

Rudner, Chen, Teh and Gal 2022: q(w) = N(m, diag(s²)) as in `mean_field.py`, but what keeps it near
the prior are functions. Linearised at its mean, a network of Gaussian weights is a Gaussian process

    f ~ GP(f(x; m), J_m(x) diag(s²) J_m(x')ᵀ),    J_m(x) = ∂f(x; m)/∂w,

and so is that of the prior. The bound is

    Σ_n E_q[log p(y_n | f(x_n; w))] - KL(N(μ_q, K_q) | N(μ_p, K_p))

with ten samples of the weights a step, and the values of both processes at context points: some of
the rows of the step, and as many points drawn from the box of the inputs. The KL at some points is
too small beside the data fit of all rows, where there are many inputs by far: noise goes to zero
and all rows are learned by heart. It has twice the weight that an exact posterior of the linearised
prior asks for, given all rows with a little noise (`measurement.py`).

On seven small parts of tables of the arena, a wave, and 300 and 1,000 rows of a generated table the
mean NLL is 0.64. With the weight itself it is 1.15, as rows of the generated table are learned by
heart; with that and one sample a step it is 0.67, and worse with a KL that gains its weight in
time.

At a prior mean of zero all derivatives by inner weights vanish. The prior is therefore linearised
at random weights w_0, K_p = J_0 diag(p²) J_0ᵀ, and its mean is zero. The units of the last layer
are compared one by one.
"""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from dvip.layers import Perceptrons
from dvip.linear_algebra import inverse_factor
from dvip.neighbours.mean_field import GaussianWeights, MeanFieldLayer
from dvip.neighbours.measurement import (
    CAUTION,
    ExactPosterior,
    MeasurementPoints,
    kl_weight,
    one_thread,
)
from dvip.neighbours.networks import in_a_row, jacobian, log_prior_scales, started
from dvip.parameters import Fixed

__all__ = ["NUM_SAMPLES", "FunctionSpaceLayer", "gaussian_kl", "weight_of_context"]

# Samples of the weights a step, and context points: rows of the step, and drawn ones.
NUM_SAMPLES = 10
NUM_CONTEXT = (50, 50)
# By which the KL is weighed, at most: large networks are weighed by fewer rows.
MAX_DERIVATIVES = 5 * 10**7


def weight_of_context(
    inputs: Float[np.ndarray, "rows inputs"],
    hidden: Sequence[int],
    activation: str,
    prior_scale: float,
    noise_variance: float,
    num_rows: int,
) -> float:
    """The weight of the KL of such networks at context points, of rows with that much noise.

    `inputs` are those of some of the rows. It is the weight of one random network: others have
    nearly the same.
    """
    network = started(1, (inputs.shape[1], *hidden, 1), activation, jax.random.key(0))
    scales = jnp.exp(in_a_row(log_prior_scales(network, prior_scale)))
    derivatives = eqx.filter_jit(jacobian)
    most = max(sum(NUM_CONTEXT), MAX_DERIVATIVES // len(scales))
    inputs = np.random.default_rng(0).permutation(inputs)[:most]

    def features(points: np.ndarray) -> np.ndarray:
        scaled = derivatives(network, jnp.asarray(points.T)) * scales
        return np.asarray(scaled[:, 0], dtype=float)

    def kernel(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        return features(first) @ features(second).T

    with one_thread():
        weight = kl_weight(
            lambda chosen: ExactPosterior(kernel, inputs[chosen], noise_variance),
            inputs,
            NUM_CONTEXT,
            num_rows,
        )
    return max(1.0, CAUTION * weight)


def gaussian_kl(
    mean: Float[Array, " points"],
    covariance: Float[Array, "points points"],
    prior_covariance: Float[Array, "points points"],
) -> Float[Array, ""]:
    """KL(N(mean, covariance) | N(0, prior_covariance)), both with a little jitter."""
    (inverse, jitter), (prior_inverse, _) = map(inverse_factor, (covariance, prior_covariance))
    added = jitter * jnp.mean(jnp.diagonal(covariance)) * jnp.eye(len(mean))
    trace = jnp.sum((prior_inverse @ (covariance + added)) * prior_inverse)
    square = jnp.sum(jnp.square(prior_inverse @ mean))
    logs = jnp.log(jnp.diagonal(inverse)) - jnp.log(jnp.diagonal(prior_inverse))
    return 0.5 * (trace + square - len(mean)) + jnp.sum(logs)


class FunctionSpaceLayer(MeanFieldLayer):
    """A network of independent Gaussian weights that is compared to its prior by its functions."""

    # Where the prior is linearised, and where functions are compared.
    prior_network: Fixed
    context: MeasurementPoints

    @classmethod
    def create(
        cls,
        inputs: Float[np.ndarray, "rows inputs"],
        widths: Sequence[int],
        activation: str,
        prior_scale: float,
        kl_weight: float,
        key: PRNGKeyArray,
    ) -> "FunctionSpaceLayer":
        """Weights as those of any network, and a prior at other ones."""
        weights_key, prior_key, context_key = jax.random.split(key, 3)
        return cls(
            GaussianWeights.create(widths, activation, prior_scale, weights_key),
            Fixed(started(1, widths, activation, prior_key)),
            MeasurementPoints.create(inputs, NUM_CONTEXT, kl_weight, context_key),
        )

    def process(
        self, points: Float[Array, "inputs points"]
    ) -> tuple[Float[Array, "units points"], Float[Array, "units points points"]]:
        """Mean and covariance of each unit of the linearised posterior."""
        scales = jnp.exp(in_a_row(self.weights.log_scale))
        return self.weights.mean(points)[0], _covariances(self.weights.mean, scales, points)

    def prior_covariances(
        self, points: Float[Array, "inputs points"]
    ) -> Float[Array, "units points points"]:
        """Those of each unit of the linearised prior."""
        network = self.prior_network.value
        scales = jnp.exp(in_a_row(log_prior_scales(network, self.weights.prior_scale)))
        return _covariances(network, scales, points)

    def kl_estimate(
        self, key: PRNGKeyArray, inputs: Float[Array, "inputs batch"] | None = None
    ) -> Float[Array, ""]:
        """The KL of the units' values at context points, unit by unit, with its weight."""
        points = self.context(key, inputs)
        moments = (*self.process(points), self.prior_covariances(points))
        kls = jax.lax.map(lambda of_unit: gaussian_kl(*of_unit), moments)
        return self.context.weight.value * jnp.sum(kls)


def _covariances(
    network: Perceptrons, scales: Float[Array, " weights"], points: Float[Array, "inputs points"]
) -> Float[Array, "units points points"]:
    """J diag(s²) Jᵀ of each unit."""
    scaled = jnp.swapaxes(jacobian(network, points) * scales, 0, 1)
    return scaled @ jnp.swapaxes(scaled, 1, 2)
