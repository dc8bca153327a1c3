"""Tables in files: CSV and Parquet, read in blocks of rows, written whole or not at all.

The row labels of a block count the rows of its file from 0, and `attrs["file"]` names the file, for
messages.
"""

import gzip
import os
import sys
import warnings
import zlib
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote

import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow.fs import LocalFileSystem

from dvip.files import check_writable
from dvip.tables.addresses import TableAddress, place, reachable
from dvip.tables.cells import TableError, check_distinct
from dvip.tables.given import EXCEL_TYPES, STANDARD, TableFile, excel_blocks
from dvip.tables.text_files import GAP_TEXTS, TEXT_TYPES, separator, text_blocks

__all__ = [
    "ROWS_AT_ONCE",
    "check_table_output",
    "gap_texts",
    "is_parquet",
    "num_numbers",
    "num_rows",
    "read_blocks",
    "read_table",
    "readable",
    "table_files",
    "table_writer",
]

# Rows of a block: with 100 samples for each, a predictive distribution takes tens of megabytes.
ROWS_AT_ONCE = 20_000

PARQUET_TYPES = (".parquet", ".pq")
TABLE_TYPES = (*TEXT_TYPES, *PARQUET_TYPES)
READ_TYPES = (*TABLE_TYPES, *EXCEL_TYPES)

# Bytes that are read at once of each column of a Parquet file; each is a request, elsewhere.
READ_BUFFER, BUFFER_ELSEWHERE = 2**16, 2**21
# Bytes of a text file for each of its cells, roughly, and how much smaller it is when compressed.
BYTES_OF_A_CELL, COMPRESSION = 8, 4


def is_parquet(path: Path) -> bool:
    """Whether a table is Parquet, by its name; an error if it is no table."""
    name = path.name.lower()
    if path.is_dir():
        return True
    if not name.endswith(READ_TYPES):
        raise TableError(f"{path} is of an unknown type: its name must end in {_either()}.")
    if isinstance(path, TableAddress) and name.endswith(EXCEL_TYPES):
        raise TableError(f"{path} is an Excel file, which is read from folders only: copy it.")
    return name.endswith(PARQUET_TYPES)


def _is_excel(path: Path) -> bool:
    return path.name.lower().endswith(EXCEL_TYPES) and not path.is_dir()


def table_files(path: str | os.PathLike[str]) -> list[Path]:
    """The files of a table: itself, or what a folder and its folders hold of Parquet, by name.

    Names that begin with a dot or an underscore are notes of the programs that wrote the folder.
    """
    path = TableFile.of(path).path
    if not path.is_dir():
        return [path]
    if isinstance(path, TableAddress):
        files = [file for file in path.files() if file.name.lower().endswith(PARQUET_TYPES)]
    else:
        with readable(path):
            # With a schema, no file is opened yet.
            folder = ds.dataset(path, pa.schema([]), "parquet", LocalFileSystem())
        files = sorted(Path(file) for file in folder.files if file.lower().endswith(PARQUET_TYPES))
    if not files:
        raise TableError(f"{path} is a folder without Parquet files.")
    return files


def read_table(path: str | os.PathLike[str]) -> pd.DataFrame:
    """The whole table. Of a folder, the rows are counted over all files.

    Names of folders in it such as `year=2020` are a column of text.
    """
    frames = list(read_blocks(path, rows=None))
    frame = frames[0] if len(frames) == 1 else pd.concat(frames, ignore_index=True)
    frame.attrs["file"] = TableFile.of(path).name
    return frame


