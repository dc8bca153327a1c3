"""Sources of rows that need not fit in memory: what one is, and arrays as one."""

import abc
import math
import mmap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped

from dvip.tables import TableEncoder

__all__ = ["ArraySource", "Block", "Source", "file_state"]


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

    # How the columns of a table became inputs, and the names of its targets, where it is one.
    encoder: TableEncoder | None = None
    target_names: Sequence[str] | None = None
    # Whether to train on all rows in memory rather than to stream them.
    in_memory: bool = False

    @abc.abstractmethod
    def blocks(self) -> Iterator[Block]:
        """All rows, in blocks, from the beginning."""

    def gathered(self) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Inputs, targets and weights of all rows."""
        blocks = [block for block in self.blocks() if len(block)]
        if not blocks:
            raise ValueError("The source has no rows.")
        weights = [block.weights for block in blocks if block.weights is not None]
        return (
            np.concatenate([block.inputs for block in blocks]),
            np.concatenate([block.targets for block in blocks]),
            np.concatenate(weights) if weights else None,
        )

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


# Numbers of a block.
NUMBERS_AT_ONCE = 2**20


def file_state(path: str | Path) -> list[Any]:
    """What changes when a file changes: its name, size and time."""
    path = Path(path)
    status = path.stat()
    return [str(path.resolve()), status.st_size, status.st_mtime_ns]


class ArraySource(Source):
    """Rows of two arrays, such as `np.load("X.npy", mmap_mode="r")`, read a block at a time.

    Parameters
    ----------
    X : array of shape (rows, inputs)
        Or of images or sequences, for a prior that reads them.
    y : array of shape (rows,) or (rows, targets)
        Numbers or labels.
    sample_weight : array of shape (rows,), optional
        How many times each row counts.
    """

    def __init__(self, X: Any, y: Any, sample_weight: Any = None):
        self.X, self.y = _as_array(X), _as_array(y)
        self.sample_weight = None if sample_weight is None else _as_array(sample_weight)
        if self.X.ndim < 2:
            raise ValueError(f"X has the shape {self.X.shape}, expected (rows, inputs).")
        for name, array in (("y", self.y), ("sample_weight", self.sample_weight)):
            if array is not None and len(array) != len(self.X):
                raise ValueError(f"X has {len(self.X):,} rows, but {name} has {len(array):,}.")

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return len(self.X)

    @property
    def input_shape(self) -> tuple[int, ...] | None:
        """The natural shape of an input that is an image or a sequence."""
        return self.X.shape[1:] if self.X.ndim > 2 else None

    def blocks(self) -> Iterator[Block]:
        """All rows, in order."""
        width = math.prod(self.X.shape[1:])
        rows = max(1, NUMBERS_AT_ONCE // max(1, width))
        file = getattr(self.X, "filename", None)
        for start in range(0, len(self.X), rows):
            part = slice(start, start + rows)
            inputs = _read(self.X, part)
            weights = self.sample_weight
            yield Block(
                inputs.reshape(len(inputs), width).astype(np.float64),
                _read(self.y, part),
                None if weights is None else _read(weights, part).astype(np.float64),
                start,
                None if file is None else Path(file).name,
            )

    def fingerprint(self) -> Any:
        """The files of memory-mapped arrays and where in them; arrays in memory have none."""
        arrays = [self.X, self.y, *([] if self.sample_weight is None else [self.sample_weight])]
        if not all(_is_mapped(array) for array in arrays):
            return None
        return [
            [
                *file_state(array.filename),
                array.ctypes.data - np.frombuffer(array._mmap, np.uint8).ctypes.data,
                array.dtype.str,
                list(array.shape),
                list(array.strides),
            ]
            for array in arrays
        ]


def _as_array(given: Any) -> Any:
    return given if isinstance(given, np.ndarray) else np.asarray(given)


def _is_mapped(array: np.ndarray) -> bool:
    """Whether the array is a file's content and stays so: a mapping that cannot be written to."""
    return isinstance(array, np.memmap) and array.mode == "r" and array.filename is not None


def _read(array: Any, part: slice) -> np.ndarray:
    """Those rows. The pages of a mapping that were touched are given back: they are memory."""
    rows = np.array(array[part])
    if _is_mapped(array) and hasattr(mmap, "MADV_DONTNEED"):
        array._mmap.madvise(mmap.MADV_DONTNEED)
    return rows
