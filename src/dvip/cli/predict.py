"""`dvip predict` and `dvip evaluate`: a saved model on the rows of a table, block by block."""

import json
import math
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import typer

from dvip.batches import ALL, Part
from dvip.cli.console import counted, print_metrics, warn
from dvip.cli.long_runs import file_of_part, rows_of_part
from dvip.cli.options import printing
from dvip.estimators import load
from dvip.estimators.inputs import ExtrapolationWarning
from dvip.metrics import judged
from dvip.tables import (
    STANDARD,
    Surprises,
    TableEncoder,
    TableError,
    TableFile,
    check_one_error_each,
    check_table_output,
    error_numbers,
    gap_texts,
    has_targets,
    num_rows,
    read_blocks,
    table_writer,
    target_numbers,
)
from dvip.tables.cells import are_numbers, check_present, label_of, parse_texts, quoted, text_of
from dvip.tables.formats import is_parquet
from dvip.training import row_counter

__all__ = [
    "Doubts",
    "columns_to_judge",
    "errors_of",
    "evaluate_table",
    "gaps_named",
    "inputs_of",
    "label_reader",
    "labelled_blocks",
    "parse_quantiles",
    "predict_table",
]


@dataclass
class Doubts:
    """What the training table did not have, gathered over blocks to be told once at the end."""

    where: str = ""
    rows: int = 0
    surprises: Surprises = field(default_factory=Surprises)
    outside: Counter[str] = field(default_factory=Counter)

    @contextmanager
    def told(self) -> Iterator["Doubts"]:
        """Within it, predictions are watched; `rows` is to be kept by the caller."""
        with self.surprises.gathering(), warnings.catch_warnings():
            warnings.simplefilter("always", ExtrapolationWarning)
            shown = warnings.showwarning

            def gather(message: Any, *others: Any, **named: Any) -> None:
                if isinstance(message, ExtrapolationWarning):
                    self.outside.update(message.columns)
                else:
                    shown(message, *others, **named)

            warnings.showwarning = gather
            yield self
        for line in self.surprises.lines():
            warn(f"{self.where}{line}")
        if self.outside:
            warn(f"{self.where}{ExtrapolationWarning(dict(self.outside), self.rows)}")


def inputs_of(
    model: Any, path: Path, table: TableFile, targets: Sequence[str]
) -> tuple[TableEncoder, Callable[[pd.DataFrame], Any]]:
    """Which columns of a table a model reads, and what it is given of a block.

    A model that was fitted to a table takes it as it is. For others the names of the inputs count,
    or without names the table's numeric columns, if they are as many as the inputs.
    """
    if hasattr(model, "encoder_"):
        return model.encoder_, lambda frame: frame
    names = getattr(model, "feature_names_in_", None)
    columns = _numeric_columns(table, targets) if names is None else list(map(str, names))
    if len(columns) != model.n_features_in_:
        raise TableError(
            f"{path} was saved without column names and has {model.n_features_in_} inputs, but "
            f"{table} has {counted(len(columns), 'numeric column')}: fit it to a DataFrame, or "
            "remove columns."
        )
    encoder = TableEncoder.of_numbers(columns)
    if names is None:
        return encoder, encoder.transform
    return encoder, lambda frame: pd.DataFrame(encoder.transform(frame), columns=names)


def _numeric_columns(table: TableFile, targets: Sequence[str]) -> list[str]:
    numeric = next(read_blocks(table, no_rows=True)).select_dtypes(["number", "bool"])
    return [str(name) for name in numeric.columns if name not in targets]


def errors_of(frame: pd.DataFrame, noise: Sequence[str]) -> tuple[np.ndarray, ...]:
    """The known errors of the rows of a block as one further argument; none without columns."""
    return (error_numbers(frame, noise),) if noise else ()


def _noise_to_predict(model: Any, table: TableFile) -> tuple[str, ...]:
    """The columns of known errors that the table has; tells where errors are left out."""
    noise = getattr(model, "noise_names_", ())
    lacking = set(noise) - set(map(str, next(read_blocks(table, rows=100, no_rows=True)).columns))
    if lacking or (not noise and getattr(model, "known_errors_", False)):
        reason = f"The table has no column {quoted(sorted(lacking))}" if lacking else "The model "
        reason += "" if lacking else "was fitted to known errors that have no column"
        typer.echo(f"{reason}: predictions are without the errors of measurements.")
        return ()
    return noise


