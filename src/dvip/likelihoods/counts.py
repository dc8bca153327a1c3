"""Counts 0, 1, 2, ...: Poisson, or negative binomial where they vary more than that.

The logarithm of the rate is offset + scale f, so that f is of the size that priors expect. Targets
stay as they are. Terms are written as differences from where the rate is y itself: numbers of a
few thousand would otherwise lose what matters in single precision.
"""

import abc
import math
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Float

from dvip.distributions import CountMixture
from dvip.likelihoods.levels import Strata, make_strata
from dvip.likelihoods.likelihood import Moments, Regression, gaussian_expectation
from dvip.parameters import Fixed

__all__ = ["NegativeBinomial", "Poisson"]

# Larger ones are as good as numbers.
MAX_COUNT = 1_000_000
# The scale of a link lies within these, and the mean count is taken for at least this.
MIN_SCALE, MAX_SCALE, MIN_MEAN = 0.3, 2.0, 0.01

# Points of the quadrature around the mode of p^α, and steps of Newton's method to that mode.
NUM_POINTS, NUM_STEPS = 12, 6
# From a rate of e^6 times the count on, training sees it grow linearly: a start that is far off
# would otherwise have gradients that Adam does not forget. Rates of predictions end at e^30.
MAX_LOG_RATIO, MAX_LOG = 6.0, 30.0
MIN_VARIANCE = 1e-10


