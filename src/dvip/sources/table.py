"""Tables in files as a source: Parquet, folders of Parquet files, CSV."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dvip.sources.arrays import file_state
from dvip.sources.source import Block, Source
from dvip.tables import (
    TableEncoder,
    TableError,
    num_rows,
    read_blocks,
    table_files,
)
from dvip.tables.errors import row_name
from dvip.tables.parsing import missing_cells

__all__ = ["TableSource"]

# Rows of a block.
ROWS_AT_ONCE = 2**16


class TableSource(Source):
    """The rows of a table, read a block at a time and encoded.

    Parameters
    ----------
    path : str or Path
        A Parquet or CSV file, or a folder of Parquet files.
    encoder : TableEncoder
        Which columns are inputs, and how, and which are targets; others are not read.
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
    named : bool
        Whether an estimator is to note the names of the inputs and to expect them at prediction.
    depends_on : what JSON can hold
        What rows depend on besides the files and the encoder: the targets, and which rows to keep.
    """

    def __init__(
        self,
        path: str | Path,
        encoder: TableEncoder,
        read_targets: Callable[[pd.DataFrame], np.ndarray],
        *,
        keep: Callable[[np.ndarray, pd.DataFrame], np.ndarray] | None = None,
        text_columns: Sequence[str] = (),
        weight: str | None = None,
        num_rows: int | None = None,
        named: bool = True,
        depends_on: Any = None,
    ):
        self.path, self.encoder, self.read_targets = Path(path), encoder, read_targets
        self.keep, self.weight, self.depends_on = keep, weight, depends_on
        self.text_columns = (*encoder.text_columns, *text_columns)
        self._num_rows, self._named = num_rows, named

    @property
    def num_rows(self) -> int | None:
        """How many rows there are, if files say so and all are used."""
        if self._num_rows is not None or self.keep is not None:
            return self._num_rows
        return num_rows(self.path)

    @property
    def feature_names(self) -> list[str] | None:
        """Names of the inputs."""
        return self.encoder.feature_names if self._named else None

    def frames(self, rows: int = ROWS_AT_ONCE) -> Iterator[pd.DataFrame]:
        """The rows that are used, as they are in the table, in blocks of at most `rows` rows."""
        start = 0
        columns = {column.name for column in self.encoder.columns}
        columns |= {*self.encoder.targets, *([] if self.weight is None else [self.weight])}
        for frame in read_blocks(self.path, self.text_columns, rows=rows, columns=columns):
            numbers = np.arange(start, start + len(frame))
            start += len(frame)
            yield frame if self.keep is None else frame[self.keep(numbers, frame)]

    def blocks(self) -> Iterator[Block]:
        """All rows, encoded."""
        for frame in self.frames():
            yield Block(
                self.encoder.encode(frame),
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
            self.encoder.to_json(),
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
