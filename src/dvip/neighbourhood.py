"""How far rows are from those of the training, and how much less is known there.

Networks are as sure of themselves far from the data as amid them. But a function cannot be known
better than by how much it may have changed since the nearest training row: along input j by some
slope g_j for each unit. The distance of a row x is

    d(x) = min_n ‖g ∘ (x - x_n)‖,

in units of the target, and what it exceeds the usual distances between training rows by is, times a
factor, a standard deviation that predictions of networks gain. Gaussian processes know it by
themselves, if their kernel is right far from the data as well. With some probability it is not, and
networks may be wrong altogether: both gain far more then, so that tails are heavy.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.spatial.distance import cdist

__all__ = ["OF_NETWORKS", "OF_PROCESSES", "Doubt", "Neighbourhood"]

# Training rows that distances are measured from, and their numbers, at most.
MAX_ROWS, MAX_NUMBERS = 1_000, 2**18
# Distances that are in memory at once.
DISTANCES_AT_ONCE = 2**22
# The share of the training rows whose distance from their nearest is usual.
USUAL = 0.95


class Doubt(NamedTuple):
    """The standard deviation for each unit of distance: always, and with some probability."""

    always: float
    rarely: float = 2.0
    probability: float = 0.3


# (Slopes are those of single functions, which is more than most rows need and less than some do.)
OF_NETWORKS, OF_PROCESSES = Doubt(0.3), Doubt(0.0)

Rows = Float[np.ndarray, "rows inputs"]


@dataclass(frozen=True)
class Neighbourhood:
    """Some of the training rows, scaled, and how far they are from each other.

    `slopes` say how much the target changes along each input. `usual` is the distance that few of
    the rows exceed, `unit` that of the one in the middle.
    """

    rows: Float[np.ndarray, "known inputs"]
    slopes: Float[np.ndarray, " inputs"]
    unit: float
    usual: float

    @classmethod
    def of(cls, inputs: Rows, slopes: Float[np.ndarray, " inputs"], seed: int) -> "Neighbourhood":
        """Of the rows of a training, or a sample of them."""
        number = min(MAX_ROWS, max(2, MAX_NUMBERS // max(1, inputs.shape[1])))
        chosen = np.random.default_rng(seed).permutation(len(inputs))[:number]
        rows = np.asarray(inputs[chosen], np.float32)
        if len(rows) < 2:
            return cls(rows, slopes, 1.0, 0.0)
        distances = cdist(rows * slopes, rows * slopes)
        np.fill_diagonal(distances, np.inf)
        nearest = distances.min(axis=1)
        apart = nearest[nearest > 0]  # rows may be there twice
        unit = float(np.median(apart)) if len(apart) else 1.0
        return cls(rows, slopes, unit, float(np.quantile(nearest, USUAL)))

    def with_rows(self, inputs: Rows, seed: int) -> "Neighbourhood":
        """The same knowing further rows; where there are too many, some of the others are left out.

        What is usual stays what it was.
        """
        most = min(MAX_ROWS, max(2, MAX_NUMBERS // max(1, inputs.shape[1])))
        random = np.random.default_rng(seed)
        new = np.asarray(inputs[random.permutation(len(inputs))[:most]], np.float32)
        kept = np.sort(random.permutation(len(self.rows))[: most - len(new)])
        return replace(self, rows=np.concatenate([self.rows[kept], new]))

    def _distances(self, inputs: Rows) -> Float[np.ndarray, " rows"]:
        known = self.rows * self.slopes
        step = max(1, DISTANCES_AT_ONCE // len(known))
        pieces = [np.empty(0)]
        for start in range(0, len(inputs), step):
            pieces.append(cdist(inputs[start : start + step] * self.slopes, known).min(axis=1))
        return np.concatenate(pieces)

    def relative(self, inputs: Rows) -> Float[np.ndarray, " rows"]:
        """Distances of scaled inputs; 1 is that between neighbouring training rows."""
        return self._distances(inputs) / self.unit

    def beyond(self, inputs: Rows) -> Float[np.ndarray, " rows"]:
        """How much distances exceed the usual ones, in standard deviations of the target."""
        return np.maximum(self._distances(inputs) - self.usual, 0)

    def slopes_beyond(self, inputs: Rows) -> Float[np.ndarray, "rows inputs"]:
        """How these change along each input: away from the nearest training row."""
        known = self.rows * self.slopes
        slopes = [np.empty((0, inputs.shape[1]))]
        step = max(1, DISTANCES_AT_ONCE // len(known))
        for start in range(0, len(inputs), step):
            scaled = inputs[start : start + step] * self.slopes
            distances = cdist(scaled, known)
            away = scaled - known[distances.argmin(axis=1)]
            nearest = distances.min(axis=1)[:, None]
            beyond = nearest > self.usual
            units = np.divide(away, nearest, out=np.zeros_like(away), where=beyond)
            slopes.append(units * self.slopes)
        return np.concatenate(slopes)

    def arrays(self) -> dict[str, np.ndarray]:
        """All that it is made of."""
        numbers = np.array([self.unit, self.usual])
        return {"rows": self.rows, "slopes": self.slopes, "numbers": numbers}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], num_inputs: int) -> "Neighbourhood":
        """What `arrays` gave; a ValueError or KeyError unless they fit together."""
        rows, slopes, numbers = arrays["rows"], arrays["slopes"], arrays["numbers"]
        shapes = (rows.shape[1:], slopes.shape, numbers.shape)
        types = (rows.dtype, slopes.dtype, numbers.dtype)
        fits = shapes == ((num_inputs,), (num_inputs,), (2,)) and len(rows)
        if not fits or types != (np.float32, np.float64, np.float64):
            raise ValueError("its training rows are none.")
        if not (numbers[0] > 0 and numbers[1] >= 0 and np.all(slopes >= 0)):
            raise ValueError("its training rows are none.")
        return cls(rows, slopes, float(numbers[0]), float(numbers[1]))
