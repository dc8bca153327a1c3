"""A first pass over a training table of any length: its target, its columns, its test rows."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

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
    quoted,
    row_name,
    text_of,
)
from dvip.tables.columns import CellSurvey, in_units
from dvip.tables.encoder import TableEncoder, row_ranks
from dvip.tables.formats import is_parquet, read_blocks
from dvip.tables.given import TableFile

__all__ = [
    "RowSplit",
    "TableSurvey",
    "TargetSurvey",
    "check_one_error_each",
    "error_numbers",
    "has_targets",
    "labels_of_kind",
    "sampled",
    "survey_table",
    "target_numbers",
    "weight_numbers",
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


def check_one_error_each(targets: Sequence[str], errors: Sequence[str]) -> None:
    """Raises an error unless there is a column of errors for each target, and none twice."""
    if len(errors) != len(targets):
        raise TableError(
            f"{len(errors)} columns of known errors ({quoted(errors)}) for {len(targets)} targets "
            f"({quoted(targets)}): name one for each, in the same order."
        )
    for name in errors:
        if name in targets:
            raise TableError(f"Column {name!r} is a target: its errors are in another column.")


def error_numbers(frame: pd.DataFrame, errors: Sequence[str]) -> np.ndarray:
    """The known errors of the targets, as `target_numbers` gives these: all of them positive."""
    check_present(errors, list(frame.columns))
    columns = [_errors(name, frame[name]) for name in errors]
    return columns[0] if len(columns) == 1 else np.column_stack(columns)


def weight_numbers(frame: pd.DataFrame, name: str) -> np.ndarray:
    """How many times each row counts: numbers that are not negative, without gaps."""
    check_present([name], list(frame.columns))
    column = frame[name]
    numbers = parse_numbers(column)
    bad = numbers.unreadable | ~np.isfinite(numbers.values) | ~(numbers.values >= 0)
    if holds_dates(column) or numbers.unit or bad.any():
        position = int(bad.argmax())
        is_gap = missing_cells(column.iloc[position : position + 1])[0]
        found = "a gap" if is_gap else str(column.iloc[position])
        raise TableError(
            f"Column {name!r} has {found} in {row_name(column, position)}: a weight is how many "
            "times a row counts, a number that is not negative."
        )
    return numbers.values


def _errors(name: str, column: pd.Series) -> np.ndarray:
    numbers = parse_numbers(column)
    bad = numbers.unreadable | ~np.isfinite(numbers.values) | ~(numbers.values > 0)
    if holds_dates(column) or numbers.unit or bad.any():
        position = int(bad.argmax())
        is_gap = missing_cells(column.iloc[position : position + 1])[0]
        found = "a gap" if is_gap else str(column.iloc[position])
        raise TableError(
            f"Column {name!r} has {found} in {row_name(column, position)}: the error of a row is a "
            "positive number, a standard deviation in the unit of the target."
        )
    return numbers.values


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


# A table looked at block by block before a model is fitted to it: which rows are for testing, how
# the columns are encoded, what the targets are.


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
    # Columns of the targets' known errors, one for each target, or none.
    noise: tuple[str, ...] = ()
    # The column that says how many times a row counts, or none.
    weight: tuple[str, ...] = ()
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
        names = (*self.targets, *self.noise, *self.weight, *self.drop)
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
        if self.noise and labelled.any():
            error_numbers(frame[labelled], self.noise)  # mistakes are told before the training
        if self.weight and labelled.any():
            weight_numbers(frame[labelled], *self.weight)
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


def sampled(
    frames: Iterable[pd.DataFrame], max_rows: int, seed: int = 0
) -> tuple[pd.DataFrame, int]:
    """At most so many rows of a table, in their order, and how many it has.

    They are chosen by their numbers, and keep their labels. No more than these and a block are in
    memory.
    """
    kept, ranks, total = pd.DataFrame(), np.zeros(0, np.uint64), 0
    for block in frames:
        numbers = np.arange(total, total + len(block))
        total += len(block)
        kept = pd.concat([kept, block]) if len(kept) else block
        ranks = np.concatenate([ranks, row_ranks(numbers, seed)])
        if len(kept) > max_rows:
            places = np.sort(np.argpartition(ranks, max_rows)[:max_rows])
            kept, ranks = kept.iloc[places], ranks[places]
    return kept, total


def survey_table(
    path: str | os.PathLike[str],
    targets: Sequence[str],
    drop: Sequence[str] = (),
    split: RowSplit = NO_SPLIT,
    on_rows: Callable[[int], None] = lambda rows: None,
    *,
    noise: Sequence[str] = (),
    weight: str | None = None,
    keep: bool = False,
) -> TableSurvey:
    """Surveys a table in one pass; in two, where the blocks of a CSV file disagree on a type.

    Then the columns in question are read as the text that is there. With `keep`, each file is one
    block, and the survey keeps them.
    """
    text_columns: set[str] = set()
    while True:
        survey = TableSurvey(
            tuple(targets),
            tuple(drop),
            tuple(noise),
            () if weight is None else (weight,),
            split,
            tuple(text_columns),
            [] if keep else None,
        )
        whole: dict[str, Any] = {"rows": None} if keep else {}
        for frame in read_blocks(path, survey.text_columns, **whole):
            survey.add(frame)
            on_rows(len(frame))
        if not survey.num_labelled:
            raise TableError(f"No row of {path} has a value in {', '.join(targets)}.")
        mixed = survey.mixed_columns()
        if is_parquet(TableFile.of(path).path) or mixed <= text_columns:
            return survey
        text_columns |= mixed
