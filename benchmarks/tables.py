"""A table to measure on, of Power's shape, and the paper's scores to compare with."""

from typing import NamedTuple

import numpy as np

# Power: the time of a step and the memory depend on the shape of a table, not on its values.
ROWS, INPUTS, TEST_ROWS = 9_568, 4, 957

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


class Generated(NamedTuple):
    """As `dvip.data.Split`, whose imports would count as memory of the contestants."""

    inputs: np.ndarray
    targets: np.ndarray
    test_inputs: np.ndarray
    test_targets: np.ndarray


def power_like(num_inputs: int = INPUTS) -> Generated:
    random = np.random.default_rng(0)
    inputs = random.standard_normal((ROWS, num_inputs))
    targets = np.sin(inputs).sum(axis=1) + 0.1 * random.standard_normal(ROWS)
    train, test = slice(TEST_ROWS, None), slice(TEST_ROWS)
    return Generated(inputs[train], targets[train], inputs[test], targets[test])
