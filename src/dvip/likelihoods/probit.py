"""The probit likelihood for two classes: p(y = 1 | f) = Φ(f)."""

import math

import jax.numpy as jnp
from jax.scipy.special import log_ndtr, ndtr
from jaxtyping import Array, Float

from dvip.likelihoods.likelihood import (
    Classification,
    Moments,
    gaussian_expectation,
    log_gaussian_expectation,
)

__all__ = ["Probit", "log_cdf"]

# Below this the series of log Φ is exact to single precision; its derivative, as a ratio of
# densities, would lose all digits.
FAR = -50.0


def log_cdf(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """log Φ(x), with derivatives far below zero: -x²/2 - log(-x √2π) + log(1 - 1/x²) there."""
    far = jnp.minimum(x, FAR)
    series = -0.5 * far**2 - jnp.log(-far) - 0.5 * math.log(2 * math.pi) + jnp.log1p(-1 / far**2)
    return jnp.where(x < FAR, series, log_ndtr(jnp.maximum(x, FAR)))


class Probit(Classification):
    """Classes 0 and 1; log Φ has no closed-form expectation, so that is done by quadrature."""

    def num_latents(self, num_classes: int) -> int:
        """One unit, whose sign decides."""
        if num_classes != 2:
            raise ValueError(
                f"The probit likelihood is for two classes, the labels have {num_classes}: "
                "use likelihood='robustmax' or 'softmax'."
            )
        return 1

    def expected_log_prob(
        self, targets: Float[Array, "1 batch"], mean: Moments, variance: Moments
    ) -> Float[Array, "*shape"]:
        """E[log Φ(± f)]."""
        sign = 2 * targets[0] - 1
        return gaussian_expectation(log_cdf, sign * mean[0], variance[0])

    def log_prob(self, targets: Float[Array, "1 batch"], values: Moments) -> Float[Array, "*shape"]:
        """log Φ(± f)."""
        return log_cdf((2 * targets[0] - 1) * values[0])

    def log_expected_power(
        self,
        targets: Float[Array, "1 batch"],
        mean: Moments,
        variance: Moments,
        alpha: float,
    ) -> Float[Array, "*shape"]:
        """log E[Φ(± f)^α]."""
        sign = 2 * targets[0] - 1
        return log_gaussian_expectation(lambda f: alpha * log_cdf(f), sign * mean[0], variance[0])

    def class_probabilities(self, mean: Moments, variance: Moments) -> Float[Array, "2 *shape"]:
        """E[Φ(f)] = Φ(mean / √(1 + variance)), exactly."""
        score = mean[0] / jnp.sqrt(1 + variance[0])
        return jnp.stack([ndtr(-score), ndtr(score)])
