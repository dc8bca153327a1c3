"""`dvip evaluate`: predictions against what happened, block by block."""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import typer

from dvip.cli.errors import warn
from dvip.cli.printing import print_metrics
from dvip.cli.table_model import TableModel, open_model
from dvip.cli.training_table import gaps_named
from dvip.metrics import (
    add_totals,
    classification_metrics,
    regression_from_totals,
    regression_totals,
)
from dvip.tables import TableError, num_rows, target_numbers, with_targets
from dvip.tables.parsing import are_numbers, label_of, parse_texts, text_of
from dvip.training import row_counter

__all__ = ["evaluate_table", "scores"]


def evaluate_table(model: Path, table: Path, targets: Sequence[str], *, as_json: bool) -> None:
    """Prints the metrics of a saved model on a table."""
    opened = open_model(model, table, targets)
    if targets and tuple(targets) != opened.encoder.targets:
        raise TableError(f"{model} predicts {', '.join(opened.encoder.targets)}: omit --target.")
    if not opened.encoder.targets:
        raise TableError(f"{model} was saved by Python code: say what it predicts with --target.")
    blocks = LabelledBlocks(opened, table)
    metrics = scores(opened.estimator, blocks)
    if as_json:
        finite = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
        typer.echo(json.dumps({"rows": blocks.rows, **finite}, indent=1))
    else:
        print_metrics(f"{model} on {blocks.rows:,} rows of {table}", {"value": metrics})


def scores(estimator: Any, blocks: Iterable[tuple[Any, np.ndarray]]) -> dict[str, float]:
    """Metrics of an estimator on blocks of inputs and targets."""
    if not hasattr(estimator, "classes_"):
        totals: dict[str, float] = {}
        for inputs, y in blocks:
            totals = add_totals(totals, regression_totals(estimator.predict_dist(inputs), y))
        return regression_from_totals(totals)
    probabilities: list[np.ndarray] = []
    labels: list[str] = []
    text = label_reader(estimator.classes_)
    classes = [text(label) for label in estimator.classes_]
    same = {label: label for label in classes}  # one text in memory for each class, not each row
    for inputs, y in blocks:
        probabilities.append(estimator.predict_proba(inputs).astype(np.float32))
        labels += [same.get(label, label) for label in map(text, y)]
    return classification_metrics(np.concatenate(probabilities), labels, classes)


def label_reader(classes: np.ndarray) -> Callable[[Any], str]:
    """How to compare labels with the classes: as numbers, where that is what the classes are."""
    if not are_numbers(classes):
        return text_of
    distinct = len(set(map(label_of, classes))) == len(classes)
    return label_of if distinct else text_of


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
