"""Sources of rows that need not fit in memory: what one is; arrays and tables in files as one."""

import abc
import math
import mmap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Shaped

from dvip.tables import TableEncoder, TableError, num_rows, read_blocks, table_files
from dvip.tables.cells import check_present, missing_cells, row_name

__all__ = ["ArraySource", "Block", "Source", "TableSource", "file_state", "open_source"]


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
        path: str | Path,
        encoder: TableEncoder,
        targets: Sequence[str],
        read_targets: Callable[[pd.DataFrame], np.ndarray],
        *,
        keep: Callable[[np.ndarray, pd.DataFrame], np.ndarray] | None = None,
        text_columns: Sequence[str] = (),
        weight: str | None = None,
        num_rows: int | None = None,
        only_numbers: bool = False,
        in_memory: bool = False,
        frames: Sequence[pd.DataFrame] | None = None,
        depends_on: Any = None,
    ):
        self.path, self.read_targets = Path(path), read_targets
        self.encoder = None if only_numbers else encoder
        self.target_names: tuple[str, ...] = tuple(targets)
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

    def _all_frames(self, rows: int) -> Iterator[pd.DataFrame]:
        if self._frames is None:
            columns = {column.name for column in self._encoder.columns_} | {*self.target_names}
            columns |= set() if self.weight is None else {self.weight}
            yield from read_blocks(self.path, self.text_columns, rows, columns=columns)
            return
        for frame in self._frames:
            for start in range(0, len(frame), rows):
                yield frame[start : start + rows]

    def blocks(self) -> Iterator[Block]:
        """All rows, encoded."""
        for frame in self.frames():
            yield Block(
                self._encoder.transform(frame),
                self.read_targets(frame),
                None if self.weight is None else _weights(self.weight, frame),
                file=frame.attrs["file"],
                row_numbers=frame.index.to_numpy(),
            )

    def fingerprint(self) -> Any:
        """The files, the encoding, and what else the rows depend on."""
        files = [file_state(file) for file in table_files(self.path)]
        return [
            files,
            self._encoder.to_json(),
            self.target_names,
            list(self.text_columns),
            self.weight,
            self.depends_on,
        ]


def whole_targets(frame: pd.DataFrame, targets: Sequence[str]) -> np.ndarray:
    """The target columns as they are, an error where one is missing."""
    for name in targets:
        if name not in frame.columns:
            raise TableError(f"{frame.attrs['file']} has no column {name!r}.")
        missing = missing_cells(frame[name])
        if missing.any():
            row = row_name(frame[name], int(missing.argmax()))
            raise TableError(f"Column {name!r} has a gap in {row}: fill it, or remove the row.")
    if len(targets) == 1:
        return frame[targets[0]].to_numpy()
    return frame[list(targets)].to_numpy()


def _weights(name: str, frame: pd.DataFrame) -> np.ndarray:
    if name not in frame.columns:
        raise TableError(f"{frame.attrs['file']} has no column {name!r}.")
    return frame[name].to_numpy(dtype=np.float64, na_value=np.nan)


def open_source(
    path: str | Path,
    target: str | Path | Sequence[str],
    *,
    columns: Sequence[str] | None = None,
    weight: str | Path | None = None,
) -> Source:
    """A source of rows in files, for `fit`.

    Parameters
    ----------
    path : str or Path
        A Parquet file, a folder of Parquet files, a CSV file (also `.csv.gz`), or `.npy`.
    target : str, or several
        The name of the target column, or the names of several for a regression. For `.npy`, the
        `.npy` file of the targets.
    columns : sequence of str
        The names of the inputs: columns of numbers without gaps. By default all other columns.
    weight : str
        The column, or `.npy` file, that says how many times each row counts.

    Returns
    -------
    Source
        Its rows are read when a model is fitted to it.
    """
    path = Path(path)
    if path.suffix.lower() == ".npy":
        if columns is not None:
            raise ValueError("columns: the columns of an array have no names, leave it out.")
        _check_files(target=target, weight=weight)
        files = [path, *([Path(str(target))] + ([] if weight is None else [Path(weight)]))]
        return ArraySource(*(_mapped(file) for file in files))
    targets = [target] if isinstance(target, str) else _names("target", target)
    if weight is not None and not isinstance(weight, str):
        raise ValueError(f"weight={weight!r} must be the name of one column.")
    names = [str(name) for name in next(read_blocks(path, rows=100)).columns]
    others = [*targets, *([] if weight is None else [weight])]
    if columns is None:
        inputs = [name for name in names if name not in others]
    else:
        inputs = _names("columns", columns)
    check_present([*others, *inputs], names)
    _check_one_use(targets, inputs, weight)
    if not inputs:
        raise TableError(f"{path} has no column to predict from.")
    return TableSource(
        path,
        TableEncoder.of_numbers(inputs),
        targets,
        partial(whole_targets, targets=targets),
        weight=weight,
        only_numbers=True,
    )


def _names(option: str, given: Any) -> list[str]:
    """The names of columns that were given as a sequence."""
    are_names = isinstance(given, Iterable) and not isinstance(given, str | bytes)
    names = list(given) if are_names else []
    if not are_names or not all(isinstance(name, str) for name in names):
        one = "a name, or " if option == "target" else ""
        raise ValueError(f"{option}={given!r} must be {one}a list of names of columns.")
    if option == "target" and not names:
        raise ValueError("target has no name: name the column to predict.")
    return [str(name) for name in names]


def _check_one_use(targets: list[str], inputs: list[str], weight: str | None) -> None:
    """Raises an error if a column has two uses, such as a target that is among the inputs."""
    uses = [(name, "target") for name in targets] + [(name, "columns") for name in inputs]
    uses += [] if weight is None else [(weight, "weight")]
    first_use: dict[str, str] = {}
    for name, use in uses:
        if first_use.get(name) == use:
            raise ValueError(f"{use} has the column {name!r} twice: name it once.")
        if name in first_use:
            raise ValueError(
                f"The column {name!r} is in {first_use[name]} and in {use}: it can have one use."
            )
        first_use[name] = use


def _check_files(**given: Any) -> None:
    """Raises an error unless these options, where given, are paths."""
    for option, path in given.items():
        if not (isinstance(path, str | Path) or (option == "weight" and path is None)):
            raise ValueError(f"{option}={path!r} must be the path of a .npy file.")


def _mapped(path: Path) -> np.ndarray:
    if not path.exists():
        raise ValueError(f"There is no file {path}.")
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError) as error:
        raise ValueError(f"{path} cannot be read as an array: {error}") from error
