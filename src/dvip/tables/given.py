"""A table as it is given: a path and how its text is written, standard input, Excel files."""

import codecs
import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Collection, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from dvip.tables.addresses import located
from dvip.tables.cells import TableError, check_distinct

__all__ = ["EXCEL_TYPES", "STANDARD", "TableFile", "TextFormat", "excel_blocks", "given_table"]

EXCEL_TYPES = (".xlsx", ".xlsm")
# How a user names standard input and output.
STANDARD = Path("-")
# What files of these kinds begin with.
BEGINNINGS = {b"PAR1": ".parquet", b"PK\x03\x04": ".xlsx", b"\x1f\x8b": ".csv.gz"}
WORDS = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "space": " ", "pipe": "|"}


@dataclass(frozen=True)
class TextFormat:
    """How a text table is written; what is None is found out from its first lines."""

    sep: str | None = None
    encoding: str | None = None
    decimal: str | None = None

    @classmethod
    def of_options(cls, sep: str | None, encoding: str | None, decimal: str | None) -> "TextFormat":
        """From what a user wrote; an error, which says what to do, where it cannot be."""
        sep = WORDS.get(sep, sep) if sep is not None else None
        if sep is not None and (len(sep) != 1 or sep.isalnum() or sep in "\"'\n\r"):
            raise TableError(f"--sep {sep!r} must be one sign, such as ';', or 'tab'.")
        if decimal not in (None, ".", ","):
            raise TableError(f"--decimal {decimal!r} must be '.' or ','.")
        if sep is not None and sep == decimal:
            raise TableError(f"--sep and --decimal are both {sep!r}: no number could be read.")
        if encoding is not None:
            try:
                codecs.lookup(encoding)
            except LookupError:
                raise TableError(
                    f"--encoding {encoding!r} is not known: use utf-8, latin-1, cp1252, utf-16 or "
                    "another name that Python has."
                ) from None
        return cls(sep, encoding, decimal)


UNKNOWN = TextFormat()


@dataclass(frozen=True)
class TableFile(os.PathLike):
    """A file or folder, what to call it in messages, and how its text is written."""

    path: Path
    shown: str = ""
    format: TextFormat = UNKNOWN

    @classmethod
    def of(cls, given: "str | os.PathLike[str]") -> "TableFile":
        """Itself, or a path about which nothing else is known."""
        return given if isinstance(given, TableFile) else cls(located(given))

    def at(self, file: Path) -> "TableFile":
        """A file of it, where it is a folder."""
        return self if file == self.path else replace(self, path=file)

    @property
    def name(self) -> str:
        """Without its folder."""
        return self.shown or self.path.name

    def __fspath__(self) -> str:
        return str(self.path)

    def __str__(self) -> str:
        return self.shown or str(self.path)


@contextmanager
def given_table(path: Path, text: TextFormat = UNKNOWN) -> Iterator[TableFile]:
    """A table while it is used; standard input is kept in a file, as it is read more than once."""
    if path != STANDARD:
        yield TableFile(path, format=text)
        return
    with tempfile.TemporaryDirectory(prefix="dvip-") as folder:
        source: Any = getattr(sys.stdin, "buffer", sys.stdin)
        beginning = source.read(4)
        kinds = [kind for sign, kind in BEGINNINGS.items() if beginning.startswith(sign)]
        file = Path(folder) / f"input{kinds[0] if kinds else '.csv'}"
        with open(file, "wb") as copy:
            copy.write(beginning)
            shutil.copyfileobj(source, copy)
        yield TableFile(file, "standard input", text)


def excel_blocks(
    file: TableFile, rows: int | None, columns: Collection[str] | None
) -> Generator[pd.DataFrame, None, None]:
    """The first sheet of an Excel file, whose first row has the names, in blocks."""
    if importlib.util.find_spec("openpyxl") is None:
        raise TableError(
            f'{file} is an Excel file: pip install "dvip[excel]" to read it, or save it as CSV.'
        )
    # Names are read as a row, as pandas would number those that are there twice.
    sheet = pd.read_excel(file.path, header=None, nrows=1, dtype=object)
    names = ["" if pd.isna(cell) else str(cell).strip() for cell in (*sheet.to_numpy()[:1].flat,)]
    names = [name or f"Unnamed: {place}" for place, name in enumerate(names)]
    check_distinct(file, names)
    frame = pd.read_excel(file.path, header=0, names=names or None)
    frame = frame.dropna(how="all")  # what was once written there and removed
    if columns is not None:
        frame = frame[[name for name in frame.columns if name in columns]]
    step = rows or max(1, len(frame))
    for start in range(0, max(1, len(frame)), step):
        yield frame[start : start + step]
