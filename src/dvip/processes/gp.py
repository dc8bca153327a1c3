"""A Gaussian process as an implicit process, by random features.

f_s(x) = a / √M Σ_m (w_sm cos ω_m·(x / l) + v_sm sin ω_m·(x / l)), with Gaussian w and v, has the
kernel a² / M Σ_m cos ω_m·((x - y) / l), which approximates that of the Gaussian process.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from dvip.processes.frequencies import CONSTRUCTIONS, KERNELS, draw_frequencies
from dvip.processes.process import ImplicitProcess
from dvip.products import product
from dvip.waves import cos_sin

__all__ = ["GaussianProcess"]

# Frequencies, which all functions share, and for each function the heights of the cosines and then
# of the sines.
WaveNoise = tuple[Float[Array, "frequencies inputs"], Float[Array, "samples features"]]


class GaussianProcess(ImplicitProcess):
    """A zero-mean Gaussian process with a length-scale for each input and an amplitude, learned.

    `kernel` is "rbf", "matern12", "matern32" or "matern52". The functions share
    `num_frequencies` frequencies, each with a cosine and a sine, so that all functions together
    cost little more than one. `construction` says how frequencies are drawn: "qmc" (quasi-Monte
    Carlo, the best for up to about 15 inputs), "orthogonal" (for more) or "random". `lengthscale`
    is where the length-scales start, by default √inputs: standardised inputs are then about √2
    length-scales apart, whatever their number.
    """

    kernel: str = eqx.field(static=True, default="rbf")
    num_frequencies: int = eqx.field(static=True, default=256)
    construction: str = eqx.field(static=True, default="qmc")
    lengthscale: float | None = eqx.field(static=True, default=None)
    log_lengthscales: Float[Array, " inputs"] | None = None
    log_amplitude: Float[Array, ""] | None = None

    def __check_init__(self) -> None:
        if self.kernel not in KERNELS:
            known = ", ".join(KERNELS)
            raise ValueError(f"kernel={self.kernel!r} is not known; choose from {known}.")
        if self.construction not in CONSTRUCTIONS:
            known = ", ".join(CONSTRUCTIONS)
            raise ValueError(
                f"construction={self.construction!r} is not known; choose from {known}."
            )
        if self.num_frequencies < 1:
            raise ValueError(f"num_frequencies={self.num_frequencies}: give at least 1.")
        if self.lengthscale is not None and not 0 < self.lengthscale < math.inf:
            raise ValueError(f"lengthscale={self.lengthscale}: give a positive number or None.")

    def initialise(self, num_inputs: int, key: PRNGKeyArray) -> "GaussianProcess":
        """All length-scales at their start, an amplitude of 1."""
        del key
        lengthscale = math.sqrt(num_inputs) if self.lengthscale is None else self.lengthscale
        return GaussianProcess(
            self.kernel,
            self.num_frequencies,
            self.construction,
            self.lengthscale,
            jnp.full(num_inputs, math.log(lengthscale)),
            jnp.zeros(()),
        )

    def draw_noise(self, key: PRNGKeyArray, num_samples: int) -> WaveNoise:
        """Frequencies for length-scales of one, and the heights of the waves of each function."""
        if self.log_lengthscales is None:
            raise ValueError("Call initialise(num_inputs, key) before drawing noise.")
        frequency_key, height_key = jax.random.split(key)
        num_inputs = self.log_lengthscales.shape[0]
        frequencies = draw_frequencies(
            frequency_key, self.num_frequencies, num_inputs, self.kernel, self.construction
        )
        heights = jax.random.normal(height_key, (num_samples, 2 * self.num_frequencies))
        return frequencies, heights

    def __call__(
        self, noise: WaveNoise, inputs: Float[Array, "inputs batch"]
    ) -> Float[Array, "samples batch"]:
        """The waves once for all functions, then their sums."""
        assert self.log_lengthscales is not None  # there is noise, so there are parameters
        assert self.log_amplitude is not None
        frequencies, heights = noise
        turns = product(frequencies * jnp.exp(-self.log_lengthscales) / (2 * jnp.pi), inputs)
        waves = jnp.concatenate(cos_sin(turns))
        # The amplitude multiplies the sums, not the heights: its derivative is then cheap.
        scale = jnp.exp(self.log_amplitude) / math.sqrt(self.num_frequencies)
        return scale * product(heights, waves)
