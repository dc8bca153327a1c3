"""Splits into training and test rows: by position, or at random."""

import numpy as np

from dvip.data.dataset import Split

__all__ = ["last_rows", "random_split"]


def last_rows(inputs: np.ndarray, targets: np.ndarray, num_test: int) -> Split:
    """The last rows are the test part. Nothing is copied."""
    train, test = slice(-num_test), slice(-num_test, None)
    return Split(inputs[train], targets[train], inputs[test], targets[test])


def random_split(inputs: np.ndarray, targets: np.ndarray, test_share: float, seed: int) -> Split:
    """A random part is for testing; the same seed gives the same rows in the same order."""
    order = np.random.default_rng(seed).permutation(len(targets))
    num_test = round(test_share * len(targets))
    test, train = order[:num_test], order[num_test:]
    return Split(inputs[train], targets[train], inputs[test], targets[test])
