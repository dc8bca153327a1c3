"""Tables to CSV and Parquet files, block by block: the file is complete or not there."""

import gzip
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from dvip.files import why_not_writable
from dvip.tables.cells import TableError
from dvip.tables.readers import is_parquet
from dvip.tables.text_files import separator

__all__ = ["check_folder", "check_table_output", "table_writer"]


def check_folder(folder: Path) -> None:
    """Raises a `TableError` unless files can be written in `folder`, which need not exist yet."""
    reason = why_not_writable(folder)
    if reason is not None:
        raise TableError(reason)


def check_table_output(path: Path, *inputs: Path) -> None:
    """Raises a `TableError` unless a table can be written to `path`, which is none of `inputs`."""
    is_parquet(path)
    if path.is_dir():
        raise TableError(f"{path} is a folder: give the name of a file.")
    if any(path.exists() and given.exists() and path.samefile(given) for given in inputs):
        raise TableError(f"{path} is the table that is read: choose another name.")
    if any(given.is_dir() and given.resolve() in path.resolve().parents for given in inputs):
        raise TableError(f"{path} is in the folder that is read: choose another folder.")
    check_folder(path.parent)


@contextmanager
def table_writer(path: str | Path) -> Iterator[Callable[[pd.DataFrame], None]]:
    """Gives a function that appends a block; `path` is replaced when all are written."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        with ExitStack() as files:
            yield (
                _parquet_appender(files, temporary)
                if is_parquet(path)
                else _text_appender(files, temporary)
            )
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _text_appender(files: ExitStack, path: Path) -> Callable[[pd.DataFrame], None]:
    opener: Callable[..., IO[Any]] = gzip.open if path.suffix.lower() == ".gz" else open
    file = files.enter_context(opener(path, "wt", encoding="utf-8", newline=""))
    empty = True

    def append(block: pd.DataFrame) -> None:
        nonlocal empty
        # The fewest digits that give the same number again.
        block.to_csv(file, index=False, header=empty, sep=separator(path))
        empty = False

    return append


def _parquet_appender(files: ExitStack, path: Path) -> Callable[[pd.DataFrame], None]:
    writer: pq.ParquetWriter | None = None

    def append(block: pd.DataFrame) -> None:
        nonlocal writer
        table = pa.Table.from_pandas(block, preserve_index=False)
        if writer is None:
            writer = files.enter_context(pq.ParquetWriter(path, table.schema))
        writer.write_table(table)

    return append
