"""Rows split off for testing, by their number alone: no list of rows has to be kept."""

from dataclasses import dataclass

import numpy as np

__all__ = ["RowSplit", "row_ranks"]

_GOLDEN = 0x9E3779B97F4A7C15


def row_ranks(rows: np.ndarray, seed: int) -> np.ndarray:
    """A hash of each row's number, uniform over the unsigned 64-bit numbers.

    The finaliser of the generator SplitMix64 at the positions of the rows.
    """
    start = np.random.SeedSequence(seed).generate_state(1, np.uint64)[0]
    with np.errstate(over="ignore"):
        bits = start + (rows.astype(np.uint64) + np.uint64(1)) * np.uint64(_GOLDEN)
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


@dataclass(frozen=True)
class RowSplit:
    """Which rows are for testing: each with probability `fraction`; None is no row."""

    fraction: float | None
    seed: int

    def is_test(self, rows: np.ndarray) -> np.ndarray:
        """Whether each row, given by its number in the table, is for testing."""
        if self.fraction is None:
            return np.zeros(len(rows), dtype=bool)
        return row_ranks(rows, self.seed) < np.uint64(self.fraction * 2.0**64)
