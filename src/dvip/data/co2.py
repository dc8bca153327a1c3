"""Monthly CO2 at Mauna Loa as Scripps publishes it; the second and fourth fifth are held out."""

from pathlib import Path

import numpy as np

from dvip.data.dataset import Find, Split
from dvip.data.errors import DataError
from dvip.tables.reading import readable

__all__ = ["read_co2"]

MISSING = -99.99
YEAR, DATE, PPM = 0, 3, 4
NUM_PARTS, HELD_OUT = 5, (1, 3)


def read_co2(find: Find, split: int, *, path: str) -> Split:
    """Decimal date to ppm, in five consecutive parts of equal size."""
    months = _months(find(path))
    parts = np.array_split(months, NUM_PARTS)
    train = np.concatenate([part for k, part in enumerate(parts) if k not in HELD_OUT])
    test = np.concatenate([parts[k] for k in HELD_OUT])
    return Split(train[:, :1], train[:, 1], test[:, :1], test[:, 1])


def _months(path: Path) -> np.ndarray:
    """Date and ppm of the months that have a value.

    The file on the Scripps site has quoted comments and a header of several lines; other copies
    have one line of names. Rows of numbers begin behind either, and do not stop before the end.
    """
    with readable(path):
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    rows = [(number, line.split(",")) for number, line in enumerate(lines, 1) if line.strip()]
    first = next((k for k, (_, cells) in enumerate(rows) if _is_number(cells[YEAR])), len(rows))
    months = np.array([_month(path, number, cells) for number, cells in rows[first:]])
    valid = months[months[:, 1] != MISSING] if len(months) else months
    if len(valid) < NUM_PARTS:
        raise DataError(f"{path} has {len(valid)} months with a value, expected are hundreds.")
    return valid


def _month(path: Path, number: int, cells: list[str]) -> tuple[float, float]:
    try:
        year, date, ppm = (float(cells[column]) for column in (YEAR, DATE, PPM))
    except (ValueError, IndexError):
        raise DataError(
            f"Line {number} of {path} is not a month: expected are year, month, date, decimal date "
            "and ppm, separated by commas."
        ) from None
    if not year <= date <= year + 1:
        raise DataError(f"Line {number} of {path} has a date {date} in the year {year:.0f}.")
    return date, ppm


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
