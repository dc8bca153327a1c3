"""Rows one by one, measured and predicted, and where their variance is from; the training."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from dvip.distributions import Predictive, VarianceParts
from dvip.plots.pictures import (
    HONEST,
    LIGHT,
    OURS,
    Display,
    as_frame,
    column_of,
    name_axes,
    target_label,
)

__all__ = ["BoundDisplay", "MeasuredDisplay", "VarianceDisplay"]

# Rows whose intervals are drawn; of more, a random part.
MAX_INTERVALS = 300
FUNCTION_COLOUR, NOISE_COLOUR = "#1f5f99", "#d9b26f"


def _one_target(distribution: Predictive, y: Any, target: int) -> tuple[Predictive, np.ndarray]:
    values = np.asarray(y, dtype=float)
    if distribution.mean.ndim == 2:
        values = values[:, target] if values.ndim == 2 else values
        return distribution.target(target), values
    return distribution, values.reshape(len(distribution))


class MeasuredDisplay(Display):
    """What was measured against what was predicted, with intervals.

    Parameters
    ----------
    y : array of shape (rows,)
        What was measured.
    distribution : Predictive
        Of one target.
    label : str, default "y"
        What the target is called.

    Attributes
    ----------
    ax_ : Axes
        Where it was drawn last.
    figure_ : Figure
        The figure of these axes.
    """

    def __init__(self, y: np.ndarray, distribution: Predictive, label: str = "y"):
        self.y, self.distribution, self.label = y, distribution, label

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        noise_std: Any = None,
        target: int = 0,
        coverage: float = 0.9,
        ax: Axes | None = None,
    ) -> "MeasuredDisplay":
        """Of a fitted regressor, on rows that it should not have seen.

        Parameters
        ----------
        estimator : a fitted regressor
        X : array of shape (rows, inputs) or DataFrame
        y : array of shape (rows,) or (rows, targets)
        noise_std : number or array, optional
            Known errors of the rows, as for `predict`.
        target : int, default 0
            Which of several targets.
        coverage : float, default 0.9
            The probability of the intervals.
        ax : Axes, optional
            Where to draw; new axes by default.

        Returns
        -------
        MeasuredDisplay
        """
        distribution, values = _one_target(estimator.predict_dist(X, noise_std), y, target)
        return cls(values, distribution, target_label(estimator, target)).plot(
            coverage=coverage, ax=ax
        )

    @classmethod
    def from_predictions(
        cls,
        y: Any,
        distribution: Predictive,
        *,
        label: str = "y",
        coverage: float = 0.9,
        ax: Axes | None = None,
    ) -> "MeasuredDisplay":
        """Of predictive distributions of one target.

        Parameters
        ----------
        y : array of shape (rows,)
        distribution : Predictive
        label : str, default "y"
        coverage : float, default 0.9
        ax : Axes, optional

        Returns
        -------
        MeasuredDisplay
        """
        distribution, values = _one_target(distribution, y, 0)
        return cls(values, distribution, label).plot(coverage=coverage, ax=ax)

    def plot(self, *, coverage: float = 0.9, ax: Axes | None = None) -> "MeasuredDisplay":
        """Draws it, on these axes or on new ones. Of many rows, some have their interval drawn.

        Parameters
        ----------
        coverage : float, default 0.9
        ax : Axes, optional

        Returns
        -------
        MeasuredDisplay
            Itself.
        """
        ax = self._axes(ax)
        mean = self.distribution.mean
        chosen = np.random.default_rng(0).permutation(len(mean))[:MAX_INTERVALS]
        lower, upper = self.distribution[chosen].interval(coverage)
        label = f"{100 * coverage:.3g} % interval"
        ax.vlines(mean[chosen], lower, upper, color=LIGHT, lw=0.9, alpha=0.8, label=label)
        many = len(mean) > MAX_INTERVALS
        size, strength = (1.8, 0.4) if many else (3.5, 0.7)
        points: dict[str, Any] = {"ms": size, "mew": 0, "alpha": strength, "rasterized": many}
        ax.plot(mean, self.y, "o", color=OURS, label="rows", **points)
        low, high = min(mean.min(), self.y.min()), max(mean.max(), self.y.max())
        ax.plot([low, high], [low, high], color=HONEST, ls="--", lw=1.2)
        name_axes(ax, f"predicted {self.label}", f"measured {self.label}")
        ax.legend(frameon=False, fontsize=9, loc="upper left")
        return self


class VarianceDisplay(Display):
    """Where the predictive variance comes from: noise of the data, uncertainty of the function.

    Parameters
    ----------
    x : array of shape (rows,)
        What the rows are ordered by.
    parts : VarianceParts
        Of one target, as `predict_dist(X).variance_parts()` gives them.
    labels : pair of str, default ("rows by their variance", "y")
        Of x and of the target.

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
        parts: VarianceParts,
        labels: tuple[str, str] = ("rows by their variance", "y"),
    ):
        self.x, self.parts, self.labels = x, parts, labels

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        *,
        feature: str | int | None = None,
        target: int = 0,
        ax: Axes | None = None,
    ) -> "VarianceDisplay":
        """Of a fitted regressor.

        Parameters
        ----------
        estimator : a fitted regressor
        X : array of shape (rows, inputs) or DataFrame
        feature : str or int, optional
            The column that rows are ordered by; by their variance otherwise.
        target : int, default 0
            Which of several targets.
        ax : Axes, optional
            Where to draw; new axes by default.

        Returns
        -------
        VarianceDisplay
        """
        distribution = estimator.predict_dist(X)
        if distribution.mean.ndim == 2:
            distribution = distribution.target(target)
        x, label = None, "rows by their variance"
        if feature is not None:
            frame, _ = as_frame(X)
            label = column_of(frame, feature)
            x = pd.to_numeric(frame[label], errors="coerce").to_numpy(dtype=float)
        labels = (str(label), target_label(estimator, target))
        return cls.from_predictions(distribution, x=x, labels=labels, ax=ax)

    @classmethod
    def from_predictions(
        cls,
        distribution: Predictive,
        *,
        x: Any = None,
        labels: tuple[str, str] = ("rows by their variance", "y"),
        ax: Axes | None = None,
    ) -> "VarianceDisplay":
        """Of predictive distributions of one target.

        Parameters
        ----------
        distribution : Predictive
        x : array of shape (rows,), optional
            What the rows are ordered by; by their variance otherwise.
        labels : pair of str, default ("rows by their variance", "y")
        ax : Axes, optional

        Returns
        -------
        VarianceDisplay
        """
        noise, function = distribution.variance_parts()
        order = np.argsort(noise + function if x is None else x, kind="stable")
        places = np.arange(1, len(order) + 1) if x is None else np.asarray(x, dtype=float)[order]
        return cls(places, VarianceParts(noise[order], function[order]), labels).plot(ax=ax)

    def plot(self, *, ax: Axes | None = None) -> "VarianceDisplay":
        """Draws it, on these axes or on new ones.

        Parameters
        ----------
        ax : Axes, optional

        Returns
        -------
        VarianceDisplay
            Itself.
        """
        ax = self._axes(ax)
        ax.stackplot(
            self.x,
            self.parts.noise,
            self.parts.function,
            colors=[NOISE_COLOUR, FUNCTION_COLOUR],
            labels=["noise of the data", "uncertainty of the function"],
            alpha=0.85,
        )
        name_axes(ax, self.labels[0], f"variance of {self.labels[1]}")
        ax.margins(x=0)
        ax.set_ylim(bottom=0)
        ax.legend(frameon=False, fontsize=9, loc="upper left")
        return self


