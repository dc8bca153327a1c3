"""Decimal commas in text tables whose cells are separated by something else than commas."""

import gzip
import re
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pandas.api import types

from dvip.tables.cells import TableError, quoted

__all__ = [
    "ROWS_AT_ONCE",
    "SAMPLED_ROWS",
    "decimal_mark",
    "gap_texts",
    "is_parquet",
    "num_numbers",
    "num_rows",
    "read_blocks",
    "read_table",
    "readable",
    "separator",
    "table_files",
    "with_points",
]

# Rows in which the mark is looked for.
SAMPLED_ROWS = 1_000

EXPONENT = r"(e[+-]?\d+)?"
# One group of three digits: a fraction or thousands.
COMMA_OR_GROUP = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}", re.ASCII)
POINT_OR_GROUP = re.compile(r"[+-]?[1-9]\d{0,2}\.\d{3}", re.ASCII)
DECIMAL_COMMA = re.compile(rf"[+-]?\d*,\d+{EXPONENT}", re.ASCII | re.I)
# What a cell says of the file; the first that fits counts.
SIGNS = (
    (COMMA_OR_GROUP, "comma or group"),
    (POINT_OR_GROUP, "point or group"),
    (DECIMAL_COMMA, "comma"),
    (re.compile(r"[+-]?\d{1,3}(\.\d{3})+,\d+", re.ASCII), "comma"),
    (re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?", re.ASCII), "point"),
    (re.compile(rf"[+-]?(\d+\.\d*|\.\d+){EXPONENT}", re.ASCII | re.I), "point"),
)


def decimal_mark(path: Path, cells: Iterable[str]) -> str | None:
    """The decimal mark that the first cells of a file show, None if they show none.

    An error where "1,234" may be both 1.234 and 1234.
    """
    seen: dict[str, str] = {}
    for cell in cells:
        sign = _sign(cell.strip())
        if sign is not None:
            seen.setdefault(sign, cell.strip())
    if "comma" in seen and "point" not in seen:
        if "point or group" in seen:
            raise _unclear(path, seen["point or group"], "point")
        return ","
    if "comma or group" in seen and ("comma" in seen or "point" not in seen):
        raise _unclear(path, seen["comma or group"], "comma")
    return "." if "point" in seen else None


def with_points(path: Path, frame: pd.DataFrame, mark: str | None) -> pd.DataFrame:
    """A block of a file with decimal points for the commas that are still there, as text.

    A column is text where one of its cells is, or where it was asked for.
    """
    if mark == ".":
        return frame
    for name in frame.columns:
        if types.is_numeric_dtype(frame[name].dtype):
            continue
        if mark == ",":
            frame[name] = frame[name].map(_with_point, na_action="ignore")
            continue
        for cell in frame[name]:
            if isinstance(cell, str) and COMMA_OR_GROUP.fullmatch(cell.strip()):
                raise _unclear(path, cell.strip(), "comma")
    return frame


def _sign(cell: str) -> str | None:
    return next((sign for pattern, sign in SIGNS if pattern.fullmatch(cell)), None)


def _with_point(cell: Any) -> Any:
    if isinstance(cell, str) and DECIMAL_COMMA.fullmatch(cell.strip()):
        return cell.replace(",", ".")
    return cell


def _unclear(path: Path, cell: str, mark: str) -> TableError:
    return TableError(
        f"{path} has the number {cell!r}, and it is not clear whether its {mark} is a decimal mark "
        "or separates thousands: write numbers with a decimal point and without thousands "
        "separators."
    )


# Tables from CSV and Parquet files and folders of Parquet files, whole or in blocks of rows.
#
# The row labels of a block count the rows of its file from 0, and `attrs["file"]` names the file,
# for messages.

# Rows of a block: with 100 samples for each, a predictive distribution takes tens of megabytes.
ROWS_AT_ONCE = 20_000

TEXT_TYPES = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
PARQUET_TYPES = (".parquet", ".pq")
TABLE_TYPES = (*TEXT_TYPES, *PARQUET_TYPES)

# Bytes that are read at once of each column of a Parquet file.
READ_BUFFER = 2**16
# Bytes of a text file for each of its cells, roughly, and how much smaller it is when compressed.
BYTES_OF_A_CELL, COMPRESSION = 8, 4

# Characters in which the separator is looked for.
MAX_FIRST_LINE = 1_000_000
# A name in quotes, in which a separator is part of the name.
QUOTED = re.compile('"[^"]*"')

# What pandas calls a column whose header is empty, such as the row labels that it writes itself.
NAMELESS = "Unnamed: {}"
# Cells of text files that are gaps: what pandas takes for one, and the sign of many public tables.
GAP_TEXTS = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
    *("<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null", "?"),
)
# What Hive and Spark name the folder of rows without a value.
FOLDER_GAP = "__HIVE_DEFAULT_PARTITION__"


