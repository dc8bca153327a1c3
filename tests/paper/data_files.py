"""Small files of the formats of the datasets, and splits made of them."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from dvip.data import DATASETS, Address

NOBODY_LISTENS = "http://127.0.0.1:9"
UCI_SPLITS = {0: ([5, 0, 3, 1], [4, 2]), 1: ([0, 1, 2, 3, 4], [5])}
CO2_FILE = "co2/monthly_in_situ_co2_mlo.csv"


def offline(name, **options):
    """A dataset whose addresses do not answer, with other options of its reader: small files."""
    dataset = DATASETS[name]
    parts = tuple(
        replace(part, addresses=tuple(Address(NOBODY_LISTENS) for _ in part.addresses))
        for part in dataset.parts
    )
    return replace(dataset, parts=parts, read=partial(dataset.read, **options))


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def rows_of(table, separator=","):
    return "".join(separator.join(str(value) for value in row) + "\n" for row in table)


def check_rows(split, table, train, test):
    """The split has just these rows of a table whose last column is the target."""
    np.testing.assert_allclose(split.inputs, table[train, :-1], rtol=1e-6)
    np.testing.assert_allclose(split.targets, table[train, -1], rtol=1e-6)
    np.testing.assert_allclose(split.test_inputs, table[test, :-1], rtol=1e-6)
    np.testing.assert_allclose(split.test_targets, table[test, -1], rtol=1e-6)
