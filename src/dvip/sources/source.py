"""Sources of rows that need not fit in memory: what one is; arrays and tables in files as one."""

import abc
import math
import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Shaped

from dvip.tables import (
    TableEncoder,
    TableFile,
    TextFormat,
    error_numbers,
    num_rows,
    read_blocks,
    table_files,
    weight_numbers,
)
from dvip.tables.addresses import TableAddress

__all__ = ["ArraySource", "Block", "Source", "TableSource", "file_state"]


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
    noise_std: Shaped[np.ndarray, "rows *outputs"] | None = None
    """The known error of each row, or of each of its targets, where it has one."""

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

    # How the columns of a table became inputs, and the names of its targets and of the columns of
    # their known errors, where it is one.
    encoder: TableEncoder | None = None
    target_names: Sequence[str] | None = None
    noise_names: Sequence[str] | None = None
    # Whether to train on all rows in memory rather than to stream them.
    in_memory: bool = False

    @abc.abstractmethod
    def blocks(self) -> Iterator[Block]:
        """All rows, in blocks, from the beginning."""

    def gathered(self) -> Block:
        """All rows as one block."""
        blocks = [block for block in self.blocks() if len(block)]
        if not blocks:
            raise ValueError("The source has no rows.")

        def whole(name: str) -> Any:
            parts = [getattr(block, name) for block in blocks]
            return None if parts[0] is None else np.concatenate(parts)

        columns = ("inputs", "targets", "weights", "noise_std")
        return Block(**{name: whole(name) for name in columns})

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


