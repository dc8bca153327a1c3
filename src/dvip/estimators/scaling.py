"""Standardisation of inputs and targets, inside the estimators so that nothing leaks."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

__all__ = ["Standardiser", "merge_duplicates"]

# Scaled values are kept within this: farther out a prediction is meaningless, but stays finite.
MAX_SCALED = 1e6


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
        num_columns = values.shape[1]
        num_channels = num_channels or num_columns

        def by_channel(columns: np.ndarray) -> np.ndarray:
            return columns.reshape(-1, num_channels)

        def by_column(channels: np.ndarray) -> np.ndarray:
            return np.tile(channels, num_columns // num_channels)

        # Dividing by the largest magnitude first keeps the squares of huge values finite.
        largest = by_channel(np.abs(values).max(axis=0)).max(axis=0)
        largest[largest == 0] = 1.0
        reduced = values / by_column(largest)
        mean = by_channel(np.average(reduced, axis=0, weights=weights)).mean(axis=0)
        squares = np.average(np.square(reduced - by_column(mean)), axis=0, weights=weights)
        std = np.sqrt(by_channel(squares).mean(axis=0))
        # A constant column may have a standard deviation of a few roundings. One whose standard
        # deviation is too small to divide by is as good as constant.
        scale = std * largest
        constant = (std <= 1e-14) | (scale < np.finfo(float).tiny)
        return cls(by_column(mean * largest), by_column(np.where(constant, 1.0, scale)))

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
