"""Noise with heavy tails: Student's t distribution, whose degrees of freedom are learned.

A power of its density is a Gamma mixture of Gaussian factors,

    (1 + r² / (νσ²))^-a = E[exp(-λ r² / (νσ²))]  with  λ ~ Gamma(a, 1),

each of which is integrated over f exactly. What remains is an integral over t = log λ, of a smooth
function that vanishes on both sides: the trapezoidal rule converges fast, once it is known where.
"""

import math
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Float

from dvip.distributions import GaussianMixture
from dvip.likelihoods.gaussian import INITIAL_GAIN, Gaussian, InputDependent
from dvip.likelihoods.levels import Strata

__all__ = ["HeteroscedasticStudentT", "StudentT"]

# Of scaled targets, at the start, as of Gaussian noise.
INITIAL_SCALE = 1.0
# Degrees of freedom ν - 2 > 0: the variance exists.
INITIAL_EXCESS, MAX_EXCESS = 6.0, 100.0
# The prior of ν - 2 is Gamma(2, 0.1), whose mean is 20.
PRIOR_SHAPE, PRIOR_RATE = 2.0, 0.1

# Points of the trapezoidal rule for a power α, and for one below LOW_POWER, or the logarithm.
NUM_POINTS, NUM_POINTS_OF_LOG = 16, 24
LOW_POWER = 0.2
MAX_MISSING = 0.9
# The integrand is cut off where it is smaller by this, as a logarithm.
LOG_CUT = 8.0
# Steps that narrow down where it is large.
NUM_STEPS = 6


class StudentT(Gaussian):
    """y_h = f_h + σ_h times a variable of Student's t distribution with ν_h degrees of freedom."""

    # What is believed of a row depends on the function, and the function on it.
    num_rounds: ClassVar[int] = 8

    log_excess: Float[Array, " units"] | None = None

    def initialise(self, num_outputs: int) -> "StudentT":
        """The same noise for every target."""
        return StudentT(
            jax.device_put(np.full(num_outputs, 2 * math.log(INITIAL_SCALE))),
            jax.device_put(np.full(num_outputs, math.log(INITIAL_EXCESS))),
        )

    @property
    def freedom(self) -> Float[Array, "units *samples"]:
        """The degrees of freedom ν_h."""
        assert self.log_excess is not None  # of an initialised likelihood
        return 2 + jnp.exp(jnp.minimum(self.log_excess, math.log(MAX_EXCESS)))

    def regularisation(self) -> Float[Array, ""]:
        """That of the prior of ν."""
        excess = self.freedom - 2
        loss = PRIOR_RATE * excess - (PRIOR_SHAPE - 1) * jnp.log(excess)
        return super().regularisation() + jnp.sum(loss)

    def _scaled(
        self, y: Array, mean: Array, variance: Array, log_variance: Array
    ) -> tuple[Array, Array, Array, Array]:
        """ν, r² / (νσ²), v / (νσ²), and the logarithm of the density's constant."""
        freedom = self.freedom.reshape(-1, *(1,) * (mean.ndim - 1))
        square = freedom * jnp.exp(log_variance)
        half = freedom / 2
        constant = gammaln(half + 0.5) - gammaln(half) - 0.5 * jnp.log(math.pi * freedom)
        distance = jnp.square(y - mean) / square
        return freedom, distance, variance / square, constant - 0.5 * log_variance

    def _expected_terms(
        self, y: Array, mean: Array, variance: Array, log_variance: Array
    ) -> Float[Array, "units *shape"]:
        freedom, distance, spread, constant = self._scaled(y, mean, variance, log_variance)
        log_factor = _complement(jnp.zeros(()), distance, spread)
        return constant - 0.5 * (freedom + 1) * log_factor

    def _log_density(
        self, y: Array, values: Array, log_variance: Array
    ) -> Float[Array, "units *shape"]:
        nothing = jnp.zeros(())
        freedom, distance, _, constant = self._scaled(y, values, nothing, log_variance)
        return constant - 0.5 * (freedom + 1) * jnp.log1p(distance)

    def _power_terms(
        self, y: Array, mean: Array, variance: Array, log_variance: Array, alpha: float
    ) -> Float[Array, "units *shape"]:
        freedom, distance, spread, constant = self._scaled(y, mean, variance, log_variance)
        power = 0.5 * alpha * (freedom + 1)
        log_mean = _log_mean_power(power, distance, spread)
        if alpha < LOW_POWER:
            # Almost all of λ is almost zero: what is missing from 1 is integrated, unless it is
            # almost all.
            missing = power * jnp.exp(-gammaln(1 + power)) * _complement(power, distance, spread)
            precise = jnp.log1p(-jnp.minimum(missing, MAX_MISSING))
            log_mean = jnp.where(missing < MAX_MISSING, precise, log_mean)
        return alpha * constant + log_mean

    def _precisions(self, squares: np.ndarray, levels: np.ndarray) -> np.ndarray:
        """E[λ] / σ² with λ ~ Gamma((ν + 1) / 2, (ν + E[(y - f)²] / σ²) / 2)."""
        freedom = np.asarray(self.freedom, float)[:, None, None]
        return (freedom + 1) / (freedom * levels + squares)

    def predictive(
        self,
        mean: Float[np.ndarray, "rows units samples"],
        variance: Float[np.ndarray, "rows units samples"],
        offset: Float[np.ndarray, " outputs"],
        scale: Float[np.ndarray, " outputs"],
        errors: Float[np.ndarray, "rows outputs"] | None = None,
    ) -> GaussianMixture:
        """N(mean, variance + σ² / λ) with a level of λ ~ Gamma(ν/2, ν/2) for each component."""
        return self._levelled(mean, variance, offset, scale, errors, num_tails=len(offset))

    def _mixing_levels(self, strata: Strata) -> Float[np.ndarray, "outputs components"]:
        """Levels of 1 / λ."""
        freedom = strata.of_parameters(self.freedom)
        return np.stack([strata.inverse_gamma(h, nu) for h, nu in enumerate(freedom)])


