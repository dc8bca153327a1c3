"""`open_source`: from a path to a source."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from dvip.sources.arrays import ArraySource
from dvip.sources.source import Source
from dvip.sources.table import TableSource, whole_targets
from dvip.tables import TableEncoder, TableError, read_blocks
from dvip.tables.errors import check_present

__all__ = ["open_source"]


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
        files = [path, *([Path(str(target))] + ([] if weight is None else [Path(weight)]))]
        return ArraySource(*(_mapped(file) for file in files))
    targets = [target] if isinstance(target, str) else [str(name) for name in target]  # type: ignore[union-attr]
    names = [str(name) for name in next(read_blocks(path, rows=100)).columns]
    others = [*targets, *([] if weight is None else [str(weight)])]
    inputs = [name for name in names if name not in others] if columns is None else list(columns)
    check_present([*others, *inputs], names)
    if not inputs:
        raise TableError(f"{path} has no column to predict from.")
    return TableSource(
        path,
        TableEncoder.of_numbers(inputs, targets),
        partial(whole_targets, targets=targets),
        weight=None if weight is None else str(weight),
    )


def _mapped(path: Path) -> np.ndarray:
    if not path.exists():
        raise ValueError(f"There is no file {path}.")
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError) as error:
        raise ValueError(f"{path} cannot be read as an array: {error}") from error
