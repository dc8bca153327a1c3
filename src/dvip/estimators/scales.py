"""Standardisation, inside the estimators so that nothing leaks; repeated rows, odd scales."""

import warnings
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from dvip.tables import deciding_value

__all__ = [
    "MAX_SCALED",
    "MAX_TARGET_SCALE",
    "Standardiser",
    "decided_by_one_row",
    "hardly_vary",
    "merge_duplicates",
    "warn_of_faint",
]

# The scale of a constant column is its size, within these.
CONSTANT_SCALES = (1e-100, 1.0)

# Numbers that are scaled, or averaged, at once: large tables are not copied for it.
MAX_NUMBERS = 2**22

# Scaled values are kept within this: farther out a prediction is meaningless, but stays finite.
MAX_SCALED = 1e6
# Of targets: variances, with room to extrapolate, must be numbers.
MAX_TARGET_SCALE = 1e140


@dataclass(frozen=True)
class _Channels:
    """Columns as channels next to each other, place after place; a channel is one by default."""

    num_columns: int
    given: int | None

    def _reshaped(self, columns: np.ndarray) -> np.ndarray:
        return columns.reshape(-1, self.given or self.num_columns)

    def mean(self, columns: np.ndarray) -> np.ndarray:
        return self._reshaped(columns).mean(axis=0)

    def largest(self, columns: np.ndarray) -> np.ndarray:
        """The largest magnitude of each channel; one where all is zero."""
        largest = self._reshaped(columns).max(axis=0)
        return np.where(largest == 0, 1.0, largest)

    def by_column(self, channels: np.ndarray) -> np.ndarray:
        return np.tile(channels, self.num_columns // len(channels))


@dataclass(frozen=True)
class Standardiser:
    """z = (value - mean) / scale for each column; a constant one is scaled by its size, up to 1."""

    mean: Float[np.ndarray, " columns"]
    scale: Float[np.ndarray, " columns"]

    @classmethod
    def fit(
        cls,
        values: Float[np.ndarray, "rows columns"],
        weights: Float[np.ndarray, " rows"],
        num_channels: int | None = None,
    ) -> "Standardiser":
        """Weighted mean and standard deviation of each column.

        Columns that are pixels or times, with the channels next to each other, share those of
        their channel: a pixel that is almost always black would be blown up by its own.
        """
        # Dividing by the largest magnitude first keeps the squares of huge values finite.
        channels = _Channels(values.shape[1], num_channels)
        largest = channels.largest(np.maximum(values.max(axis=0), -values.min(axis=0)))
        top = channels.by_column(largest)

        def average(columns: slice, centre: np.ndarray | None = None) -> np.ndarray:
            reduced = values[:, columns] / top[columns]
            if centre is not None:
                reduced = np.square(reduced - centre[columns])
            return np.average(reduced, axis=0, weights=weights)

        parts = _parts_of_columns(values)
        mean = channels.mean(np.concatenate([average(part) for part in parts]))
        centre = channels.by_column(mean)
        squares = channels.mean(np.concatenate([average(part, centre) for part in parts]))
        return cls._of_reduced(channels, mean, np.sqrt(squares), largest)

    @classmethod
    def of_moments(
        cls,
        mean: Float[np.ndarray, " columns"],
        std: Float[np.ndarray, " columns"],
        largest: Float[np.ndarray, " columns"],
        num_channels: int | None = None,
    ) -> "Standardiser":
        """From mean, standard deviation and largest magnitude of each column."""
        channels = _Channels(len(mean), num_channels)
        top = channels.largest(largest)
        mean, std = mean / channels.by_column(top), std / channels.by_column(top)
        pooled = channels.mean(mean)
        # The variance of a channel is that within its columns and that between them.
        squares = np.square(std) + np.square(mean - channels.by_column(pooled))
        return cls._of_reduced(channels, pooled, np.sqrt(channels.mean(squares)), top)

    @classmethod
    def _of_reduced(
        cls, channels: "_Channels", mean: np.ndarray, std: np.ndarray, largest: np.ndarray
    ) -> "Standardiser":
        """From the moments of each channel, divided by its largest magnitude."""
        # A constant column may have a standard deviation of a few roundings. One whose standard
        # deviation is too small to divide by is as good as constant: its size is its scale.
        scale = std * largest
        constant = (std <= 1e-14) | (scale < np.finfo(float).tiny)
        scale = np.where(constant, np.clip(largest, *CONSTANT_SCALES), scale)
        return cls(channels.by_column(mean * largest), channels.by_column(scale))

    def transform(
        self, values: Float[np.ndarray, "rows columns"], dtype: Any = np.float64
    ) -> np.ndarray:
        """Values to z, of that type."""
        scaled = np.empty(values.shape, dtype)
        with np.errstate(over="ignore"):
            for rows in _parts(*values.shape):
                z = (values[rows] - self.mean) / self.scale
                scaled[rows] = np.clip(z, -MAX_SCALED, MAX_SCALED)
        return scaled


def _parts(num_rows: int, num_columns: int) -> list[slice]:
    """Neighbouring rows, as many as are looked at together."""
    step = max(1, MAX_NUMBERS // max(1, num_columns))
    return [slice(start, min(start + step, num_rows)) for start in range(0, num_rows, step)]


def _parts_of_columns(values: Float[np.ndarray, "rows columns"]) -> list[slice]:
    """Neighbouring columns, as many as are looked at together; of several never one alone.

    (Sums of a single column would have other roundings.)
    """
    num_parts = min(-(-values.size // MAX_NUMBERS), values.shape[1] // 2)
    ends = np.linspace(0, values.shape[1], max(1, num_parts) + 1).astype(int)
    return [slice(start, end) for start, end in pairwise(ends.tolist())]


def merge_duplicates(
    inputs: Float[np.ndarray, "rows inputs"],
    targets: Float[np.ndarray, "rows outputs"],
    weights: Float[np.ndarray, " rows"],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same weighted data with each distinct row once, in an order of its own.

    A row of weight two is then the same as that row twice, a row of weight zero the same as none,
    exactly; and the order in which rows come does not matter.
    """
    rows = np.empty((len(inputs), inputs.shape[1] + targets.shape[1]))
    np.concatenate([inputs, targets], axis=1, out=rows)
    rows += 0.0  # makes -0.0 equal to 0.0
    as_bytes = rows.view(f"V{rows.shape[1] * rows.itemsize}").ravel()
    order = np.argsort(as_bytes, kind="stable")
    order = order[weights[order] > 0]
    # A part at a time: np.unique would copy all rows twice.
    new = np.ones(len(order), dtype=bool)
    for part in _parts(len(order), rows.shape[1]):
        part = slice(max(1, part.start), part.stop)
        new[part] = as_bytes[order[part]] != as_bytes[order[part.start - 1 : part.stop - 1]]
    totals = np.bincount(np.cumsum(new) - 1, weights=weights[order])
    merged = rows[order[new]]
    return merged[:, : inputs.shape[1]], merged[:, inputs.shape[1] :], totals


# Where all values agree to this share, or vary by less than this, most of their digits are lost.
FAINT, SMALLEST_SPREAD = 1e-12, 1e-290


def hardly_vary(values: Float[np.ndarray, "rows columns"]) -> Bool[np.ndarray, " columns"]:
    """Whether a column varies by little more than roundings, or by too little to compute with."""
    low, high = values.min(axis=0), values.max(axis=0)
    with np.errstate(over="ignore"):
        spread = high - low
    faint = (spread < FAINT * np.maximum(np.abs(low), np.abs(high))) | (spread < SMALLEST_SPREAD)
    return (high > low) & faint


def warn_of_faint(what: str) -> None:
    """Tells that the values of `what` have too few digits left."""
    warnings.warn(
        f"The values of {what} differ by hardly more than roundings: subtract an offset, or "
        "rescale them, before they are made floating-point numbers.",
        UserWarning,
        stacklevel=3,
    )


def decided_by_one_row(
    values: Float[np.ndarray, "rows columns"],
) -> Bool[np.ndarray, " columns"]:
    """Whether one row alone decides the scale of a column that varies without it, too."""
    decided = np.zeros(values.shape[1], dtype=bool)
    for part in _parts_of_columns(values):
        with np.errstate(over="ignore", invalid="ignore"):
            distances = np.abs(values[:, part] - values[:, part].mean(axis=0))
            # Where it does, the farthest is as far from the mean as all others together.
            alone = distances.max(axis=0) >= 0.49 * distances.sum(axis=0)
        for column in part.start + np.flatnonzero(alone):
            decided[column] = deciding_value(values[:, column]) is not None
    return decided
