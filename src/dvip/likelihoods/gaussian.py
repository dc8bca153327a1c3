"""Gaussian noise around the last layer: of one variance for each target, or one that varies."""

import math
from collections.abc import Callable
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from dvip.distributions import GaussianMixture
from dvip.likelihoods.levels import Strata, make_strata
from dvip.likelihoods.likelihood import Moments, Regression

__all__ = ["Gaussian", "HeteroscedasticGaussian", "InputDependent"]

# That of scaled targets: all is noise until the function explains it. Starting at 0.05 instead took
# twice as many steps to the same test score on the energy data.
INITIAL_VARIANCE = 1.0

# log E[p^α], or E[log p], of each target alone, from targets, moments of f and log-variances.
Terms = Callable[[Array, Array, Array, Array], Array]


class Gaussian(Regression):
    """y_h = f_h + noise with variance σ²_h; several targets are independent given f."""

    takes_errors: ClassVar[bool] = True
    takes_samples: ClassVar[bool] = True
    can_be_calibrated: ClassVar[bool] = True
    conjugate: ClassVar[bool] = True

    log_variance: Float[Array, " units"] | None = None

    def initialise(self, num_outputs: int) -> "Gaussian":
        """The same noise for every target."""
        return Gaussian(jax.device_put(np.full(num_outputs, math.log(INITIAL_VARIANCE))))

    @property
    def variance(self) -> Float[Array, " units"]:
        """The noise variances σ²_h, on the scale of the targets that the model sees."""
        assert self.log_variance is not None  # of an initialised likelihood
        return jnp.exp(self.log_variance)

    def expected_log_prob(
        self, targets: Float[Array, "rows batch"], mean: Moments, variance: Moments
    ) -> Float[Array, "*shape"]:
        """log N(y | mean, σ²) - variance / (2 σ²), summed over the targets."""
        return self._over_targets(self._expected_terms, targets, mean, variance)

    def log_expected_power(
        self,
        targets: Float[Array, "rows batch"],
        mean: Moments,
        variance: Moments,
        alpha: float,
    ) -> Float[Array, "*shape"]:
        """N(y | f, σ²)^α is N(y | f, σ²/α) times a constant, and that is integrated exactly."""

        def terms(y: Array, mean: Array, variance: Array, log_variance: Array) -> Array:
            return self._power_terms(y, mean, variance, log_variance, alpha)

        return self._over_targets(terms, targets, mean, variance, is_log=True)

    def _over_targets(
        self, terms: Terms, targets: Array, mean: Moments, variance: Moments, is_log: bool = False
    ) -> Float[Array, "*shape"]:
        """The sum of the terms of all targets."""
        del is_log
        y, log_variance, errors = self._aligned(targets, mean)
        return jnp.sum(terms(y, mean, variance, _with_errors(log_variance, errors)), axis=0)

    def _aligned(
        self, targets: Float[Array, "rows batch"], moments: Array
    ) -> tuple[Float[Array, "units *shape"], Float[Array, "units *ones"], Array | None]:
        """Targets, log-variances and known errors with as many axes as the moments have."""
        assert self.log_variance is not None  # of an initialised likelihood
        ones = (1,) * (moments.ndim - 2)
        aligned = targets.reshape(targets.shape[0], *ones, targets.shape[1])
        number = self.log_variance.shape[0]
        errors = aligned[number:] if targets.shape[0] > number else None
        return aligned[:number], self.log_variance.reshape(-1, *ones, 1), errors

    def log_prob(self, targets: Float[Array, "rows batch"], values: Moments) -> Array:
        """log p(y | f), summed over the targets."""
        y, log_variance, errors = self._aligned(targets, values)
        log_variance = _with_errors(log_variance, errors)
        return jnp.sum(self._log_density(y, values, log_variance), axis=0)

    def _log_density(
        self, y: Array, values: Array, log_variance: Array
    ) -> Float[Array, "units *shape"]:
        return self._expected_terms(y, values, jnp.zeros(()), log_variance)

    def _expected_terms(
        self, y: Array, mean: Array, variance: Array, log_variance: Array
    ) -> Float[Array, "units *shape"]:
        squares = (jnp.square(y - mean) + variance) * jnp.exp(-log_variance)
        return -0.5 * (squares + log_variance + jnp.log(2 * jnp.pi))

    def _power_terms(
        self, y: Array, mean: Array, variance: Array, log_variance: Array, alpha: float
    ) -> Float[Array, "units *shape"]:
        total = variance + jnp.exp(log_variance) / alpha
        constant = (1 - alpha) * (jnp.log(2 * jnp.pi) + log_variance) - jnp.log(alpha)
        log_density = jnp.square(y - mean) / total + jnp.log(2 * jnp.pi * total)
        return 0.5 * (constant - log_density)

    def expected_precisions(
        self,
        targets: Float[np.ndarray, "targets_and_errors rows"],
        mean: Float[np.ndarray, "units samples rows"],
        variance: Float[np.ndarray, "units samples rows"],
    ) -> Float[np.ndarray, "outputs samples rows"]:
        """E[1 / σ²], over what the variance of the noise depends on."""
        assert self.log_variance is not None  # of an initialised likelihood
        number = len(self.log_variance)
        y, errors = np.split(targets, [number])
        squares = np.square(y[:, None] - mean[:number]) + variance[:number]
        levels, shares = self._variance_levels(mean, variance)
        if len(errors):
            levels = levels + np.square(errors)[:, None]
        return np.tensordot(shares, self._precisions(squares, levels), axes=1)

    def _variance_levels(
        self, mean: np.ndarray, variance: np.ndarray
    ) -> tuple[Float[np.ndarray, "levels outputs *ones"], Float[np.ndarray, " levels"]]:
        """Values that σ² may have, and their probabilities."""
        del mean, variance
        return np.exp(np.asarray(self.log_variance, float))[None, :, None, None], np.ones(1)

    def _precisions(self, squares: np.ndarray, levels: np.ndarray) -> np.ndarray:
        """1 / σ² for each level; `squares` are E[(y - f)²]."""
        return np.broadcast_to(1 / levels, (len(levels), *squares.shape))

    def predictive(
        self,
        mean: Float[np.ndarray, "rows units samples"],
        variance: Float[np.ndarray, "rows units samples"],
        offset: Float[np.ndarray, " outputs"],
        scale: Float[np.ndarray, " outputs"],
        errors: Float[np.ndarray, "rows outputs"] | None = None,
    ) -> GaussianMixture:
        """N(mean, variance + σ²) of each sample, scaled."""
        noise = np.exp(np.asarray(self.log_variance, dtype=np.float64))
        if noise.ndim == 1:
            noise = noise * np.square(scale)
            noise = noise if errors is None else (noise + np.square(errors))[..., None]
        else:  # of each sample
            noise = (noise * np.square(scale)[:, None])[None]
            noise = noise if errors is None else noise + np.square(errors)[..., None]
        means = mean * scale[:, None]
        means += offset[:, None]  # in place: they may be many
        return GaussianMixture(means, variance * np.square(scale)[:, None], noise)

    def _levelled(
        self,
        mean: Float[np.ndarray, "rows units samples"],
        variance: Float[np.ndarray, "rows units samples"],
        offset: Float[np.ndarray, " outputs"],
        scale: Float[np.ndarray, " outputs"],
        errors: Float[np.ndarray, "rows outputs"] | None,
        num_tails: int = 0,
    ) -> GaussianMixture:
        """The same for noise whose variance is random: a level of it for each component."""
        strata, number = make_strata(mean.shape[-1], num_tails), len(offset)
        noise = self._noise_levels(strata, mean, variance) * np.square(scale)[:, None]
        if errors is not None:
            noise = noise + np.square(errors)[..., None]
        means = strata.of_components(mean[:, :number]) * scale[:, None]
        means += offset[:, None]
        variances = strata.of_components(variance[:, :number]) * np.square(scale)[:, None]
        noise = noise * self._mixing_levels(strata)
        return GaussianMixture(means, variances, noise, strata.weights)

    def _noise_levels(
        self,
        strata: Strata,
        mean: Float[np.ndarray, "rows units samples"],
        variance: Float[np.ndarray, "rows units samples"],
    ) -> Float[np.ndarray, "*rows outputs components"]:
        """σ² in each component, on the model's scale."""
        del mean, variance
        return np.exp(strata.of_parameters(self.log_variance))[None]

    def _mixing_levels(self, strata: Strata) -> Float[np.ndarray, "*outputs components"]:
        """The factors of σ² in the components."""
        return np.ones(len(strata.samples))


