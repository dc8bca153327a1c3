"""What a model is to predict: the task, numbers or labels, and rows that do not say."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from dvip.tables.cells import (
    MAX_COUNTED,
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
from dvip.tables.columns import CellSurvey, in_units

__all__ = [
    "TargetSurvey",
    "has_targets",
    "labels_of_kind",
    "target_numbers",
]

# Beyond, a target is a name or a number rather than a class.
MAX_CLASSES = 200
# Whole numbers that a float holds exactly.
MAX_WHOLE = 2.0**53


@dataclass
class TargetSurvey(CellSurvey):
    """What was seen of a target; its rows have a value."""

    only_truth: bool = True
    only_whole: bool = True
    numbers: set[float] = field(default_factory=set)

    def add(self, column: pd.Series) -> None:
        """Looks at a block."""
        if not len(column):
            return
        self.num_rows += len(column)
        self.is_categorical |= isinstance(column.dtype, pd.CategoricalDtype)
        self.only_truth = self.only_truth and _holds_truth(column)
        self.only_dates = self.only_dates and holds_dates(column)
        numbers = parse_numbers(column)
        self._note(column, numbers)
        whole = not numbers.unit and bool(_are_whole(numbers.values).all())
        self.only_whole = self.only_whole and whole
        if len(self.numbers) <= MAX_COUNTED:
            self.numbers.update(np.unique(numbers.values[~numbers.unreadable]).tolist())
        if len(self.texts) <= MAX_COUNTED:
            distinct = column.drop_duplicates() if is_number_type(column) else column
            self.texts.update(parse_texts(distinct))

    @property
    def task(self) -> str:
        """Classification for text, truth values or two numbers; else regression."""
        labels = self.is_categorical or self.only_truth or not self.are_numbers
        return "classification" if labels or len(self.numbers) == 2 else "regression"

    @property
    def label_kind(self) -> str:
        """What labels are: truth values, whole numbers, other numbers as text, or text."""
        if self.only_truth:
            return "truth"
        if self.only_whole:
            return "whole"
        return "number" if self.are_numbers and not any(self.units) else "text"

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
        """Raises an error if it is not clear whether the values are numbers or labels."""
        doubt = None if self.is_categorical or self.only_dates else self.doubt(self.num_rows)
        if doubt is not None:
            raise TableError(
                f"Column {name!r} {doubt}: correct these cells or leave them empty, or use --task "
                "classification if all of them are labels."
            )

    def check_labels(self, name: str) -> None:
        """Raises an error unless the values can be class labels."""
        if self.only_dates:
            raise TableError(f"Column {name!r} holds dates or times: choose another target.")
        count = len(self.numbers if self.label_kind == "whole" else self.texts)
        if count > MAX_CLASSES:
            raise TableError(
                f"Column {name!r} has {self.num_texts} different values, more than {MAX_CLASSES} "
                "classes: choose another target, or --task regression."
            )


def has_targets(frame: pd.DataFrame, targets: Sequence[str]) -> np.ndarray:
    """Which rows have a value in every target column."""
    check_present(targets, list(frame.columns))
    present = np.ones(len(frame), dtype=bool)
    for name in targets:
        present &= ~missing_cells(frame[name])
    return present


def target_numbers(
    frame: pd.DataFrame, targets: Sequence[str], units: dict[str, set[str]] | None = None
) -> np.ndarray:
    """What to regress on: one number a row, or one for each of several targets.

    `units` remembers the units of blocks before, which must be the same.
    """
    units = {} if units is None else units
    columns = [_numbers(name, frame[name], units.setdefault(name, set())) for name in targets]
    return columns[0] if len(columns) == 1 else np.column_stack(columns)


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


def _numbers(name: str, column: pd.Series, units: set[str]) -> np.ndarray:
    if holds_dates(column):
        raise TableError(f"Column {name!r} holds dates or times: choose another target.")
    numbers = parse_numbers(column)
    if numbers.unreadable.any():
        position = int(numbers.unreadable.argmax())
        raise TableError(
            f"Column {name!r} is not a number in {row_name(column, position)}: "
            f"{column.iloc[position]!r}. Use --task classification if these are labels."
        )
    units.add(numbers.unit)
    if len(units) > 1:
        row = row_name(column, 0)
        raise TableError(f"Column {name!r} {in_units(units)} before {row}: use one unit.")
    if not np.isfinite(numbers.values).all():
        row = row_name(column, int(np.isinf(numbers.values).argmax()))
        raise TableError(f"Column {name!r} is infinite in {row}: correct or remove the row.")
    return numbers.values
