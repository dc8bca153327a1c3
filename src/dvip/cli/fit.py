"""`dvip fit`: from a table to a saved model."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import typer

from dvip import (
    DeepGPClassifier,
    DeepGPRegressor,
    DVIPClassifier,
    DVIPRegressor,
    SIPRegressor,
)
from dvip.cli.console import print_metrics, warn
from dvip.cli.long_runs import Checkpointing
from dvip.cli.predict import gaps_named, scores
from dvip.estimators.serialisation import save_estimator
from dvip.persistence import MODEL
from dvip.sources import TableSource
from dvip.tables import (
    ROWS_AT_ONCE,
    RowSplit,
    Surprises,
    TableEncoder,
    TableError,
    TableSurvey,
    check_folder,
    choose_task,
    class_labels,
    labels_of_kind,
    num_numbers,
    num_rows,
    read_table,
    survey_table,
    target_numbers,
    with_targets,
)
from dvip.tables.cells import are_numbers, label_of, parse_texts, text_of
from dvip.training import TrainingDiverged, is_first_process, row_counter

__all__ = [
    "TrainingTable",
    "check_split",
    "fit_table",
    "is_large",
    "streamed_table",
    "tell_dropped",
    "tell_task",
    "train_model",
]

# Classes that are listed one by one.
MAX_LISTED_CLASSES = 10


@dataclass(frozen=True)
class TrainingTable:
    """The task, the encoding, what to fit to, and what to test on."""

    task: str
    encoder: TableEncoder
    # Arguments of the estimator's `fit`: inputs and targets, or a source.
    fit_to: tuple[Any, ...]
    num_training: int
    num_test: int
    # Gives the inputs and targets of the rows that were split off, block by block.
    test_blocks: Callable[[], Iterable[tuple[np.ndarray, np.ndarray]]]


def tell_dropped(num_dropped: int, table: Path, targets: Sequence[str]) -> None:
    """That rows without a target are not used, and which words were taken for none."""
    if num_dropped:
        what = f"{', '.join(targets)}{gaps_named(table, targets)}"
        typer.echo(f"Dropped {num_dropped:,} rows without a value in {what}.")


def tell_task(
    task: str, targets: Iterable[str], classes: np.ndarray | None, *, chosen: bool, numbers: bool
) -> None:
    """The task, and how to change it where it was chosen from numbers."""
    what = ", ".join(targets)
    if classes is not None:
        what += f", {len(classes)} classes: {_listed(classes)}"
    typer.echo(f"Task: {task} of {what}.")
    if chosen and numbers:
        other = "regression" if task == "classification" else "classification"
        typer.echo(f"  (chosen from the values of {', '.join(targets)}; --task {other} changes it)")


def check_split(num_rows: int, num_test: int, fraction: float | None) -> None:
    """Raises an error unless there are rows to train on and rows to test on."""
    if fraction is not None and not 0 < num_test < num_rows:
        raise TableError(f"{num_rows} rows are too few to split off {fraction:.1%} for testing.")


def _listed(labels: np.ndarray) -> str:
    more = "" if len(labels) <= MAX_LISTED_CLASSES else ", ..."
    return ", ".join(map(str, labels[:MAX_LISTED_CLASSES])) + more


# A table of more numbers than these is streamed: as numbers in memory it would take some 160 MB,
# and several times that to prepare.
MAX_NUMBERS_IN_MEMORY = 20_000_000


def is_large(table: Path) -> bool:
    """Whether to stream a table: a folder of files, or many numbers."""
    return table.is_dir() or num_numbers(table) > MAX_NUMBERS_IN_MEMORY


def streamed_table(
    table: Path,
    targets: Sequence[str],
    task: str | None,
    drop: Sequence[str],
    test_fraction: float | None,
    seed: int,
) -> TrainingTable:
    """Looks at a table, decides how to read it, and tells the user."""
    split = RowSplit(test_fraction, seed)
    with row_counter(num_rows(table), "looking", shown=is_first_process()) as done:
        survey = survey_table(table, targets, drop, split, done)
    columns = len(survey.columns) + len(targets) + len(drop)
    typer.echo(f"Streaming {table}: {survey.num_rows:,} rows, {columns:,} columns.")
    tell_dropped(survey.num_rows - survey.num_labelled, table, targets)
    check_split(survey.num_labelled, survey.num_test, test_fraction)
    rows = _TableRows(table, survey, _task(survey, targets, task), survey.encoder())
    return TrainingTable(
        rows.task,
        rows.encoder,
        (rows.source(test=False),),
        survey.num_training,
        survey.num_test,
        rows.test_blocks,
    )


def _task(survey: TableSurvey, targets: Sequence[str], task: str | None) -> str:
    """The task, chosen if it was not given; told to the user."""
    if task is None and len(targets) == 1:
        survey.target.check_choice(targets[0])
    chosen = task or ("regression" if len(targets) > 1 else survey.target.task)
    if chosen == "classification" and len(targets) > 1:
        raise TableError("A classification has one target only.")
    classes = None
    if chosen == "classification":
        survey.target.check_labels(targets[0])
        classes = survey.target.labels
    numbers = classes is None or are_numbers(classes)
    tell_task(chosen, targets, classes, chosen=task is None and len(targets) == 1, numbers=numbers)
    return chosen


@dataclass(frozen=True)
class _TableRows:
    """Rows of a surveyed table, for training and for testing."""

    table: Path
    survey: TableSurvey
    task: str
    encoder: TableEncoder

    def source(self, *, test: bool) -> TableSource:
        """The rows of one part."""
        survey = self.survey
        split = [survey.split.fraction, survey.split.seed, test]
        return TableSource(
            self.table,
            self.encoder,
            self._targets,
            keep=lambda rows, frame: self._is_kept(rows, frame, test=test),
            text_columns=self._text_targets(),
            num_rows=survey.num_test if test else survey.num_training,
            named=False,  # the encoder, which is stored with the model, names them
            depends_on=[self.task, survey.target.label_kind, split],
        )

    def test_blocks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Inputs and targets of the rows for testing; warns of what training rows did not have."""
        surprises = Surprises()
        with row_counter(self.survey.num_test, "testing") as done:
            for frame in self.source(test=True).frames(ROWS_AT_ONCE):
                if len(frame):
                    yield self.encoder.encode(frame, surprises), self._targets(frame)
                    done(len(frame))
        for line in surprises.lines():
            warn(f"in the test part, {line}")

    def _text_targets(self) -> tuple[str, ...]:
        text = self.task == "classification" and self.survey.target.label_kind == "text"
        return self.survey.targets if text else ()

    def _targets(self, frame: pd.DataFrame) -> np.ndarray:
        targets = self.survey.targets
        if self.task == "regression":
            return target_numbers(frame, targets)
        return labels_of_kind(frame[targets[0]], self.survey.target.label_kind)

    def _is_kept(self, rows: np.ndarray, frame: pd.DataFrame, *, test: bool) -> np.ndarray:
        """Rows of one part that have a target.

        A class that the training part would lack stays there.
        """
        targets = self.survey.targets
        labelled = frame.index.isin(with_targets(frame, targets).index)
        in_test = self.survey.split.is_test(rows)
        if self.task == "classification":
            in_test &= ~self._is_lonely(frame[targets[0]])
        return labelled & (in_test if test else ~in_test)

    def _is_lonely(self, labels: pd.Series) -> np.ndarray:
        """Where the rows that were drawn for training lack a label."""
        survey = self.survey
        label = text_of if survey.target.label_kind == "text" else label_of
        lonely = set(map(label, survey.target.texts))
        lonely -= set(map(label, survey.training_target.texts))
        if not lonely:  # as a rule
            return np.zeros(len(labels), dtype=bool)
        return np.array([label(text) in lonely for text in parse_texts(labels)], dtype=bool)


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
