"""Gaussian noise around the last layer, one variance for each target."""

import math
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dvip.distributions import GaussianMixture
from dvip.likelihoods.likelihood import Moments, Regression

__all__ = ["Gaussian"]

# That of scaled targets: all is noise until the function explains it. Starting at 0.05 instead took
# twice as many steps to the same test score on the energy data.
INITIAL_VARIANCE = 1.0


class Gaussian(Regression):
    """y_h = f_h + noise with variance σ²_h; several targets are independent given f.

    Where the error s of a row is known, the variance of its noise is σ²_h + s².
    """

    takes_errors: ClassVar[bool] = True
    log_variance: Float[Array, " units"] | None = None

    def initialise(self, num_outputs: int) -> "Gaussian":
        """The same noise for every target."""
        return Gaussian(jax.device_put(np.full(num_outputs, math.log(INITIAL_VARIANCE))))

    @property
    def variance(self) -> Float[Array, " units"]:
        """The noise variances σ²_h, on the scale of the targets that the model sees."""
        assert self.log_variance is not None  # of an initialised likelihood
        return jnp.exp(self.log_variance)

    def _aligned(
        self, targets: Float[Array, "outputs batch"], moments: Array
    ) -> tuple[Float[Array, "units *shape"], Float[Array, "units *ones"]]:
        """Targets and log-variances of the noise, with as many axes as the moments have."""
        ones = (1,) * (moments.ndim - 2)
        aligned = targets.reshape(targets.shape[0], *ones, targets.shape[1])
        assert self.log_variance is not None  # of an initialised likelihood
        log_variance = self.log_variance.reshape(-1, *ones, 1)
        if len(aligned) > len(moments):  # log(σ² + s²): squares of tiny errors need not be numbers
            aligned, errors = jnp.split(aligned, 2)
            log_variance = jnp.logaddexp(log_variance, 2 * jnp.log(errors))
        return aligned, log_variance

    def expected_log_prob(
        self, targets: Float[Array, "outputs batch"], mean: Moments, variance: Moments
    ) -> Float[Array, "*shape"]:
        """log N(y | mean, σ²) - variance / (2 σ²), summed over the targets."""
        aligned, log_variance = self._aligned(targets, mean)
        squares = (jnp.square(aligned - mean) + variance) * jnp.exp(-log_variance)
        return -0.5 * jnp.sum(squares + log_variance + jnp.log(2 * jnp.pi), axis=0)

    def log_expected_power(
        self,
        targets: Float[Array, "outputs batch"],
        mean: Moments,
        variance: Moments,
        alpha: float,
    ) -> Float[Array, "*shape"]:
        """N(y | f, σ²)^α is N(y | f, σ²/α) times a constant, and that is integrated exactly."""
        aligned, log_variance = self._aligned(targets, mean)
        total = variance + jnp.exp(log_variance) / alpha
        constant = (1 - alpha) * (jnp.log(2 * jnp.pi) + log_variance) - jnp.log(alpha)
        log_density = jnp.square(aligned - mean) / total + jnp.log(2 * jnp.pi * total)
        return 0.5 * jnp.sum(constant - log_density, axis=0)

    def predictive(
        self,
        mean: Float[np.ndarray, "rows units samples"],
        variance: Float[np.ndarray, "rows units samples"],
        offset: Float[np.ndarray, " outputs"],
        scale: Float[np.ndarray, " outputs"],
        errors: Float[np.ndarray, "rows outputs"] | None = None,
    ) -> GaussianMixture:
        """N(mean, variance + σ²) of each sample, scaled; with the error of a row, + s²."""
        noise = np.exp(np.asarray(self.log_variance, dtype=np.float64)) * np.square(scale)
        if errors is not None:
            noise = (noise + np.square(errors))[..., None]
        means = mean * scale[:, None]
        means += offset[:, None]  # in place: they may be many
        return GaussianMixture(means, variance * np.square(scale)[:, None], noise)
