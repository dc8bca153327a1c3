"""`dvip predict` and `dvip evaluate`: a saved model on the rows of a table, block by block."""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import typer

from dvip.batches import ALL, Part
from dvip.cli.console import print_metrics, warn
from dvip.cli.long_runs import file_of_part, rows_of_part
from dvip.estimators.serialisation import load_with_table
from dvip.metrics import scores
from dvip.tables import (
    Surprises,
    TableEncoder,
    TableError,
    check_table_output,
    gap_texts,
    num_rows,
    read_blocks,
    table_writer,
    target_numbers,
    with_targets,
)
from dvip.tables.cells import are_numbers, label_of, parse_texts, text_of
from dvip.training import row_counter

__all__ = [
    "TableModel",
    "evaluate_table",
    "open_model",
    "parse_quantiles",
    "predict_table",
    "scores",
]


@dataclass(frozen=True)
class TableModel:
    """A model that predicts from tables."""

    estimator: Any
    encoder: TableEncoder

    @property
    def is_classifier(self) -> bool:
        """Whether the model predicts labels."""
        return hasattr(self.estimator, "classes_")

    def blocks(self, table: Path, rows: range | None = None) -> Iterator[tuple[pd.DataFrame, Any]]:
        """Each block of a table and its inputs; at the end, warns of what was unexpected.

        With `rows`, only those.
        """
        text_columns = self.encoder.text_columns
        if self.is_classifier and self.estimator.classes_.dtype.kind in "OUT":
            text_columns += self.encoder.targets
        surprises = Surprises()
        start = 0  # of a block, over all files of a folder
        for block in read_blocks(table, text_columns):
            first, start = start, start + len(block)
            if rows is not None:
                block = block[max(0, rows.start - first) : max(0, rows.stop - first)]
            if len(block):
                yield block, self._inputs(self.encoder.encode(block, surprises))
        for line in surprises.lines():
            warn(line)

    def _inputs(self, encoded: Any) -> Any:
        # An estimator that was fitted to named columns wants them named.
        names = getattr(self.estimator, "feature_names_in_", None)
        return encoded if names is None else pd.DataFrame(encoded, columns=names)


def open_model(path: Path, table: Path, targets: Sequence[str] = ()) -> TableModel:
    """The model at `path`, to be used on `table`.

    A model that Python code saved does not say how it reads tables: then the names of its inputs
    count, or without names the table's numeric columns, if they are as many as the inputs.
    """
    estimator, content = load_with_table(path)
    if content is not None:
        encoder = TableEncoder.from_json(content)
        return TableModel(estimator, encoder)
    names = getattr(estimator, "feature_names_in_", None)
    if names is None:
        names = _numeric_columns(table, targets)
        if len(names) != estimator.n_features_in_:
            raise TableError(
                f"{path} was saved without column names and has {estimator.n_features_in_} inputs, "
                f"but {table} has {len(names)} numeric columns: fit it to a DataFrame, or remove "
                "columns."
            )
    return TableModel(estimator, TableEncoder.of_numbers(map(str, names), targets))


def _numeric_columns(table: Path, targets: Sequence[str]) -> list[str]:
    block = next(read_blocks(table))
    numeric = block.select_dtypes(["number", "bool"])
    return [str(name) for name in numeric.columns if name not in targets]


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
    model: Path,
    table: Path,
    out: Path,
    quantiles: Sequence[float],
    samples: int | None = None,
    part: Part = ALL,
) -> None:
    """Writes the predictions of a saved model for a table, or for a part of its rows."""
    out = file_of_part(part, out)
    check_table_output(out, table)
    opened = open_model(model, table)
    if samples is not None:
        opened.estimator.set_params(n_predictive_samples=samples)
    total = num_rows(table)
    wanted = None
    if part.number > 1:
        total = total or sum(len(block) for block in read_blocks(table))
        wanted = rows_of_part(part, total)
        total = len(wanted)
    rows = 0
    with table_writer(out) as append, row_counter(total, "predicting") as done:
        for frame, inputs in opened.blocks(table, wanted):
            append(predictions(opened, inputs, quantiles))
            rows += len(frame)
            done(len(frame))
    typer.echo(f"Wrote predictions for {rows:,} rows to {out}.")


