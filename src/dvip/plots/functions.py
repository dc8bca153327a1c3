"""Functions as they were learned: over one input, over two, and as draws."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from dvip.distributions import Predictive
from dvip.plots.pictures import (
    MEASURED,
    OURS,
    Display,
    as_frame,
    column_of,
    name_axes,
    target_label,
    typical_rows,
)

__all__ = ["FunctionDrawsDisplay", "PredictionDisplay", "SurfaceDisplay"]

# Points of a curve, and along each side of a surface.
NUM_POINTS, NUM_SIDE = 200, 50
# How far curves go beyond the rows, as a share of their range.
MARGIN = 0.05
DRAW_COLOUR = "#3f7d5b"


class Line:
    """Values of one column to draw along, and rows that have them."""

    def __init__(self, X: Any, feature: Any = None, margin: float = MARGIN):
        frame, named = as_frame(X)
        if feature is None:
            if frame.shape[1] > 1:
                raise ValueError(
                    f"X has {frame.shape[1]} columns: name the one to draw along with feature=."
                )
            feature = 0
        self.name = column_of(frame, feature)
        self.points = pd.to_numeric(frame[self.name], errors="coerce").to_numpy(dtype=float)
        if not np.isfinite(self.points).any():
            raise ValueError(f"The column {self.name!r} has no numbers to draw along.")
        low, high = np.nanmin(self.points), np.nanmax(self.points)
        room = margin * (high - low or 1.0)
        self.values = np.linspace(low - room, high + room, NUM_POINTS)
        rows = typical_rows(frame, {self.name: self.values})
        self.rows: Any = rows if named else rows.to_numpy(dtype=float)
        # Rows differ in other columns, too: their targets need not be near the curve.
        self.alone = frame.shape[1] == 1


def _of_target(distribution: Predictive, target: int) -> Predictive:
    return distribution.target(target) if distribution.mean.ndim == 2 else distribution


class PredictionDisplay(Display):
    """Mean and central intervals over one input.

    Parameters
    ----------
    x : array of shape (points,)
        Values of the input.
    distribution : Predictive
        Of one target at these values.
    labels : pair of str, default ("x", "y")
        Of the axes.
    measured : pair of arrays, optional
        Inputs and targets of rows, drawn as points.

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
    >>> from dvip.plots import PredictionDisplay
    >>> x = np.linspace(0, 1, 50)
    >>> normal = GaussianMixture(x[:, None], np.full((50, 1), 0.1), np.full((), 0.01))
    >>> display = PredictionDisplay.from_predictions(x, normal, labels=("time", "height"))
    >>> display.ax_.get_ylabel()
    'height'
    """

    def __init__(
        self,
        x: np.ndarray,
        distribution: Predictive,
        labels: tuple[str, str] = ("x", "y"),
        measured: tuple[np.ndarray, np.ndarray] | None = None,
    ):
        self.x, self.distribution = x, distribution
        self.labels, self.measured = labels, measured

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any = None,
        *,
        feature: str | int | None = None,
        target: int = 0,
        coverages: Sequence[float] = (0.9, 0.5),
        ax: Axes | None = None,
    ) -> "PredictionDisplay":
        """Of a fitted regressor over the range of a column.

        Parameters
        ----------
        estimator : a fitted regressor
        X : array of shape (rows, inputs) or DataFrame
            Where to draw. Other columns than `feature` stay at their median or most frequent value.
        y : array of shape (rows,) or (rows, targets), optional
            Drawn as points.
        feature : str or int, optional
            The column; needed where X has several.
        target : int, default 0
            Which of several targets.
        coverages : sequence of float, default (0.9, 0.5)
            The probabilities of the intervals.
        ax : Axes, optional
            Where to draw; new axes by default.

        Returns
        -------
        PredictionDisplay
        """
        line = Line(X, feature)
        distribution = _of_target(estimator.predict_dist(line.rows), target)
        measured = None
        if y is not None:
            values = np.asarray(y, dtype=float)
            measured = (line.points, values[:, target] if values.ndim == 2 else values)
        labels = (str(line.name), target_label(estimator, target))
        return cls(line.values, distribution, labels, measured).plot(coverages=coverages, ax=ax)

    @classmethod
    def from_predictions(
        cls,
        x: Any,
        distribution: Predictive,
        y: Any = None,
        *,
        labels: tuple[str, str] = ("x", "y"),
        coverages: Sequence[float] = (0.9, 0.5),
        ax: Axes | None = None,
    ) -> "PredictionDisplay":
        """Of distributions at values of an input, and what was measured there.

        Parameters
        ----------
        x : array of shape (rows,)
        distribution : Predictive
            Of one target.
        y : array of shape (rows,), optional
        labels : pair of str, default ("x", "y")
        coverages : sequence of float, default (0.9, 0.5)
        ax : Axes, optional

        Returns
        -------
        PredictionDisplay
        """
        values = np.asarray(x, dtype=float).ravel()
        order = np.argsort(values, kind="stable")
        measured = None if y is None else (values, np.asarray(y, dtype=float).ravel())
        display = cls(values[order], distribution[order], labels, measured)
        return display.plot(coverages=coverages, ax=ax)

    def plot(
        self, *, coverages: Sequence[float] = (0.9, 0.5), ax: Axes | None = None
    ) -> "PredictionDisplay":
        """Draws it, on these axes or on new ones.

        Parameters
        ----------
        coverages : sequence of float, default (0.9, 0.5)
        ax : Axes, optional

        Returns
        -------
        PredictionDisplay
            Itself.
        """
        ax = self._axes(ax)
        colours = np.linspace(0.16, 0.42, max(1, len(coverages)))
        for coverage, strength in zip(sorted(coverages, reverse=True), colours, strict=True):
            lower, upper = self.distribution.interval(coverage)
            label = f"{100 * coverage:.3g} % interval"
            ax.fill_between(self.x, lower, upper, color=OURS, alpha=strength, lw=0, label=label)
        if self.measured is not None:
            many = len(self.measured[0]) > 500
            size, strength = (1.5, 0.4) if many else (3.5, 0.8)
            ax.plot(
                *self.measured,
                "o",
                color=MEASURED,
                ms=size,
                mew=0,
                alpha=strength,
                label="rows",
                rasterized=many,
            )
        ax.plot(self.x, self.distribution.mean, color=OURS, lw=2, label="mean")
        name_axes(ax, *self.labels[:2])
        ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False, fontsize=9)
        return self


class SurfaceDisplay(Display):
    """Mean or standard deviation over two inputs.

    Parameters
    ----------
    x, y : arrays of shape (points,)
        Values of the two inputs.
    values : array of shape (points of y, points of x)
        What is drawn.
    labels : three str
        Of the two inputs and of the values.
    rows : pair of arrays, optional
        The two inputs of rows, drawn as points.

    Attributes
    ----------
    ax_ : Axes
        Where it was drawn last.
    figure_ : Figure
        The figure of these axes.
    """

    def __init__(
        self,
        x: np.ndarray,
        y: np.ndarray,
        values: np.ndarray,
        labels: tuple[str, str, str] = ("x0", "x1", "y"),
        rows: tuple[np.ndarray, np.ndarray] | None = None,
    ):
        self.x, self.y, self.values, self.labels, self.rows = x, y, values, labels, rows

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        *,
        features: Sequence[str | int] = (0, 1),
        response: str = "mean",
        target: int = 0,
        ax: Axes | None = None,
    ) -> "SurfaceDisplay":
        """Of a fitted model over the range of two columns.

        Parameters
        ----------
        estimator : a fitted regressor or classifier
        X : array of shape (rows, inputs) or DataFrame
            Where to draw. Other columns stay at their median or most frequent value.
        features : two of str or int, default (0, 1)
            The columns.
        response : {"mean", "std"}, default "mean"
            Mean or standard deviation of a regression. Of a classifier it is the probability of the
            class that `target` counts.
        target : int, default 0
            Which of several targets, or of the classes.
        ax : Axes, optional
            Where to draw; new axes by default.

        Returns
        -------
        SurfaceDisplay
        """
        if response not in ("mean", "std"):
            raise ValueError(f'response={response!r} must be "mean" or "std".')
        first, second = (Line(X, feature) for feature in features)
        frame, named = as_frame(X)
        x = np.linspace(first.values[0], first.values[-1], NUM_SIDE)
        y = np.linspace(second.values[0], second.values[-1], NUM_SIDE)
        grid = np.meshgrid(x, y)
        rows = typical_rows(frame, {first.name: grid[0].ravel(), second.name: grid[1].ravel()})
        inputs: Any = rows if named else rows.to_numpy(dtype=float)
        if hasattr(estimator, "predict_dist"):
            distribution = _of_target(estimator.predict_dist(inputs), target)
            values, label = getattr(distribution, response), target_label(estimator, target)
            label = label if response == "mean" else f"standard deviation of {label}"
        else:
            values = estimator.predict_proba(inputs)[:, target]
            label = f"probability of {estimator.classes_[target]}"
        labels = (str(first.name), str(second.name), label)
        points = (first.points, second.points)
        return cls(x, y, values.reshape(grid[0].shape), labels, points).plot(ax=ax)

    @classmethod
    def from_predictions(
        cls,
        x: Any,
        y: Any,
        values: Any,
        *,
        labels: tuple[str, str, str] = ("x0", "x1", "y"),
        ax: Axes | None = None,
    ) -> "SurfaceDisplay":
        """Of values on a grid.

        Parameters
        ----------
        x, y : arrays of shape (points,)
        values : array of shape (points of y, points of x)
        labels : three str
        ax : Axes, optional

        Returns
        -------
        SurfaceDisplay
        """
        return cls(np.asarray(x), np.asarray(y), np.asarray(values), labels).plot(ax=ax)

    def plot(self, *, ax: Axes | None = None) -> "SurfaceDisplay":
        """Draws it, on these axes or on new ones, with a bar for the colours beside them.

        Parameters
        ----------
        ax : Axes, optional

        Returns
        -------
        SurfaceDisplay
            Itself.
        """
        ax = self._axes(ax)
        drawn = ax.contourf(self.x, self.y, self.values, levels=14, cmap="viridis")
        if self.rows is not None:
            ax.plot(*self.rows, "o", color="white", ms=2.5, mew=0.4, mec=MEASURED, alpha=0.7)
        ax.set(xlim=(self.x[0], self.x[-1]), ylim=(self.y[0], self.y[-1]))
        name_axes(ax, *self.labels[:2])
        self.figure_.colorbar(drawn, ax=ax).set_label(self.labels[2], parse_math=False)
        return self


class FunctionDrawsDisplay(Display):
    """Whole functions from the posterior, over one input.

    Parameters
    ----------
    x : array of shape (points,)
        Values of the input.
    draws : array of shape (functions, points)
    labels : pair of str, default ("x", "y")
        Of the axes.

    Attributes
    ----------
    ax_ : Axes
        Where it was drawn last.
    figure_ : Figure
        The figure of these axes.
    """

    def __init__(self, x: np.ndarray, draws: np.ndarray, labels: tuple[str, str] = ("x", "y")):
        self.x, self.draws, self.labels = x, draws, labels

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        *,
        feature: str | int | None = None,
        n_functions: int = 10,
        target: int = 0,
        random_state: Any = 0,
        ax: Axes | None = None,
    ) -> "FunctionDrawsDisplay":
        """Of a fitted model over the range of a column.

        Parameters
        ----------
        estimator : a fitted regressor or classifier
            Of a classifier, latent functions are drawn.
        X : array of shape (rows, inputs) or DataFrame
            Where to draw. Other columns than `feature` stay at their median or most frequent value.
        feature : str or int, optional
            The column; needed where X has several.
        n_functions : int, default 10
        target : int, default 0
            Which of several targets, or units.
        random_state : int, RandomState or None, default 0
        ax : Axes, optional
            Where to draw; new axes by default.

        Returns
        -------
        FunctionDrawsDisplay
        """
        line = Line(X, feature)
        draws = estimator.sample_functions(n_functions, random_state)(line.rows)
        draws = draws[..., target] if draws.ndim == 3 else draws
        is_latent = not hasattr(estimator, "predict_dist")
        label = "latent function" if is_latent else target_label(estimator, target)
        return cls(line.values, draws, (str(line.name), label)).plot(ax=ax)

    @classmethod
    def from_predictions(
        cls, x: Any, draws: Any, *, labels: tuple[str, str] = ("x", "y"), ax: Axes | None = None
    ) -> "FunctionDrawsDisplay":
        """Of functions that were evaluated already.

        Parameters
        ----------
        x : array of shape (points,)
        draws : array of shape (functions, points)
        labels : pair of str, default ("x", "y")
        ax : Axes, optional

        Returns
        -------
        FunctionDrawsDisplay
        """
        return cls(np.asarray(x), np.asarray(draws), labels).plot(ax=ax)

    def plot(self, *, ax: Axes | None = None) -> "FunctionDrawsDisplay":
        """Draws it, on these axes or on new ones.

        Parameters
        ----------
        ax : Axes, optional

        Returns
        -------
        FunctionDrawsDisplay
            Itself.
        """
        ax = self._axes(ax)
        ax.plot(self.x, self.draws.T, color=DRAW_COLOUR, lw=1, alpha=0.7)
        name_axes(ax, *self.labels[:2])
        return self
