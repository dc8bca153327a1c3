"""The effect of a column on what is predicted, with its uncertainty, and which columns matter.

The curve of a function f drawn from the posterior is its mean over rows whose column is set to v,

    e_f(v) = mean over rows x of f(x with x_j = v).

Each draw gives a whole curve, so that the band tells how sure the model is of the shape, not how
different rows are.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from dvip.plots.pictures import NOTES, OURS, Display, as_frame, column_of, name_axes, target_label

__all__ = ["EffectDisplay", "column_importances"]

# Values along a column, and kinds of a text column.
NUM_VALUES, MAX_KINDS = 25, 12
# Single curves that are drawn.
NUM_DRAWN = 8
# Rows, and columns, that importances are measured with.
ROWS_OF_IMPORTANCE = 500


class EffectDisplay(Display):
    """The effect of a column on the function, with its uncertainty.

    Parameters
    ----------
    values : array of shape (values,)
        Of the column: numbers, or kinds of text.
    draws : array of shape (functions, values)
        The mean effect for each function drawn from the posterior.
    labels : pair of str, default ("x", "y")
        Of the axes.
    observed : array, optional
        Numbers of the column in the rows, drawn as ticks.

    Attributes
    ----------
    ax_ : Axes
        Where it was drawn last.
    figure_ : Figure
        The figure of these axes.
    """

    def __init__(
        self,
        values: np.ndarray,
        draws: np.ndarray,
        labels: tuple[str, str] = ("x", "y"),
        observed: np.ndarray | None = None,
    ):
        self.values, self.draws, self.labels, self.observed = values, draws, labels, observed

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        feature: str | int,
        *,
        n_functions: int = 50,
        target: int = 0,
        coverage: float = 0.9,
        random_state: Any = 0,
        functions: Callable[[Any], np.ndarray] | None = None,
        max_rows: int = 100,
        ax: Axes | None = None,
    ) -> "EffectDisplay":
        """Of a fitted model.

        Parameters
        ----------
        estimator : a fitted regressor or classifier
            Of a regressor, functions are without the noise of the data; of a classifier, they are
            probabilities of the class that `target` counts.
        X : array of shape (rows, inputs) or DataFrame
            Rows to average over; of many, `max_rows` are chosen at random.
        feature : str or int
            The column, by its name or place.
        n_functions : int, default 50
            Functions that are drawn from the posterior.
        target : int, default 0
            Which of several targets, or of the classes; of two classes, the second by default.
        coverage : float, default 0.9
            The probability of the band.
        random_state : int, RandomState or None, default 0
        functions : function of X, optional
            What `sample_functions`, or `sample_probabilities` of a classifier, has drawn already,
            to use it for several columns.
        max_rows : int, default 100
        ax : Axes, optional
            Where to draw; new axes by default.

        Returns
        -------
        EffectDisplay
        """
        frame, named = as_frame(X)
        name = column_of(frame, feature)
        values = _values_along(frame[name])
        rows = frame.sample(min(max_rows, len(frame)), random_state=0)
        stacked = pd.concat([rows] * len(values), ignore_index=True)
        repeated = np.repeat(values, len(rows))
        stacked[name] = pd.Series(repeated).astype(frame[name].dtype) if named else repeated
        inputs: Any = stacked if named else stacked.to_numpy(dtype=float)
        if hasattr(estimator, "predict_dist"):
            functions = functions or estimator.sample_functions(n_functions, random_state)
            drawn = functions(inputs)
            drawn = drawn[..., target] if drawn.ndim == 3 else drawn
            label = target_label(estimator, target)
        else:
            target = 1 if target == 0 and len(estimator.classes_) == 2 else target
            functions = functions or estimator.sample_probabilities(n_functions, random_state)
            drawn = functions(inputs)[..., target]
            label = f"probability of {estimator.classes_[target]}"
        draws = drawn.reshape(len(drawn), len(values), len(rows)).mean(axis=2)
        observed = None
        if pd.api.types.is_numeric_dtype(frame[name]) and not is_kind(values):
            observed = frame[name].dropna().to_numpy(dtype=float)
        display = cls(values, draws, (str(name), label), observed)
        return display.plot(coverage=coverage, ax=ax)

    @classmethod
    def from_predictions(
        cls,
        values: Any,
        draws: Any,
        *,
        labels: tuple[str, str] = ("x", "y"),
        coverage: float = 0.9,
        ax: Axes | None = None,
    ) -> "EffectDisplay":
        """Of effects that were computed already.

        Parameters
        ----------
        values : array of shape (values,)
        draws : array of shape (functions, values)
        labels : pair of str, default ("x", "y")
        coverage : float, default 0.9
        ax : Axes, optional

        Returns
        -------
        EffectDisplay
        """
        return cls(np.asarray(values), np.asarray(draws), labels).plot(coverage=coverage, ax=ax)

    def plot(self, *, coverage: float = 0.9, ax: Axes | None = None) -> "EffectDisplay":
        """Draws it, on these axes or on new ones.

        Parameters
        ----------
        coverage : float, default 0.9
        ax : Axes, optional

        Returns
        -------
        EffectDisplay
            Itself.
        """
        ax = self._axes(ax)
        mean = self.draws.mean(axis=0)
        lower, upper = np.quantile(self.draws, [(1 - coverage) / 2, (1 + coverage) / 2], axis=0)
        if is_kind(self.values):
            places = np.arange(len(self.values))
            ax.vlines(places, lower, upper, color=OURS, lw=6, alpha=0.3)
            ax.plot(places, mean, "o", color=OURS, ms=6)
            texts = [_shortened(str(value)) for value in self.values]
            turned = max(map(len, texts), default=0) * len(texts) > 40
            side = "right" if turned else "center"
            ax.set_xticks(places, texts, rotation=30 if turned else 0, ha=side, parse_math=False)
            ax.margins(x=0.15)
        else:
            ax.fill_between(self.values, lower, upper, color=OURS, alpha=0.2, lw=0)
            for draw in self.draws[:NUM_DRAWN]:
                ax.plot(self.values, draw, color=OURS, lw=0.6, alpha=0.4)
            ax.plot(self.values, mean, color=OURS, lw=2.2)
            if self.observed is not None and len(self.observed):
                ticks = np.quantile(self.observed, np.linspace(0, 1, 21))
                along = ax.get_xaxis_transform()
                ax.plot(ticks, np.zeros(21), "|", color=NOTES, transform=along)
        name_axes(ax, *self.labels[:2])
        return self


def is_kind(values: np.ndarray) -> bool:
    """Whether values are kinds rather than numbers along a line."""
    return values.dtype.kind not in "iuf"


def _shortened(text: str, most: int = 16) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _values_along(column: pd.Series) -> np.ndarray:
    """Values of a column to evaluate at: kinds, or numbers over the bulk of its range."""
    known = column.dropna()
    if not len(known):
        raise ValueError(f"The column {column.name!r} is empty: it has no effect.")
    is_number = pd.api.types.is_numeric_dtype(known) and not pd.api.types.is_bool_dtype(known)
    if not is_number:
        return known.value_counts().index[:MAX_KINDS].to_numpy(dtype=object)
    numbers = known.to_numpy(dtype=float)
    distinct = np.unique(numbers)
    if len(distinct) <= NUM_VALUES:
        return distinct
    low, high = np.quantile(numbers, [0.01, 0.99])
    return np.linspace(low, high, NUM_VALUES) if high > low else distinct[[0, -1]]


def column_importances(
    estimator: Any, X: Any, columns: Sequence[str] | None = None, seed: int = 0
) -> pd.Series:
    """How much predictions change where a column is shuffled, relative to how much they vary.

    Parameters
    ----------
    estimator : a fitted regressor or classifier
    X : array of shape (rows, inputs) or DataFrame
    columns : sequence of str, optional
        By default all of them.
    seed : int, default 0

    Returns
    -------
    Series
        By column, the largest first. Targets are not needed, and no row of them is used twice.
    """
    frame, named = as_frame(X)
    random = np.random.default_rng(seed)
    rows = frame.sample(min(ROWS_OF_IMPORTANCE, len(frame)), random_state=seed)

    def predicted(table: pd.DataFrame) -> np.ndarray:
        inputs: Any = table if named else table.to_numpy(dtype=float)
        given = (
            estimator.predict(inputs)
            if hasattr(estimator, "predict_dist")
            else estimator.predict_proba(inputs)
        )
        return given.reshape(len(table), -1)

    usual = predicted(rows)
    spread = np.sqrt(usual.var(axis=0).mean()) or 1.0
    found = {}
    for name in frame.columns if columns is None else columns:
        shuffled = rows.assign(**{name: rows[name].to_numpy()[random.permutation(len(rows))]})
        change = np.sqrt(np.mean(np.square(predicted(shuffled) - usual)))
        found[name] = float(change / spread)
    return pd.Series(found, dtype=float).sort_values(ascending=False, kind="stable")
