"""The approximate posterior of a layer's units: a Gaussian over whitened coefficients.

q(a_h) = N(m_h, S_h) with S_h = L_h L_hᵀ for each unit h, a priori N(0, I). A unit is linear in its
coefficients, f_h(x) = φ(x)ᵀ a_h + what does not depend on them.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from dvip.products import product

__all__ = ["WhitenedGaussian"]


class WhitenedGaussian(eqx.Module):
    """A mean and a full covariance for each unit."""

    # (m_h, L_h)ᵀ with L_h lower triangular: the mean, then the rows of L_hᵀ with the logarithms of
    # its diagonal. What would be below that diagonal is not used.
    q: Float[Array, "units rows coefficients"]

    @classmethod
    def create(cls, num_units: int, num_coefficients: int, scale: float) -> "WhitenedGaussian":
        """N(0, scale² I) for every unit."""
        start = np.eye(num_coefficients + 1, num_coefficients, -1) * math.log(scale)
        return cls(jnp.asarray(np.tile(start, (num_units, 1, 1)), float))

    @property
    def rows(self) -> Float[Array, "units rows coefficients"]:
        """(m_h, L_h)ᵀ itself."""
        rows, columns = np.indices(self.q.shape[1:])
        upper = jnp.where(rows > columns + 1, 0.0, self.q)
        return jnp.where(rows == columns + 1, jnp.exp(self.q), upper)

    @property
    def mean(self) -> Float[Array, "units coefficients"]:
        """The means m_h."""
        return self.q[:, 0]

    @property
    def factor(self) -> Float[Array, "units coefficients coefficients"]:
        """The lower-triangular factors L_h, with a positive diagonal."""
        return jnp.swapaxes(self.rows[:, 1:], -1, -2)

    def moments(
        self, features: Float[Array, "outputs coefficients batch"]
    ) -> tuple[Float[Array, "units batch"], Float[Array, "units batch"]]:
        """φᵀ m_h and φᵀ S_h φ = ‖L_hᵀ φ‖², from one product.

        `outputs` is 1 where the units share φ.
        """
        projected = product(self.rows, features[0] if len(features) == 1 else features)
        return projected[:, 0], jnp.sum(jnp.square(projected[:, 1:]), axis=1)

    def kl(self) -> Float[Array, ""]:
        """Σ_h KL(N(m_h, L_h L_hᵀ) | N(0, I))."""
        rows, columns = np.indices(self.q.shape[1:])
        log_diagonal = jnp.where(rows == columns + 1, self.q, 0.0)
        return jnp.sum(0.5 * jnp.square(self.rows) - log_diagonal) - 0.5 * self.mean.size

    def draw(self, key: PRNGKeyArray) -> Float[Array, "units coefficients"]:
        """Coefficients a_h ~ q(a_h) for each unit."""
        white = jax.random.normal(key, self.mean.shape)
        return self.mean + jnp.matmul(self.factor, white[..., None])[..., 0]
