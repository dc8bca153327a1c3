"""`dvip fit`: from a table to a saved model."""

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import typer

from dvip.cli.checkpointing import Checkpointing
from dvip.cli.errors import warn
from dvip.cli.evaluating import scores
from dvip.cli.printing import print_metrics
from dvip.cli.streaming import is_large, streamed_table
from dvip.cli.training_table import TrainingTable, check_split, tell_dropped, tell_task
from dvip.estimators import (
    DeepGPClassifier,
    DeepGPRegressor,
    DVIPClassifier,
    DVIPRegressor,
    SIPRegressor,
)
from dvip.estimators.saving import save_estimator
from dvip.persistence import MODEL
from dvip.tables import (
    ROWS_AT_ONCE,
    Surprises,
    TableEncoder,
    TableError,
    check_folder,
    choose_task,
    class_labels,
    read_table,
    target_numbers,
    with_targets,
)
from dvip.tables.parsing import are_numbers
from dvip.training import TrainingDiverged, is_first_process

__all__ = ["fit_table", "train_model"]

# By the name of the model and the task.
ESTIMATORS: dict[str, dict[str, type]] = {
    "dvip": {"regression": DVIPRegressor, "classification": DVIPClassifier},
    "deep-gp": {"regression": DeepGPRegressor, "classification": DeepGPClassifier},
    "sip": {"regression": SIPRegressor},
}

NO_CHECKPOINTS = Checkpointing()

# Left-out columns that are listed one by one.
MAX_LISTED = 10


def fit_table(
    table: Path,
    out: Path,
    *,
    model: str,
    targets: Sequence[str],
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
    check_options(model, parameters)
    if is_first_process():
        check_model_output(out)
        checkpointing.check(out)
    if len(set(targets)) < len(targets):
        raise TableError("A target is given twice.")
    streams = is_large(table) if stream is None else stream
    prepare = streamed_table if streams else table_in_memory
    data = prepare(table, targets, task, drop, test_fraction, parameters["random_state"])
    if data.task not in ESTIMATORS[model]:
        possible = " and ".join(ESTIMATORS[model])
        raise TableError(
            f"--model {model} is for {possible} only: use another model, or --task {possible} if "
            "the target is of that kind."
        )
    report_columns(data.encoder)
    estimator = ESTIMATORS[model][data.task](**parameters, verbose=True)
    estimator = train_model(
        estimator, *data.fit_to, num_rows=data.num_training, checkpointing=checkpointing
    )
    if not is_first_process():
        return
    save_estimator(estimator, out, table=data.encoder.to_json())
    if data.num_test:
        try:
            metrics = scores(estimator, data.test_blocks())
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"The model is in {out}, not scored yet.") from None
        print_metrics(f"On {data.num_test:,} rows split off for testing", {"value": metrics})
    typer.echo(f"Saved to {out}. Next:")
    typer.echo(f"  dvip predict {out} NEW.csv --out predictions.csv")
    typer.echo(f"  dvip evaluate {out} OTHER.csv")


def check_options(model: str, parameters: Mapping[str, Any]) -> None:
    """Raises an error if an option is none of this model's."""
    known = ESTIMATORS[model]["regression"]().get_params()
    for name in parameters:
        if name not in known:
            option = name.removeprefix("n_").replace("_", "-")
            raise TableError(f"--{option} is not an option of --model {model}: leave it out.")


def check_model_output(out: Path) -> None:
    """Raises an error before the training rather than after it if `out` cannot be written."""
    if out.exists() and not out.is_dir():
        raise TableError(f"{out} is a file; a model is a folder. Choose another name.")
    if out.is_dir() and any(out.iterdir()) and not (out / MODEL.manifest).exists():
        raise TableError(f"The folder {out} holds other files and no model. Choose another name.")
    check_folder(out)