def is_parquet(path: Path) -> bool:
    """Whether a table is Parquet rather than CSV, by its name; an error if it is neither."""
    name = path.name.lower()
    if path.is_dir():
        return True
    if not name.endswith(TABLE_TYPES):
        raise TableError(f"{path} is of an unknown type: its name must end in {_either()}.")
    return name.endswith(PARQUET_TYPES)


def table_files(path: str | Path) -> list[Path]:
    """The files of a table: itself, or what a folder and its folders hold of Parquet, by name.

    Names that begin with a dot or an underscore are notes of the programs that wrote the folder.
    """
    path = Path(path)
    if not path.is_dir():
        return [path]
    files = [
        file
        for file in sorted(path.rglob("*"))
        if file.name.lower().endswith(PARQUET_TYPES)
        and not any(part.startswith((".", "_")) for part in file.relative_to(path).parts)
    ]
    if not files:
        raise TableError(f"{path} is a folder without Parquet files.")
    return files


def read_table(path: str | Path) -> pd.DataFrame:
    """The whole table. Of a folder, the rows are counted over all files.

    Names of folders in it such as `year=2020` are a column of text.
    """
    path = Path(path)
    frames = []
    for file in table_files(path):
        with readable(file):
            frames.append(_with_folder_values(_read_file(file), path, file))
    frame = frames[0] if len(frames) == 1 else pd.concat(frames, ignore_index=True)
    if frame.empty:
        raise TableError(f"{path} has no rows.")
    frame.attrs["file"] = path.name
    return frame


def _read_file(path: Path) -> pd.DataFrame:
    if is_parquet(path):
        with _open_parquet(path) as file:
            return file.read().to_pandas(ignore_metadata=True)
    with _open_text(path) as file:
        dialect = _dialect(path, file)
        return with_points(path, _parse_text(path, file, dialect), dialect.mark)


def read_blocks(
    path: str | Path,
    text_columns: tuple[str, ...] = (),
    rows: int = ROWS_AT_ONCE,
    *,
    columns: Collection[str] | None = None,
) -> Iterator[pd.DataFrame]:
    """The table in blocks of at most `rows` rows of one file; of `columns` those that it has.

    A CSV file does not say what its columns are. Those in `text_columns` are read as the text that
    is there, so that "1.0" stays "1.0" in a block that happens to hold numbers only.
    """
    empty = True
    for file in table_files(path):
        for block in _blocks_of_file(file, text_columns, rows, columns):
            empty = False
            yield _with_folder_values(block, Path(path), file, columns)
    if empty:
        raise TableError(f"{path} has no rows.")


def _blocks_of_file(
    path: Path, text_columns: tuple[str, ...], rows: int, columns: Collection[str] | None
) -> Generator[pd.DataFrame, None, None]:
    if is_parquet(path):
        blocks = _parquet_blocks(path, rows, columns)
    else:
        blocks = _text_blocks(path, text_columns, rows, columns)
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
            if len(block):
                yield block


def _with_folder_values(
    frame: pd.DataFrame, table: Path, file: Path, columns: Collection[str] | None = None
) -> pd.DataFrame:
    """Rows of a file with what the names of its folders say of them, such as `year=2020`."""
    folders = file.relative_to(table).parts[:-1] if file != table else ()
    for name, _, value in (folder.partition("=") for folder in folders):
        key = unquote(name)
        wanted = columns is None or key in columns
        if value and wanted and key not in frame.columns:
            frame[key] = None if value == FOLDER_GAP else unquote(value)
    return frame


def num_rows(path: str | Path) -> int | None:
    """How many rows a table has, where its files say so."""
    total = 0
    for file in table_files(path):
        with readable(file):
            if not is_parquet(file):
                return None
            total += pq.read_metadata(file).num_rows
    return total


