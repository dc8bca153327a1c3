"""`dvip fit` on a table that is streamed: a pass to look at it, then training reads it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import typer

from dvip.cli.errors import warn
from dvip.cli.training_table import TrainingTable, check_split, tell_dropped, tell_task
from dvip.sources import TableSource
from dvip.tables import (
    ROWS_AT_ONCE,
    RowSplit,
    Surprises,
    TableEncoder,
    TableError,
    TableSurvey,
    labels_of_kind,
    num_numbers,
    num_rows,
    survey_table,
    target_numbers,
    with_targets,
)
from dvip.tables.parsing import are_numbers, label_of, parse_texts, text_of
from dvip.training import is_first_process, row_counter

__all__ = ["is_large", "streamed_table"]

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
