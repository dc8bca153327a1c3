"""The warped Gaussian process: a learned monotone function of a Gaussian process.

f(x) = g + Σ_k a_k tanh(b_k (g + c_k)) with g = g(x) from a Gaussian process and a_k, b_k > 0.
"""

import math

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from dvip.processes.gp import GaussianProcess, WaveNoise
from dvip.processes.process import ImplicitProcess

__all__ = ["WarpedGaussianProcess"]

# Of each step at the start: the warp is close to the identity.
INITIAL_HEIGHT = 0.01


class Warp(eqx.Module):
    """A strictly increasing function, the identity plus smooth steps."""

    log_heights: Float[Array, " steps"]
    log_slopes: Float[Array, " steps"]
    shifts: Float[Array, " steps"]

    @classmethod
    def near_identity(cls, num_steps: int) -> "Warp":
        """Low steps, evenly over the range in which a standard normal variable mostly is."""
        return cls(
            jnp.full(num_steps, math.log(INITIAL_HEIGHT)),
            jnp.zeros(num_steps),
            jnp.linspace(-2.0, 2.0, num_steps + 2)[1:-1],
        )

    def __call__(self, values: Float[Array, "samples batch"]) -> Float[Array, "samples batch"]:
        """The values after the warp."""
        heights, slopes, shifts = (
            parameters[:, None, None]
            for parameters in (jnp.exp(self.log_heights), jnp.exp(self.log_slopes), self.shifts)
        )
        return values + jnp.sum(heights * jnp.tanh(slopes * (values + shifts)), axis=0)


class WarpedGaussianProcess(ImplicitProcess):
    """A Gaussian process whose values pass through a learned increasing function.

    Its marginals can be skewed, have several modes or light tails, which no Gaussian process has.
    `num_steps` is the number of smooth steps of the warp; the other options are those of
    `GaussianProcess`.
    """

    kernel: str = eqx.field(static=True, default="rbf")
    num_frequencies: int = eqx.field(static=True, default=256)
    construction: str = eqx.field(static=True, default="qmc")
    lengthscale: float | None = eqx.field(static=True, default=None)
    num_steps: int = eqx.field(static=True, default=3)
    process: GaussianProcess | None = None
    warp: Warp | None = None

    def __check_init__(self) -> None:
        self._unwarped()  # which checks the options that it takes
        if self.num_steps < 1:
            raise ValueError(f"num_steps={self.num_steps}: give at least 1.")

    def _unwarped(self) -> GaussianProcess:
        return GaussianProcess(
            self.kernel, self.num_frequencies, self.construction, self.lengthscale
        )

    def initialise(self, num_inputs: int, key: PRNGKeyArray) -> "WarpedGaussianProcess":
        """The Gaussian process at its start, and a warp near the identity."""
        return WarpedGaussianProcess(
            self.kernel,
            self.num_frequencies,
            self.construction,
            self.lengthscale,
            self.num_steps,
            self._unwarped().initialise(num_inputs, key),
            Warp.near_identity(self.num_steps),
        )

    def draw_noise(self, key: PRNGKeyArray, num_samples: int) -> WaveNoise:
        """The noise of the Gaussian process."""
        if self.process is None:
            raise ValueError("Call initialise(num_inputs, key) before drawing noise.")
        return self.process.draw_noise(key, num_samples)

    def __call__(
        self, noise: WaveNoise, inputs: Float[Array, "inputs batch"]
    ) -> Float[Array, "samples batch"]:
        """The warped functions."""
        assert self.process is not None  # there is noise, so there are parameters
        assert self.warp is not None
        return self.warp(self.process(noise, inputs))
