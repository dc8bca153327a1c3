"""Tables from CSV and Parquet files, whole or in blocks of rows.

The row labels of what is read count the rows of the file from 0, in every block.
"""

import gzip
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from dvip.tables.errors import TableError, quoted

__all__ = [
    "ROWS_AT_ONCE",
    "is_parquet",
    "num_rows",
    "read_blocks",
    "read_table",
    "readable",
    "separator",
]

# Rows of a block: with 100 samples for each, a predictive distribution takes tens of megabytes.
ROWS_AT_ONCE = 20_000

TEXT_TYPES = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
PARQUET_TYPES = (".parquet", ".pq")
TABLE_TYPES = (*TEXT_TYPES, *PARQUET_TYPES)

# Characters in which the separator is looked for.
MAX_FIRST_LINE = 1_000_000

# What pandas calls a column whose header is empty, such as the row labels that it writes itself.
NAMELESS = "Unnamed: {}"
# Besides what pandas takes for a gap: the sign in many public data sets.
GAP_SIGNS = ("?",)


def is_parquet(path: Path) -> bool:
    """Whether a file is Parquet rather than CSV, by its name; an error if it is neither."""
    name = path.name.lower()
    if not name.endswith(TABLE_TYPES):
        raise TableError(f"{path} is of an unknown type: its name must end in {_either()}.")
    return name.endswith(PARQUET_TYPES)


def read_table(path: str | Path) -> pd.DataFrame:
    """The whole table."""
    path = Path(path)
    with readable(path):
        if is_parquet(path):
            with pq.ParquetFile(path) as file:
                _check_names(path, file.schema_arrow.names)
                frame = file.read().to_pandas(ignore_metadata=True)
        else:
            with _open_text(path) as file:
                frame = _parse_text(path, file)
    if frame.empty:
        raise TableError(f"{path} has no rows.")
    return frame


def read_blocks(
    path: str | Path, text_columns: tuple[str, ...] = (), rows: int = ROWS_AT_ONCE
) -> Iterator[pd.DataFrame]:
    """The table in blocks of at most `rows` rows.

    A CSV file does not say what its columns are. Those in `text_columns` are read as the text that
    is there, so that "1.0" stays "1.0" in a block that happens to hold numbers only.
    """
    path = Path(path)
    parquet = is_parquet(path)
    blocks = _parquet_blocks(path, rows) if parquet else _text_blocks(path, text_columns, rows)
    start = 0
    with closing(blocks):
        while True:
            with readable(path):
                block = next(blocks, None)
            if block is None:
                break
            block.index = pd.RangeIndex(start, start + len(block))
            start += len(block)
            if len(block):
                yield block
    if start == 0:
        raise TableError(f"{path} has no rows.")


def num_rows(path: str | Path) -> int | None:
    """How many rows a table has, where the file says so."""
    path = Path(path)
    with readable(path):
        return pq.read_metadata(path).num_rows if is_parquet(path) else None


def _either() -> str:
    return f"{', '.join(TABLE_TYPES[:-1])} or {TABLE_TYPES[-1]}"


def _check_names(path: Path, names: list[str]) -> None:
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise TableError(f"{path} has several columns named {quoted(repeated)}: rename them.")


def _parquet_blocks(path: Path, rows: int) -> Generator[pd.DataFrame, None, None]:
    with pq.ParquetFile(path) as file:
        _check_names(path, file.schema_arrow.names)
        for batch in file.iter_batches(batch_size=rows):
            yield batch.to_pandas(ignore_metadata=True)


def separator(path: Path) -> str:
    """What separates the values of a text table, by the file's name."""
    return "\t" if path.name.lower().endswith((".tsv", ".tsv.gz")) else ","


def _open_text(path: Path) -> IO[str]:
    """A text file whose lines end in newlines whatever they end in on disk.

    A lone carriage return before white space sends the parser of pandas 2 into an endless loop.
    """
    opener: Callable[..., IO[str]] = gzip.open if path.suffix.lower() == ".gz" else open
    return opener(path, "rt", encoding="utf-8-sig", newline=None)


def _found_separator(first_line: str) -> str:
    """What separates the names in a first line: "CSV" files often have semicolons or tabs."""
    return max((",", ";", "\t"), key=first_line.count)


def _parse_text(
    path: Path, file: IO[str], text_columns: tuple[str, ...] = (), **options: Any
) -> Any:
    """What `pandas.read_csv` gives, with names that are stripped and checked."""
    first_line = file.readline(MAX_FIRST_LINE)
    dialect: dict[str, Any] = {
        "sep": "\t" if separator(path) == "\t" else _found_separator(first_line),
        "skipinitialspace": True,
        "index_col": False,
    }
    file.seek(0)
    header = pd.read_csv(file, header=None, nrows=1, dtype=str, na_filter=False, **dialect)
    cells = [str(cell).strip() for cell in header.loc[0]]
    names = [cell or NAMELESS.format(position) for position, cell in enumerate(cells)]
    _check_names(path, names)
    file.seek(0)
    return pd.read_csv(
        file,
        header=0,
        names=names,
        dtype={name: str for name in text_columns if name in names},
        na_values=list(GAP_SIGNS),
        low_memory=False,  # else the type of a cell depends on the rows around it
        **dialect,
        **options,
    )


def _text_blocks(
    path: Path, text_columns: tuple[str, ...], rows: int
) -> Generator[pd.DataFrame, None, None]:
    with _open_text(path) as file, _parse_text(path, file, text_columns, chunksize=rows) as blocks:
        yield from blocks


@contextmanager
def readable(path: Path) -> Iterator[None]:
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
        raise TableError(f"{path} is not text in UTF-8: save it as CSV in UTF-8.") from None
    except pd.errors.ParserWarning:
        raise TableError(f"{path} has rows with more values than its first line names.") from None
    except (OSError, ValueError, EOFError, OverflowError, zlib.error, pa.ArrowException) as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise TableError(f"{path} cannot be read, it may be damaged: {reason[0]}") from error
