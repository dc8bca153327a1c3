"""A process of warped inputs: f(x) = g(w_1(x_1), w_2(x_2), ...) with learned increasing w."""

import math
from dataclasses import replace

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from dvip.processes.process import DataUnits, ImplicitProcess

__all__ = ["WarpedInput"]

# Of the smooth steps of a warp, before training: next to the identity.
INITIAL_HEIGHT = 0.05


class WarpedInput(ImplicitProcess):
    """A process whose inputs pass through an increasing function each: `process.warped()`.

    w(x) = x + Σ a tanh(b (x + c)) with positive a and b, learned for each column: functions that
    change fast in one part of a column's range and slowly in another, as logarithms do.
    `num_steps` is the number of terms.
    """

    process: ImplicitProcess
    num_steps: int = eqx.field(static=True, default=3)
    log_heights: Float[Array, "steps inputs"] | None = None
    log_slopes: Float[Array, "steps inputs"] | None = None
    shifts: Float[Array, "steps inputs"] | None = None

    def __check_init__(self) -> None:
        if self.num_steps < 1:
            raise ValueError(f"num_steps={self.num_steps}: give at least 1.")

    @property
    def bound_to_data(self) -> bool:
        """If the process is."""
        return self.process.bound_to_data

    @property
    def wanted_functions(self) -> int | None:
        """That of the process."""
        return self.process.wanted_functions

    @property
    def label(self) -> str:
        """That of the process."""
        return f"{self.process.label}, warped"

    def for_data(self, units: DataUnits) -> "WarpedInput":
        """The process is told; what it takes for a unit is the warped one."""
        return replace(self, process=self.process.for_data(units))

    def initialise(self, num_inputs: int, key: PRNGKeyArray) -> "WarpedInput":
        """Warps near the identity, with steps evenly over the range of standardised inputs."""
        shape = (self.num_steps, num_inputs)
        places = jnp.linspace(-2.0, 2.0, self.num_steps + 2)[1:-1]
        return WarpedInput(
            self.process.initialise(num_inputs, key),
            self.num_steps,
            jnp.full(shape, math.log(INITIAL_HEIGHT)),
            jnp.zeros(shape),
            jnp.broadcast_to(places[:, None], shape),
        )

    def draw_noise(self, key: PRNGKeyArray, num_samples: int) -> PyTree[Array]:
        """That of the process."""
        return self.process.draw_noise(key, num_samples)

    def warp(self, inputs: Float[Array, "inputs batch"]) -> Float[Array, "inputs batch"]:
        """The inputs that the process sees."""
        if self.log_heights is None or self.log_slopes is None or self.shifts is None:
            raise ValueError("Call initialise(num_inputs, key) before using the process.")
        heights, slopes = jnp.exp(self.log_heights), jnp.exp(self.log_slopes)
        steps = jnp.tanh(slopes[..., None] * (inputs + self.shifts[..., None]))
        return inputs + jnp.sum(heights[..., None] * steps, axis=0)

    def __call__(
        self, noise: PyTree[Array], inputs: Float[Array, "inputs batch"]
    ) -> Float[Array, "*outputs samples batch"]:
        """The functions of warped inputs."""
        return self.process(noise, self.warp(inputs))

    def combined(
        self,
        noise: PyTree[Array],
        weights: Float[Array, "units samples"],
        inputs: Float[Array, "inputs batch"],
    ) -> Float[Array, "units batch"]:
        """Combinations of them."""
        return self.process.combined(noise, weights, self.warp(inputs))

    def regularisation(self) -> Float[Array, ""]:
        """That of the process."""
        return self.process.regularisation()
