"""Text tables: separators, decimal commas, quotes, and words that stand for gaps."""

import gzip
import io
import re
from collections.abc import Collection, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TextIO

import pandas as pd
from pandas.api import types

from dvip.tables.addresses import opened
from dvip.tables.cells import TableError, check_distinct
from dvip.tables.given import TableFile

__all__ = ["GAP_TEXTS", "TEXT_TYPES", "separator", "text_blocks"]

TEXT_TYPES = (".csv", ".csv.gz", ".tsv", ".tsv.gz")

# Characters in which the separator is looked for.
MAX_FIRST_LINE = 1_000_000
# Numbers are those that are written, to the last bit. (Pandas 3 reads them so by itself; before, it
# is faster otherwise, and a time in seconds since 1970 is wrong by 2e-7 of a second.)
FLOAT_PRECISION = "round_trip" if int(pd.__version__.split(".")[0]) < 3 else None
# A name in quotes, in which a separator is part of the name.
QUOTED = re.compile('"[^"]*"')

# Cells of text files that are gaps: what pandas takes for one, and the sign of many public tables.
GAP_TEXTS = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
    *("<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null", "?"),
)


def separator(path: Path) -> str:
    """What separates the values of a text table, by the file's name."""
    return "\t" if path.name.lower().endswith((".tsv", ".tsv.gz")) else ","


def text_blocks(
    path: TableFile,
    text_columns: tuple[str, ...],
    rows: int | None,
    columns: Collection[str] | None,
    **options: Any,
) -> Generator[pd.DataFrame, None, None]:
    """A text file in blocks of so many rows, or as one; of `columns` those that it has.

    `text_columns` are the text that is there; other options are those of `pandas.read_csv`.
    """
    if columns is not None:
        options["usecols"] = lambda name: name in columns
    with _open_text(path) as file:
        dialect = _dialect(path, file)
        parsed = _parse_text(path, file, dialect, text_columns, chunksize=rows, **options)
        if rows is None:
            yield _with_points(path, parsed, dialect.mark)
            return
        with parsed as blocks:
            for block in blocks:
                yield _with_points(path, block, dialect.mark)


@contextmanager
def _open_text(path: TableFile) -> Iterator["_QuotedText"]:
    """A text file whose lines end in newlines whatever they end in on disk.

    A lone carriage return before white space sends the parser of pandas 2 into an endless loop.
    """
    encoding = path.format.encoding or "utf-8-sig"
    with opened(path.path) as file:
        zipped = path.path.suffix.lower() == ".gz"
        plain: Any = gzip.GzipFile(fileobj=file) if zipped else file
        with io.TextIOWrapper(plain, encoding=encoding, newline=None) as text:
            yield _QuotedText(path, text)


