"""What a model is to predict: the task, numbers or labels, and rows that do not say."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from dvip.tables.errors import TableError, check_present, row_number
from dvip.tables.parsing import holds_dates, missing_cells, parse_numbers, parse_texts

__all__ = ["TASKS", "choose_task", "class_labels", "target_numbers", "with_targets"]

TASKS = ("regression", "classification")

# Beyond, a target is a name or a number rather than a class.
MAX_CLASSES = 200
# Whole numbers that a float holds exactly.
MAX_WHOLE = 2.0**53


def with_targets(frame: pd.DataFrame, targets: Sequence[str]) -> pd.DataFrame:
    """The rows that have a value in every target column."""
    check_present(targets, list(frame.columns))
    missing = np.zeros(len(frame), dtype=bool)
    for name in targets:
        missing |= missing_cells(frame[name])
    return frame[~missing]


def choose_task(frame: pd.DataFrame, targets: Sequence[str]) -> str:
    """Classification for one target of text, truth values or two numbers; else regression."""
    if len(targets) > 1:
        return "regression"
    column = frame[targets[0]]
    if isinstance(column.dtype, pd.CategoricalDtype) or _holds_truth(column):
        return "classification"
    numbers = parse_numbers(column)
    two_valued = len(np.unique(numbers.values)) == 2
    return "classification" if numbers.unreadable.any() or two_valued else "regression"


def target_numbers(frame: pd.DataFrame, targets: Sequence[str]) -> np.ndarray:
    """What to regress on: one number a row, or one for each of several targets."""
    columns = [_numbers(name, frame[name]) for name in targets]
    return columns[0] if len(columns) == 1 else np.column_stack(columns)


def class_labels(name: str, column: pd.Series) -> np.ndarray:
    """Labels, as truth values, as whole numbers, or as text."""
    if holds_dates(column):
        raise TableError(f"Column {name!r} holds dates or times: choose another target.")
    labels: np.ndarray
    numbers = parse_numbers(column)
    whole = (np.abs(numbers.values) < MAX_WHOLE) & (numbers.values == np.round(numbers.values))
    if _holds_truth(column):
        labels = numbers.values.astype(bool)
    elif whole.all():
        labels = numbers.values.astype(np.int64)
    else:
        labels = parse_texts(column)
    count = len(np.unique(labels))
    if count > MAX_CLASSES:
        raise TableError(
            f"Column {name!r} has {count:,} different values, more than {MAX_CLASSES} classes: "
            "choose another target, or --task regression."
        )
    return labels


def _holds_truth(column: pd.Series) -> bool:
    return all(isinstance(cell, bool | np.bool_) for cell in column.to_numpy(dtype=object))


def _numbers(name: str, column: pd.Series) -> np.ndarray:
    if holds_dates(column):
        raise TableError(f"Column {name!r} holds dates or times: choose another target.")
    numbers = parse_numbers(column)
    if numbers.unreadable.any():
        position = int(numbers.unreadable.argmax())
        raise TableError(
            f"Column {name!r} is not a number in row {row_number(column, position)}: "
            f"{column.iloc[position]!r}. Use --task classification if these are labels."
        )
    if not np.isfinite(numbers.values).all():
        row = row_number(column, int(np.isinf(numbers.values).argmax()))
        raise TableError(f"Column {name!r} is infinite in row {row}: correct or remove the row.")
    return numbers.values
