"""What a page tells of a model: its scores beside baselines, its columns, rows to look at."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from dvip.baselines import BASELINES
from dvip.distributions import Predictive
from dvip.metrics import ClassificationScores, RegressionScores
from dvip.plots.effects import column_importances
from dvip.plots.pictures import as_frame
from dvip.tables import NumberColumn

__all__ = ["ColumnNote", "Findings", "NamedRow", "findings_of"]

# Rows that a page is made of; of more, so many are chosen at random.
MAX_ROWS = 10_000
# Rows of which the CRPS is computed.
ROWS_OF_CRPS = 1_000
# Rows that are listed, and their columns.
NUM_LISTED, NUM_SHOWN = 10, 5
# Inputs that a linear baseline is fitted to, folds of it without training rows, and its rows.
MAX_INPUTS, NUM_FOLDS = 500, 5
# Columns whose importance is measured.
MAX_COLUMNS = 60
# From this distance on, rows look unlike those of the training: 1 is that of neighbours.
FAR = 3.0


@dataclass(frozen=True)
class ColumnNote:
    """A column of the table, what became of it, and how much it matters."""

    name: str
    became: str
    importance: float | None = None


@dataclass(frozen=True)
class NamedRow:
    """A row to look at: its number, what was predicted and measured, why it is listed, cells."""

    label: str
    predicted: str
    measured: str
    reason: str
    cells: tuple[tuple[str, str], ...]


@dataclass
class Findings:
    """All that a page tells, but for its figures, which are drawn from it."""

    model: Any
    inputs: Any
    targets: np.ndarray
    noise_std: Any
    num_rows: int
    title: str
    prediction: Any
    judged: RegressionScores | ClassificationScores
    scores: dict[str, dict[str, float]]
    how_compared: str
    columns: list[ColumnNote] = field(default_factory=list)
    unsure: list[NamedRow] = field(default_factory=list)
    far: list[NamedRow] = field(default_factory=list)
    num_far: int | None = None

    @property
    def is_regression(self) -> bool:
        """Whether numbers are predicted, or labels."""
        return self.model.task == "regression"

    @property
    def important(self) -> list[str]:
        """Columns that matter, the most important first."""
        known = [note for note in self.columns if note.importance is not None]
        ordered = sorted(known, key=lambda note: -(note.importance or 0))
        return [note.name for note in ordered if (note.importance or 0) > 0.02]


def findings_of(
    model: Any,
    X: Any,
    y: Any,
    *,
    noise_std: Any = None,
    training: tuple[Any, Any] | None = None,
    title: str | None = None,
    labels: Sequence[Any] | None = None,
) -> Findings:
    """Predicts rows, judges the predictions, and gathers what there is to tell.

    Rows are called by `labels`, or by the index of a DataFrame, or counted from 0. With `training`,
    the inputs and targets that the model was trained on, baselines are fitted to these; otherwise
    to the other rows of X, in folds.
    """
    y = np.asarray(y)
    num_rows = len(y)
    if labels is None:
        labels = list(X.index) if isinstance(X, pd.DataFrame) else range(num_rows)
    X, y, noise_std, places = _some_rows(X, y, noise_std)
    chosen = [str(labels[place]) for place in places]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what is far from the training is told on the page
        if model.task == "regression":
            prediction: Any = model.predict_dist(X, noise_std)
            y = np.asarray(y, dtype=float).reshape(prediction.mean.shape)
        else:
            prediction = model.predict_proba(X)
        judged = _judged(model, prediction, y)
        own = judged.metrics()
        if isinstance(judged, RegressionScores):
            rows = _rows_of_crps(len(y))
            own["crps"] = float(prediction[rows].crps(y[rows]).mean())
        scores, how = _beside_baselines(model, X, y, own, training)
        default = f"{type(model).__name__}: {', '.join(getattr(model, 'target_names_', ('y',)))}"
        found = Findings(
            model, X, y, noise_std, num_rows, title or default, prediction, judged, scores, how
        )
        found.columns = _columns(model, X)
        _note_rows(found, chosen)
    return found


def _some_rows(X: Any, y: np.ndarray, noise_std: Any) -> tuple[Any, np.ndarray, Any, np.ndarray]:
    """At most `MAX_ROWS` rows, in their order, and their places."""
    if hasattr(X, "__arrow_c_stream__") and not isinstance(X, pd.DataFrame):
        X = as_frame(X)[0]
    numbers = np.arange(len(y))
    if not len(y):
        raise ValueError("There are no rows to judge the model by: a page needs some.")
    if len(X) != len(y):
        raise ValueError(f"X has {len(X):,} rows, but y has {len(y):,}.")
    if len(y) > MAX_ROWS:
        numbers = np.sort(np.random.default_rng(0).permutation(len(y))[:MAX_ROWS])
        X = X.iloc[numbers] if isinstance(X, pd.DataFrame) else np.asarray(X)[numbers]
        y = y[numbers]
        if noise_std is not None and np.ndim(noise_std):
            noise_std = np.asarray(noise_std)[numbers]
    return X, y, noise_std, numbers


def _rows_of_crps(num_rows: int) -> np.ndarray:
    """The rows whose CRPS is computed, the same for all models: it takes long."""
    return np.random.default_rng(1).permutation(num_rows)[:ROWS_OF_CRPS]


def _judged(model: Any, prediction: Any, y: np.ndarray) -> RegressionScores | ClassificationScores:
    if model.task == "regression":
        of_numbers = RegressionScores(crps=False)
        of_numbers.add(prediction, y)
        return of_numbers
    of_labels = ClassificationScores(model.classes_.tolist())
    of_labels.add(prediction, y.tolist())
    return of_labels


def _beside_baselines(
    model: Any,
    X: Any,
    y: np.ndarray,
    own: dict[str, float],
    training: tuple[Any, Any] | None,
) -> tuple[dict[str, dict[str, float]], str]:
    """Metrics of the model and of the two simplest baselines, and what these were fitted to."""
    inputs = model._scaled(X).astype(float)
    scores = {"this model": own}
    several = y.ndim == 2 and y.shape[1] > 1
    if several or len(y) < 2 * NUM_FOLDS:
        return scores, "" if several else "There are too few rows to fit baselines to."
    y = y.reshape(len(y))
    if training is not None:
        trained_on = model._scaled(training[0]).astype(float)
        given = np.asarray(training[1]).reshape(len(trained_on))
        folds = [(trained_on, given, np.arange(len(y)))]
        how = "The baselines were trained on the same rows as the model."
    else:
        order = np.random.default_rng(0).permutation(len(y))
        parts = np.array_split(order, NUM_FOLDS)
        folds = []
        for part in parts:
            rest = np.setdiff1d(order, part)
            folds.append((inputs[rest], y[rest], part))
        how = (
            f"The baselines were trained on these rows, in {NUM_FOLDS} parts that are left out in "
            "turn, as the rows of the training are not kept with a model."
        )
    names = list(BASELINES[model.task])[: 2 if inputs.shape[1] <= MAX_INPUTS else 1]
    for name in names:
        found = _baseline_scores(model, name, folds, inputs, y)
        if found is not None:
            scores[name] = found
    return scores, how


def _baseline_scores(
    model: Any, name: str, folds: Sequence[Any], inputs: np.ndarray, y: np.ndarray
) -> dict[str, float] | None:
    fit = BASELINES[model.task][name]
    if model.task == "regression":
        of_numbers, crps = RegressionScores(crps=False), np.zeros(len(y))
        for X_train, y_train, rows in folds:
            predicted = fit(X_train, y_train.astype(float), 0)(inputs[rows])
            of_numbers.add(predicted, y[rows])
            crps[rows] = predicted.crps(y[rows])
        return {**of_numbers.metrics(), "crps": float(crps[_rows_of_crps(len(y))].mean())}
    of_labels = ClassificationScores(model.classes_.tolist())
    for X_train, y_train, rows in folds:
        if len(np.unique(y_train)) < len(model.classes_):
            return None  # a class is missing there
        of_labels.add(fit(X_train, y_train, 0)(inputs[rows]), y[rows].tolist())
    return of_labels.metrics()


def _columns(model: Any, X: Any) -> list[ColumnNote]:
    """What became of every column, and how much predictions depend on it."""
    if len(model.input_shape_) > 1:
        shape = " x ".join(map(str, model.input_shape_))
        return [ColumnNote("images or sequences", f"{shape} numbers of a row")]
    frame, named = as_frame(X)
    if not hasattr(model, "encoder_"):
        importances = _importances(model, X, None)
        names = frame.columns if named else getattr(model, "feature_names_in_", frame.columns)
        return [
            ColumnNote(str(name), "a number", importances.get(str(key)))
            for name, key in zip(names, frame.columns, strict=True)
        ]
    encoder = model.encoder_
    used = [column.name for column in encoder.columns_]
    importances = _importances(model, frame, used)
    notes = []
    for column in encoder.columns_:
        if isinstance(column, NumberColumn):
            became = "a number" + (f" in {column.unit}" if column.unit else "")
            if column.had_gaps and column.fill is not None:
                became += f", gaps filled with {column.fill:.4g} and marked"
        else:
            listed = ", ".join(column.categories[:6])
            more = ", ..." if len(column.categories) > 6 else ""
            became = f"{len(column.categories)} kinds: {listed}{more}"
            became += "; gaps are a kind of their own" if column.had_gaps else ""
        notes.append(ColumnNote(column.name, became, importances.get(column.name)))
    notes += [ColumnNote(c.name, f"left out: {c.reason}") for c in encoder.left_out_]
    return notes


def _importances(model: Any, X: Any, columns: Sequence[str] | None) -> dict[str, float]:
    frame, _ = as_frame(X)
    chosen = list(frame.columns if columns is None else columns)
    if len(frame) < 2:
        return {}
    return {str(k): v for k, v in column_importances(model, X, chosen[:MAX_COLUMNS]).items()}


def _note_rows(found: Findings, labels: Sequence[str]) -> None:
    """Rows that the model is least sure of, and rows that look unlike those of the training."""
    if found.is_regression:
        relative = _std_of(found.prediction)
        order = np.argsort(-relative, kind="stable")
        reasons = [f"± {_shown(value)}" for value in relative]
    else:
        confidence = found.prediction.max(axis=1)
        order = np.argsort(confidence, kind="stable")
        reasons = [f"{value:.0%} sure" for value in confidence]
    found.unsure = [_row(found, place, labels, reasons[place]) for place in order[:NUM_LISTED]]
    if not hasattr(found.model, "neighbourhood_"):
        return
    distance = found.model.distance(found.inputs)
    order = np.argsort(-distance, kind="stable")
    found.num_far = int((distance > FAR).sum())
    far = [place for place in order[:NUM_LISTED] if distance[place] > FAR]
    found.far = [_row(found, place, labels, f"{distance[place]:.3g}") for place in far]


def _std_of(prediction: Predictive) -> np.ndarray:
    """The standard deviation of each row, of several targets relative to their spread."""
    std = prediction.std
    return std if std.ndim == 1 else (std / (prediction.mean.std(axis=0) + 1e-300)).mean(axis=1)


def _row(found: Findings, place: int, labels: Sequence[str], reason: str) -> NamedRow:
    if found.is_regression:
        mean, measured = np.atleast_1d(found.prediction.mean[place]), found.targets[place]
        predicted = ", ".join(map(_shown, mean))
        seen = ", ".join(map(_shown, np.atleast_1d(measured)))
    else:
        predicted = str(found.model.classes_[int(found.prediction[place].argmax())])
        seen = str(found.targets[place])
    cells: tuple[tuple[str, str], ...] = ()
    if len(found.model.input_shape_) == 1:
        frame, _ = as_frame(found.inputs)
        names = [name for name in found.important if name in frame.columns][:NUM_SHOWN]
        cells = tuple((str(name), _shown(frame[name].iloc[place])) for name in names)
    return NamedRow(labels[place], predicted, seen, reason, cells)


def _shown(value: Any) -> str:
    if isinstance(value, float | np.floating):
        return "" if value != value else f"{value:.4g}"
    return "" if value is None else str(value)
