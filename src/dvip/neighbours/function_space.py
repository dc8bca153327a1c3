"""Tractable function-space variational inference: a KL between linearised networks.

Rudner, Chen, Teh and Gal 2022: q(w) = N(m, diag(s²)) as in `mean_field.py`, but what keeps it near
the prior are functions. Linearised at its mean, a network of Gaussian weights is a Gaussian process

    f ~ GP(f(x; m), J_m(x) diag(s²) J_m(x')ᵀ),    J_m(x) = ∂f(x; m)/∂w,

and so is that of the prior. The bound is

    Σ_n E_q[log p(y_n | f(x_n; w))] - KL(N(μ_q, K_q) | N(μ_p, K_p))

with one sample of the weights a step, and the values of both processes at context points: some of
the rows of the step, and as many points drawn from the box of the inputs.

At a prior mean of zero all derivatives by inner weights vanish. The prior is therefore linearised
at random weights w_0, K_p = J_0 diag(p²) J_0ᵀ, and its mean is zero. The units of the last layer
are compared one by one.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from dvip.layers import Perceptrons
from dvip.linear_algebra import inverse_factor
from dvip.neighbours.mean_field import GaussianWeights, MeanFieldLayer
from dvip.neighbours.measurement import box_around, points_in_box
from dvip.neighbours.networks import in_a_row, jacobian, log_prior_scales, started
from dvip.parameters import Fixed

__all__ = ["FunctionSpaceLayer", "gaussian_kl"]

# Context points of each kind: rows of the step, and drawn ones.
NUM_CONTEXT = 50


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

    # Where the prior is linearised, and the box of the inputs, from low to high.
    prior_network: Fixed
    box: Fixed

    @classmethod
    def create(
        cls,
        inputs: Float[np.ndarray, "rows inputs"],
        widths: Sequence[int],
        activation: str,
        prior_scale: float,
        key: PRNGKeyArray,
    ) -> "FunctionSpaceLayer":
        """Weights as those of any network, and a prior at other ones."""
        weights_key, prior_key = jax.random.split(key)
        weights = GaussianWeights.create(widths, activation, prior_scale, weights_key)
        prior = started(1, widths, activation, prior_key)
        return cls(weights, Fixed(prior), Fixed(jax.device_put(box_around(inputs))))

    def context(
        self, key: PRNGKeyArray, inputs: Float[Array, "inputs batch"] | None
    ) -> Float[Array, "inputs points"]:
        """The points at which functions are compared."""
        drawn = points_in_box(key, self.box.value, NUM_CONTEXT)
        return drawn if inputs is None else jnp.hstack([inputs[:, :NUM_CONTEXT], drawn])

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
        """The KL of the units' values at context points, unit by unit."""
        points = self.context(key, inputs)
        moments = (*self.process(points), self.prior_covariances(points))
        return jnp.sum(jax.lax.map(lambda of_unit: gaussian_kl(*of_unit), moments))


def _covariances(
    network: Perceptrons, scales: Float[Array, " weights"], points: Float[Array, "inputs points"]
) -> Float[Array, "units points points"]:
    """J diag(s²) Jᵀ of each unit."""
    scaled = jnp.swapaxes(jacobian(network, points) * scales, 0, 1)
    return scaled @ jnp.swapaxes(scaled, 1, 2)
