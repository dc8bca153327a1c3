"""How good predictive distributions are: pure functions of predictions and what happened.

Regression is summed over blocks of rows first, so that tables of any length are judged exactly.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.metrics import roc_auc_score

from dvip.distributions import GaussianMixture

__all__ = [
    "add_totals",
    "classification_metrics",
    "expected_calibration_error",
    "regression_from_totals",
    "regression_metrics",
    "regression_totals",
]

# Central intervals whose coverage is reported.
COVERAGES = (50, 90, 95)
# Bins of equal width between 0 and 1 for the expected calibration error.
ECE_BINS = 15
# A label of probability zero, by rounding, would make every average minus infinity.
SMALLEST_PROBABILITY = 1e-15


def regression_totals(distribution: GaussianMixture, y: np.ndarray) -> dict[str, float]:
    """Sums over rows of what `regression_from_totals` makes means of."""
    y = np.asarray(y, dtype=float).reshape(distribution.mean.shape)
    # y is within the central interval of probability p where its cdf is within p/2 of one half.
    from_median = np.abs(distribution.cdf(y) - 0.5)
    per_row = {
        "nll": -distribution.log_prob(y),
        "squared_error": np.square(distribution.mean - y),
        "crps": distribution.crps(y),
        **{f"coverage_{percent}": from_median <= percent / 200 for percent in COVERAGES},
    }
    totals = {
        name: float(np.mean(values.reshape(len(y), -1), axis=1).sum())
        for name, values in per_row.items()
    }
    return {"rows": float(len(y)), **totals}


def add_totals(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    """The totals of two blocks together; no totals yet are an empty mapping."""
    return {name: one.get(name, 0.0) + value for name, value in other.items()}


def regression_from_totals(totals: Mapping[str, float]) -> dict[str, float]:
    """nll, rmse, crps and the coverage of the central 50, 90 and 95 % intervals."""
    means = {name: total / totals["rows"] for name, total in totals.items() if name != "rows"}
    return {
        "nll": means["nll"],
        "rmse": float(np.sqrt(means["squared_error"])),
        "crps": means["crps"],
        **{f"coverage_{percent}": means[f"coverage_{percent}"] for percent in COVERAGES},
    }


def regression_metrics(distribution: GaussianMixture, y: np.ndarray) -> dict[str, float]:
    """Scores of a predictive distribution on the targets that were observed.

    `nll` is the mean negative log-density of a row, several targets jointly; `rmse` of the mean;
    `crps` the continuous ranked probability score; `coverage_90` the share of targets within
    the central 90 % interval, which is 0.9 for an honest model. All but `nll` pool the targets.
    """
    return regression_from_totals(regression_totals(distribution, y))


def classification_metrics(
    probabilities: Float[np.ndarray, "rows classes"], labels: Sequence[Any], classes: Sequence[Any]
) -> dict[str, float]:
    """accuracy, log_likelihood, ece, and for two classes auc.

    `auc` counts the second class as positive; it is NaN where only one class was observed.
    """
    probabilities = np.asarray(probabilities, dtype=float)
    codes = _codes(labels, classes)
    of_label = np.maximum(probabilities[np.arange(len(codes)), codes], SMALLEST_PROBABILITY)
    metrics = {
        "accuracy": float(np.mean(probabilities.argmax(axis=1) == codes)),
        "log_likelihood": float(np.mean(np.log(of_label))),
        "ece": expected_calibration_error(probabilities, codes),
    }
    if len(classes) == 2:
        one_class = len(np.unique(codes)) < 2
        auc = np.nan if one_class else float(roc_auc_score(codes, probabilities[:, 1]))
        metrics["auc"] = auc
    return metrics


def expected_calibration_error(
    probabilities: Float[np.ndarray, "rows classes"], codes: np.ndarray
) -> float:
    """Mean gap between confidence and accuracy, over 15 equal bins of the highest probability."""
    confidence = probabilities.max(axis=1)
    correct = probabilities.argmax(axis=1) == codes
    bins = np.minimum((confidence * ECE_BINS).astype(int), ECE_BINS - 1)
    gaps = np.bincount(bins, weights=confidence - correct, minlength=ECE_BINS)
    return float(np.abs(gaps).sum() / len(codes))


def _codes(labels: Sequence[Any], classes: Sequence[Any]) -> np.ndarray:
    """The position of each label among the classes."""
    positions = {label: position for position, label in enumerate(classes)}
    unknown = sorted({str(label) for label in labels if label not in positions})
    if unknown:
        known = ", ".join(map(str, list(classes)[:10]))
        raise ValueError(
            f"The labels {', '.join(unknown[:5])} are not among the classes that the model was "
            f"trained on ({known}): remove or rename these rows."
        )
    return np.array([positions[label] for label in labels], dtype=int)
