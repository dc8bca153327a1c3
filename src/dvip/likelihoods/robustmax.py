"""The robust-max likelihood for several classes: the largest unit's class, but for a few errors."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import erf
from jaxtyping import Array, Float

from dvip.likelihoods.likelihood import Classification, Moments, gaussian_expectation

__all__ = ["RobustMax"]


class RobustMax(Classification):
    """p(y | f) = 1 - ε for the class whose unit is largest, ε / (C - 1) for each other class."""

    error: float = eqx.field(static=True, default=1e-3)

    def __check_init__(self) -> None:
        if not 0 < self.error < 1:
            raise ValueError(f"error={self.error!r} must lie strictly between 0 and 1.")

    def num_latents(self, num_classes: int) -> int:
        """One unit for each class."""
        return num_classes

    def _largest(self, index: Array, mean: Moments, variance: Moments) -> Array:
        """P(f_index is the largest) = E[Π_{j ≠ index} Φ((f_index - m_j) / √v_j)] over f_index.

        `index` holds a class for each column of the moments.
        """
        classes = jnp.arange(mean.shape[0]).reshape(-1, *(1,) * (mean.ndim - 1))
        chosen = classes == index
        own_mean, own_variance = (
            jnp.sum(jnp.where(chosen, moment, 0), axis=0) for moment in (mean, variance)
        )
        # The floor keeps the ratio finite where a unit's variance has collapsed.
        inverse_std = jax.lax.rsqrt(2 * jnp.maximum(variance, 1e-10))

        def others_below(f: Array) -> Array:
            below = 0.5 + 0.5 * erf((f[:, None] - mean) * inverse_std)
            return jnp.prod(jnp.where(chosen, 1, below), axis=1)

        return gaussian_expectation(others_below, own_mean, own_variance)

    def _log_levels(self, num_classes: int) -> tuple[float, float]:
        """log p(y | f) where y's unit is the largest, and where it is not."""
        return math.log1p(-self.error), math.log(self.error / (num_classes - 1))

    def expected_log_prob(
        self, targets: Float[Array, "1 batch"], mean: Moments, variance: Moments
    ) -> Float[Array, "*shape"]:
        """P log(1 - ε) + (1 - P) log(ε / (C - 1))."""
        hit, miss = self._log_levels(mean.shape[0])
        largest = self._largest(targets[0], mean, variance)
        return largest * hit + (1 - largest) * miss

    def log_expected_power(
        self,
        targets: Float[Array, "1 batch"],
        mean: Moments,
        variance: Moments,
        alpha: float,
    ) -> Float[Array, "*shape"]:
        """log(P (1 - ε)^α + (1 - P) (ε / (C - 1))^α)."""
        hit, miss = self._log_levels(mean.shape[0])
        largest = self._largest(targets[0], mean, variance)
        return jnp.log(largest * jnp.exp(alpha * hit) + (1 - largest) * jnp.exp(alpha * miss))

    def class_probabilities(
        self, mean: Moments, variance: Moments
    ) -> Float[Array, "classes *shape"]:
        """P_c (1 - ε) + (1 - P_c) ε / (C - 1); the P_c are normalised, as quadrature is inexact."""
        num_classes = mean.shape[0]
        largest = jax.vmap(lambda c: self._largest(c, mean, variance))(jnp.arange(num_classes))
        largest = largest / jnp.sum(largest, axis=0)
        return largest * (1 - self.error) + (1 - largest) * self.error / (num_classes - 1)