def table_in_memory(
    table: Path,
    targets: Sequence[str],
    task: str | None,
    drop: Sequence[str],
    test_fraction: float | None,
    seed: int,
) -> TrainingTable:
    """Reads a table and tells the user what is in it."""
    frame = read_training_table(table, targets)
    task, y = choose_target(frame, targets, task)
    train, test = split_rows(y, task, test_fraction, seed)
    encoder = TableEncoder.fit(frame.iloc[train], targets, drop)
    inputs = encoder.encode(frame.iloc[train])
    test_inputs = encode_test(encoder, frame.iloc[test]) if len(test) else inputs[:0]
    return TrainingTable(
        task,
        encoder,
        (inputs, y[train]),
        len(train),
        len(test),
        lambda: in_blocks(test_inputs, y[test]),
    )


def read_training_table(table: Path, targets: Sequence[str]) -> pd.DataFrame:
    """The rows of a table that have a target."""
    frame = read_table(table)
    typer.echo(f"Read {table}: {len(frame):,} rows, {len(frame.columns):,} columns.")
    complete = with_targets(frame, targets)
    dropped = len(frame) - len(complete)
    if dropped == len(frame):
        raise TableError(f"No row of {table} has a value in {', '.join(targets)}.")
    tell_dropped(dropped, table, targets)
    return complete


def choose_target(
    frame: pd.DataFrame, targets: Sequence[str], task: str | None
) -> tuple[str, np.ndarray]:
    """The task, chosen if it was not given, and the targets for it; told to the user."""
    chosen = task or choose_task(frame, targets)
    classes = None
    if chosen == "regression":
        y = target_numbers(frame, targets)
    elif len(targets) == 1:
        y = class_labels(targets[0], frame[targets[0]])
        classes = np.unique(y)
    else:
        raise TableError("A classification has one target only.")
    numbers = classes is None or are_numbers(classes)
    tell_task(chosen, targets, classes, chosen=task is None and len(targets) == 1, numbers=numbers)
    return chosen, y


def split_rows(
    y: np.ndarray, task: str, fraction: float | None, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Positions of training and test rows, in the order of the table.

    A class that the training part would lack stays there.
    """
    order = np.random.default_rng(seed).permutation(len(y))
    num_test = round(len(y) * fraction) if fraction is not None else 0
    in_test = np.zeros(len(y), dtype=bool)
    in_test[order[:num_test]] = True
    if task == "classification":
        in_test &= np.isin(y, np.unique(y[~in_test]))
    check_split(len(y), int(in_test.sum()), fraction)
    return np.flatnonzero(~in_test), np.flatnonzero(in_test)


def report_columns(encoder: TableEncoder) -> None:
    """Which columns are used, and which are not and why."""
    used, features = len(encoder.columns), len(encoder.feature_names)
    typer.echo(f"Inputs: {used:,} columns as {features:,} numbers.")
    for column in encoder.left_out[:MAX_LISTED]:
        typer.echo(f"  left out: {column.name!r} {column.reason}")
    if len(encoder.left_out) > MAX_LISTED:
        typer.echo(f"  left out: {len(encoder.left_out) - MAX_LISTED:,} more")


def train_model(
    estimator: Any, *fit_to: Any, num_rows: int, checkpointing: Checkpointing = NO_CHECKPOINTS
) -> Any:
    """Fits an estimator and tells how long it took."""
    layers = "1 layer" if estimator.n_layers == 1 else f"{estimator.n_layers} layers"
    typer.echo(f"Training {layers} on {num_rows:,} rows.")
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
    typer.echo(f"Trained {estimator.n_iter_:,} steps in {seconds:.1f} s.")
    return estimator


def encode_test(encoder: TableEncoder, frame: pd.DataFrame) -> np.ndarray:
    """Inputs of the test part, with a warning of what the training part did not have."""
    surprises = Surprises()
    inputs = encoder.encode(frame, surprises)
    for line in surprises.lines():
        warn(f"in the test part, {line}")
    return inputs


def in_blocks(inputs: np.ndarray, y: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rows a block at a time: a predictive distribution is a hundred times its inputs."""
    for start in range(0, len(y), ROWS_AT_ONCE):
        yield inputs[start : start + ROWS_AT_ONCE], y[start : start + ROWS_AT_ONCE]