def predictions(model: TableModel, inputs: Any, quantiles: Sequence[float]) -> pd.DataFrame:
    """A row of predictions for each row of inputs."""
    if model.is_classifier:
        return class_predictions(model.estimator, inputs)
    distribution = model.estimator.predict_dist(inputs)
    columns = {
        "mean": distribution.mean,
        "std": distribution.std,
        **{quantile_name(p): distribution.quantile(p) for p in quantiles},
    }
    if distribution.mean.ndim == 1:
        return pd.DataFrame(columns)
    num_targets = distribution.mean.shape[1]
    targets = model.encoder.targets or [f"y{index + 1}" for index in range(num_targets)]
    return pd.DataFrame(
        {
            f"{target}_{name}": values[:, index]
            for index, target in enumerate(targets)
            for name, values in columns.items()
        }
    )


def class_predictions(estimator: Any, inputs: Any) -> pd.DataFrame:
    """The most probable class and the probability of each."""
    probabilities = estimator.predict_proba(inputs)
    classes = estimator.classes_
    columns = {f"p_{text_of(label)}": probabilities[:, i] for i, label in enumerate(classes)}
    most_probable = classes[np.argmax(probabilities, axis=1)]
    return pd.DataFrame({"prediction": most_probable, **columns})


def quantile_name(p: float) -> str:
    """q05 for 0.05, q97.5 for 0.975: percent, with at least two digits before the point."""
    whole, _, rest = f"{100 * p:.10g}".partition(".")
    return f"q{whole.zfill(2)}" + (f".{rest}" if rest else "")


def evaluate_table(model: Path, table: Path, targets: Sequence[str], *, as_json: bool) -> None:
    """Prints the metrics of a saved model on a table."""
    opened = open_model(model, table, targets)
    if targets and tuple(targets) != opened.encoder.targets:
        raise TableError(f"{model} predicts {', '.join(opened.encoder.targets)}: omit --target.")
    if not opened.encoder.targets:
        raise TableError(f"{model} was saved by Python code: say what it predicts with --target.")
    blocks = LabelledBlocks(opened, table)
    metrics = scores(opened.estimator, blocks, _label_of(opened.estimator))
    if as_json:
        finite = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
        typer.echo(json.dumps({"rows": blocks.rows, **finite}, indent=1))
    else:
        print_metrics(f"{model} on {blocks.rows:,} rows of {table}", {"value": metrics})


def _label_of(estimator: Any) -> Any:
    return label_reader(estimator.classes_) if estimator.task == "classification" else text_of


def label_reader(classes: np.ndarray) -> Callable[[Any], str]:
    """How to compare labels with the classes: as numbers, where that is what the classes are."""
    if not are_numbers(classes):
        return text_of
    distinct = len(set(map(label_of, classes))) == len(classes)
    return label_of if distinct else text_of


def gaps_named(table: Path, targets: Sequence[str]) -> str:
    """Words of a text file that were taken for gaps, in brackets; nothing if there are none."""
    texts = gap_texts(table, targets)
    words = [repr(text) for text in texts if text]
    if not words:
        return ""
    return f" ({' or '.join([*(['empty'] if '' in texts else []), *words])})"


class LabelledBlocks:
    """Inputs and targets of the rows of a table that have a target; counts these rows."""

    def __init__(self, model: TableModel, table: Path):
        self.model, self.table = model, table
        self.rows = 0

    def __iter__(self) -> Iterator[tuple[Any, np.ndarray]]:
        targets, dropped = self.model.encoder.targets, 0
        with row_counter(num_rows(self.table), "evaluating") as done:
            for frame, inputs in self.model.blocks(self.table):
                labelled = with_targets(frame, targets)
                dropped += len(frame) - len(labelled)
                self.rows += len(labelled)
                if len(labelled):
                    yield inputs[frame.index.isin(labelled.index)], self._targets(labelled)
                done(len(frame))
        if dropped:
            what = f"{', '.join(targets)}{gaps_named(self.table, targets)}"
            warn(f"{dropped:,} rows have no value in {what} and do not count.")
        if not self.rows:
            raise TableError(f"No row of {self.table} has a value in {', '.join(targets)}.")

    def _targets(self, frame: Any) -> np.ndarray:
        targets = self.model.encoder.targets
        if self.model.is_classifier:
            return parse_texts(frame[targets[0]])
        return target_numbers(frame, targets)
