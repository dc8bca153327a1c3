"""Weighted mean, deviation and range of each column, in one pass over blocks."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

__all__ = ["ColumnStatistics"]


@dataclass(frozen=True)
class ColumnStatistics:
    """Of some rows; those of two sets of rows make those of both."""

    weight: float
    mean: Float[np.ndarray, " columns"]
    # Weighted sum of squared differences from the mean.
    squares: Float[np.ndarray, " columns"]
    low: Float[np.ndarray, " columns"]
    high: Float[np.ndarray, " columns"]

    @classmethod
    def of(
        cls, values: Float[np.ndarray, "rows columns"], weights: Float[np.ndarray, " rows"]
    ) -> "ColumnStatistics":
        """Of the rows of a block."""
        weight = float(weights.sum())
        # Rows of weight zero do not count, and all of a block may be.
        shares = weights / weight if weight > 0 else weights
        mean = shares @ values
        squares = weights @ np.square(values - mean)
        counted = values if weights.all() else values[weights > 0]
        low = counted.min(axis=0, initial=np.inf)
        return cls(weight, mean, squares, low, counted.max(axis=0, initial=-np.inf))

    def merged(self, other: "ColumnStatistics") -> "ColumnStatistics":
        """Of both sets of rows: the formula of Chan, Golub and LeVeque, which cancels nothing."""
        weight = self.weight + other.weight
        if weight == 0:
            return self
        share = other.weight / weight
        difference = other.mean - self.mean
        return ColumnStatistics(
            weight,
            self.mean + share * difference,
            self.squares + other.squares + self.weight * share * np.square(difference),
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
        )

    @property
    def std(self) -> Float[np.ndarray, " columns"]:
        """The standard deviation; zero of a constant column, exactly."""
        std = np.sqrt(self.squares / self.weight)
        return np.where(self.low == self.high, 0.0, std)
