"""`dvip fit`: from a table to a saved model."""

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
    TableSurvey,
    check_one_error_each,
    num_numbers,
    num_rows,
    survey_table,
)
from dvip.tables.cells import are_numbers
from dvip.training import TrainingDiverged, is_first_process, row_counter

__all__ = ["fit_table", "is_large", "train_model"]

# A table of more numbers than these is streamed: as numbers in memory it would take some 160 MB,
# and several times that to prepare.
MAX_NUMBERS_IN_MEMORY = 20_000_000
# Classes, and columns, that are listed one by one.
MAX_LISTED = 10

NO_CHECKPOINTS = Checkpointing()


def fit_table(
    table: Path,
    out: Path,
    *,
    model: str,
    targets: Sequence[str],
    noise: Sequence[str],
    task: str | None,
    drop: Sequence[str],
    test_fraction: float | None,
    stream: bool | None,
    parameters: Mapping[str, Any],
    checkpointing: Checkpointing,
) -> None:
    """Reads, trains, saves, and tells the user what happens. By default, large tables stream.

    Of several processes that train together, the first writes the model.
    """
    check_options(model, task, parameters)
    if is_first_process():
        check_model_folder(out)
        check_writable(out)
        checkpointing.check(out)
    if len(set(targets)) < len(targets):
        raise TableError("A target is given twice.")
    if noise:
        check_one_error_each(targets, noise)
    streams = is_large(table) if stream is None else stream
    split = RowSplit(test_fraction, parameters["random_state"])
    with row_counter(num_rows(table), "looking", shown=is_first_process()) as done:
        survey = survey_table(table, targets, drop, split, done, noise=noise, keep=not streams)
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
    estimator = ESTIMATORS[MODELS[model][rows.task]](**parameters, verbose=True)
    source = rows.source(test=False)
    train_model(estimator, source, num_rows=num_training, checkpointing=checkpointing)
    if not is_first_process():
        return
    estimator.save(out)
    if num_test:
        try:
            with Doubts("in the test part, ").told() as doubts:
                metrics = scores(estimator, rows.test_blocks(doubts), label_reader(estimator))
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"The model is in {out}, not scored yet.") from None
        print_metrics(f"On {counted(num_test, 'row')} split off for testing", {"value": metrics})
    typer.echo(f"Saved to {out}. Next:")
    typer.echo(f"  dvip predict {out} NEW.csv --out predictions.csv")
    typer.echo(f"  dvip evaluate {out} OTHER.csv")


def is_large(table: Path) -> bool:
    """Whether to stream a table: a folder of files, or many numbers."""
    return table.is_dir() or num_numbers(table) > MAX_NUMBERS_IN_MEMORY


@dataclass(frozen=True)
class _TableRows:
    """Rows of a surveyed table, for training and for testing."""

    table: Path
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

    def _targets(self, frame: pd.DataFrame) -> np.ndarray:
        return self.survey.read_targets(frame, self.task)


def _tell_table(table: Path, survey: TableSurvey, wanted: str | None, streams: bool) -> str:
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