class _QuotedText(io.TextIOBase):
    """A text file in which a quote that is not closed is an error: it would swallow rows.

    A text in quotes may have several lines. But where what follows the quote that ends it is
    neither a separator nor the end of a line, that quote was meant to begin another text.
    """

    def __init__(self, path: TableFile, file: TextIO):
        self.path, self.file = path, file
        self.separator = ","
        self._line, self._opened = 0, 0

    def readline(self, size: int | None = -1, /) -> str:  # type: ignore[override]
        """The next line; its quotes are not looked at."""
        return self.file.readline(-1 if size is None else size)

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """To the beginning, that is."""
        self._line = self._opened = 0
        return self.file.seek(offset, whence)

    def read(self, size: int | None = -1, /) -> str:
        """About so many characters, up to the end of a line."""
        text = self.file.read(-1 if size is None else size) + self.file.readline()
        if self._opened or '"' in text:
            *lines, last = text.split("\n")
            for line in [*lines, last] if last else lines:
                self._line += 1
                if self._opened or ('"' in line and not self._simple.fullmatch(line)):
                    self._look_at(line)
        else:
            self._line += text.count("\n")
        if not text and self._opened:
            raise self._unclosed()
        return text

    @cached_property
    def _simple(self) -> re.Pattern[str]:
        """A line in which every quote begins or ends a cell, as it should."""
        sep = re.escape(self.separator)
        return re.compile(rf'(?: *+(?:"[^"]*+"|[^"{sep}]*+)(?:{sep}|$))*+')

    def _look_at(self, line: str) -> None:
        """Follows the quotes of a line; `_opened` is the line of one that is open at its end."""
        end = -1
        while (quote := line.find('"', end + 1)) >= 0:
            end = quote
            if not self._opened:
                before = quote
                while before and line[before - 1] == " ":
                    before -= 1
                if not before or line[before - 1] == self.separator:
                    self._opened = self._line
            elif line[quote + 1 : quote + 2] == '"':  # two of them are a quote in the text
                end += 1
            else:
                after = quote + 1
                while line[after : after + 1].isspace() and line[after] != self.separator:
                    after += 1
                if self._opened < self._line and line[after : after + 1] not in (
                    "",
                    self.separator,
                ):
                    raise self._unclosed()
                self._opened = 0

    def _unclosed(self) -> TableError:
        return TableError(
            f"{self.path} has a quote in line {self._opened} that is not closed: add the other "
            "quote, or remove this one."
        )


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


def _dialect(path: TableFile, file: _QuotedText) -> _Dialect:
    """What is known of a file, and what its first lines show."""
    first_line = file.readline(MAX_FIRST_LINE)
    given = path.format
    found = "\t" if separator(path.path) == "\t" else _found_separator(first_line)
    sep = given.sep or found
    file.separator = sep
    options: dict[str, Any] = {"sep": sep, "skipinitialspace": True, "index_col": False}
    if given.decimal is not None:
        if given.decimal == sep:
            raise TableError(
                f"{path} seems to have {sep!r} between its values, which --decimal is, too: say "
                "what separates them with --sep."
            )
        return _Dialect({**options, "decimal": given.decimal}, given.decimal)
    if sep == ",":
        return _Dialect(options, ".")
    file.seek(0)
    sample = pd.read_csv(file, nrows=SAMPLED_ROWS, dtype=str, na_filter=False, **options)
    mark = _decimal_mark(path, sample.to_numpy(dtype=object).ravel())
    return _Dialect({**options, "decimal": mark or "."}, mark)


def _parse_text(
    path: TableFile,
    file: _QuotedText,
    dialect: _Dialect,
    text_columns: tuple[str, ...] = (),
    **options: Any,
) -> Any:
    """What `pandas.read_csv` gives, with names that are stripped and checked."""
    file.seek(0)
    header = pd.read_csv(file, header=None, nrows=1, dtype=str, na_filter=False, **dialect.options)
    cells = [str(cell).strip() for cell in header.loc[0]]
    names = [cell or f"Unnamed: {position}" for position, cell in enumerate(cells)]
    check_distinct(path, names)
    file.seek(0)
    return pd.read_csv(
        file,
        header=0,
        names=names,
        dtype={name: str for name in text_columns if name in names},
        na_values=list(GAP_TEXTS),
        keep_default_na=False,
        low_memory=False,  # else the type of a cell depends on the rows around it
        float_precision=FLOAT_PRECISION,
        **dialect.options,
        **options,
    )


# Decimal commas in text tables whose cells are separated by something else than commas.

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


def _decimal_mark(path: TableFile, cells: Iterable[str]) -> str | None:
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


def _with_points(path: TableFile, frame: pd.DataFrame, mark: str | None) -> pd.DataFrame:
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


def _unclear(path: TableFile, cell: str, mark: str) -> TableError:
    return TableError(
        f"{path} has the number {cell!r}, and it is not clear whether its {mark} is a decimal mark "
        "or separates thousands: write numbers with a decimal point and without thousands "
        "separators."
    )
