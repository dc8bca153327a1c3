"""Calibration in a few numbers, small enough to be stored with every run."""

import numpy as np
from jaxtyping import Bool, Float

__all__ = ["LEVELS", "class_calibration", "interval_calibration"]

# Central intervals whose coverage is counted, and the bins of a PIT histogram.
LEVELS = tuple(round(0.05 * step, 2) for step in range(1, 20))
PIT_BINS = 20
CONFIDENCE_BINS = 15


def interval_calibration(cdf: Float[np.ndarray, " rows"]) -> dict[str, list]:
    """From the predictive cdf at what happened, which is uniform for an honest model.

    `pit` counts it in equal bins; `coverage` is the share of rows within each central interval.
    """
    from_median = 2 * np.abs(cdf - 0.5)
    return {
        "pit": np.histogram(cdf, PIT_BINS, (0, 1))[0].tolist(),
        "coverage": [float(np.mean(from_median <= level)) for level in LEVELS],
    }


def class_calibration(
    confidence: Float[np.ndarray, " rows"], correct: Bool[np.ndarray, " rows"]
) -> dict[str, list]:
    """Rows, summed confidence and right predictions in equal bins of the highest probability."""
    bins = np.minimum((confidence * CONFIDENCE_BINS).astype(int), CONFIDENCE_BINS - 1)
    return {
        name: np.bincount(bins, weights=weights, minlength=CONFIDENCE_BINS).tolist()
        for name, weights in (
            ("rows", np.ones(len(bins))),
            ("confidence", confidence),
            ("correct", correct.astype(float)),
        )
    }
