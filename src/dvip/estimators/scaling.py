"""Standardisation of inputs and targets, inside the estimators so that nothing leaks."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

__all__ = ["Standardiser", "merge_duplicates"]

# Scaled values are kept within this: farther out a prediction is meaningless, but stays finite.
MAX_SCALED = 1e6


@dataclass(frozen=True)
class Standardiser:
    """z = (value - mean) / scale for each column; a constant column has scale 1."""

    mean: Float[np.ndarray, " columns"]
    scale: Float[np.ndarray, " columns"]

    @classmethod
    def fit(
        cls, values: Float[np.ndarray, "rows columns"], weights: Float[np.ndarray, " rows"]
    ) -> "Standardiser":
        """Weighted mean and standard deviation of each column."""
        # Dividing by the largest magnitude first keeps the squares of huge values finite.
        largest = np.abs(values).max(axis=0)
        largest[largest == 0] = 1.0
        reduced = values / largest
        mean = np.average(reduced, axis=0, weights=weights)
        std = np.sqrt(np.average(np.square(reduced - mean), axis=0, weights=weights))
        # A constant column may have a standard deviation of a few roundings. One whose standard
        # deviation is too small to divide by is as good as constant.
        scale = std * largest
        constant = (std <= 1e-14) | (scale < np.finfo(float).tiny)
        return cls(mean * largest, np.where(constant, 1.0, scale))

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