class BoundDisplay(Display):
    """The bound over the training, of a model or of each member of an ensemble.

    Parameters
    ----------
    histories : mapping of str to arrays
        Steps and bounds of each line: a pair of arrays for each member under a name.

    Attributes
    ----------
    ax_ : Axes
        Where it was drawn last.
    figure_ : Figure
        The figure of these axes.
    """

    def __init__(self, histories: Mapping[str, list[tuple[np.ndarray, np.ndarray]]]):
        self.histories = histories

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Axes | None = None) -> "BoundDisplay":
        """Of a fitted model, or of the deep parts of one that chose.

        Parameters
        ----------
        estimator : a fitted model
        ax : Axes, optional
            Where to draw; new axes by default.

        Returns
        -------
        BoundDisplay
        """
        kept = [part.name for part in getattr(estimator, "choice_", ()) if part.weight > 0]
        parts = dict(zip(kept, getattr(estimator, "parts_", ()), strict=True))
        histories = {}
        for name, model in (parts or {type(estimator).__name__: estimator}).items():
            bounds = np.atleast_2d(getattr(model, "bound_history_", np.zeros(0)))
            if bounds.size:
                steps = np.linspace(0, model.n_iter_, bounds.shape[1] + 1)[1:]
                histories[name] = [(steps, member) for member in bounds]
        if not histories:
            raise ValueError("The model has no training steps: a Gaussian process in closed form.")
        return cls(histories).plot(ax=ax)

    @classmethod
    def from_predictions(
        cls, steps: Any, bounds: Any, *, name: str = "bound", ax: Axes | None = None
    ) -> "BoundDisplay":
        """Of numbers.

        Parameters
        ----------
        steps : array of shape (points,)
        bounds : array of shape (points,) or (members, points)
        name : str, default "bound"
        ax : Axes, optional

        Returns
        -------
        BoundDisplay
        """
        members = np.atleast_2d(np.asarray(bounds, dtype=float))
        return cls({name: [(np.asarray(steps), member) for member in members]}).plot(ax=ax)

    def plot(self, *, ax: Axes | None = None) -> "BoundDisplay":
        """Draws it, on these axes or on new ones; the first steps may lie far below.

        Parameters
        ----------
        ax : Axes, optional

        Returns
        -------
        BoundDisplay
            Itself.
        """
        ax = self._axes(ax)
        colours = (OURS, "#3f7d5b", "#d1495b", NOISE_COLOUR)
        every = []
        for place, (name, members) in enumerate(self.histories.items()):
            for number, (steps, bounds) in enumerate(members):
                label = name if number == 0 else None
                ax.plot(steps, bounds, color=colours[place % 4], lw=1.3, alpha=0.8, label=label)
                every.append(bounds[len(bounds) // 10 :])
        values = np.concatenate(every)
        values = values[np.isfinite(values)]
        if len(values) > 10:  # where most of the training is, not where it began
            low, high = np.quantile(values, 0.02), values.max()
            ax.set_ylim(low - 0.1 * (high - low or 1), high + 0.05 * (high - low or 1))
        ax.set(xlabel="steps", ylabel="bound")
        ax.legend(frameon=False, fontsize=9, loc="lower right")
        return self
