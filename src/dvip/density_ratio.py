"""The KL between two distributions of which there are samples only, by a classifier.

A classifier that tells samples of q (1) from samples of p (0) as well as can be has the logit
T = log q - log p, so that KL(q | p) = E_q[T].

Where q is far from p, telling them apart is easy, and a classifier that does so perfectly knows
little of how far they are. So most of the way is in closed form: p has been standardised and is
near N(0, I), a Gaussian r is fitted to q, and

    T(v) = log r(v) - log N(v | 0, I) + (a network of v),

where the network learns what the Gaussians leave. Whatever r is, the best T is the same.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from dvip.layers.perceptron import Perceptrons
from dvip.products import product

__all__ = ["DensityRatio"]

HIDDEN_WIDTHS = (50, 50)

Samples = Float[Array, "units values samples"]


class DensityRatio(eqx.Module):
    """T for H pairs of distributions of M values.

    r is the law of the v for which D (v + N v - b) is white, with D diagonal and N strictly lower
    triangular: what each value is, given those before it, is a regression on them.
    """

    intercept: Float[Array, "units values 1"]
    log_precision: Float[Array, "units values 1"]
    regression: Float[Array, "units values values"]
    network: Perceptrons

    @classmethod
    def create(cls, num_units: int, num_values: int, scale: float, key: PRNGKeyArray) -> "DensityRatio":
        """For a q of about that scale around zero."""
        zeros = jnp.zeros((num_units, num_values, 1))
        return cls(
            zeros,
            zeros - jnp.log(scale),
            jnp.zeros((num_units, num_values, num_values)),
            Perceptrons.create(num_units, (num_values, *HIDDEN_WIDTHS, 1), last_scale=0.1, key=key),
        )

    def _fitted_log_density(self, values: Samples) -> Float[Array, "units samples"]:
        """log r, up to the constant that it shares with log N(0, I)."""
        below = product(jnp.tril(self.regression, -1), values)
        white = jnp.exp(self.log_precision) * (values + below - self.intercept)
        return jnp.sum(self.log_precision - 0.5 * jnp.square(white), axis=1)

    def __call__(self, values: Samples) -> Float[Array, "units samples"]:
        """log q - log p."""
        gaussians = self._fitted_log_density(values) + 0.5 * jnp.sum(jnp.square(values), axis=1)
        return gaussians + self.network(values)[:, 0]

    def kl(self, from_q: Samples) -> Float[Array, ""]:
        """E_q[T], summed over the units."""
        return jnp.sum(jnp.mean(self(from_q), axis=-1))

    def loss(self, from_q: Samples, from_p: Samples) -> Float[Array, ""]:
        """What trains r, minus its log-likelihood, and the network, the cross-entropy of T."""
        fit = -self._fitted_log_density(from_q)
        network_only = eqx.tree_at(
            lambda ratio: ratio.network, jax.lax.stop_gradient(self), self.network
        )
        missed = jax.nn.softplus(-network_only(from_q))
        mistaken = jax.nn.softplus(network_only(from_p))
        return jnp.sum(jnp.mean(fit + missed + mistaken, axis=-1))
