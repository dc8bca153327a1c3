"""The approximate posterior of a layer's units: a Gaussian over whitened coefficients.

q(a_h) = N(m_h, L_h L_hᵀ) for each unit h, a priori N(0, I). A unit is linear in its coefficients,
f_h(x) = φ(x)ᵀ a_h + what does not depend on them.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from dvip.products import product

__all__ = ["WhitenedGaussian"]


class WhitenedGaussian(eqx.Module):
    """A mean and a full covariance for each unit."""

    mean: Float[Array, "units coefficients"]
    # The factor L: the logarithm of its diagonal, and its lower part, kept transposed because the
    # features are multiplied by Lᵀ. The rest of the array is not used.
    log_diagonal: Float[Array, "units coefficients"]
    off_diagonal: Float[Array, "units coefficients coefficients"]

    @classmethod
    def create(cls, num_units: int, num_coefficients: int, scale: float) -> "WhitenedGaussian":
        """N(0, scale² I) for every unit."""
        return cls(
            mean=jnp.zeros((num_units, num_coefficients)),
            log_diagonal=jnp.full((num_units, num_coefficients), math.log(scale)),
            off_diagonal=jnp.zeros((num_units, num_coefficients, num_coefficients)),
        )

    @property
    def _transposed_factor(self) -> Float[Array, "units coefficients coefficients"]:
        """Lᵀ, upper triangular with a positive diagonal."""
        diagonal = jnp.exp(self.log_diagonal)[..., None] * jnp.eye(self.mean.shape[1])
        return jnp.triu(self.off_diagonal, 1) + diagonal

    @property
    def factor(self) -> Float[Array, "units coefficients coefficients"]:
        """The lower-triangular L, with a positive diagonal."""
        return jnp.swapaxes(self._transposed_factor, -1, -2)

    def moments(
        self, features: Float[Array, "outputs coefficients batch"]
    ) -> tuple[Float[Array, "units batch"], Float[Array, "units batch"]]:
        """φᵀ m_h and φᵀ L_h L_hᵀ φ = ‖L_hᵀ φ‖²; `outputs` is 1 where the units share φ."""
        if len(features) == 1:
            features = features[0]
            mean = product(self.mean, features)
        else:
            mean = product(self.mean[:, None], features)[:, 0]
        projected = product(self._transposed_factor, features)
        return mean, jnp.sum(jnp.square(projected), axis=1)

    def kl(self) -> Float[Array, ""]:
        """Σ_h KL(N(m_h, L_h L_hᵀ) | N(0, I))."""
        squares = jnp.sum(jnp.square(self.mean)) + jnp.sum(jnp.square(self._transposed_factor))
        return 0.5 * (squares - self.mean.size) - jnp.sum(self.log_diagonal)

    def draw(self, key: PRNGKeyArray) -> Float[Array, "units coefficients"]:
        """Coefficients a_h ~ q(a_h) for each unit."""
        white = jax.random.normal(key, self.mean.shape)
        return self.mean + jnp.matmul(self.factor, white[..., None])[..., 0]