class Counts(Regression):
    """y_h with the rate exp(offset_h + scale_h f_h), its mean; targets are independent given f."""

    standardised: ClassVar[bool] = False
    takes_samples: ClassVar[bool] = True

    # Offset and scale.
    link: Fixed | None = None

    def scales(
        self, mean: Float[np.ndarray, " outputs"], std: Float[np.ndarray, " outputs"]
    ) -> tuple[Float[np.ndarray, " outputs"], Float[np.ndarray, " outputs"]]:
        """Those of a log-normal rate, whose variance is what a Poisson's leaves."""
        mean = np.maximum(mean, MIN_MEAN)
        excess = np.maximum(np.square(std) - mean, 0) / np.square(mean)
        return np.log(mean), np.clip(np.sqrt(np.log1p(excess)), MIN_SCALE, MAX_SCALE)

    def linked(
        self, offset: Float[np.ndarray, " outputs"], scale: Float[np.ndarray, " outputs"]
    ) -> "Counts":
        """With this link."""
        link = Fixed((jax.device_put(np.asarray(offset)), jax.device_put(np.asarray(scale))))
        return eqx.tree_at(
            lambda counts: counts.link, self, link, is_leaf=lambda leaf: leaf is None
        )

    def transform(
        self, targets: Float[np.ndarray, "rows outputs"]
    ) -> Float[np.ndarray, "rows outputs"]:
        """The counts themselves; an error where they are none."""
        for wrong, what in (
            (targets < 0, "negative values"),
            (targets != np.floor(targets), "fractions"),
            (targets > MAX_COUNT, "values above a million"),
        ):
            places = np.argwhere(wrong)
            if len(places):
                row, column = places[0]
                raise ValueError(
                    f"y has {what}, such as {targets[row, column]:g} in row {row}; counts are 0, "
                    "1, 2, ...: use likelihood='gaussian', or 'log-normal' for positive numbers."
                )
        return targets

    @abc.abstractmethod
    def _log_mass(self, y: Array, log_ratio: Array) -> Array:
        """log p(y) up to a constant, where the rate is exp(log_ratio) max(y, 1/2)."""

    @abc.abstractmethod
    def _pull(self, y: Array, log_rate: Array) -> tuple[Array, Array]:
        """The derivative of log p(y) for the logarithm of the rate, and minus its slope."""

    @abc.abstractmethod
    def _constant(self, y: Array) -> Array:
        """What `_log_mass` lacks."""

    def _aligned(
        self, targets: Array, mean: Moments, variance: Moments
    ) -> tuple[Array, Array, Array]:
        """Targets, and moments of the logarithms of the rates."""
        assert self.link is not None  # of an initialised likelihood
        ones = (1,) * (mean.ndim - 2)
        offset, scale = (part.reshape(-1, *ones, 1) for part in self.link.value)
        y = targets.reshape(targets.shape[0], *ones, targets.shape[1])
        return y, offset + scale * mean, jnp.maximum(jnp.square(scale) * variance, MIN_VARIANCE)

    def expected_log_prob(
        self, targets: Float[Array, "outputs batch"], mean: Moments, variance: Moments
    ) -> Float[Array, "*shape"]:
        """E[log p(y)], summed over the targets."""
        y, mean, variance = self._aligned(targets, mean, variance)
        log_y = jnp.log(jnp.maximum(y, 0.5))
        return jnp.sum(self._constant(y) + self._mean_log_mass(y, mean - log_y, variance), axis=0)

    def log_prob(self, targets: Float[Array, "outputs batch"], values: Moments) -> Array:
        """log p(y), summed over the targets."""
        y, log_rate, _ = self._aligned(targets, values, jnp.zeros_like(values))
        log_ratio = log_rate - jnp.log(jnp.maximum(y, 0.5))
        return jnp.sum(self._constant(y) + self._log_mass(y, log_ratio), axis=0)

    def _mean_log_mass(self, y: Array, mean: Array, variance: Array) -> Array:
        return gaussian_expectation(lambda ratio: self._log_mass(y, ratio), mean, variance)

    def log_expected_power(
        self,
        targets: Float[Array, "outputs batch"],
        mean: Moments,
        variance: Moments,
        alpha: float,
    ) -> Float[Array, "*shape"]:
        """log E[p(y)^α]: Gauss-Hermite quadrature around the mode of what is integrated."""
        y, mean, variance = self._aligned(targets, mean, variance)
        log_y = jnp.log(jnp.maximum(y, 0.5))
        mode, std = jax.lax.stop_gradient(self._tilted(y, mean, variance, alpha))
        points, weights = np.polynomial.hermite_e.hermegauss(NUM_POINTS)
        log_weights = np.log(weights / weights.sum()) + 0.5 * np.square(points)
        column, log_shares = (
            jnp.asarray(part, mean.dtype).reshape(-1, *(1,) * mean.ndim)
            for part in (points, log_weights)
        )
        log_rate = mode + std * column
        exponents = alpha * self._log_mass(y, log_rate - log_y) + log_shares
        exponents = exponents - 0.5 * jnp.square(log_rate - mean) / variance
        log_ratio = jnp.log(std) - 0.5 * jnp.log(variance)
        tilted = jax.nn.logsumexp(exponents, axis=0) + log_ratio
        return jnp.sum(alpha * self._constant(y) + tilted, axis=0)

    def _tilted(self, y: Array, mean: Array, variance: Array, alpha: float) -> tuple[Array, Array]:
        """Mode and width of N(mean, variance) p(y)^α over the logarithm of the rate.

        The mode lies between the mean and where p(y) is largest. Newton's method starts from that
        of Poisson's p, w / (α variance) with w + log w = l, which is easy to solve.
        """
        log_tilt = jnp.log(alpha * variance)
        level = log_tilt + mean + alpha * variance * y
        log_w = jnp.where(level > 1, jnp.log(jnp.maximum(level, 1)), jnp.minimum(level, 0))
        for _ in range(NUM_STEPS):
            w = jnp.exp(log_w)
            log_w = log_w - (log_w + w - level) / (1 + w)
        log_y = jnp.log(jnp.maximum(y, 1e-6))
        lower, upper = jnp.minimum(mean, log_y), jnp.maximum(mean, log_y)
        mode = jnp.clip(log_w - log_tilt, lower, upper)
        for _ in range(NUM_STEPS):
            pull, slope = self._pull(y, mode)
            excess = (mode - mean) / variance - alpha * pull
            lower, upper = (
                jnp.where(excess < 0, mode, lower),
                jnp.where(excess < 0, upper, mode),
            )
            newton = mode - excess / (1 / variance + alpha * slope)
            inside = (newton >= lower) & (newton <= upper)
            mode = jnp.where(inside, newton, 0.5 * (lower + upper))
        return mode, 1 / jnp.sqrt(1 / variance + alpha * self._pull(y, mode)[1])

    def _concentration(self, strata: Strata) -> Float[np.ndarray, "1 outputs _"] | None:
        del strata
        return None

    def predictive(
        self,
        mean: Float[np.ndarray, "rows units samples"],
        variance: Float[np.ndarray, "rows units samples"],
        offset: Float[np.ndarray, " outputs"],
        scale: Float[np.ndarray, " outputs"],
        errors: Float[np.ndarray, "rows outputs"] | None = None,
    ) -> CountMixture:
        """A level of f for each component."""
        del errors
        strata = make_strata(mean.shape[-1])
        white = np.stack([strata.normal(unit) for unit in range(mean.shape[1])])
        values = strata.of_components(np.sqrt(variance, dtype=float)) * white
        values += strata.of_components(mean)
        rates = np.exp(np.minimum(values * scale[:, None] + offset[:, None], MAX_LOG))
        return CountMixture(rates, self._concentration(strata), strata.weights)

    def function_values(
        self,
        values: Float[np.ndarray, "functions rows units"],
        offset: Float[np.ndarray, " outputs"],
        scale: Float[np.ndarray, " outputs"],
    ) -> Float[np.ndarray, "functions rows outputs"]:
        """The rates."""
        return np.exp(np.minimum(values * scale + offset, MAX_LOG))


