"""A wave of one input with a gap in the middle, generated: small enough to look at."""

import numpy as np

from dvip.data.dataset import Find, Split

__all__ = ["generate_toy"]

NOISE = 0.15
# Inputs are uniform over these intervals; test inputs fill the gap between them too.
LEFT, RIGHT = (-3.0, -0.8), (0.8, 3.0)


def generate_toy(find: Find, split: int, *, num_train: int, num_test: int) -> Split:
    """y = sin 2x + x/3 + noise. The number of the split is the seed."""
    random = np.random.default_rng(split)
    halves = [random.uniform(*half, num_train // 2) for half in (LEFT, RIGHT)]
    x, test_x = np.concatenate(halves), random.uniform(LEFT[0], RIGHT[1], num_test)
    y, test_y = (
        np.sin(2 * inputs) + inputs / 3 + NOISE * random.standard_normal(len(inputs))
        for inputs in (x, test_x)
    )
    return Split(x[:, None], y, test_x[:, None], test_y)
