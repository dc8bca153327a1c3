"""How good predictive distributions are: of predictions and what happened, added block by block.

Tables of any length are judged exactly, in bounded memory.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from dvip.distributions import CountMixture, Predictive

__all__ = [
    "HIGHER_IS_BETTER",
    "MEANINGS",
    "ClassificationScores",
    "RegressionScores",
    "classification_metrics",
    "judged",
    "regression_metrics",
    "scores",
]

# Central intervals whose coverage is reported.
COVERAGES = (50, 90, 95)
# Bins of equal width between 0 and 1 for the predictive cdf at the targets: every percent of a
# central interval's coverage is where two of them meet.
LEVEL_BINS = 200
# Bins of equal width between 0 and 1 for the expected calibration error.
ECE_BINS = 15
# A label of probability zero, by rounding, would make every average minus infinity.
SMALLEST_PROBABILITY = 1e-15

# Short enough that a table of them fits 80 columns.
MEANINGS = {
    "nll": "negative log-density, lower is better",
    "rmse": "error of the mean, lower is better",
    "crps": "distribution's error, lower is better",
    **{f"coverage_{p}": f"rows in {p} % intervals, ideally {p / 100:.2f}" for p in COVERAGES},
    "accuracy": "right predictions, higher is better",
    "log_likelihood": "log p of the label, higher is better",
    "ece": "calibration error, lower is better",
    "auc": "ranking of the classes, higher is better",
}
HIGHER_IS_BETTER = ("accuracy", "log_likelihood", "auc")


class RegressionScores:
    """Scores of predictive distributions on the targets that were observed.

    `nll` is the mean negative log-density of a row, several targets jointly; `rmse` of the mean;
    `crps` the continuous ranked probability score; `coverage_90` the share of targets within
    the central 90 % interval, which is 0.9 for an honest model. All but `nll` pool the targets.
    `levels` counts the predictive cdf at the targets, in bins of equal width between 0 and 1. That
    of counts jumps at each of them: a count is spread over all levels of its jump, so that they are
    uniform, and intervals hold what they promise, where the model is honest. Without `crps`, which
    takes the longest, there is none of it.
    """

    def __init__(self, *, crps: bool = True) -> None:
        self.num_rows = 0
        self._with_crps = crps
        self.levels = np.zeros(LEVEL_BINS)
        self._totals: Counter[str] = Counter()

    def add(self, distribution: Predictive, y: np.ndarray) -> None:
        """Takes in the next rows."""
        mean = distribution.mean
        y = np.asarray(y, dtype=float).reshape(mean.shape)
        # y is within the central interval of probability p where its cdf is within p/2 of one half.
        levels = distribution.cdf(y)
        if isinstance(distribution, CountMixture):
            jumps = (distribution.cdf(y - 1), levels)
            edges = np.arange(LEVEL_BINS + 1) / LEVEL_BINS
            self.levels += np.diff([_share_below(edge, *jumps).sum() for edge in edges])
            inside = {p: _share_inside(p / 100, *jumps) for p in COVERAGES}
        else:
            self.levels += np.histogram(levels, LEVEL_BINS, (0, 1))[0]
            inside = {p: np.abs(levels - 0.5) <= p / 200 for p in COVERAGES}
        per_row = {
            "nll": -distribution.log_prob(y),
            "squared_error": np.square(mean - y),
            **({"crps": distribution.crps(y)} if self._with_crps else {}),
            **{f"coverage_{p}": share for p, share in inside.items()},
        }
        self.num_rows += len(y)
        for name, values in per_row.items():
            self._totals[name] += np.mean(values.reshape(len(y), -1), axis=1).sum()

    def metrics(self) -> dict[str, float]:
        """nll, rmse, crps and the coverage of the central 50, 90 and 95 % intervals."""
        means = {name: float(total / self.num_rows) for name, total in self._totals.items()}
        rmse = float(np.sqrt(means.pop("squared_error")))
        return {"nll": means.pop("nll"), "rmse": rmse, **means}

    def coverage(self) -> tuple[np.ndarray, np.ndarray]:
        """The probabilities of central intervals, and which share of the targets was inside."""
        half = LEVEL_BINS // 2
        by_distance = self.levels[half:] + self.levels[:half][::-1]  # of the median
        inside = np.concatenate([[0], np.cumsum(by_distance)]) / self.levels.sum()
        return np.arange(half + 1) / half, inside


def _share_below(level: float, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Which share of the levels between low and high lies below a level."""
    return np.clip((level - low) / np.maximum(high - low, np.finfo(float).tiny), 0, 1)


