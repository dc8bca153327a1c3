"""Inputs as rows of scaled numbers: shapes, standardisation, duplicate rows."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from dvip.processes import ImplicitProcess

__all__ = ["Standardiser", "as_rows", "merge_duplicates"]


def as_rows(
    X: Any, process: ImplicitProcess | None, estimator: str
) -> tuple[Any, tuple[int, ...] | None]:
    """X with each image or sequence as one row, and the shape that it had.

    What has two dimensions or fewer stays as it is, without a shape. More are an error unless the
    process makes use of them.
    """
    structured = process is not None and process.structured
    if structured and not hasattr(X, "shape"):
        X = np.asarray(X)
    num_rows, *shape = getattr(X, "shape", ()) or (0,)
    if len(shape) < 2:
        return X, None
    if not structured:
        raise ValueError(
            f"X has {1 + len(shape)} dimensions, but {estimator} expected <= 2, (rows, inputs), "
            'with this prior. For images use prior="conv", for sequences prior="recurrent", or '
            "make each row flat."
        )
    return np.asarray(X).reshape(num_rows, math.prod(shape)), tuple(shape)


# Scaled values are kept within this: farther out a prediction is meaningless, but stays finite.
MAX_SCALED = 1e6


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
    """z = (value - mean) / scale for each column; what is constant has scale 1."""

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
        largest = channels.largest(np.abs(values).max(axis=0))
        reduced = values / channels.by_column(largest)
        mean = channels.mean(np.average(reduced, axis=0, weights=weights))
        differences = np.square(reduced - channels.by_column(mean))
        squares = channels.mean(np.average(differences, axis=0, weights=weights))
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
        # deviation is too small to divide by is as good as constant.
        scale = std * largest
        constant = (std <= 1e-14) | (scale < np.finfo(float).tiny)
        scale = np.where(constant, 1.0, scale)
        return cls(channels.by_column(mean * largest), channels.by_column(scale))

    def transform(self, values: Float[np.ndarray, "rows columns"]) -> np.ndarray:
        """Values to z."""
        with np.errstate(over="ignore"):
            return np.clip((values - self.mean) / self.scale, -MAX_SCALED, MAX_SCALED)


def merge_duplicates(
    inputs: Float[np.ndarray, "rows inputs"],
    targets: Float[np.ndarray, "rows outputs"],
    weights: Float[np.ndarray, " rows"],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same weighted data with each distinct row once, in an order of its own.

    A row of weight two is then the same as that row twice, a row of weight zero the same as none,
    exactly; and the order in which rows come does not matter.
    """
    kept = weights > 0
    rows = np.hstack([inputs, targets])[kept] + 0.0  # + 0.0 makes -0.0 equal to 0.0
    as_bytes = np.ascontiguousarray(rows).view(f"V{rows.shape[1] * rows.itemsize}").ravel()
    _, first, inverse = np.unique(as_bytes, return_index=True, return_inverse=True)
    merged = rows[first]
    totals = np.bincount(inverse.ravel(), weights=weights[kept], minlength=len(first))
    return merged[:, : inputs.shape[1]], merged[:, inputs.shape[1] :], totals
