"""`dvip compare`: models of ours and of scikit-learn on the same folds of a table."""

import json
import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import typer
from rich.console import Console
from rich.table import Table
from sklearn.model_selection import KFold, StratifiedKFold

from dvip.baselines import BASELINES
from dvip.cli.console import counted, warn
from dvip.metrics import HIGHER_IS_BETTER, MEANINGS, classification_metrics, regression_metrics
from dvip.registry import ESTIMATORS
from dvip.tables import (
    TableEncoder,
    TableError,
    TableFile,
    TableSurvey,
    check_table_output,
    read_blocks,
    sampled,
    table_writer,
)
from dvip.training import row_counter

__all__ = ["compare_table"]

# Our models: the default and, of regressions, the Gaussian process in closed form. The others take
# minutes, and are trained where they are asked for.
OURS: Mapping[str, Mapping[str, tuple[str, dict[str, Any]]]] = {
    "regression": {
        "dvip": ("DVIPRegressor", {}),
        "dvip exact": ("DVIPRegressor", {"inference": "exact"}),
        "dvip paper": ("DVIPRegressor", {"inference": "vi", "n_layers": 3}),
        "deep gp": ("DeepGPRegressor", {"n_layers": 2}),
    },
    "classification": {
        "dvip": ("DVIPClassifier", {}),
        "dvip paper": ("DVIPClassifier", {"inference": "vi", "n_layers": 3}),
        "deep gp": ("DeepGPClassifier", {"n_layers": 2}),
    },
}
SLOW = ("dvip paper", "deep gp")
# Metrics of the table; the first decides on the order.
SHOWN = {
    "regression": ("nll", "rmse", "crps", "coverage_90"),
    "classification": ("log_likelihood", "accuracy", "ece", "auc"),
}

Method = Callable[[np.ndarray, np.ndarray], Callable[[np.ndarray], Any]]


@dataclass(frozen=True)
class _Fold:
    """Rows of numbers to train on, and those that are left out."""

    X: np.ndarray
    y: np.ndarray
    X_left: np.ndarray
    y_left: np.ndarray


def compare_table(
    table: TableFile,
    target: str,
    *,
    task: str | None,
    drop: Sequence[str],
    methods: Sequence[str],
    num_folds: int,
    max_rows: int,
    max_iter: int | None,
    seed: int,
    out: Path | None,
    as_json: bool,
    quiet: bool = False,
) -> None:
    """Trains all methods on all folds, and prints, or writes, how good they are."""
    if out is not None:
        check_table_output(out, table.path)
    frame, y, task, total = _rows_of(table, target, task, drop, max_rows, seed)
    chosen = _methods(task, methods, max_iter, seed)
    folds = _folds(frame, y, task, num_folds, seed)
    if not as_json:
        used = "" if len(frame) == total else f", of which {len(frame):,} are used"
        typer.echo(
            f"{task.capitalize()} of {target}: {counted(total, 'row')}{used}, {num_folds} folds."
        )
    scores = _scores(chosen, folds, task, quiet=quiet or as_json)
    if scores.empty:
        raise TableError("No method could be trained: the warnings say why.")
    if out is not None:
        with table_writer(out) as append:
            append(scores)
    summary = _summary(scores, task)
    if as_json:
        about = {"table": str(table), "target": target, "task": task, "rows": len(frame)}
        typer.echo(json.dumps({**about, "folds": num_folds, "methods": summary}, indent=1))
        return
    _print(summary, task)
    if out is not None:
        typer.echo(f"Wrote the scores of all folds to {out}.")


def _rows_of(
    table: TableFile,
    target: str,
    wanted: str | None,
    drop: Sequence[str],
    max_rows: int,
    seed: int,
) -> tuple[pd.DataFrame, np.ndarray, str, int]:
    """Inputs and targets of the table, or of rows that are chosen by their numbers; the task."""
    kept, total = sampled(read_blocks(table), max_rows, seed)
    kept = kept.reset_index(drop=True)
    kept.attrs["file"] = table.name
    survey = TableSurvey((target,), tuple(drop))
    survey.add(kept)
    if not survey.num_labelled:
        raise TableError(f"No row of {table} has a value in {target}.")
    task = survey.choose_task(wanted)
    labelled = kept[kept[target].notna()]
    y = survey.read_targets(labelled, task)
    return labelled.drop(columns=[target, *drop]), np.asarray(y), task, total


