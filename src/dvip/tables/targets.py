"""What a model is to predict: the task, numbers or labels, and rows that do not say."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from dvip.tables.cells import (
    TableError,
    check_present,
    holds_dates,
    is_number_type,
    label_of,
    missing_cells,
    parse_numbers,
    parse_texts,
    row_name,
)
from dvip.tables.columns import MAX_CATEGORIES, MOSTLY

__all__ = [
    "TASKS",
    "TargetSurvey",
    "choose_task",
    "class_labels",
    "labels_of_kind",
    "target_numbers",
    "with_targets",
]

TASKS = ("regression", "classification")

# Beyond, a target is a name or a number rather than a class.
MAX_CLASSES = 200
# Distinct values that are counted.
MAX_COUNTED = 10_000
# Whole numbers that a float holds exactly.
MAX_WHOLE = 2.0**53


@dataclass
class TargetSurvey:
    """What was seen of a target so far, block by block; its rows have a value."""

    num_rows: int = 0
    is_categorical: bool = False
    only_truth: bool = True
    only_whole: bool = True
    only_dates: bool = True
    num_unreadable: int = 0
    first_unreadable: tuple[str, Any] | None = None
    numbers: set[float] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)
    read_as: set[str] = field(default_factory=set)

    def add(self, column: pd.Series) -> None:
        """Looks at a block."""
        if not len(column):
            return
        self.num_rows += len(column)
        self.is_categorical |= isinstance(column.dtype, pd.CategoricalDtype)
        self.read_as.add("numbers" if is_number_type(column) else "text")
        self.only_truth = self.only_truth and _holds_truth(column)
        self.only_dates = self.only_dates and holds_dates(column)
        numbers = parse_numbers(column)
        self._add_unreadable(column, numbers.unreadable)
        self.only_whole = self.only_whole and bool(_are_whole(numbers.values).all())
        if len(self.numbers) <= MAX_COUNTED:
            self.numbers.update(np.unique(numbers.values[~numbers.unreadable]).tolist())
        if len(self.texts) <= MAX_COUNTED:
            distinct = column.drop_duplicates() if is_number_type(column) else column
            self.texts.update(parse_texts(distinct))

    def _add_unreadable(self, column: pd.Series, unreadable: np.ndarray) -> None:
        if self.first_unreadable is None and unreadable.any():
            position = int(unreadable.argmax())
            self.first_unreadable = (row_name(column, position), column.iloc[position])
        self.num_unreadable += int(unreadable.sum())

    @property
    def is_mixed(self) -> bool:
        """Whether some blocks were numbers and some text: then labels depend on the blocks."""
        return len(self.read_as) > 1

    @property
    def task(self) -> str:
        """Classification for text, truth values or two numbers; else regression."""
        two_valued = len(self.numbers) == 2
        unreadable = self.num_unreadable > 0
        labels = self.is_categorical or self.only_truth or unreadable or two_valued
        return "classification" if labels else "regression"

    @property
    def label_kind(self) -> str:
        """What labels are: truth values, whole numbers, other numbers as text, or text."""
        if self.only_truth:
            return "truth"
        if self.only_whole:
            return "whole"
        return "text" if self.num_unreadable else "number"

    @property
    def labels(self) -> np.ndarray:
        """The labels that were seen, sorted."""
        match self.label_kind:
            case "truth":
                return np.array(sorted(map(bool, self.numbers)))
            case "whole":
                return np.array(sorted(map(int, self.numbers)))
            case "number":
                return np.array(sorted(set(map(label_of, self.texts))), dtype=object)
            case _:
                return np.array(sorted(self.texts), dtype=object)

    def check_choice(self, name: str) -> None:
        """Raises an error if a few bad cells would make labels of a column of numbers."""
        if self.first_unreadable is None or self.is_categorical:
            return
        num_readable = self.num_rows - self.num_unreadable
        many = len(self.numbers) > min(MAX_CATEGORIES, num_readable / 2)
        if many and num_readable >= MOSTLY * self.num_rows:
            row, cell = self.first_unreadable
            raise TableError(
                f"Column {name!r} is mostly numbers, but {row} has {cell!r}: correct it or leave "
                "it empty, or use --task classification if these are labels."
            )

    def check_labels(self, name: str) -> None:
        """Raises an error unless the values can be class labels."""
        if self.only_dates:
            raise TableError(f"Column {name!r} holds dates or times: choose another target.")
        count = len(self.numbers if self.label_kind == "whole" else self.texts)
        if count > MAX_CLASSES:
            over = "over " if count > MAX_COUNTED else ""
            raise TableError(
                f"Column {name!r} has {over}{min(count, MAX_COUNTED):,} different values, more "
                f"than {MAX_CLASSES} classes: choose another target, or --task regression."
            )


def with_targets(frame: pd.DataFrame, targets: Sequence[str]) -> pd.DataFrame:
    """The rows that have a value in every target column."""
    check_present(targets, list(frame.columns))
    missing = np.zeros(len(frame), dtype=bool)
    for name in targets:
        missing |= missing_cells(frame[name])
    return frame[~missing]


def choose_task(frame: pd.DataFrame, targets: Sequence[str]) -> str:
    """Classification for one target of text, truth values or two numbers; else regression.

    An error if the target is numbers but for some cells.
    """
    if len(targets) > 1:
        return "regression"
    survey = TargetSurvey()
    survey.add(frame[targets[0]])
    survey.check_choice(targets[0])
    return survey.task


def target_numbers(frame: pd.DataFrame, targets: Sequence[str]) -> np.ndarray:
    """What to regress on: one number a row, or one for each of several targets."""
    columns = [_numbers(name, frame[name]) for name in targets]
    return columns[0] if len(columns) == 1 else np.column_stack(columns)


def class_labels(name: str, column: pd.Series) -> np.ndarray:
    """Labels, as truth values, as whole numbers, or as text."""
    survey = TargetSurvey()
    survey.add(column)
    survey.check_labels(name)
    return labels_of_kind(column, survey.label_kind)


def labels_of_kind(column: pd.Series, kind: str) -> np.ndarray:
    """Labels of a kind that suits all of the column, of which this may be a block."""
    match kind:
        case "truth":
            return parse_numbers(column).values.astype(bool)
        case "whole":
            return parse_numbers(column).values.astype(np.int64)
        case "number":
            return np.array([label_of(cell) for cell in parse_texts(column)], dtype=object)
        case _:
            return parse_texts(column)


def _are_whole(values: np.ndarray) -> np.ndarray:
    return (np.abs(values) < MAX_WHOLE) & (values == np.round(values))


def _holds_truth(column: pd.Series) -> bool:
    if is_number_type(column):
        return pd.api.types.is_bool_dtype(column.dtype)
    return all(isinstance(cell, bool | np.bool_) for cell in column.to_numpy(dtype=object))


def _numbers(name: str, column: pd.Series) -> np.ndarray:
    if holds_dates(column):
        raise TableError(f"Column {name!r} holds dates or times: choose another target.")
    numbers = parse_numbers(column)
    if numbers.unreadable.any():
        position = int(numbers.unreadable.argmax())
        raise TableError(
            f"Column {name!r} is not a number in {row_name(column, position)}: "
            f"{column.iloc[position]!r}. Use --task classification if these are labels."
        )
    if not np.isfinite(numbers.values).all():
        row = row_name(column, int(np.isinf(numbers.values).argmax()))
        raise TableError(f"Column {name!r} is infinite in {row}: correct or remove the row.")
    return numbers.values
