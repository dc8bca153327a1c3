"""Additive functions as a process: one function a column, f(x) = Σ_d g_d(x_d) / √D."""

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from dvip.processes.gp import GaussianProcess
from dvip.processes.process import DataUnits, ImplicitProcess

__all__ = ["Additive"]

# Functions that a layer should have, where nobody says how many.
WANTED = 100


class Additive(ImplicitProcess):
    """A function of each column alone, added up: what a person can read, one plot a column.

    `process` is the prior of each such function, by default a Gaussian process; every column has
    parameters of its own. `predict_parts` of an estimator gives what each column adds.
    """

    process: ImplicitProcess = GaussianProcess(num_frequencies=32)
    # Names of the columns, once they are known, and how many there are.
    names: tuple[str, ...] | None = eqx.field(static=True, default=None)
    num_inputs: int | None = eqx.field(static=True, default=None)

    @property
    def bound_to_data(self) -> bool:
        """If the process of a column is."""
        return self.process.bound_to_data

    @property
    def wanted_functions(self) -> int | None:
        """Enough for combinations of all columns."""
        return WANTED

    def for_data(self, units: DataUnits) -> "Additive":
        """Each column's process is told of it."""
        if len(units.shape) != 1:
            raise ValueError("additive: images and sequences have no columns.")
        told = [self.process.for_data(units.only([index])) for index in range(len(units.names))]
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *told)
        return dataclasses.replace(self, process=stacked, names=units.names)

    def initialise(self, num_inputs: int, key: PRNGKeyArray) -> "Additive":
        """A process with parameters of its own for each column."""
        keys = jax.random.split(key, num_inputs)
        made = eqx.filter_vmap(lambda process, key: process.initialise(1, key))(self.process, keys)
        return dataclasses.replace(self, process=made, num_inputs=num_inputs)

    def draw_noise(self, key: PRNGKeyArray, num_samples: int) -> PyTree[Array]:
        """Noise of its own for each column."""
        if self.num_inputs is None:
            raise ValueError("Call initialise(num_inputs, key) before drawing noise.")
        keys = jax.random.split(key, self.num_inputs)
        draw = eqx.filter_vmap(lambda process, key: process.draw_noise(key, num_samples))
        return draw(self.process, keys)

    def by_column(
        self, noise: PyTree[Array], inputs: Float[Array, "inputs batch"]
    ) -> Float[Array, "inputs samples batch"]:
        """What each column adds to each function."""
        evaluate = eqx.filter_vmap(lambda process, noise, column: process(noise, column))
        return evaluate(self.process, noise, inputs[:, None]) / math.sqrt(len(inputs))

    def __call__(
        self, noise: PyTree[Array], inputs: Float[Array, "inputs batch"]
    ) -> Float[Array, "samples batch"]:
        """The sums over the columns."""
        return jnp.sum(self.by_column(noise, inputs), axis=0)

    def terms(
        self, noise: PyTree[Array], inputs: Float[Array, "inputs batch"]
    ) -> dict[str, Float[Array, "*outputs samples batch"]]:
        """One for each column."""
        names = self.names or tuple(f"column {index}" for index in range(len(inputs)))
        return dict(zip(names, self.by_column(noise, inputs), strict=True))

    def regularisation(self) -> Float[Array, ""]:
        """The sum over the columns."""
        if self.num_inputs is None:
            return jnp.zeros(())
        return jnp.sum(eqx.filter_vmap(lambda process: process.regularisation())(self.process))
