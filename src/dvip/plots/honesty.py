"""How honest predictions are: calibration of intervals, reliability of probabilities.

Drawn from counts that are gathered block by block.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dvip.distributions import Predictive
from dvip.metrics import ClassificationScores, RegressionScores
from dvip.plots.pictures import CHANCE, HONEST, NOTES, OURS, Display

__all__ = ["CalibrationDisplay", "ReliabilityDisplay", "calibration_figure"]

# Bars of the histogram: some bins of the counts each.
NUM_BARS = 20
# Bins of fewer rows than these say nothing, and are not drawn.
FEW_ROWS = 10
# Standard errors of an honest model that are shaded.
ERRORS = 2.0


def calibration_figure(judged: RegressionScores | ClassificationScores, title: str = "") -> Figure:
    """How honest the probabilities of a model are, on the rows that were judged.

    Parameters
    ----------
    judged : RegressionScores or ClassificationScores
        As `dvip.metrics.judged` gives them. Of a regression, the picture is a histogram of the
        predictive cdf at what was observed, flat for an honest model, and the observed coverage of
        central intervals against the promised one. Of a classification it is how often the
        predicted class was right against its probability, and a histogram of that probability.
    title : str
        Of the whole figure; the metrics are in a line below it.

    Returns
    -------
    Figure
        Of matplotlib; `write_picture` writes it.
    """
    figure = Figure(figsize=(10, 4.9), layout="constrained")
    left, right = figure.subplots(1, 2)
    if isinstance(judged, RegressionScores):
        _draw_levels(left, judged)
        _draw_coverage(right, judged)
    else:
        _draw_reliability(left, judged)
        _draw_confidences(right, judged)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_axisbelow(True)
    metrics = "    ".join(
        f"{name.replace('_', ' ')} {value:.3g}"
        for name, value in judged.metrics().items()
        if not name.startswith("coverage")  # the picture has more of them
    )
    # (Dollars in the name of a file are no formulas.)
    figure.suptitle(f"{title}\n" if title else "", x=0.01, ha="left", size=13, parse_math=False)
    figure.text(0.01, 0.925, metrics, color=NOTES, size=10)
    return figure


def _draw_levels(axes: Axes, judged: RegressionScores) -> None:
    """A histogram of the predictive cdf at the targets, relative to that of an honest model."""
    counts = judged.levels.reshape(NUM_BARS, -1).sum(axis=1)
    number, edges = counts.sum(), np.linspace(0, 1, NUM_BARS + 1)
    chance = ERRORS * np.sqrt((NUM_BARS - 1) / number)
    axes.axhspan(max(0.0, 1 - chance), 1 + chance, color=CHANCE, lw=0, label="chance")
    heights = counts * NUM_BARS / number
    axes.bar(edges[:-1], heights, 1 / NUM_BARS, align="edge", color=OURS, ec="white", alpha=0.85)
    axes.axhline(1, color=HONEST, ls="--", lw=1.2, label="honest")
    axes.set(xlim=(0, 1), ylim=(0, max(2.0, 1.15 * heights.max())))
    axes.set(xlabel="predictive cdf at the observed target", ylabel="relative frequency")
    axes.set_title("Where the targets fell", loc="left", size=11)
    axes.legend(loc="upper right", frameon=False, ncols=2, fontsize=9)


def _draw_coverage(axes: Axes, judged: RegressionScores) -> None:
    """Which share of the targets was inside central intervals."""
    promised, observed = judged.coverage()
    chance = ERRORS * np.sqrt(promised * (1 - promised) / judged.levels.sum())
    axes.fill_between(promised, promised - chance, promised + chance, color=CHANCE, lw=0)
    axes.plot([0, 1], [0, 1], color=HONEST, ls="--", lw=1.2)
    axes.plot(promised, observed, color=OURS, lw=2.2)
    for percent in (50, 90):
        share = float(np.interp(percent / 100, promised, observed))
        axes.plot(percent / 100, share, "o", color=OURS, ms=6, mec="white", zorder=3)
        axes.annotate(
            f"{percent} % intervals\nhold {100 * share:.0f} %",
            (percent / 100, share),
            (-8, 6),
            textcoords="offset points",
            ha="right",
            size=9,
            bbox={"fc": "white", "ec": "none", "alpha": 0.8, "pad": 1},
        )
    axes.text(0.03, 0.95, "intervals too wide", color=NOTES, size=9, va="top")
    axes.text(0.97, 0.03, "intervals too narrow", color=NOTES, size=9, ha="right")
    axes.set(xlim=(0, 1), ylim=(0, 1.02), xlabel="promised coverage", ylabel="observed coverage")
    axes.set_title("Central intervals", loc="left", size=11)


def _draw_reliability(axes: Axes, judged: ClassificationScores) -> None:
    """How often the predicted class was right, with standard errors, against its probability."""
    held = judged.confidence_counts >= min(FEW_ROWS, judged.confidence_counts.max())
    counts = judged.confidence_counts[held]
    confidence = judged.confidence_sums[held] / counts
    accuracy = judged.right_counts[held] / counts
    # Of an honest model in a bin of so many rows.
    chance = ERRORS * np.sqrt(confidence * (1 - confidence) / counts)
    axes.plot([0, 1], [0, 1], color=HONEST, ls="--", lw=1.2, label="honest")
    axes.errorbar(
        confidence, confidence, chance, fmt="none", color=CHANCE, elinewidth=7, label="chance"
    )
    axes.plot(confidence, accuracy, "o-", color=OURS, lw=1.6, ms=6, mec="white", label="the model")
    least = np.floor(10 * min(confidence.min(), accuracy.min(), 0.9)) / 10
    axes.set(xlim=(least, 1.01), ylim=(least, 1.02))
    axes.text(0.03, 0.95, "too modest", color=NOTES, size=9, va="top", transform=axes.transAxes)
    axes.text(0.97, 0.03, "too sure", color=NOTES, size=9, ha="right", transform=axes.transAxes)
    axes.set(xlabel="probability of the predicted class", ylabel="share that was right")
    axes.set_title("Reliability", loc="left", size=11)
    axes.legend(loc="lower right", bbox_to_anchor=(1, 0.06), frameon=False, fontsize=9)


def _draw_confidences(axes: Axes, judged: ClassificationScores) -> None:
    """How sure the model was, on average as sure as it was right if it is honest."""
    counts, number = judged.confidence_counts, judged.num_rows
    edges = np.linspace(0, 1, len(counts) + 1)
    widths = edges[1] - edges[0]
    axes.bar(edges[:-1], counts / number, widths, align="edge", color=OURS, ec="white", alpha=0.85)
    for value, colour, style, label in (
        (judged.confidence_sums.sum() / number, HONEST, "--", "mean probability"),
        (judged.right_counts.sum() / number, "#d1495b", "-", "accuracy"),
    ):
        axes.axvline(value, color=colour, ls=style, lw=1.6, label=f"{label} {value:.3f}")
    axes.set(xlim=(edges[np.flatnonzero(counts)[0]], 1))
    axes.set(xlabel="probability of the predicted class", ylabel="share of the rows")
    axes.set_title("How sure it was", loc="left", size=11)
    axes.legend(loc="upper left", frameon=False, fontsize=9)


class CalibrationDisplay(Display):
    """How honest the intervals of a regression are.

    Parameters
    ----------
    judged : RegressionScores
        Predictions and what was observed, as `dvip.metrics.judged` gathers them.

    Attributes
    ----------
    ax_ : Axes
        Where it was drawn last.
    figure_ : Figure
        The figure of these axes.

    Examples
    --------
    >>> import numpy as np
    >>> from dvip import GaussianMixture
    >>> from dvip.plots import CalibrationDisplay
    >>> normal = GaussianMixture(np.zeros((100, 1)), np.zeros((100, 1)), np.ones(()))
    >>> y = np.random.default_rng(0).normal(size=100)
    >>> CalibrationDisplay.from_predictions(y, normal).ax_.get_xlabel()
    'promised coverage'
    """

    def __init__(self, judged: RegressionScores):
        self.judged = judged

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        noise_std: Any = None,
        kind: str = "coverage",
        ax: Axes | None = None,
    ) -> "CalibrationDisplay":
        """Of a fitted regressor, on rows that it should not have seen.

        Parameters
        ----------
        estimator : a fitted regressor
        X : array of shape (rows, inputs) or DataFrame
        y : array of shape (rows,) or (rows, targets)
            What was observed; several targets are pooled.
        noise_std : number or array, optional
            Known errors of the rows, as for `predict`.
        kind : {"coverage", "pit"}, default "coverage"
            Observed against promised coverage of central intervals, or a histogram of the
            predictive cdf at what was observed, which is flat for an honest model.
        ax : Axes, optional
            Where to draw; new axes by default.

        Returns
        -------
        CalibrationDisplay
        """
        return cls.from_predictions(y, estimator.predict_dist(X, noise_std), kind=kind, ax=ax)

    @classmethod
    def from_predictions(
        cls, y: Any, distribution: Predictive, *, kind: str = "coverage", ax: Axes | None = None
    ) -> "CalibrationDisplay":
        """Of predictive distributions; otherwise as `from_estimator`.

        Parameters
        ----------
        y : array of the shape of `distribution.mean`
        distribution : Predictive
        kind : {"coverage", "pit"}, default "coverage"
        ax : Axes, optional

        Returns
        -------
        CalibrationDisplay
        """
        scores = RegressionScores()
        scores.add(distribution, np.asarray(y, dtype=float))
        return cls(scores).plot(kind=kind, ax=ax)

    def plot(self, *, kind: str = "coverage", ax: Axes | None = None) -> "CalibrationDisplay":
        """Draws it, on these axes or on new ones.

        Parameters
        ----------
        kind : {"coverage", "pit"}, default "coverage"
        ax : Axes, optional

        Returns
        -------
        CalibrationDisplay
            Itself.
        """
        if kind not in ("coverage", "pit"):
            raise ValueError(f'kind={kind!r} must be "coverage" or "pit".')
        draw = _draw_coverage if kind == "coverage" else _draw_levels
        draw(self._axes(ax), self.judged)
        return self


class ReliabilityDisplay(Display):
    """How often predicted classes are right, against their probability.

    Parameters
    ----------
    judged : ClassificationScores
        Predictions and what was observed, as `dvip.metrics.judged` gathers them.

    Attributes
    ----------
    ax_ : Axes
        Where it was drawn last.
    figure_ : Figure
        The figure of these axes.
    """

    def __init__(self, judged: ClassificationScores):
        self.judged = judged

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: Any, *, kind: str = "reliability", ax: Axes | None = None
    ) -> "ReliabilityDisplay":
        """Of a fitted classifier, on rows that it should not have seen.

        Parameters
        ----------
        estimator : a fitted classifier
        X : array of shape (rows, inputs) or DataFrame
        y : array of shape (rows,)
            The labels that were observed.
        kind : {"reliability", "confidence"}, default "reliability"
            Shares that were right against probabilities, or a histogram of these probabilities.
        ax : Axes, optional
            Where to draw; new axes by default.

        Returns
        -------
        ReliabilityDisplay
        """
        probabilities = estimator.predict_proba(X)
        return cls.from_predictions(
            y, probabilities, classes=estimator.classes_.tolist(), kind=kind, ax=ax
        )

    @classmethod
    def from_predictions(
        cls,
        y: Any,
        probabilities: np.ndarray,
        *,
        classes: Sequence[Any] | None = None,
        kind: str = "reliability",
        ax: Axes | None = None,
    ) -> "ReliabilityDisplay":
        """Of probabilities; otherwise as `from_estimator`.

        Parameters
        ----------
        y : array of shape (rows,)
        probabilities : array of shape (rows, classes)
        classes : sequence, optional
            The labels of the columns; those of y, sorted, by default.
        kind : {"reliability", "confidence"}, default "reliability"
        ax : Axes, optional

        Returns
        -------
        ReliabilityDisplay
        """
        labels = np.asarray(y).tolist()
        scores = ClassificationScores(np.unique(y).tolist() if classes is None else classes)
        scores.add(np.asarray(probabilities), labels)
        return cls(scores).plot(kind=kind, ax=ax)

    def plot(self, *, kind: str = "reliability", ax: Axes | None = None) -> "ReliabilityDisplay":
        """Draws it, on these axes or on new ones.

        Parameters
        ----------
        kind : {"reliability", "confidence"}, default "reliability"
        ax : Axes, optional

        Returns
        -------
        ReliabilityDisplay
            Itself.
        """
        if kind not in ("reliability", "confidence"):
            raise ValueError(f'kind={kind!r} must be "reliability" or "confidence".')
        draw = _draw_reliability if kind == "reliability" else _draw_confidences
        draw(self._axes(ax), self.judged)
        return self
