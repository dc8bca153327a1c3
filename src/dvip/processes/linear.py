"""Linear functions as a process: f(x) = c + w·x, with Gaussian c and w."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from dvip.linear_algebra import product
from dvip.processes.process import ImplicitProcess

__all__ = ["Linear"]


class Linear(ImplicitProcess):
    """Linear functions of all columns: trends.

    The scales of the slopes, one for each column, and of the intercept are learned.
    """

    log_scales: Float[Array, " inputs"] | None = None
    log_intercept_scale: Float[Array, ""] | None = None

    def initialise(self, num_inputs: int, key: PRNGKeyArray) -> "Linear":
        """Intercepts of variance 1, slopes of variance 1 / inputs."""
        del key
        return Linear(jnp.full(num_inputs, -0.5 * jnp.log(num_inputs)), jnp.zeros(()))

    def draw_noise(self, key: PRNGKeyArray, num_samples: int) -> Float[Array, "samples _"]:
        """Standard normal noise for the slopes, then the intercept, of each function."""
        if self.log_scales is None:
            raise ValueError("Call initialise(num_inputs, key) before drawing noise.")
        return jax.random.normal(key, (num_samples, len(self.log_scales) + 1))

    def __call__(
        self, noise: Float[Array, "samples _"], inputs: Float[Array, "inputs batch"]
    ) -> Float[Array, "samples batch"]:
        """All lines at all inputs."""
        assert self.log_scales is not None  # there is noise, so there are parameters
        assert self.log_intercept_scale is not None
        slopes = noise[:, :-1] * jnp.exp(self.log_scales)
        return product(slopes, inputs) + noise[:, -1:] * jnp.exp(self.log_intercept_scale)

    def combined(
        self,
        noise: Float[Array, "samples _"],
        weights: Float[Array, "units samples"],
        inputs: Float[Array, "inputs batch"],
    ) -> Float[Array, "units batch"]:
        """A combination of lines is a line."""
        return self(jnp.matmul(weights, noise), inputs)