def read_blocks(
    path: str | os.PathLike[str],
    text_columns: tuple[str, ...] = (),
    rows: int | None = ROWS_AT_ONCE,
    *,
    columns: Collection[str] | None = None,
    no_rows: bool = False,
) -> Iterator[pd.DataFrame]:
    """The table in blocks of at most `rows` rows of one file; of `columns` those that it has.

    Without `rows`, a file is one block. A table without rows is an error, or with `no_rows` one
    block that has none.

    A CSV file does not say what its columns are. Those in `text_columns` are read as the text that
    is there, so that "1.0" stays "1.0" in a block that happens to hold numbers only.
    """
    empty: pd.DataFrame | None = pd.DataFrame()
    table = TableFile.of(path)
    for file in table_files(table):
        values = {
            name: value
            for name, value in _folder_values(table.path, file).items()
            if columns is None or name in columns
        }
        for block in _blocks_of_file(table.at(file), text_columns, rows, columns):
            new = {name: value for name, value in values.items() if name not in block.columns}
            block = block.assign(**new) if new else block
            if len(block):
                empty = None
                yield block
            elif empty is not None:
                empty = block
    if empty is None:
        return
    if not no_rows:
        raise TableError(f"{table} has no rows.")
    yield empty


def _folder_values(table: Path, file: Path) -> dict[str, str | None]:
    """What the names of a file's folders say of its rows, such as `year=2020`."""
    folders = file.relative_to(table).parts[:-1] if file != table else ()
    pairs = [folder.partition("=") for folder in folders if not folder.endswith("=")]
    schema = pa.schema([(unquote(name), pa.string()) for name, sign, _ in pairs if sign])
    keys = ds.get_partition_keys(ds.HivePartitioning(schema).parse(f"{'/'.join(folders)}/"))
    return {name: keys[name] for name in schema.names}


def _blocks_of_file(
    path: TableFile,
    text_columns: tuple[str, ...],
    rows: int | None,
    columns: Collection[str] | None,
) -> Generator[pd.DataFrame, None, None]:
    blocks: Generator[pd.DataFrame, None, None]
    if is_parquet(path.path):
        blocks = _parquet_blocks(path, rows, columns)
    elif _is_excel(path.path):
        blocks = excel_blocks(path, rows, columns)
    else:
        blocks = text_blocks(path, text_columns, rows, columns)
    start = 0
    with closing(blocks):
        while True:
            with readable(path):
                block = next(blocks, None)
            if block is None:
                break
            block.index = pd.RangeIndex(start, start + len(block))
            block.attrs["file"] = path.name
            start += len(block)
            yield block


def num_rows(path: str | os.PathLike[str]) -> int | None:
    """How many rows a table has, where its files say so."""
    total = 0
    for file in table_files(path):
        with readable(file):
            if not is_parquet(file):
                return None
            total += _metadata(file).num_rows
    return total


def num_numbers(path: str | os.PathLike[str]) -> int:
    """About how many cells a table has: Parquet says it, of text it is guessed from the size."""
    total = 0
    for file in table_files(path):
        with readable(file):
            if is_parquet(file):
                metadata = _metadata(file)
                total += metadata.num_rows * metadata.num_columns
            else:
                compression = COMPRESSION if file.suffix.lower() == ".gz" else 1
                total += file.stat().st_size * compression // BYTES_OF_A_CELL
    return total


def _metadata(path: Path) -> pq.FileMetaData:
    with reachable(path):
        system, file = place(path)
        return pq.read_metadata(file, filesystem=system)


def _either() -> str:
    return f"{', '.join(READ_TYPES[:-1])} or {READ_TYPES[-1]}"


def _parquet_blocks(
    path: TableFile, rows: int | None, columns: Collection[str] | None
) -> Generator[pd.DataFrame, None, None]:
    # `pre_buffer` would keep all that it has read until the file is closed; with a buffer, a block
    # is read where it is needed and not the whole row group before it, as a dataset's scan does.
    system, name = place(path.path)
    size = BUFFER_ELSEWHERE if isinstance(path.path, TableAddress) else READ_BUFFER
    with (
        reachable(path.path),
        pq.ParquetFile(name, pre_buffer=False, buffer_size=size, filesystem=system) as file,
    ):
        names = file.schema_arrow.names
        check_distinct(path, names)
        read = names if columns is None else [name for name in names if name in columns]
        if rows is None:
            yield file.read(read).to_pandas(ignore_metadata=True)
            return
        if not file.metadata.num_rows:
            yield file.schema_arrow.empty_table().select(read).to_pandas(ignore_metadata=True)
        for batch in file.iter_batches(batch_size=rows, columns=read):
            yield batch.to_pandas(ignore_metadata=True)