def parse_quantiles(text: str) -> list[float]:
    """The numbers in "0.05,0.5"; an empty text is none."""
    try:
        quantiles = [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        quantiles = [-1.0]
    if not all(0 < p < 1 for p in quantiles):
        raise typer.BadParameter(
            f"{text!r} must be numbers between 0 and 1 with commas between, such as 0.05,0.5,0.95.",
            param_hint="'--quantiles'",
        )
    return sorted(set(quantiles))


def predict_table(
    path: Path,
    table: TableFile,
    out: Path,
    quantiles: Sequence[float],
    samples: int | None = None,
    part: Part = ALL,
    *,
    keep: Sequence[str] = (),
    digits: int | None = None,
    quiet: bool = False,
) -> None:
    """Writes the predictions of a saved model for a table, or for a part of its rows.

    Columns to `keep` are copied before them.
    """
    out = file_of_part(part, out)
    check_table_output(out, table.path)
    to_parquet = out != STANDARD and is_parquet(out)
    if digits is not None and to_parquet:
        raise TableError("--precision is for text files, Parquet keeps all digits: leave it out.")
    standard = sys.stdout  # lines go elsewhere where the predictions go there
    with printing(quiet=quiet, elsewhere=out == STANDARD):
        model = load(path)
        if samples is not None:
            model.set_params(n_predictive_samples=samples)
        encoder, read_inputs = inputs_of(model, path, table, ())
        noise = _noise_to_predict(model, table)
        # As text, columns that are copied stay as they are.
        as_text = (*encoder.text_columns, *(() if to_parquet else keep))
        total = num_rows(table)
        wanted = None
        if part.number > 1:
            total = total or sum(len(block) for block in read_blocks(table))
            wanted = rows_of_part(part, total)
            total = len(wanted)
        with (
            table_writer(out, digits, standard) as append,
            row_counter(total, "predicting", shown=not quiet) as done,
            Doubts().told() as doubts,
        ):
            for frame in _chosen(read_blocks(table, as_text, no_rows=True), wanted):
                errors = errors_of(frame, noise)
                predicted = _predictions(model, read_inputs(frame), quantiles, *errors)
                append(_with_kept(frame, keep, predicted))
                doubts.rows += len(frame)
                done(len(frame))
        typer.echo(f"Wrote predictions for {counted(doubts.rows, 'row')} to {out}.")


def _with_kept(frame: pd.DataFrame, keep: Sequence[str], predicted: pd.DataFrame) -> pd.DataFrame:
    """The predictions, after columns of the table that are copied."""
    if not keep:
        return predicted
    check_present(keep, list(frame.columns))
    both = set(keep) & set(predicted.columns)
    if both or len(set(keep)) < len(keep):
        raise TableError(
            f"The predictions would have two columns {quoted(sorted(both) or keep)}: rename that "
            "of the table, or do not keep it."
        )
    return pd.concat([frame[list(keep)].reset_index(drop=True), predicted], axis=1)


def _chosen(frames: Iterator[pd.DataFrame], rows: range | None) -> Iterator[pd.DataFrame]:
    """The blocks of those rows, counted over all files of a folder; None is all of them."""
    start = 0
    for frame in frames:
        first, start = start, start + len(frame)
        if rows is not None:
            frame = frame[max(0, rows.start - first) : max(0, rows.stop - first)]
        if len(frame) or rows is None:
            yield frame


def _predictions(
    model: Any, inputs: Any, quantiles: Sequence[float], *errors: np.ndarray
) -> pd.DataFrame:
    """A row of predictions for each row of inputs, of which the errors may be known."""
    if model.task == "classification":
        return _class_predictions(model, inputs)
    distribution = model.predict_dist(inputs, *errors)
    columns = {
        "mean": distribution.mean,
        "std": distribution.std,
        **{quantile_name(p): distribution.quantile(p) for p in quantiles},
    }
    far = {} if distribution.distance is None else {"distance": distribution.distance}
    if distribution.mean.ndim == 1:
        return pd.DataFrame({**columns, **far})
    num_targets = distribution.mean.shape[1]
    targets = getattr(model, "target_names_", [f"y{index + 1}" for index in range(num_targets)])
    return pd.DataFrame(
        {
            f"{target}_{name}": values[:, index]
            for index, target in enumerate(targets)
            for name, values in columns.items()
        }
        | far
    )


def _class_predictions(model: Any, inputs: Any) -> pd.DataFrame:
    """The most probable class and the probability of each."""
    probabilities = model.predict_proba(inputs)
    columns = {f"p_{text_of(label)}": probabilities[:, i] for i, label in enumerate(model.classes_)}
    most_probable = model.classes_[np.argmax(probabilities, axis=1)]
    return pd.DataFrame({"prediction": most_probable, **columns})


def quantile_name(p: float) -> str:
    """q05 for 0.05, q97.5 for 0.975: percent, with at least two digits before the point."""
    whole, _, rest = f"{100 * p:.10g}".partition(".")
    return f"q{whole.zfill(2)}" + (f".{rest}" if rest else "")


def columns_to_judge(
    model: Any, path: Path, given: Sequence[str], given_noise: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The columns of the targets and of their known errors, from the model or from the options."""
    targets = tuple(getattr(model, "target_names_", given))
    if given and tuple(given) != targets:
        raise TableError(f"{path} predicts {', '.join(targets)}: omit --target.")
    if not targets:
        raise TableError(f"{path} was saved by Python code: say what it predicts with --target.")
    noise = tuple(getattr(model, "noise_names_", given_noise))
    known = getattr(model, "known_errors_", False)
    if given_noise and not known:
        raise TableError(f"{path} was fitted without known errors: omit --noise-column.")
    if given_noise and tuple(given_noise) != noise:
        raise TableError(f"{path} has its errors in {', '.join(noise)}: omit --noise-column.")
    if known and not noise:
        raise TableError(
            f"{path} was fitted to known errors: say where those of the table are with "
            "--noise-column."
        )
    if noise:
        check_one_error_each(targets, noise)
    return targets, noise


def evaluate_table(
    path: Path,
    table: TableFile,
    given: Sequence[str],
    given_noise: Sequence[str] = (),
    *,
    as_json: bool,
    plot: Path | None = None,
) -> None:
    """Prints the metrics of a saved model on a table, and draws how honest it is."""
    if plot is not None:
        from dvip.plots import calibration_figure, check_picture, write_picture  # loads matplotlib

        check_picture(plot)
    model = load(path)
    targets, noise = columns_to_judge(model, path, given, given_noise)
    encoder, read_inputs = inputs_of(model, path, table, (*targets, *noise))
    with Doubts().told() as doubts:
        blocks = labelled_blocks(model, encoder, table, targets, doubts)
        rows = ((read_inputs(frame), y, *errors_of(frame, noise)) for frame, y in blocks)
        judgement = judged(model, rows, label_reader(model))
    metrics = judgement.metrics()
    title = f"{path} on {counted(doubts.rows, 'row')} of {table}"
    if plot is not None:
        write_picture(calibration_figure(judgement, title), plot)
    if as_json:
        finite = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
        typer.echo(json.dumps({"rows": doubts.rows, **finite}, indent=1))
    else:
        print_metrics(title, {"value": metrics})
        if plot is not None:
            typer.echo(f"Drew how honest the model is in {plot}.")


def label_reader(model: Any) -> Callable[[Any], str]:
    """How to compare labels with the classes: as numbers, where that is what the classes are."""
    if model.task == "regression" or not are_numbers(model.classes_):
        return text_of
    distinct = len(set(map(label_of, model.classes_))) == len(model.classes_)
    return label_of if distinct else text_of


def gaps_named(table: TableFile, targets: Sequence[str]) -> str:
    """Words of a text file that were taken for gaps, in brackets; nothing if there are none."""
    texts = gap_texts(table, targets)
    words = [repr(text) for text in texts if text]
    if not words:
        return ""
    return f" ({' or '.join([*(['empty'] if '' in texts else []), *words])})"


def labelled_blocks(
    model: Any, encoder: TableEncoder, table: TableFile, targets: Sequence[str], doubts: Doubts
) -> Iterator[tuple[pd.DataFrame, np.ndarray]]:
    """The rows of a table that have a target, and their targets; `doubts` counts these rows."""
    labels = model.task == "classification"
    text_labels = labels and model.classes_.dtype.kind in "OUT"
    text_columns = (*encoder.text_columns, *(targets if text_labels else ()))
    dropped = 0
    units: dict[str, set[str]] = {}
    with row_counter(num_rows(table), "evaluating") as done:
        for frame in read_blocks(table, text_columns):
            labelled = frame[has_targets(frame, targets)]
            dropped += len(frame) - len(labelled)
            doubts.rows += len(labelled)
            if len(labelled):
                yield (
                    labelled,
                    parse_texts(labelled[targets[0]])
                    if labels
                    else target_numbers(labelled, targets, units),
                )
            done(len(frame))
    what = f"{', '.join(targets)}{gaps_named(table, targets) if dropped else ''}"
    if not doubts.rows:
        raise TableError(f"No row of {table} has a value in {what}.")
    if dropped:
        verb = ("has", "does") if dropped == 1 else ("have", "do")
        warn(f"{counted(dropped, 'row')} {verb[0]} no value in {what} and {verb[1]} not count.")
