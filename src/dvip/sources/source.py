"""What a source of data is: blocks of rows, read in order, as often as they are needed."""

import abc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped

__all__ = ["Block", "Source"]


@dataclass(frozen=True)
class Block:
    """Some rows of a source."""

    inputs: Float[np.ndarray, "rows inputs"]
    targets: Shaped[np.ndarray, "rows *outputs"]
    """Numbers, one or several a row, or labels of any type."""
    weights: Float[np.ndarray, " rows"] | None = None
    """How many times each row counts; None is once."""
    first_row: int = 0
    """The number of the first row in its file, counted from 0."""
    file: str | None = None
    row_numbers: np.ndarray | None = None
    """The number of each row in its file, where they are not consecutive."""

    def __len__(self) -> int:
        return len(self.inputs)

    def row_name(self, position: int) -> str:
        """A row as the user would look it up."""
        numbers = self.row_numbers
        row = self.first_row + position if numbers is None else int(numbers[position])
        return f"row {row + 1}" if self.file is None else f"row {row + 1} of {self.file}"


class Source(abc.ABC):
    """Rows of inputs and targets that need not fit in memory. Estimators take one in `fit`.

    A source of your own says how to read its `blocks`, of some ten thousand rows each, always the
    same and in the same order; the rest is optional.
    """

    @abc.abstractmethod
    def blocks(self) -> Iterator[Block]:
        """All rows, in blocks, from the beginning."""

    @property
    def num_rows(self) -> int | None:
        """How many rows there are, where that is known before they are read."""
        return None

    @property
    def feature_names(self) -> Sequence[str] | None:
        """Names of the inputs, where they have names."""
        return None

    @property
    def input_shape(self) -> tuple[int, ...] | None:
        """The natural shape of an input that is an image or a sequence."""
        return None

    def fingerprint(self) -> Any:
        """What changes when the rows change, as what JSON can hold.

        Rows are read once into a cache that later fits of the same fingerprint share. None says
        that it cannot be known: then the cache is for one fit.
        """
        return None