class HeteroscedasticStudentT(InputDependent, StudentT):
    """Noise with heavy tails whose scale depends on the inputs."""

    def initialise(self, num_outputs: int) -> "HeteroscedasticStudentT":
        """Noise that is the same for every target, and almost everywhere."""
        start = StudentT().initialise(num_outputs)
        return HeteroscedasticStudentT(
            log_variance=start.log_variance,
            log_excess=start.log_excess,
            gain=jax.device_put(np.full(num_outputs, INITIAL_GAIN)),
        )

    predictive = StudentT.predictive


def _log_mean_power(power: Array, distance: Array, spread: Array) -> Array:
    """log E[(1 + x²)^-a] for x² with these moments: distance (mean²) and spread (variance)."""
    ends = _ends(*map(jax.lax.stop_gradient, (power, distance, spread)))
    step = (ends[1] - ends[0]) / (NUM_POINTS - 1)
    number = jnp.arange(NUM_POINTS, dtype=step.dtype).reshape(-1, *(1,) * step.ndim)
    points = ends[0] + step * number
    mixing = jnp.exp(points)
    shrunk = 1 / (1 + 2 * spread * mixing)
    exponents = power * points - mixing - distance * (mixing * shrunk)
    largest = jax.lax.stop_gradient(jnp.max(exponents, axis=0))
    total = jnp.sum(jnp.exp(exponents - largest) * jnp.sqrt(shrunk), axis=0)
    return jnp.log(total * step) + largest - gammaln(power)


def _ends(power: Array, distance: Array, spread: Array) -> tuple[Array, Array]:
    """Between which t the integrand of a power is not negligible.

    It is largest where λ = a / (1 + s / (1 + 2sλ) + d / (1 + 2sλ)²): once, or twice if f either
    comes near to y or y is an outlier. The right side grows with λ, so that iterations from above
    and from below close in on these places and never pass them.
    """
    upper = power + jnp.zeros_like(distance)
    lower = power / (1 + spread + distance)
    for _ in range(NUM_STEPS):
        upper, lower = (
            power / (1 + (spread + distance * shrunk) * shrunk)
            for shrunk in (1 / (1 + 2 * spread * x) for x in (upper, lower))
        )
    # Beside its place the logarithm of λ^a exp(-λ) has fallen by LOG_CUT.
    ratio = LOG_CUT / power
    right = jnp.log1p(jnp.sqrt(2 * ratio) + ratio)
    left = jnp.sqrt(2 * ratio) + ratio
    for _ in range(3):
        left = left - (left + jnp.exp(-left) - 1 - ratio) / -jnp.expm1(-left)
    return jnp.log(lower) - left, jnp.log(upper) + right


def _complement(power: Array, distance: Array, spread: Array) -> Array:
    """∫ λ^a exp(-λ) E[1 - exp(-λ x²)] d log λ; with a = 0 it is E[log(1 + x²)]."""
    lowest = jax.lax.stop_gradient(-jnp.log1p(distance + spread) - 5.0)
    step = (math.log(12.0) - lowest) / (NUM_POINTS_OF_LOG - 1)
    number = jnp.arange(NUM_POINTS_OF_LOG, dtype=step.dtype).reshape(-1, *(1,) * step.ndim)
    points = lowest + step * number
    mixing = jnp.exp(points)
    widened = 1 + 2 * spread * mixing
    missing = -jnp.expm1(-0.5 * jnp.log(widened) - distance * mixing / widened)
    values = jnp.exp(power * points - mixing) * missing
    # Farther to the left the values fall as λ^(1 + a): a geometric series.
    series = values[0] / jnp.expm1((1 + power) * step)
    return step * (jnp.sum(values, axis=0) + series)