def _methods(
    task: str, wanted: Sequence[str], max_iter: int | None, seed: int
) -> dict[str, Method]:
    """The methods by name, ours first."""
    known = [*OURS[task], *BASELINES[task]]
    unknown = [name for name in wanted if name not in known]
    if unknown:
        listed = ", ".join(known)
        raise TableError(f"There is no method {unknown[0]!r} for a {task}: use {listed}.")
    names = [name for name in known if name in wanted or not (wanted or name in SLOW)]

    def method(name: str) -> Method:
        if name in BASELINES[task]:
            return lambda X, y: BASELINES[task][name](X, y, seed)
        estimator, settings = OURS[task][name]
        steps = {} if max_iter is None else {"max_iter": max_iter}

        def fit(X: np.ndarray, y: np.ndarray) -> Callable[[np.ndarray], Any]:
            model = ESTIMATORS[estimator](**settings, **steps, random_state=seed).fit(X, y)
            return model.predict_dist if task == "regression" else model.predict_proba

        return fit

    return {name: method(name) for name in names}


def _folds(frame: pd.DataFrame, y: np.ndarray, task: str, number: int, seed: int) -> list[_Fold]:
    """Rows as numbers, encoded by what the rows to train on show."""
    if len(y) < 2 * number:
        raise TableError(f"{counted(len(y), 'row')} are too few for {number} folds.")
    splitter: Any = KFold(number, shuffle=True, random_state=seed)
    if task == "classification":
        counts = pd.Series(y).value_counts()
        if counts.min() < number:
            raise TableError(
                f"The class {counts.idxmin()!r} has {counted(int(counts.min()), 'row')}, fewer "
                f"than {number} folds: use fewer folds, or remove it."
            )
        splitter = StratifiedKFold(number, shuffle=True, random_state=seed)
    folds = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of rows that were left out, once for each fold
        for train, left in splitter.split(frame, y):
            encoder = TableEncoder().fit(frame.iloc[train])
            inputs = (encoder.transform(frame.iloc[rows]) for rows in (train, left))
            X, X_left = inputs
            folds.append(_Fold(X, y[train], X_left, y[left]))
    return folds


def _scores(
    methods: Mapping[str, Method], folds: Sequence[_Fold], task: str, *, quiet: bool
) -> pd.DataFrame:
    """A row for each method and fold; a method that fails is told of and left out."""
    rows: list[dict[str, Any]] = []
    total = len(methods) * len(folds)
    with row_counter(total, "comparing", shown=not quiet, unit="trainings") as done:
        for name, method in methods.items():
            for number, fold in enumerate(folds):
                started = time.monotonic()
                try:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        predicted = method(fold.X, fold.y)(fold.X_left)
                except Exception as error:
                    warn(f"{name} failed: {' '.join(str(error).split())[:200]}")
                    rows = [row for row in rows if row["method"] != name]
                    break
                seconds = time.monotonic() - started
                if task == "regression":
                    metrics = regression_metrics(predicted, fold.y_left)
                else:
                    classes = np.unique(fold.y).tolist()
                    metrics = classification_metrics(predicted, fold.y_left.tolist(), classes)
                rows.append({"method": name, "fold": number, **metrics, "seconds": seconds})
                done(1)
    return pd.DataFrame(rows)


def _summary(scores: pd.DataFrame, task: str) -> list[dict[str, Any]]:
    """Means over the folds and their standard errors, the best method first."""
    first, *_ = SHOWN[task]
    methods = []
    for name, rows in scores.groupby("method", sort=False):
        metrics = rows.drop(columns=["method", "fold"])
        errors = metrics.std(ddof=1) / math.sqrt(len(rows))
        methods.append(
            {"method": name}
            | {
                metric: {"mean": _finite(metrics[metric].mean()), "error": _finite(errors[metric])}
                for metric in metrics
            }
        )
    sign = -1 if first in HIGHER_IS_BETTER else 1
    worst = math.inf

    def place(method: dict[str, Any]) -> float:
        mean = method[first]["mean"]
        return worst if mean is None else sign * mean

    return sorted(methods, key=place)


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _print(summary: Sequence[Mapping[str, Any]], task: str) -> None:
    table = Table(title="Best first, means over folds ± standard errors", title_justify="left")
    table.add_column("method")
    shown = [metric for metric in SHOWN[task] if metric in summary[0]]
    for metric in (*shown, "s"):
        table.add_column(metric, justify="right")
    for method in summary:
        cells = [_cell(**method[metric]) for metric in shown]
        table.add_row(str(method["method"]), *cells, f"{method['seconds']['mean']:.1f}")
    Console().print(table)
    for metric in shown:
        typer.echo(f"{metric}: {MEANINGS[metric]}")
    typer.echo("s: seconds of a training and its prediction")


def _cell(mean: float | None, error: float | None) -> str:
    if mean is None:
        return "-"
    return f"{mean:.4g}" + ("" if error is None else f" ±{error:.1g}")
