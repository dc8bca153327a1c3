"""A table looked at block by block before a model is fitted to it: which rows are for testing, how
the columns are encoded, what the targets are.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from dvip.tables.cells import (
    MAX_COUNTED,
    TableError,
    check_present,
    label_of,
    parse_texts,
    quoted,
    text_of,
)
from dvip.tables.encoder import TableEncoder, row_ranks
from dvip.tables.readers import is_parquet, read_blocks
from dvip.tables.targets import TargetSurvey, has_targets, labels_of_kind, target_numbers

__all__ = ["RowSplit", "TableSurvey", "survey_table"]


@dataclass(frozen=True)
class RowSplit:
    """Which rows are for testing: each with probability `fraction`; None is no row.

    It is the row's number alone that decides: no list of rows has to be kept.
    """

    fraction: float | None
    seed: int

    def is_test(self, rows: np.ndarray) -> np.ndarray:
        """Whether each row, given by its number in the table, is for testing."""
        if self.fraction is None:
            return np.zeros(len(rows), dtype=bool)
        return row_ranks(rows, self.seed) < np.uint64(self.fraction * 2.0**64)


NO_SPLIT = RowSplit(None, 0)


@dataclass
class TableSurvey:
    """What was seen of a table so far; of its columns, in the rows that are for training."""

    targets: tuple[str, ...]
    drop: tuple[str, ...] = ()
    split: RowSplit = NO_SPLIT
    # Columns of a text file that are read as the text that is there.
    text_columns: tuple[str, ...] = ()
    # The blocks, where they are kept.
    frames: list[pd.DataFrame] | None = None
    num_rows: int = 0
    num_columns: int = 0
    num_labelled: int = 0
    num_drawn: int = 0
    target: TargetSurvey = field(default_factory=TargetSurvey)
    encoder: TableEncoder = field(default_factory=TableEncoder)
    # The labels of the rows that were drawn for training, and how often each of the others is.
    _training_labels: set[str] = field(default_factory=set)
    _test_labels: Counter[str] = field(default_factory=Counter)
    _units: dict[str, set[str]] = field(default_factory=dict)

    def add(self, frame: pd.DataFrame) -> None:
        """Looks at the next block."""
        names = (*self.targets, *self.drop)
        if self.num_rows and not set(names) <= set(frame.columns):
            lacking = quoted(name for name in names if name not in frame.columns)
            file = frame.attrs.get("file")
            raise TableError(f"{file} lacks columns of the rows before it: {lacking}.")
        check_present(names, list(frame.columns))
        if self.frames is not None:
            self.frames.append(frame)
        rows = np.arange(self.num_rows, self.num_rows + len(frame))
        self.num_rows += len(frame)
        self.num_columns = max(self.num_columns, len(frame.columns))
        labelled = has_targets(frame, self.targets)
        test = labelled & self.split.is_test(rows)
        self.num_labelled += int(labelled.sum())
        self.num_drawn += int(test.sum())
        self._add_target(frame[self.targets[0]], labelled, test)
        if (labelled & ~test).any():
            self.encoder.partial_fit(frame[labelled & ~test].drop(columns=list(names)))

    def _add_target(self, target: pd.Series, labelled: np.ndarray, test: np.ndarray) -> None:
        self.target.add(target[labelled])
        if self.split.fraction is None or len(self._test_labels) > MAX_COUNTED:
            return
        self._training_labels.update(parse_texts(target[labelled & ~test]))
        self._test_labels.update(parse_texts(target[test]))

    def mixed_columns(self) -> set[str]:
        """Columns that were numbers in some blocks and text in others."""
        target = self.targets[:1] if self.target.is_mixed else ()
        return {*self.encoder.mixed_columns, *target}

    def choose_task(self, wanted: str | None = None) -> str:
        """What is wanted, or what the target looks like; an error if that is not clear or fits not.

        Classification is for one target of text, truth values or two numbers.
        """
        name, *others = self.targets
        if wanted is None and not others:
            self.target.check_choice(name)
        task = wanted or ("regression" if others else self.target.task)
        if task == "classification" and others:
            raise TableError("A classification has one target only.")
        if task == "classification":
            self.target.check_labels(name)
        return task

    def read_targets(self, frame: pd.DataFrame, task: str) -> np.ndarray:
        """Numbers, one or several a row, or labels."""
        if task == "regression":
            return target_numbers(frame, self.targets, self._units)
        return labels_of_kind(frame[self.targets[0]], self.target.label_kind)

    def is_in_part(
        self, rows: np.ndarray, frame: pd.DataFrame, task: str, *, test: bool
    ) -> np.ndarray:
        """Which rows have a target, and are for testing or for training.

        A class that the training part would lack stays there.
        """
        in_test = self.split.is_test(rows)
        lonely = self._lonely_labels(task)
        if lonely:
            label = self._label
            texts = parse_texts(frame[self.targets[0]])
            in_test &= np.array([text is None or label(text) not in lonely for text in texts])
        return has_targets(frame, self.targets) & (in_test if test else ~in_test)

    def num_test(self, task: str) -> int:
        """How many rows are for testing."""
        lonely, label = self._lonely_labels(task), self._label
        kept = sum(count for text, count in self._test_labels.items() if label(text) in lonely)
        return self.num_drawn - kept

    @property
    def _label(self) -> Callable[[str], str]:
        return text_of if self.target.label_kind == "text" else label_of

    def _lonely_labels(self, task: str) -> set[str]:
        """Labels that the rows that were drawn for training lack."""
        if task == "regression":
            return set()
        return set(map(self._label, self._test_labels)) - set(
            map(self._label, self._training_labels)
        )


def survey_table(
    path: Path,
    targets: Sequence[str],
    drop: Sequence[str] = (),
    split: RowSplit = NO_SPLIT,
    on_rows: Callable[[int], None] = lambda rows: None,
    *,
    keep: bool = False,
) -> TableSurvey:
    """Surveys a table in one pass; in two, where the blocks of a CSV file disagree on a type.

    Then the columns in question are read as the text that is there. With `keep`, each file is one
    block, and the survey keeps them.
    """
    text_columns: set[str] = set()
    while True:
        survey = TableSurvey(
            tuple(targets), tuple(drop), split, tuple(text_columns), [] if keep else None
        )
        for frame in read_blocks(path, survey.text_columns, **({"rows": None} if keep else {})):
            survey.add(frame)
            on_rows(len(frame))
        if not survey.num_labelled:
            raise TableError(f"No row of {path} has a value in {', '.join(targets)}.")
        mixed = survey.mixed_columns()
        if is_parquet(path) or mixed <= text_columns:
            return survey
        text_columns |= mixed
