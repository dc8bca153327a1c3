"""One implicit process for each unit of a layer, with parameters and noise of its own."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from dvip.processes.process import ImplicitProcess

__all__ = ["PerUnit"]


class PerUnit(ImplicitProcess):
    """Independent copies of a process, stacked: g_θ^l_h of the paper with θ not shared over h."""

    process: ImplicitProcess
    num_units: int = eqx.field(static=True)

    def initialise(self, num_inputs: int, key: PRNGKeyArray) -> "PerUnit":
        """Copies with parameters of their own."""
        keys = jax.random.split(key, self.num_units)
        stacked = eqx.filter_vmap(lambda key: self.process.initialise(num_inputs, key))(keys)
        return PerUnit(stacked, self.num_units)

    def draw_noise(self, key: PRNGKeyArray, num_samples: int) -> PyTree[Array]:
        """Noise of its own for each unit."""
        keys = jax.random.split(key, self.num_units)
        draw = eqx.filter_vmap(lambda process, key: process.draw_noise(key, num_samples))
        return draw(self.process, keys)

    def __call__(
        self, noise: PyTree[Array], inputs: Float[Array, "inputs batch"]
    ) -> Float[Array, "units samples batch"]:
        """The functions of every unit."""
        evaluate = eqx.filter_vmap(lambda process, noise: process(noise, inputs))
        return evaluate(self.process, noise)

    def regularisation(self) -> Float[Array, ""]:
        """The sum over the units."""
        return jnp.sum(eqx.filter_vmap(lambda process: process.regularisation())(self.process))
