"""The robust-max likelihood for several classes: the largest unit's class, but for a few errors."""

import math
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erf, erfc
from jaxtyping import Array, Float
from scipy.special import log_ndtr, ndtri

from dvip.likelihoods.likelihood import NUM_POINTS, Classification, Moments, gaussian_expectation

__all__ = ["RobustMax"]

# With more classes than this, quantities of all quadrature points and classes are not held at once.
FEW_CLASSES = 20
# Five steps bring all quantiles to single precision.
NEWTON_STEPS = 5


class RobustMax(Classification):
    """p(y | f) = 1 - ε for the class whose unit is largest, ε / (C - 1) for each other class."""

    has_gradient: ClassVar[bool] = False  # p(y | f) is one of two numbers

    error: float = eqx.field(static=True, default=1e-3)

    def __check_init__(self) -> None:
        if not 0 < self.error < 1:
            raise ValueError(f"error={self.error!r} must lie strictly between 0 and 1.")

    def num_latents(self, num_classes: int) -> int:
        """One unit for each class."""
        return num_classes

    def _log_levels(self, num_classes: int) -> tuple[float, float]:
        """log p(y | f) where y's unit is the largest, and where it is not."""
        return math.log1p(-self.error), math.log(self.error / (num_classes - 1))

    def expected_log_prob(
        self, targets: Float[Array, "1 batch"], mean: Moments, variance: Moments
    ) -> Float[Array, "*shape"]:
        """P log(1 - ε) + (1 - P) log(ε / (C - 1))."""
        hit, miss = self._log_levels(mean.shape[0])
        largest = _largest(targets[0], mean, variance)
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
        largest = _largest(targets[0], mean, variance)
        return jnp.log(largest * jnp.exp(alpha * hit) + (1 - largest) * jnp.exp(alpha * miss))

    def class_probabilities(
        self, mean: Moments, variance: Moments
    ) -> Float[Array, "classes *shape"]:
        """P_c (1 - ε) + (1 - P_c) ε / (C - 1); the P_c are normalised, as quadrature is inexact."""
        num_classes = mean.shape[0]
        if num_classes > FEW_CLASSES:
            largest = _each_largest(mean, variance)
        else:
            largest = jax.vmap(lambda c: _largest(c, mean, variance))(jnp.arange(num_classes))
        largest = largest / jnp.sum(largest, axis=0)
        return largest * (1 - self.error) + (1 - largest) * self.error / (num_classes - 1)


def _floor(variance: Moments) -> Moments:
    """Keeps ratios finite where a unit's variance has collapsed."""
    return jnp.maximum(variance, 1e-10)


def _largest(index: Array, mean: Moments, variance: Moments) -> Float[Array, "*shape"]:
    """P(f_index is the largest) = E[Π_{j ≠ index} Φ((f_index - m_j) / √v_j)] over f_index.

    `index` holds a class for each column of the moments.
    """
    num_classes = mean.shape[0]
    classes = jnp.arange(num_classes).reshape(-1, *(1,) * (mean.ndim - 1))
    chosen = classes == index
    own_mean, own_variance = (
        jnp.sum(jnp.where(chosen, moment, 0), axis=0) for moment in (mean, variance)
    )
    inverse_std = jax.lax.rsqrt(2 * _floor(variance))

    def others_below(f: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        below = 0.5 + 0.5 * erf((f - mean) * inverse_std)
        return jnp.prod(jnp.where(chosen, 1, below), axis=0)

    def at_points(nodes: Float[Array, "points *shape"]) -> Float[Array, "points *shape"]:
        if num_classes > FEW_CLASSES:  # one after the other, and again for the gradient
            return jax.lax.map(jax.checkpoint(others_below), nodes)
        return jax.vmap(others_below)(nodes)

    return gaussian_expectation(at_points, own_mean, own_variance)


def _each_largest(mean: Moments, variance: Moments) -> Float[Array, "classes *shape"]:
    """P(f_c is the largest) for all classes c together: C terms for each point, not C².

    Where the largest is t, it is f_c with a probability proportional to h_c(t) = p_c(t) / F_c(t),
    of the density and the distribution function of f_c. This is averaged over t: its quantiles at
    Φ(x_k), where the x_k are the points of a quadrature for a standard normal variable.
    """
    num_classes, *shape = mean.shape
    # One long last axis: loops over it are fast.
    mean, std = (x.reshape(num_classes, -1) for x in (mean, jnp.sqrt(_floor(variance))))
    points, weights = np.polynomial.hermite_e.hermegauss(NUM_POINTS)
    log_levels = log_ndtr(points)
    # A quantile lies between the highest of the classes' own at this level and at its C-th root.
    roots = -ndtri(-np.expm1(log_levels / num_classes))

    def log_below_and_rate(
        largest: Float[Array, " columns"],
    ) -> tuple[Float[Array, " columns"], Float[Array, "classes columns"]]:
        """Σ_c log F_c, and its derivatives h_c."""
        scaled = (largest - mean) / std
        below = 0.5 * erfc(-math.sqrt(0.5) * scaled)
        density = jnp.exp(-0.5 * jnp.square(scaled)) / (math.sqrt(2 * math.pi) * std)
        return jnp.sum(jnp.log(below), axis=0), density / below

    def share(total: Array, xs: tuple[Array, ...]) -> tuple[Array, None]:
        point, weight, log_level, root = xs
        low, high = (jnp.max(mean + std * place, axis=0) for place in (point, root))

        def newton(_: Array, largest: Array) -> Array:
            # For the logarithm of -Σ_c log F_c, which bends little.
            log_below, rate = log_below_and_rate(largest)
            ratio = log_below / log_level
            closer = largest - log_below * jnp.log(ratio) / jnp.sum(rate, axis=0)
            return jnp.clip(jnp.where(jnp.isfinite(closer), closer, largest), low, high)

        _, rate = log_below_and_rate(jax.lax.fori_loop(0, NEWTON_STEPS, newton, high))
        return total + weight * rate / jnp.sum(rate, axis=0), None

    columns = (points, weights / weights.sum(), log_levels, roots)
    xs = tuple(jnp.asarray(column, mean.dtype) for column in columns)
    return jax.lax.scan(share, jnp.zeros_like(mean), xs)[0].reshape(num_classes, *shape)
