"""`dvip fit`: from a table to a saved model."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import typer

from dvip.cli.console import counted, print_metrics, warn
from dvip.cli.long_runs import Checkpointing
from dvip.cli.predict import Doubts, errors_of, gaps_named, label_reader
from dvip.files import check_writable
from dvip.metrics import scores
from dvip.persistence import check_model_folder
from dvip.registry import ESTIMATORS, LIKELIHOODS, MODELS
from dvip.sources import TableSource
from dvip.tables import (
    ROWS_AT_ONCE,
    NumberColumn,
    RowSplit,
    TableEncoder,
    TableError,
    TableFile,
    TableSurvey,
    check_one_error_each,
    num_numbers,
    num_rows,
    survey_table,
)
from dvip.tables.cells import are_numbers, text_of
from dvip.training import TrainingDiverged, is_first_process, row_counter

__all__ = ["finite_numbers", "fit_table", "is_large", "train_model"]

# A table of more numbers than these is streamed: as numbers in memory it would take some 160 MB,
# and several times that to prepare.
MAX_NUMBERS_IN_MEMORY = 20_000_000
# Classes, and columns, that are listed one by one.
MAX_LISTED = 10

# The share of the rows that a page is made of.
REPORTED = 0.2
# Metrics that are told in a line.
TOLD = ("rmse", "accuracy", "nll", "log_likelihood")

NO_CHECKPOINTS = Checkpointing()


def fit_table(
    table: TableFile,
    out: Path,
    *,
    model: str,
    targets: Sequence[str],
    noise: Sequence[str],
    weight: str | None,
    task: str | None,
    drop: Sequence[str],
    test_fraction: float | None,
    stream: bool | None,
    parameters: Mapping[str, Any],
    checkpointing: Checkpointing,
    verbose: bool = True,
    report: Path | None = None,
) -> dict[str, Any] | None:
    """Reads, trains, saves, and tells the user what happens. By default, large tables stream.

    What was found, what was chosen and how good it is are returned, as JSON can hold it. Of several
    processes that train together, the first writes the model and returns something.
    """
    check_options(model, task, parameters)
    if report is not None:
        from dvip.report.markup import check_page  # loads matplotlib

        check_page(report)
        test_fraction = test_fraction or REPORTED
    if is_first_process():
        check_model_folder(out)
        check_writable(out)
        checkpointing.check(out)
    if len(set(targets)) < len(targets):
        raise TableError("A target is given twice.")
    if noise:
        check_one_error_each(targets, noise)
    if weight is not None and weight in (*targets, *noise, *drop):
        raise TableError(f"--weight {weight} has another use: name a column of weights alone.")
    streams = is_large(table) if stream is None else stream
    split = RowSplit(test_fraction, parameters["random_state"])
    shown = verbose and is_first_process()
    with row_counter(num_rows(table), "looking", shown=shown) as done:
        survey = survey_table(
            table, targets, drop, split, done, noise=noise, weight=weight, keep=not streams
        )
    rows = _TableRows(table, survey, _tell_table(table, survey, task, streams))
    if rows.task not in MODELS[model]:
        possible = " and ".join(MODELS[model])
        raise TableError(
            f"--model {model} is for {possible} only: use another model, or --task {possible} if "
            "the target is of that kind."
        )
    if noise and rows.task != "regression":
        raise TableError("--noise-column is for a regression, labels have no error: leave it out.")
    num_test = survey.num_test(rows.task)
    num_training = survey.num_labelled - num_test
    if test_fraction is not None and not 0 < num_test < survey.num_labelled:
        have = counted(survey.num_labelled, "row")
        raise TableError(f"{have} are too few to split off {test_fraction:.1%} for testing.")
    _tell_columns(survey.encoder)
    estimator = ESTIMATORS[MODELS[model][rows.task]](**parameters, verbose=verbose)
    source = rows.source(test=False)
    started = time.monotonic()
    train_model(estimator, source, num_rows=num_training, checkpointing=checkpointing)
    if not is_first_process():
        return None
    seconds = time.monotonic() - started
    estimator.save(out)
    metrics = getattr(estimator, "_left_out_scores", None)
    judged_by = "rows that were left out in turn"
    if num_test:
        judged_by = f"{counted(num_test, 'row')} split off for testing"
        try:
            with Doubts("in the test part, ").told() as doubts:
                metrics = scores(estimator, rows.test_blocks(doubts), label_reader(estimator))
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"The model is in {out}, not scored yet.") from None
        print_metrics(f"On {judged_by}", {"value": metrics})
    fitted = _summary(estimator, survey, rows.task)
    fitted |= {
        "table": str(table),
        "model": str(out),
        "rows": {"training": num_training, "test": num_test, "in_table": survey.num_rows},
        "seconds": round(seconds, 2),
        "judged_by": None if metrics is None else judged_by,
        "metrics": None if metrics is None else finite_numbers(metrics),
    }
    for line in _in_three_lines(fitted):
        typer.echo(line)
    if report is not None:
        rows.report(estimator, report, str(out))
    typer.echo(f"Saved to {out}. Next:")
    typer.echo(f"  dvip predict {out} NEW.csv --out predictions.csv")
    typer.echo(f"  dvip evaluate {out} OTHER.csv")
    return fitted


def _summary(estimator: Any, survey: TableSurvey, task: str) -> dict[str, Any]:
    """What was found in the table, and what was chosen."""
    encoder = survey.encoder
    choice = getattr(estimator, "choice_", ())
    calibration = getattr(estimator, "calibration_", None)
    classes = [text_of(label) for label in estimator.classes_] if task == "classification" else None
    return {
        "task": task,
        "targets": list(survey.targets),
        "classes": classes,
        "columns": [column.name for column in encoder.columns_],
        "left_out": {column.name: column.reason for column in encoder.left_out_},
        "inputs": len(encoder.get_feature_names_out()),
        "warnings": list(encoder.warnings_),
        "estimator": type(estimator).__name__,
        "parameters": {
            name: value
            for name, value in estimator.get_params().items()
            if isinstance(value, str | int | float) and name != "verbose"
        },
        "chosen": [
            {"name": name, "score": _finite(score), "weight": weight}
            for name, score, weight in choice
        ],
        "calibration": None if calibration is None else dict(calibration._asdict()),
        "steps": int(estimator.n_iter_),
    }


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def finite_numbers(metrics: Mapping[str, float]) -> dict[str, float | None]:
    """Metrics as JSON can hold them."""
    return {name: _finite(value) for name, value in metrics.items()}


def _in_three_lines(fitted: Mapping[str, Any]) -> Iterator[str]:
    """What was found, what was chosen, how good it is."""
    left_out = fitted["left_out"]
    without = f", {counted(len(left_out), 'column')} left out" if left_out else ""
    used = f"{counted(len(fitted['columns']), 'column')} as {counted(fitted['inputs'], 'number')}"
    yield f"Found:  {counted(fitted['rows']['training'], 'row')} to learn from, {used}{without}."
    chosen = sorted(
        (part for part in fitted["chosen"] if part["weight"] > 0), key=lambda part: -part["weight"]
    )
    if chosen:
        mixed = ", ".join(f"{part['weight']:.0%} {part['name']}" for part in chosen)
        yield f"Chosen: {mixed}, by rows left out."
    else:
        yield f"Chosen: nothing, {fitted['estimator']} as the options say."
    metrics = {
        name: value for name, value in (fitted["metrics"] or {}).items() if value is not None
    }
    if not metrics:
        yield "Good?   Not known: --test-fraction 0.2 splits off rows to find out."
        return
    words = [f"{name} {metrics[name]:.4g}" for name in TOLD if name in metrics]
    if "coverage_90" in metrics:
        words.append(f"{metrics['coverage_90']:.0%} of the rows in 90 % intervals")
    yield f"Good?   {', '.join(words)}, on {fitted['judged_by']}."


def is_large(table: TableFile) -> bool:
    """Whether to stream a table: a folder of files, or many numbers."""
    return table.path.is_dir() or num_numbers(table) > MAX_NUMBERS_IN_MEMORY


@dataclass(frozen=True)
class _TableRows:
    """Rows of a surveyed table, for training and for testing."""

    table: TableFile
    survey: TableSurvey
    task: str

    def source(self, *, test: bool) -> TableSource:
        """The rows of one part."""
        survey, num_test = self.survey, self.survey.num_test(self.task)
        text_labels = self.task == "classification" and survey.target.label_kind == "text"
        return TableSource(
            self.table,
            survey.encoder,
            survey.targets,
            self._targets,
            keep=lambda rows, frame: survey.is_in_part(rows, frame, self.task, test=test),
            text_columns=survey.targets if text_labels else (),
            weight=survey.weight[0] if survey.weight else None,
            noise=survey.noise,
            num_rows=num_test if test else survey.num_labelled - num_test,
            in_memory=survey.frames is not None,
            frames=survey.frames,
            depends_on=[
                self.task,
                survey.target.label_kind,
                [survey.split.fraction, survey.split.seed, test],
            ],
        )

    def test_blocks(self, doubts: Doubts) -> Iterator[tuple[Any, ...]]:
        """Rows for testing, their targets and, where there are such, their known errors."""
        with row_counter(self.survey.num_test(self.task), "testing") as done:
            for frame in self.source(test=True).frames(ROWS_AT_ONCE):
                yield frame, self._targets(frame), *errors_of(frame, self.survey.noise)
                doubts.rows += len(frame)
                done(len(frame))

    def report(self, estimator: Any, out: Path, folder: str) -> None:
        """Writes a page about a model, judged by the rows for testing, beside baselines."""
        from dvip.cli.model_report import row_labels, rows_of, write_report

        training = rows_of(self.source(test=False).frames(ROWS_AT_ONCE))
        test = rows_of(self.source(test=True).frames(ROWS_AT_ONCE))
        errors = errors_of(test, self.survey.noise)
        write_report(
            estimator,
            test,
            self._targets(test),
            out,
            f"{folder}: {', '.join(self.survey.targets)} of {self.table}",
            folder,
            labels=row_labels(test),
            num_rows=self.survey.num_test(self.task),
            noise_std=errors[0] if errors else None,
            training=(training, self._targets(training)),
        )

    def _targets(self, frame: pd.DataFrame) -> np.ndarray:
        return self.survey.read_targets(frame, self.task)


def _tell_table(table: TableFile, survey: TableSurvey, wanted: str | None, streams: bool) -> str:
    """What was read, which rows are not used, and the task, which is returned."""
    size = f"{counted(survey.num_rows, 'row')}, {counted(survey.num_columns, 'column')}"
    typer.echo(f"{'Streaming' if streams else 'Read'} {table}: {size}.")
    what = ", ".join(survey.targets)
    dropped = survey.num_rows - survey.num_labelled
    if dropped:
        words = gaps_named(table, survey.targets)
        typer.echo(f"Dropped {counted(dropped, 'row')} without a value in {what}{words}.")
    task = survey.choose_task(wanted)
    classes = survey.target.labels if task == "classification" else None
    listed = ""
    if classes is not None:
        more = ", ..." if len(classes) > MAX_LISTED else ""
        names = ", ".join(map(str, classes[:MAX_LISTED])) + more
        listed = f", {counted(len(classes), 'class', 'classes')}: {names}"
    typer.echo(f"Task: {task} of {what}{listed}.")
    chosen = wanted is None and len(survey.targets) == 1
    if chosen and (classes is None or are_numbers(classes)):
        other = "regression" if task == "classification" else "classification"
        typer.echo(f"  (chosen from the values of {what}; --task {other} changes it)")
    if survey.noise:
        typer.echo(f"Known errors of the rows: {', '.join(survey.noise)}.")
    if survey.weight:
        typer.echo(f"Weights of the rows: {', '.join(survey.weight)}.")
    return task


def _tell_columns(encoder: TableEncoder) -> None:
    """Which columns are used, and which are not and why."""
    used = counted(len(encoder.columns_), "column")
    numbers = counted(len(encoder.get_feature_names_out()), "number")
    typer.echo(f"Inputs: {used} as {numbers}.")
    lines = [f"left out: {column.name!r} {column.reason}" for column in encoder.left_out_]
    units = [column for column in encoder.columns_ if isinstance(column, NumberColumn)]
    lines += [f"{column.name!r}: numbers in {column.unit}" for column in units if column.unit]
    for line in lines[:MAX_LISTED]:
        typer.echo(f"  {line}")
    if len(lines) > MAX_LISTED:
        typer.echo(f"  and {len(lines) - MAX_LISTED:,} more that are left out or have a unit")
    for line in encoder.warnings_:
        warn(line)


def check_options(model: str, task: str | None, parameters: Mapping[str, Any]) -> None:
    """Raises an error if an option is none of this model's, or cannot be, whatever the table."""
    likelihood = parameters.get("likelihood")
    if likelihood is not None and likelihood not in (*LIKELIHOODS, "auto"):
        raise TableError(f"{LIKELIHOODS.unknown(likelihood)}.")
    known = ESTIMATORS[MODELS[model]["regression"]]().get_params()
    for name in parameters:
        if name not in known:
            option = name.removeprefix("n_").replace("_", "-")
            raise TableError(f"--{option} is not an option of --model {model}: leave it out.")
    possible = [name for of_task, name in MODELS[model].items() if task in (None, of_task)]
    errors = [error for name in possible if (error := _error_of(name, parameters)) is not None]
    if errors and len(errors) == len(possible):
        raise errors[0]