def gap_texts(path: str | os.PathLike[str], columns: Collection[str]) -> list[str]:
    """What was taken for a gap in columns of a text file: "" and words such as "None"."""
    table = TableFile.of(path)
    if is_parquet(table.path) or _is_excel(table.path):
        return []
    found: set[str] = set()
    with readable(table):
        for block in text_blocks(table, tuple(columns), ROWS_AT_ONCE, columns, na_filter=False):
            found.update(*(block[name].unique() for name in block.columns))
            found &= set(GAP_TEXTS)
    return sorted(found)


@contextmanager
def readable(path: Path | TableFile) -> Iterator[None]:
    """Whatever goes wrong with a file is one `TableError`."""
    try:
        with warnings.catch_warnings():
            # pandas only warns when it throws away what a row has too many.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            yield
    except TableError:
        raise
    except FileNotFoundError:
        raise TableError(f"There is no file {path}.") from None
    except IsADirectoryError:
        raise TableError(f"{path} is a folder, not a table.") from None
    except PermissionError:
        raise TableError(f"{path} may not be read: permission denied.") from None
    except pd.errors.EmptyDataError:
        raise TableError(f"{path} is empty.") from None
    except UnicodeDecodeError:
        raise TableError(
            f"{path} is not text in UTF-8: name its encoding with --encoding, such as latin-1, or "
            "save it as CSV in UTF-8."
        ) from None
    except pd.errors.ParserWarning:
        raise TableError(f"{path} has rows with more values than its first line names.") from None
    except (OSError, ValueError, EOFError, OverflowError, zlib.error, pa.ArrowException) as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise TableError(f"{path} cannot be read, it may be damaged: {reason[0]}") from error


def check_table_output(path: Path, *inputs: Path) -> None:
    """Raises a `TableError` unless a table can be written to `path`, which is none of `inputs`."""
    if path == STANDARD:
        return
    if _is_excel(path):
        raise TableError(f"{path}: tables are written as CSV or Parquet, choose another ending.")
    inputs = tuple(given for given in inputs if not isinstance(given, TableAddress))
    is_parquet(path)
    if path.is_dir():
        raise TableError(f"{path} is a folder: give the name of a file.")
    if any(path.exists() and given.exists() and path.samefile(given) for given in inputs):
        raise TableError(f"{path} is the table that is read: choose another name.")
    if any(given.is_dir() and given.resolve() in path.resolve().parents for given in inputs):
        raise TableError(f"{path} is in the folder that is read: choose another folder.")
    check_writable(path.parent)


@contextmanager
def table_writer(
    path: str | Path, digits: int | None = None, standard: IO[str] | None = None
) -> Iterator[Callable[[pd.DataFrame], None]]:
    """Gives a function that appends a block; `path` is replaced when all are written.

    `-` is standard output, or the stream that is given for it. Text has so many `digits` of each
    number, or all that it needs.
    """
    path = Path(path)
    if path == STANDARD:
        yield _text_blocks_to(standard or sys.stdout, ",", digits)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        with ExitStack() as files:
            yield (
                _parquet_appender(files, temporary)
                if is_parquet(path)
                else _text_appender(files, temporary, digits)
            )
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _text_appender(
    files: ExitStack, path: Path, digits: int | None
) -> Callable[[pd.DataFrame], None]:
    opener: Callable[..., IO[Any]] = gzip.open if path.suffix.lower() == ".gz" else open
    file = files.enter_context(opener(path, "wt", encoding="utf-8", newline=""))
    return _text_blocks_to(file, separator(path), digits)


def _text_blocks_to(file: IO[Any], sep: str, digits: int | None) -> Callable[[pd.DataFrame], None]:
    empty = True
    # By default the fewest digits that give the same number again.
    written = None if digits is None else f"%.{digits}g"

    def append(block: pd.DataFrame) -> None:
        nonlocal empty
        block.to_csv(file, index=False, header=empty, sep=sep, float_format=written)
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
