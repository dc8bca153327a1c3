"""Tables in files as a source of encoded rows; `open_source`, from a path to a source."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dvip.sources.source import ArraySource, Block, Source, file_state
from dvip.tables import TableEncoder, TableError, num_rows, read_blocks, table_files
from dvip.tables.cells import check_present, missing_cells, row_name

__all__ = ["TableSource", "open_source"]

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
