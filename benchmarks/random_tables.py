"""Small random tables with the troubles of real ones, and test rows without the worst of them."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dvip.data import Split

TEST_ROWS = 200
# Up to two more columns say nothing new.
ROWS, COLUMNS = (10, 500), (1, 28)
# Rows that say how large a function and its noise are.
REFERENCE_ROWS = 2_000
# How often a table has each trouble.
TROUBLE = 0.25
# Tables are the same as long as this is.
SEED = 20_260_101

Random = np.random.Generator
Function = Callable[[np.ndarray], np.ndarray]

NOISES = ("gaussian", "heavy-tailed", "heteroscedastic", "skewed")


@dataclass(frozen=True)
class RandomTable:
    """Rows to train on and to test on, and what they are made of."""

    split: Split
    function: str
    noise: str
    troubles: tuple[str, ...]


def random_table(number: int) -> RandomTable:
    """The same number gives the same table."""
    random = np.random.default_rng([SEED, number])
    rows, columns = (_log_uniform(random, *bounds) for bounds in (ROWS, COLUMNS))
    troubles = {name for name in TROUBLES if random.uniform() < TROUBLE}
    kinds = _kinds(random, columns, troubles)
    # One column is not of two kinds.
    troubles -= {CATEGORIES, HEAVY_INPUTS} - set(kinds)
    name = str(random.choice(list(FUNCTIONS)))
    noise = str(random.choice(NOISES))
    # The first input matters always, and half of the others.
    others = random.choice(np.arange(1, columns), size=columns // 2, replace=False)
    matters = np.concatenate([[0], np.sort(others)]).astype(int)
    function = FUNCTIONS[name](random, len(matters))

    whole = np.array([kind == CATEGORIES for kind in kinds])
    reference = _standard(_inputs(random, kinds, REFERENCE_ROWS), whole)[:, matters]
    signal = function(reference)
    size = max(float(signal.std()), 1e-9)
    level = 1.0 if name == PURE_NOISE else 10 ** random.uniform(-1.5, 0.3)

    def draw(count: int) -> tuple[np.ndarray, np.ndarray]:
        inputs = _inputs(random, kinds, count)
        values = _standard(inputs, whole)[:, matters]
        clean = (function(values) - signal.mean()) / size
        return inputs, clean + level * _noise(random, noise, values[:, 0])

    inputs, targets = draw(rows)
    test_inputs, test_targets = draw(TEST_ROWS)
    if OUTLIERS in troubles:
        wrong = random.choice(rows, size=max(1, rows // 30), replace=False)
        targets[wrong] += random.choice([-1, 1], size=len(wrong)) * random.uniform(
            5, 30, size=len(wrong)
        )
    shown = _Columns(random, whole, troubles)
    inputs, test_inputs = shown(inputs), shown(test_inputs)
    scale, offset = 10 ** random.uniform(-3, 3), 10 ** random.uniform(-3, 3)
    split = Split(inputs, scale * targets + offset, test_inputs, scale * test_targets + offset)
    return RandomTable(split, name, noise, tuple(sorted(troubles)))


def _log_uniform(random: Random, low: int, high: int) -> int:
    return int(np.exp(random.uniform(np.log(low), np.log(high + 1))))


# What can be wrong with a table.
OUTLIERS = "outliers"
DUPLICATED, CONSTANT = "duplicated columns", "constant columns"
CATEGORIES, HEAVY_INPUTS = "integer columns", "heavy-tailed inputs"
TROUBLES = (OUTLIERS, DUPLICATED, CONSTANT, CATEGORIES, HEAVY_INPUTS)
LEVELS = 5


def _kinds(random: Random, columns: int, troubles: set[str]) -> list[str]:
    """How the values of each column are distributed."""
    choices = [
        "normal",
        "uniform",
        *(name for name in (CATEGORIES, HEAVY_INPUTS) if name in troubles),
    ]
    kinds = [str(kind) for kind in random.choice(choices, size=columns)]
    for name in (CATEGORIES, HEAVY_INPUTS):
        if name in troubles and name not in kinds:
            kinds[int(random.integers(columns))] = name
    return kinds


def _inputs(random: Random, kinds: list[str], rows: int) -> np.ndarray:
    draws = {
        "normal": lambda: random.standard_normal(rows),
        "uniform": lambda: random.uniform(-1.7, 1.7, rows),
        CATEGORIES: lambda: random.integers(LEVELS, size=rows).astype(float),
        HEAVY_INPUTS: lambda: random.standard_t(2.5, size=rows),
    }
    return np.column_stack([draws[kind]() for kind in kinds])


def _standard(inputs: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Categories are whole numbers from 0; all others lie around 0 already."""
    return np.where(whole, (inputs - (LEVELS - 1) / 2) / np.sqrt(2), inputs)


def _noise(random: Random, kind: str, first: np.ndarray) -> np.ndarray:
    """Of mean 0 and, but for one that depends on the first input, variance 1."""
    if kind == "heavy-tailed":
        return random.standard_t(3, size=len(first)) / np.sqrt(3)
    if kind == "skewed":
        return random.standard_exponential(len(first)) - 1
    gaussian = random.standard_normal(len(first))
    return gaussian * (np.exp(np.clip(first, -2, 2)) if kind == "heteroscedastic" else 1.0)


class _Columns:
    """Columns in any order and of any scale, some of which say nothing new."""

    def __init__(self, random: Random, whole: np.ndarray, troubles: set[str]):
        # Categories stay whole numbers.
        self.scale = np.where(whole, 1.0, 10 ** random.uniform(-3, 3, size=len(whole)))
        self.offset = np.where(whole, 0.0, self.scale * random.normal(0, 10, size=len(whole)))
        self.copied = [int(random.integers(len(whole)))] if DUPLICATED in troubles else []
        self.constants = [random.normal()] if CONSTANT in troubles else []
        self.order = random.permutation(len(whole) + len(self.copied) + len(self.constants))

    def __call__(self, inputs: np.ndarray) -> np.ndarray:
        scaled = inputs * self.scale + self.offset
        constants = np.broadcast_to(self.constants, (len(inputs), len(self.constants)))
        return np.hstack([scaled, scaled[:, self.copied], constants])[:, self.order]


def _smooth(random: Random, inputs: int) -> Function:
    directions = random.standard_normal((inputs, 5)) / np.sqrt(inputs)
    phases, weights = random.uniform(0, 2 * np.pi, 5), random.standard_normal(5)
    return lambda X: np.sin(1.5 * X @ directions + phases) @ weights


def _linear(random: Random, inputs: int) -> Function:
    weights = random.standard_normal(inputs)
    return lambda X: X @ weights


def _steps(random: Random, inputs: int) -> Function:
    weights, edges = random.standard_normal(inputs), random.uniform(-1, 1, inputs)
    return lambda X: (edges < X) @ weights


def _interaction(random: Random, inputs: int) -> Function:
    partners = random.integers(inputs, size=inputs)
    weights = random.standard_normal(inputs)
    return lambda X: np.tanh(X) * np.tanh(X[:, partners]) @ weights


def _nothing(random: Random, inputs: int) -> Function:
    del random, inputs
    return lambda X: np.zeros(len(X))


PURE_NOISE = "pure noise"
FUNCTIONS: dict[str, Callable[[Random, int], Function]] = {
    "smooth": _smooth,
    "linear": _linear,
    "step": _steps,
    "interaction": _interaction,
    PURE_NOISE: _nothing,
}