def file_state(path: str | Path | TableAddress) -> list[Any]:
    """What changes when a file changes: its name, size and time."""
    if isinstance(path, TableAddress):
        return path.state()
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
    noise_std : number, array of shape (rows,) or of the shape of y, optional
        The known error of each row of a regression, as `fit` takes it.
    """

    def __init__(self, X: Any, y: Any, sample_weight: Any = None, noise_std: Any = None):
        self.X, self.y = _as_array(X), _as_array(y)
        self.sample_weight = None if sample_weight is None else _as_array(sample_weight)
        if noise_std is not None and np.ndim(noise_std) == 0:
            noise_std = np.broadcast_to(noise_std, len(self.X))
        self.noise_std = None if noise_std is None else _as_array(noise_std)
        if self.X.ndim < 2:
            raise ValueError(f"X has the shape {self.X.shape}, expected (rows, inputs).")
        for name, array in self._columns().items():
            if len(array) != len(self.X):
                raise ValueError(f"X has {len(self.X):,} rows, but {name} has {len(array):,}.")

    def _columns(self) -> dict[str, np.ndarray]:
        """The arrays that there are besides X."""
        given = {"y": self.y, "sample_weight": self.sample_weight, "noise_std": self.noise_std}
        return {name: array for name, array in given.items() if array is not None}

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
            weights, errors = self.sample_weight, self.noise_std
            yield Block(
                inputs.reshape(len(inputs), width).astype(np.float64),
                _read(self.y, part),
                None if weights is None else _read(weights, part).astype(np.float64),
                start,
                None if file is None else Path(file).name,
                noise_std=None if errors is None else _read(errors, part),
            )

    def fingerprint(self) -> Any:
        """The files of memory-mapped arrays and where in them; arrays in memory have none."""
        arrays = {"X": self.X, **self._columns()}
        if not all(_is_mapped(array) for array in arrays.values()):
            return None
        return [
            [
                name,
                *file_state(array.filename),
                array.ctypes.data - np.frombuffer(array._mmap, np.uint8).ctypes.data,
                array.dtype.str,
                list(array.shape),
                list(array.strides),
            ]
            for name, array in arrays.items()
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


# Rows of a block.
ROWS_AT_ONCE = 2**16


class TableSource(Source):
    """The rows of a table, read a block at a time and encoded.

    Parameters
    ----------
    path : str or Path
        A Parquet or CSV file, or a folder of Parquet files.
    encoder : TableEncoder
        Which columns are inputs, and how.
    targets : sequence of str
        The columns that are predicted. No columns but these, the inputs and the weight are read.
    read_targets : function of a DataFrame
        The targets of a block.
    keep : function of row numbers and a DataFrame, optional
        Which rows of a block to use; rows are counted from 0 over all files.
    text_columns : sequence of str
        Columns of a CSV file besides those of the encoder that are text even where they look like
        numbers.
    weight : str, optional
        The column that says how many times each row counts.
    noise : sequence of str
        The columns of the targets' known errors, one for each target, or none.
    num_rows : int, optional
        About how many rows are kept, for progress and for the space that they take.
    only_numbers : bool
        Whether the inputs are numbers as they are, so that an estimator needs no encoder.
    in_memory : bool
        Whether an estimator is to train on all rows in memory.
    frames : sequence of DataFrame, optional
        All rows of the table, where they have been read already.
    depends_on : what JSON can hold
        What rows depend on besides the files and the encoder: the targets, and which rows to keep.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        encoder: TableEncoder,
        targets: Sequence[str],
        read_targets: Callable[[pd.DataFrame], np.ndarray],
        *,
        keep: Callable[[np.ndarray, pd.DataFrame], np.ndarray] | None = None,
        text_columns: Sequence[str] = (),
        weight: str | None = None,
        noise: Sequence[str] = (),
        num_rows: int | None = None,
        only_numbers: bool = False,
        in_memory: bool = False,
        frames: Sequence[pd.DataFrame] | None = None,
        depends_on: Any = None,
    ):
        self.path, self.read_targets = TableFile.of(path), read_targets
        self.encoder = None if only_numbers else encoder
        self.target_names: tuple[str, ...] = tuple(targets)
        self.noise_names: tuple[str, ...] | None = tuple(noise) or None
        self.in_memory = in_memory
        self.keep, self.weight, self.depends_on = keep, weight, depends_on
        self.text_columns = (*encoder.text_columns, *text_columns)
        self._encoder, self._num_rows, self._frames = encoder, num_rows, frames

    @property
    def num_rows(self) -> int | None:
        """How many rows there are, if files say so and all are used."""
        if self._num_rows is not None or self.keep is not None:
            return self._num_rows
        return num_rows(self.path)

    @property
    def feature_names(self) -> list[str]:
        """Names of the inputs."""
        return list(self._encoder.get_feature_names_out())

    def frames(self, rows: int = ROWS_AT_ONCE) -> Iterator[pd.DataFrame]:
        """The rows that are used, as they are in the table, in blocks of at most `rows` rows."""
        start = 0
        for frame in self._all_frames(rows):
            numbers = np.arange(start, start + len(frame))
            start += len(frame)
            kept = frame if self.keep is None else frame[self.keep(numbers, frame)]
            if len(kept):
                yield kept

    def _columns_read(self) -> set[str]:
        columns = {column.name for column in self._encoder.columns_} | {*self.target_names}
        columns |= {*(self.noise_names or ())}
        return columns | (set() if self.weight is None else {self.weight})

    def _all_frames(self, rows: int) -> Iterator[pd.DataFrame]:
        if self._frames is None:
            columns = self._columns_read()
            yield from read_blocks(self.path, self.text_columns, rows, columns=columns)
            return
        for frame in self._frames:
            for start in range(0, len(frame), rows):
                yield frame[start : start + rows]

    def blocks(self) -> Iterator[Block]:
        """All rows, encoded."""
        errors = self.noise_names
        for frame in self.frames():
            yield Block(
                self._encoder.transform(frame),
                self.read_targets(frame),
                None if self.weight is None else weight_numbers(frame, self.weight),
                file=frame.attrs["file"],
                row_numbers=frame.index.to_numpy(),
                noise_std=None if errors is None else error_numbers(frame, errors),
            )

    def fingerprint(self) -> Any:
        """The files, the encoding, and what else the rows depend on."""
        files = [file_state(file) for file in table_files(self.path)]
        text = self.path.format
        return [
            *([] if text == TextFormat() else [[text.sep, text.encoding, text.decimal]]),
            files,
            self._encoder.to_json(),
            self.target_names,
            list(self.text_columns),
            self.weight,
            self.depends_on,
            self.noise_names,
        ]