def _share_inside(p: float, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Which share of the levels between low and high lies in the central interval of p."""
    return _share_below((1 + p) / 2, low, high) - _share_below((1 - p) / 2, low, high)


class ClassificationScores:
    """accuracy, log_likelihood, ece, and for two classes auc.

    `label` turns the labels of the rows and the classes into what is compared. `auc` counts the
    second class as positive; it is NaN where only one class was observed. Bins of equal width of
    the predicted class's probability have `confidence_counts` rows, of which `right_counts` were
    right.
    """

    def __init__(self, classes: Sequence[Any], label: Callable[[Any], Any] = lambda given: given):
        self.num_rows = 0
        self._label = label
        self._codes = {label(given): code for code, given in enumerate(classes)}
        self._num_right, self._log_likelihood = 0, 0.0
        self._gaps = np.zeros(ECE_BINS)
        self.confidence_counts, self.right_counts = np.zeros((2, ECE_BINS), dtype=int)
        # Of two classes: what the ranking needs of every row.
        self._ranked: list[tuple[np.ndarray, np.ndarray]] = []

    def add(self, probabilities: Float[np.ndarray, "rows classes"], labels: Iterable[Any]) -> None:
        """Takes in the next rows."""
        probabilities = np.asarray(probabilities, dtype=float)
        codes = self._codes_of(labels)
        confidence, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == codes
        of_label = np.maximum(probabilities[np.arange(len(codes)), codes], SMALLEST_PROBABILITY)
        self.num_rows += len(codes)
        self._num_right += int(right.sum())
        self._log_likelihood += float(np.log(of_label).sum())
        bins = np.minimum((confidence * ECE_BINS).astype(int), ECE_BINS - 1)
        self._gaps += np.bincount(bins, weights=confidence - right, minlength=ECE_BINS)
        self.confidence_counts += np.bincount(bins, minlength=ECE_BINS)
        self.right_counts += np.bincount(bins[right], minlength=ECE_BINS)
        if len(self._codes) == 2:
            self._ranked.append((codes.astype(np.int8), probabilities[:, 1]))

    @property
    def confidence_sums(self) -> Float[np.ndarray, " bins"]:
        """The sum of the predicted classes' probabilities in each bin."""
        return self._gaps + self.right_counts

    def metrics(self) -> dict[str, float]:
        """The scores of all rows so far; the calibration error is over bins of the confidence."""
        metrics = {
            "accuracy": self._num_right / self.num_rows,
            "log_likelihood": self._log_likelihood / self.num_rows,
            "ece": float(np.abs(self._gaps).sum() / self.num_rows),
        }
        if len(self._codes) == 2:
            codes, of_second = map(np.concatenate, zip(*self._ranked, strict=True))
            from sklearn.metrics import roc_auc_score  # other models need not wait for it

            one_class = codes.min() == codes.max()
            metrics["auc"] = np.nan if one_class else float(roc_auc_score(codes, of_second))
        return metrics

    def _codes_of(self, labels: Iterable[Any]) -> np.ndarray:
        """The position of each label among the classes."""
        labels = [self._label(label) for label in labels]
        unknown = sorted({str(label) for label in labels if label not in self._codes})
        if unknown:
            known = ", ".join(map(str, list(self._codes)[:10]))
            raise ValueError(
                f"The labels {', '.join(unknown[:5])} are not among the classes that the model was "
                f"trained on ({known}): remove or rename these rows."
            )
        return np.array([self._codes[label] for label in labels], dtype=int)


def judged(
    model: Any,
    blocks: Iterable[tuple[Any, ...]],
    label: Callable[[Any], Any] = lambda given: given,
    each: Callable[[Any, np.ndarray], None] = lambda prediction, y: None,
) -> RegressionScores | ClassificationScores:
    """The scores of a fitted model on blocks of inputs and targets; `label` compares labels.

    A block of a regression may have the known errors of its rows as a third part.
    `each` is shown the prediction for each block, probabilities or a distribution, and its targets.
    """
    if model.task == "classification":
        of_labels = ClassificationScores(model.classes_.tolist(), label)
        for inputs, y in blocks:
            probabilities = model.predict_proba(inputs)
            of_labels.add(probabilities, np.asarray(y).tolist())
            each(probabilities, y)
        return of_labels
    of_numbers = RegressionScores()
    for inputs, y, *errors in blocks:
        distribution = model.predict_dist(inputs, *errors)
        of_numbers.add(distribution, y)
        each(distribution, y)
    return of_numbers


def scores(
    model: Any,
    blocks: Iterable[tuple[Any, ...]],
    label: Callable[[Any], Any] = lambda given: given,
    each: Callable[[Any, np.ndarray], None] = lambda prediction, y: None,
) -> dict[str, float]:
    """The metrics of `judged`."""
    return judged(model, blocks, label, each).metrics()


def regression_metrics(distribution: Predictive, y: np.ndarray) -> dict[str, float]:
    """The scores of `RegressionScores` on one block of rows."""
    judged = RegressionScores()
    judged.add(distribution, y)
    return judged.metrics()


def classification_metrics(
    probabilities: Float[np.ndarray, "rows classes"], labels: Iterable[Any], classes: Sequence[Any]
) -> dict[str, float]:
    """The scores of `ClassificationScores` on one block of rows."""
    judged = ClassificationScores(classes)
    judged.add(probabilities, labels)
    return judged.metrics()