def _error_of(name: str, parameters: Mapping[str, Any]) -> ValueError | None:
    try:
        ESTIMATORS[name](**parameters).check_parameters()
    except ValueError as error:
        return error
    return None


def _described(estimator: Any) -> str:
    """What is to be trained."""
    if estimator.inference in ("auto", "exact"):
        return "candidates" if estimator.inference == "auto" else "a Gaussian process"
    layers = counted(estimator._num_layers, "layer")
    members = estimator.n_members
    return layers if members is None else f"{counted(members, 'model')} of {layers}"


def train_model(
    estimator: Any, *fit_to: Any, num_rows: int, checkpointing: Checkpointing = NO_CHECKPOINTS
) -> Any:
    """Fits an estimator and tells how long it took."""
    typer.echo(f"Training {_described(estimator)} on {counted(num_rows, 'row')}.")
    started = time.monotonic()
    try:
        with checkpointing.stopping():
            estimator.fit(*fit_to, **checkpointing.of_fit)
    except TrainingDiverged as stopped:
        raise ValueError(
            f"Training stopped at step {stopped.step}: the bound is not finite. Try a smaller "
            "--learning-rate, or look for extreme values in the table."
        ) from stopped
    seconds = time.monotonic() - started
    steps = f" {counted(estimator.n_iter_, 'step')}" if estimator.n_iter_ else ""
    typer.echo(f"Trained{steps} in {seconds:.1f} s.")
    calibration = getattr(estimator, "calibration_", None)
    if calibration is not None:
        regression = estimator.task == "regression"
        what, factor = ("widths", "scale") if regression else ("log-odds", "temperature")
        verb = "multiplied" if regression else "divided"
        typer.echo(f"Calibrated: {what} are {verb} by {getattr(calibration, factor):.3g}.")
    return estimator
