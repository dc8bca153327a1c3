"""Cells as numbers or as text, whatever type a file gave them; and how a message names them."""

import datetime
import difflib
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types

__all__ = [
    "MAX_COUNTED",
    "Numbers",
    "TableError",
    "TableWarning",
    "are_numbers",
    "check_distinct",
    "check_present",
    "has_unit",
    "holds_dates",
    "is_number_type",
    "label_of",
    "missing_cells",
    "parse_numbers",
    "parse_texts",
    "quoted",
    "row_name",
    "text_of",
]

# Names that a message lists before it says how many more there are.
MAX_LISTED = 8
# Distinct values of a column that are counted.
MAX_COUNTED = 10_000


class TableError(ValueError):
    """A table cannot be read, written or used; the message says what to do, in a line or two."""


class TableWarning(UserWarning):
    """Something in a table that may be a mistake, or that the training table did not have."""


def quoted(names: Iterable[str]) -> str:
    """Names for a message: in quotes, with the tail of a long list counted."""
    listed = [repr(name) for name in names]
    more = len(listed) - MAX_LISTED
    return ", ".join(listed[:MAX_LISTED]) + (f" and {more} more" if more > 0 else "")


def row_name(column: pd.Series, position: int) -> str:
    """The row as the user would look it up: counted from 1, with the file where it is known.

    Row labels count the rows of a file from 0; readers note the file in `attrs`.
    """
    label = column.index[position]
    number = (label if isinstance(label, int | np.integer) else position) + 1
    file = column.attrs.get("file")
    return f"row {number}" if file is None else f"row {number} of {file}"


def check_present(wanted: Sequence[str], columns: Sequence[str]) -> None:
    """Raises an error that offers similar names unless every wanted column is there."""
    there = set(columns)
    missing = [name for name in wanted if name not in there]
    if not missing:
        return
    folded = {name.casefold(): name for name in columns}
    close = difflib.get_close_matches(missing[0].casefold(), list(folded), n=3, cutoff=0.6)
    if close:
        hint = f"Did you mean {' or '.join(repr(folded[name]) for name in close)}?"
    else:
        hint = f"It has {quoted(columns)}."
    raise TableError(f"The table has no column {quoted(missing)}. {hint}")


def check_distinct(path: os.PathLike[str], names: list[str]) -> None:
    """Raises an error if two columns of a file have the same name."""
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise TableError(f"{path} has several columns named {quoted(repeated)}: rename them.")


NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?inf(inity)?", re.ASCII | re.I)
# No leading zero: "0,123" is more likely a decimal comma than the number 123.
THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d*)?", re.ASCII)
WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
# A percentage, or an amount of money with the sign before or behind it.
WITH_UNIT = re.compile(r"([+-]?)\s*([$€£¥])\s*(.+)|(.+?)\s*([%$€£¥])")
CLOCK = r"\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?\s*([ap]m|z|utc|[+-]\d{2}:?\d{2})?"
DAY = r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}"
DATE = re.compile(rf"{DAY}([ t]+{CLOCK})?|{CLOCK}", re.ASCII | re.I)


@dataclass(frozen=True)
class Numbers:
    """A column as numbers: NaN where the cell is missing or unreadable."""

    values: np.ndarray
    unreadable: np.ndarray
    unit: str = ""
    """What stands beside each number, such as % or $; nothing, as a rule."""


def text_of(value: Any) -> str:
    """A cell as text. Whole numbers have no point: gaps turn integers into floats."""
    if isinstance(value, float | np.floating) and math.isfinite(value) and value == int(value):
        return str(int(value))
    return str(value).strip()


def label_of(value: Any) -> str:
    """A label as text, the same for each way to write a number: 1, "1" and "1.0" are one label."""
    text = text_of(value)
    if WHOLE.fullmatch(text):
        return str(int(text))
    number = _number(text)
    return text if math.isnan(number) else text_of(number)


def are_numbers(labels: Iterable[Any]) -> bool:
    """Whether every label can be read as a number; truth values cannot."""
    return not any(math.isnan(_number(text_of(label))) for label in labels)