def _with_errors(log_variance: Array, errors: Array | None) -> Array:
    """The logarithm of the noise's variance with the square of the errors added."""
    if errors is None:
        return log_variance
    return jnp.log(jnp.exp(log_variance) + jnp.square(errors))


# Points of the quadrature over the unit of the noise in training.
NUM_POINTS = 5
# log σ² varies by less than this to either side, so that no extrapolation explodes.
MAX_LOG_RATIO = 4.0
# Of the noise's unit at the start: the function and a constant noise come first.
INITIAL_GAIN = 0.1


class InputDependent(Gaussian):
    """Noise whose variance depends on the inputs, by a second unit g_h for each target.

    log σ²_h(x) = log σ²_h + c tanh(gain_h g_h(x) / c): within a factor e^c of its middle. The units
    of the functions come first, then those of the noise.
    """

    num_groups: ClassVar[int] = 2

    gain: Float[Array, " units"] | None = None

    def num_latents(self, num_outputs: int) -> int:
        """Two units for each target."""
        return 2 * num_outputs

    def log_prob(self, targets: Float[Array, "rows batch"], values: Moments) -> Array:
        """log p(y | f, g): one point in place of the quadrature."""
        f, g = jnp.split(values, 2)
        y, log_variance, errors = self._aligned(targets, f)
        varied = self._log_ratio(g, log_variance.shape)
        log_variance = _with_errors(log_variance + varied, errors)
        return jnp.sum(self._log_density(y, f, log_variance), axis=0)

    def _log_ratio(self, g: Array, shape: tuple[int, ...]) -> Array:
        """By how much the logarithm of σ² differs from its middle; parameters are of this shape."""
        assert self.gain is not None  # of an initialised likelihood
        return MAX_LOG_RATIO * jnp.tanh(self.gain.reshape(shape) * g / MAX_LOG_RATIO)

    def _over_targets(
        self, terms: Terms, targets: Array, mean: Moments, variance: Moments, is_log: bool = False
    ) -> Float[Array, "*shape"]:
        mean, noise_mean = jnp.split(mean, 2)
        variance, noise_variance = jnp.split(variance, 2)
        y, log_variance, errors = self._aligned(targets, mean)
        points, weights = np.polynomial.hermite_e.hermegauss(NUM_POINTS)
        # Leading axes of the points: terms have them in front of the units.
        column = jnp.asarray(points, mean.dtype).reshape(-1, *(1,) * mean.ndim)
        at_points = noise_mean + jnp.sqrt(noise_variance) * column
        varied = self._log_ratio(at_points, log_variance.shape)
        values = terms(y, mean, variance, _with_errors(log_variance + varied, errors))
        shares = jnp.asarray(weights / weights.sum(), mean.dtype).reshape(column.shape)
        if is_log:
            averaged = logsumexp(values, axis=0, b=shares)
        else:
            averaged = jnp.sum(shares * values, axis=0)
        return jnp.sum(averaged, axis=0)

    def _variance_levels(
        self, mean: np.ndarray, variance: np.ndarray
    ) -> tuple[Float[np.ndarray, "levels outputs samples rows"], Float[np.ndarray, " levels"]]:
        points, weights = np.polynomial.hermite_e.hermegauss(NUM_POINTS)
        g, spread = np.split(mean, 2)[1], np.sqrt(np.split(variance, 2)[1])
        at_points = g + spread * points.reshape(-1, 1, 1, 1)
        gain, log_variance = (
            np.asarray(part, float)[:, None, None] for part in (self.gain, self.log_variance)
        )
        ratio = MAX_LOG_RATIO * np.tanh(gain * at_points / MAX_LOG_RATIO)
        return np.exp(log_variance + ratio), weights / weights.sum()

    def regularisation(self) -> Float[Array, ""]:
        """That of a standard normal prior of the gains, and of what else there is."""
        assert self.gain is not None  # of an initialised likelihood
        return super().regularisation() + 0.5 * jnp.sum(jnp.square(self.gain))

    def _noise_levels(
        self,
        strata: Strata,
        mean: Float[np.ndarray, "rows units samples"],
        variance: Float[np.ndarray, "rows units samples"],
    ) -> Float[np.ndarray, "rows outputs components"]:
        """σ² in each component, on the model's scale, at a level of the noise's unit."""
        number = mean.shape[1] // 2
        white = np.stack([strata.normal(number + unit) for unit in range(number)])
        of_unit = strata.of_components(np.sqrt(variance[:, number:], dtype=float)) * white
        of_unit += strata.of_components(mean[:, number:])
        gain, log_variance = map(strata.of_parameters, (self.gain, self.log_variance))
        return np.exp(log_variance + MAX_LOG_RATIO * np.tanh(gain * of_unit / MAX_LOG_RATIO))

    def predictive(
        self,
        mean: Float[np.ndarray, "rows units samples"],
        variance: Float[np.ndarray, "rows units samples"],
        offset: Float[np.ndarray, " outputs"],
        scale: Float[np.ndarray, " outputs"],
        errors: Float[np.ndarray, "rows outputs"] | None = None,
    ) -> GaussianMixture:
        """N(mean, variance + σ²) with a level of the noise for each component."""
        return self._levelled(mean, variance, offset, scale, errors)

    def function_values(
        self,
        values: Float[np.ndarray, "functions rows units"],
        offset: Float[np.ndarray, " outputs"],
        scale: Float[np.ndarray, " outputs"],
    ) -> Float[np.ndarray, "functions rows outputs"]:
        """What y would be without noise: the first half of the units."""
        return super().function_values(values[..., : len(offset)], offset, scale)


class HeteroscedasticGaussian(InputDependent):
    """Gaussian noise whose variance depends on the inputs."""

    def initialise(self, num_outputs: int) -> "HeteroscedasticGaussian":
        """Noise that is the same for every target, and almost everywhere."""
        return HeteroscedasticGaussian(
            jax.device_put(np.full(num_outputs, math.log(INITIAL_VARIANCE))),
            jax.device_put(np.full(num_outputs, INITIAL_GAIN)),
        )
