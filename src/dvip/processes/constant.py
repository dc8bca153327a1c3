"""Constants as a process: f(x) = c, with a Gaussian c."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from dvip.processes.process import ImplicitProcess

__all__ = ["Constant"]


class Constant(ImplicitProcess):
    """Functions that are constant: a term of sums, and a factor that says how large another is.

    Mean and scale are learned; they start at those of a standardised target.
    """

    mean: Float[Array, ""] | None = None
    log_scale: Float[Array, ""] | None = None

    def initialise(self, num_inputs: int, key: PRNGKeyArray) -> "Constant":
        """Mean 0, scale 1."""
        del num_inputs, key
        return Constant(jnp.zeros(()), jnp.zeros(()))

    def draw_noise(self, key: PRNGKeyArray, num_samples: int) -> Float[Array, " samples"]:
        """A standard normal variable for each function."""
        return jax.random.normal(key, (num_samples,))

    def __call__(
        self, noise: Float[Array, " samples"], inputs: Float[Array, "inputs batch"]
    ) -> Float[Array, "samples batch"]:
        """The same value in every column."""
        if self.mean is None or self.log_scale is None:
            raise ValueError("Call initialise(num_inputs, key) before using the process.")
        values = self.mean + jnp.exp(self.log_scale) * noise
        return jnp.broadcast_to(values[:, None], (len(noise), inputs.shape[1]))