def missing_cells(column: pd.Series) -> np.ndarray:
    """Where a cell is missing: nothing there, or blank text."""
    missing = column.isna().to_numpy(dtype=bool)
    if is_number_type(column) or types.is_datetime64_any_dtype(column.dtype):
        return missing
    blank = [isinstance(cell, str) and not cell.strip() for cell in column.to_numpy(dtype=object)]
    return missing | np.array(blank, dtype=bool)


def parse_numbers(column: pd.Series, unit: str | None = None) -> Numbers:
    """Numbers, truth values and text that looks like a number, as floats.

    Text may be percentages or amounts of money, if all of it is in the one unit; with `unit`, it
    must be in that one.
    """
    if is_number_type(column):
        values = column.to_numpy(dtype=np.float64, na_value=np.nan)
        return Numbers(values, ~np.isnan(values) if unit else np.zeros(len(values), dtype=bool))
    missing = missing_cells(column)
    cells = column.to_numpy(dtype=object)
    present = np.flatnonzero(~missing)
    if unit is None:
        numbers = _parsed(cells, present, "")
        unit = _split_unit(cells[present[0]])[0] if numbers.unreadable.any() else ""
        if not unit:
            return numbers
        of_unit = _parsed(cells, present, unit)
        return numbers if of_unit.unreadable.any() else of_unit
    return _parsed(cells, present, unit)


def _parsed(cells: np.ndarray, present: np.ndarray, unit: str) -> Numbers:
    values = np.full(len(cells), np.nan)
    for row in present:
        found, text = _split_unit(cells[row]) if unit else ("", cells[row])
        values[row] = _number(text) if found == unit else math.nan
    unreadable = np.zeros(len(cells), dtype=bool)
    unreadable[present] = np.isnan(values[present])
    return Numbers(values, unreadable, unit)


def has_unit(cell: Any) -> bool:
    """Whether a cell is a percentage or an amount of money."""
    unit, text = _split_unit(cell)
    return bool(unit) and not math.isnan(_number(text))


def _split_unit(cell: Any) -> tuple[str, Any]:
    """The unit in a cell, "" if there is none, and the rest of it."""
    match = WITH_UNIT.fullmatch(cell.strip()) if isinstance(cell, str) else None
    if match is None:
        return "", cell
    sign, before, amount, other, behind = match.groups()
    return (before, sign + amount) if before else (behind, other)


def parse_texts(column: pd.Series) -> np.ndarray:
    """Each cell as text, None where it is missing."""
    missing = missing_cells(column)
    cells = column.to_numpy(dtype=object)
    texts = [None if gap else text_of(cell) for gap, cell in zip(missing, cells, strict=True)]
    return np.array(texts, dtype=object)


def holds_dates(column: pd.Series) -> bool:
    """Whether all that a column holds are dates or times, as such or as text."""
    dtype = column.dtype
    if types.is_datetime64_any_dtype(dtype) or types.is_timedelta64_dtype(dtype):
        return True
    if is_number_type(column):
        return False
    moments = (datetime.date, datetime.time, datetime.timedelta, pd.Period)
    cells = column.to_numpy(dtype=object)[~missing_cells(column)]
    return len(cells) > 0 and all(
        isinstance(cell, moments) or (isinstance(cell, str) and DATE.fullmatch(cell.strip()))
        for cell in cells
    )


def is_number_type(column: pd.Series) -> bool:
    """Whether a column is of a type of numbers or truth values, so that no cell can be text."""
    dtype = column.dtype
    return types.is_numeric_dtype(dtype) and not types.is_complex_dtype(dtype)


def _number(cell: Any) -> float:
    """The number in a cell, NaN if there is none."""
    if isinstance(cell, str):
        text = cell.strip()
        if THOUSANDS.fullmatch(text):
            text = text.replace(",", "")
        return float(text) if NUMBER.fullmatch(text) else math.nan
    if isinstance(cell, bytes | complex):
        return math.nan
    try:
        return float(cell)
    except OverflowError:
        return math.inf
    except (TypeError, ValueError):
        return math.nan
