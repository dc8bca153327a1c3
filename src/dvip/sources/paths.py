"""From paths, or Arrow data, and the names of columns to a source of rows."""

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dvip.sources.record_batches import BatchSource, RecordBatches, are_batches
from dvip.sources.source import ArraySource, Source, TableSource
from dvip.tables import TableEncoder, TableError, check_one_error_each, read_blocks
from dvip.tables.addresses import TableAddress, located
from dvip.tables.cells import check_present, missing_cells, row_name

__all__ = ["open_source"]


def open_source(
    path: Any,
    target: str | Path | Sequence[str],
    *,
    columns: Sequence[str] | None = None,
    weight: str | Path | None = None,
    noise_std: str | Path | Sequence[str] | None = None,
) -> Source:
    """A source of rows in files, or of Arrow data, for `fit`.

    Parameters
    ----------
    path : str, Path, or Arrow data
        A Parquet file, a folder of Parquet files, a CSV file (also `.csv.gz`), or `.npy`. Parquet
        and CSV may be at an address of S3 (`s3://bucket/folder`), Google (`gs://`), Hadoop
        (`hdfs://`) or another filesystem that pyarrow knows. Arrow data are a table of pyarrow or
        polars, a relation of DuckDB, a reader of record batches, or any iterable of them. A reader
        and an iterator can be read once, that is, by one fit.
    target : str, or several
        The name of the target column, or the names of several for a regression. For `.npy`, the
        `.npy` file of the targets.
    columns : sequence of str
        The names of the inputs: columns of numbers without gaps. By default all other columns.
    weight : str
        The column, or `.npy` file, that says how many times each row counts.
    noise_std : str, or several
        The column, or `.npy` file, of the target's known errors, as `fit` takes them. Of several
        targets one column for each, in the same order.

    Returns
    -------
    Source
        Its rows are read when a model is fitted to it.
    """
    table = _given(path)
    if isinstance(table, Path) and table.suffix.lower() == ".npy":
        if columns is not None:
            raise ValueError("columns: the columns of an array have no names, leave it out.")
        files = {"X": table, "y": target, "sample_weight": weight, "noise_std": noise_std}
        _check_files(target=target, weight=weight, noise_std=noise_std)
        return ArraySource(
            **{name: _mapped(Path(str(file))) for name, file in files.items() if file is not None}
        )
    targets = [target] if isinstance(target, str) else _names("target", target)
    if weight is not None and not isinstance(weight, str):
        raise ValueError(f"weight={weight!r} must be the name of one column.")
    errors = [noise_std] if isinstance(noise_std, str) else _names("noise_std", noise_std or [])
    if errors:
        check_one_error_each(targets, errors)
    if isinstance(table, RecordBatches):
        names = table.schema.names
    else:
        names = [str(name) for name in next(read_blocks(table, rows=100)).columns]
    others = [*targets, *errors, *([] if weight is None else [weight])]
    if columns is None:
        inputs = [name for name in names if name not in others]
    else:
        inputs = _names("columns", columns)
    check_present([*others, *inputs], names)
    _check_one_use(target=targets, columns=inputs, weight=weight, noise_std=errors)
    if not inputs:
        raise TableError(f"{table} has no column to predict from.")
    kind: Any = BatchSource if isinstance(table, RecordBatches) else TableSource
    return kind(
        table,
        TableEncoder.of_numbers(inputs),
        targets,
        partial(_whole_targets, targets=targets),
        weight=weight,
        noise=errors,
        only_numbers=True,
    )


def _given(path: Any) -> Path | RecordBatches:
    """Where the rows are."""
    if isinstance(path, str | Path | TableAddress):
        return located(path)
    if not are_batches(path):
        raise ValueError(
            f"open_source takes no {type(path).__name__}: give the path of a file, a table of "
            "pyarrow or polars (a LazyFrame by its collect()), or an iterator of record batches."
        )
    return RecordBatches(path)


def _whole_targets(frame: pd.DataFrame, targets: Sequence[str]) -> np.ndarray:
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


def _names(option: str, given: Any) -> list[str]:
    """The names of columns that were given as a sequence."""
    are_names = isinstance(given, Iterable) and not isinstance(given, str | bytes)
    names = list(given) if are_names else []
    if not are_names or not all(isinstance(name, str) for name in names):
        one = "" if option == "columns" else "a name, or "
        raise ValueError(f"{option}={given!r} must be {one}a list of names of columns.")
    if option == "target" and not names:
        raise ValueError("target has no name: name the column to predict.")
    return [str(name) for name in names]


def _check_one_use(**columns: list[str] | str | None) -> None:
    """Raises an error if a column has two uses, such as a target that is among the inputs."""
    uses = [
        (name, use)
        for use, given in columns.items()
        for name in ([given] if isinstance(given, str) else given or [])
    ]
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
        if not (isinstance(path, str | Path) or (option != "target" and path is None)):
            raise ValueError(f"{option}={path!r} must be the path of a .npy file.")


def _mapped(path: Path) -> np.ndarray:
    if not path.exists():
        raise ValueError(f"There is no file {path}.")
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError) as error:
        raise ValueError(f"{path} cannot be read as an array: {error}") from error