def num_numbers(path: str | Path) -> int:
    """About how many cells a table has: Parquet says it, of text it is guessed from the size."""
    total = 0
    for file in table_files(path):
        with readable(file):
            if is_parquet(file):
                metadata = pq.read_metadata(file)
                total += metadata.num_rows * metadata.num_columns
            else:
                compression = COMPRESSION if file.suffix.lower() == ".gz" else 1
                total += file.stat().st_size * compression // BYTES_OF_A_CELL
    return total


def _either() -> str:
    return f"{', '.join(TABLE_TYPES[:-1])} or {TABLE_TYPES[-1]}"


def _check_names(path: Path, names: list[str]) -> None:
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise TableError(f"{path} has several columns named {quoted(repeated)}: rename them.")


def _open_parquet(path: Path) -> pq.ParquetFile:
    # `pre_buffer` would keep all that it has read until the file is closed; with a buffer, a block
    # is read where it is needed and not the whole row group before it.
    file = pq.ParquetFile(path, pre_buffer=False, buffer_size=READ_BUFFER)
    _check_names(path, file.schema_arrow.names)
    return file


def _parquet_blocks(
    path: Path, rows: int, columns: Collection[str] | None
) -> Generator[pd.DataFrame, None, None]:
    with _open_parquet(path) as file:
        names = file.schema_arrow.names
        read = names if columns is None else [name for name in names if name in columns]
        for batch in file.iter_batches(batch_size=rows, columns=read):
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
    return max((",", ";", "\t"), key=QUOTED.sub("", first_line).count)


@dataclass(frozen=True)
class _Dialect:
    """How a text file is written."""

    options: dict[str, Any]
    """Options of `pandas.read_csv`."""
    mark: str | None
    """The decimal mark, None if the first rows do not show it."""


def _dialect(path: Path, file: IO[str]) -> _Dialect:
    """Looks at the first lines of a file."""
    first_line = file.readline(MAX_FIRST_LINE)
    sep = "\t" if separator(path) == "\t" else _found_separator(first_line)
    options: dict[str, Any] = {"sep": sep, "skipinitialspace": True, "index_col": False}
    if sep == ",":
        return _Dialect(options, ".")
    file.seek(0)
    sample = pd.read_csv(file, nrows=SAMPLED_ROWS, dtype=str, na_filter=False, **options)
    mark = decimal_mark(path, sample.to_numpy(dtype=object).ravel())
    return _Dialect({**options, "decimal": mark or "."}, mark)


def _parse_text(
    path: Path,
    file: IO[str],
    dialect: _Dialect,
    text_columns: tuple[str, ...] = (),
    **options: Any,
) -> Any:
    """What `pandas.read_csv` gives, with names that are stripped and checked."""
    file.seek(0)
    header = pd.read_csv(file, header=None, nrows=1, dtype=str, na_filter=False, **dialect.options)
    cells = [str(cell).strip() for cell in header.loc[0]]
    names = [cell or NAMELESS.format(position) for position, cell in enumerate(cells)]
    _check_names(path, names)
    file.seek(0)
    return pd.read_csv(
        file,
        header=0,
        names=names,
        dtype={name: str for name in text_columns if name in names},
        na_values=list(GAP_TEXTS),
        keep_default_na=False,
        low_memory=False,  # else the type of a cell depends on the rows around it
        **dialect.options,
        **options,
    )


def _text_blocks(
    path: Path, text_columns: tuple[str, ...], rows: int, columns: Collection[str] | None
) -> Generator[pd.DataFrame, None, None]:
    options: dict[str, Any] = {"chunksize": rows}
    if columns is not None:
        options["usecols"] = lambda name: name in columns
    with _open_text(path) as file:
        dialect = _dialect(path, file)
        with _parse_text(path, file, dialect, text_columns, **options) as blocks:
            for block in blocks:
                yield with_points(path, block, dialect.mark)


def gap_texts(path: Path, columns: Collection[str]) -> list[str]:
    """What was taken for a gap in columns of a text file: "" and words such as "None"."""
    if is_parquet(path):
        return []
    options = {"chunksize": ROWS_AT_ONCE, "usecols": lambda name: name in columns}
    found: set[str] = set()
    with readable(path), _open_text(path) as file:
        dialect = _dialect(path, file)
        text_columns = tuple(columns)
        with _parse_text(path, file, dialect, text_columns, na_filter=False, **options) as blocks:
            for block in blocks:
                found.update(*(block[name].unique() for name in block.columns))
                found &= set(GAP_TEXTS)
    return sorted(found)


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