class Poisson(Counts):
    """Counts whose variance is their mean, given f."""

    def _log_mass(self, y: Array, log_ratio: Array) -> Array:
        return y * log_ratio - jnp.maximum(y, 0.5) * _expm1(log_ratio)

    def _pull(self, y: Array, log_rate: Array) -> tuple[Array, Array]:
        rate = jnp.exp(jnp.minimum(log_rate, MAX_LOG))
        return y - rate, rate

    def _constant(self, y: Array) -> Array:
        counted = jnp.maximum(y, 1)
        large = -counted * jnp.log1p(1 / counted) - 0.5 * jnp.log(2 * math.pi * (counted + 1))
        return jnp.where(y < 1, -0.5, large + 1 - _stirling(counted + 1))

    def _mean_log_mass(self, y: Array, mean: Array, variance: Array) -> Array:
        """In closed form: the mean of a log-normal rate."""
        return y * mean - jnp.maximum(y, 0.5) * _expm1(mean + 0.5 * variance)


# At the start, and at most.
INITIAL_CONCENTRATION, MAX_CONCENTRATION = 5.0, 1e4


class NegativeBinomial(Counts):
    """Counts whose variance is rate + rate² / k, with k learned for each target."""

    log_concentration: Float[Array, " units"] | None = None

    def initialise(self, num_outputs: int) -> "NegativeBinomial":
        """The same k for every target."""
        start = np.full(num_outputs, math.log(INITIAL_CONCENTRATION))
        return NegativeBinomial(log_concentration=jax.device_put(start))

    @property
    def concentration(self) -> Float[Array, "units *samples"]:
        """k of each target."""
        assert self.log_concentration is not None  # of an initialised likelihood
        return jnp.exp(jnp.minimum(self.log_concentration, math.log(MAX_CONCENTRATION)))

    def regularisation(self) -> Float[Array, ""]:
        """That of a standard normal prior of log k, around its start, of three times the width."""
        assert self.log_concentration is not None  # of an initialised likelihood
        deviation = (self.log_concentration - math.log(INITIAL_CONCENTRATION)) / 3
        return 0.5 * jnp.sum(jnp.square(deviation))

    def _log_mass(self, y: Array, log_ratio: Array) -> Array:
        k, y_or_half = self._aligned_with(y), jnp.maximum(y, 0.5)
        share = y_or_half / (k + y_or_half)
        inside = jnp.minimum(log_ratio, MAX_LOG)
        log_total = jnp.log1p(share * jnp.expm1(inside)) + (log_ratio - inside)
        return y * log_ratio - (y + k) * log_total

    def _pull(self, y: Array, log_rate: Array) -> tuple[Array, Array]:
        k = self._aligned_with(y)
        share = jax.nn.sigmoid(log_rate - jnp.log(k))
        return y - (y + k) * share, (y + k) * share * (1 - share)

    def _constant(self, y: Array) -> Array:
        k, counted = self._aligned_with(y), jnp.maximum(y, 1)
        large = -counted * jnp.log1p(1 / counted) - 0.5 * jnp.log(2 * math.pi * (counted + 1))
        large += 0.5 * jnp.log(k / (counted + k)) + 1
        large += _stirling(counted + k) - _stirling(k) - _stirling(counted + 1)
        return jnp.where(y < 1, -k * jnp.log1p(0.5 / k), large)

    def _aligned_with(self, y: Array) -> Array:
        """k with as many axes as the targets have; points of a quadrature come before these."""
        return self.concentration.reshape(-1, *(1,) * (y.ndim - 1))

    def _concentration(self, strata: Strata) -> Float[np.ndarray, "1 outputs _"]:
        return strata.of_parameters(self.concentration)[None]


def _expm1(x: Array) -> Array:
    """exp(x) - 1, which from MAX_LOG_RATIO on grows linearly: finite whatever training does."""
    inside = jnp.minimum(x, MAX_LOG_RATIO)
    return jnp.expm1(inside) + math.exp(MAX_LOG_RATIO) * (x - inside)


def _stirling(x: Array) -> Array:
    """What log Γ(x) has besides (x - 1/2) log x - x + log(2π) / 2, without loss of digits."""
    small = jnp.minimum(x, 10.0)
    exact = gammaln(small) - (small - 0.5) * jnp.log(small) + small - 0.5 * math.log(2 * math.pi)
    inverse = 1 / jnp.maximum(x, 10.0)
    return jnp.where(x < 10, exact, inverse / 12 - inverse**3 / 360)
