"""Decimal commas in text tables whose cells are separated by something else than commas."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd
from pandas.api import types

from dvip.tables.errors import TableError

__all__ = ["SAMPLED_ROWS", "decimal_mark", "with_points"]

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
