"""A process of some of the columns: f(x) = g(x_i, x_j), whatever the other columns are."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from dvip.processes.process import DataUnits, ImplicitProcess

__all__ = ["OnColumns", "checked_columns"]


def checked_columns(given: Any, option: str = "on") -> tuple[str | int, ...]:
    """Columns as a tuple of names and numbers; an error if they are none."""
    several = [given] if isinstance(given, str | int | np.integer) else given
    if not isinstance(several, Sequence | np.ndarray) or not len(several):
        raise ValueError(f"{option}={given!r}: give names of columns, or their numbers from 0.")
    columns = tuple(int(each) if isinstance(each, np.integer) else each for each in several)
    if not all(isinstance(each, str | int) and not isinstance(each, bool) for each in columns):
        raise ValueError(f"{option}={given!r}: give names of columns, or their numbers from 0.")
    return columns


class OnColumns(ImplicitProcess):
    """A process that sees some columns only: `process.on(["time"])`."""

    process: ImplicitProcess
    columns: tuple[str | int, ...] = eqx.field(static=True, converter=checked_columns)
    # Where they are among the inputs, once that is known.
    indices: tuple[int, ...] | None = eqx.field(static=True, default=None)

    @property
    def bound_to_data(self) -> bool:
        """It names columns of the data."""
        return True

    @property
    def wanted_functions(self) -> int | None:
        """That of the process."""
        return self.process.wanted_functions

    @property
    def label(self) -> str:
        """With its columns."""
        return f"{self.process.label} of {', '.join(map(str, self.columns))}"

    def for_data(self, units: DataUnits) -> "OnColumns":
        """Finds the columns; the process is told of these."""
        if len(units.shape) != 1:
            raise ValueError(f"on={self.columns!r}: images and sequences have no columns.")
        indices = units.indices_of(self.columns)
        return OnColumns(self.process.for_data(units.only(indices)), self.columns, indices)

    def initialise(self, num_inputs: int, key: PRNGKeyArray) -> "OnColumns":
        """Parameters for so many columns."""
        process = self
        if self.indices is None:  # numbers need no names
            names = tuple(f"column {number}" for number in range(num_inputs))
            ones = np.ones(num_inputs)
            process = self.for_data(DataUnits((num_inputs,), names, 0 * ones, ones))
        assert process.indices is not None
        return replace(process, process=process.process.initialise(len(process.indices), key))

    def draw_noise(self, key: PRNGKeyArray, num_samples: int) -> PyTree[Array]:
        """That of the process."""
        return self.process.draw_noise(key, num_samples)

    def __call__(
        self, noise: PyTree[Array], inputs: Float[Array, "inputs batch"]
    ) -> Float[Array, "*outputs samples batch"]:
        """The functions of the columns."""
        return self.process(noise, inputs[np.array(self.indices)])

    def combined(
        self,
        noise: PyTree[Array],
        weights: Float[Array, "units samples"],
        inputs: Float[Array, "inputs batch"],
    ) -> Float[Array, "units batch"]:
        """Combinations of them."""
        return self.process.combined(noise, weights, inputs[np.array(self.indices)])

    def regularisation(self) -> Float[Array, ""]:
        """That of the process."""
        return self.process.regularisation()
