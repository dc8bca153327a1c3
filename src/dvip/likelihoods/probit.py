"""The probit likelihood for two classes: p(y = 1 | f) = Φ(f)."""

import jax.numpy as jnp
from jax.scipy.special import log_ndtr, ndtr
from jaxtyping import Array, Float

from dvip.likelihoods.likelihood import (
    Classification,
    Moments,
    gaussian_expectation,
    log_gaussian_expectation,
)

__all__ = ["Probit"]


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
        return gaussian_expectation(log_ndtr, sign * mean[0], variance[0])

    def log_prob(self, targets: Float[Array, "1 batch"], values: Moments) -> Float[Array, "*shape"]:
        """log Φ(± f)."""
        return log_ndtr((2 * targets[0] - 1) * values[0])

    def log_expected_power(
        self,
        targets: Float[Array, "1 batch"],
        mean: Moments,
        variance: Moments,
        alpha: float,
    ) -> Float[Array, "*shape"]:
        """log E[Φ(± f)^α]."""
        sign = 2 * targets[0] - 1
        return log_gaussian_expectation(lambda f: alpha * log_ndtr(f), sign * mean[0], variance[0])

    def class_probabilities(self, mean: Moments, variance: Moments) -> Float[Array, "2 *shape"]:
        """E[Φ(f)] = Φ(mean / √(1 + variance)), exactly."""
        score = mean[0] / jnp.sqrt(1 + variance[0])
        return jnp.stack([ndtr(-score), ndtr(score)])
