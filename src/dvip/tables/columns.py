"""How one column of a table becomes inputs of a model, or why it does not."""

import re
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from dvip.tables.errors import TableError, quoted, row_number
from dvip.tables.parsing import holds_dates, missing_cells, parse_numbers, parse_texts

__all__ = ["Column", "LeftOut", "NumberColumn", "Surprises", "TextColumn", "choose_column"]

# Distinct texts up to which a column is a set of categories. Each becomes an input; a column with
# more is nearly always a name, an identifier or free text.
MAX_CATEGORIES = 20
# A text column with at least this share of numbers is probably meant to be one.
MOSTLY = 0.8

# Cells of a text column; what else a file can hold, such as lists, is no category.
TEXT_LIKE = (str, bool, int, float, np.generic)

# Empty headers, as pandas names them, and the row labels that it writes to Parquet.
NAMELESS = re.compile(r"\s*|Unnamed: \d+|__index_level_\d+__")


@dataclass
class Surprises:
    """What a table has that the training table did not have, gathered over its blocks."""

    gaps: dict[str, int] = field(default_factory=dict)
    categories: dict[str, set[str]] = field(default_factory=dict)

    def add_gaps(self, name: str, count: int) -> None:
        """Counts gaps in a column that had none."""
        if count:
            self.gaps[name] = self.gaps.get(name, 0) + count

    def add_categories(self, name: str, texts: set[str]) -> None:
        """Notes categories that the model does not know."""
        if texts:
            self.categories.setdefault(name, set()).update(texts)

    def lines(self) -> list[str]:
        """One line for each column that surprised."""
        new = [
            f"{name!r} has categories that the model has not seen, treated as none of the known: "
            f"{quoted(sorted(texts))}."
            for name, texts in self.categories.items()
        ]
        gaps = [
            f"{name!r} has {count:,} gaps, the training table had none there: filled as usual."
            for name, count in self.gaps.items()
        ]
        return new + gaps


@dataclass(frozen=True)
class NumberColumn:
    """Numbers as they are; where there were gaps, a second input says so."""

    name: str
    fill: float | None
    """What stands in for a gap, the median; None where a gap is an error."""
    had_gaps: bool
    kind: ClassVar[str] = "number"

    @property
    def feature_names(self) -> list[str]:
        """Names of the inputs that `encode` gives."""
        return [self.name, f"{self.name} is missing"] if self.had_gaps else [self.name]

    def encode(self, column: pd.Series, surprises: Surprises) -> np.ndarray:
        """Rows x inputs."""
        numbers = parse_numbers(column)
        if numbers.unreadable.any():
            position = int(numbers.unreadable.argmax())
            raise TableError(
                f"Column {self.name!r} should hold numbers, but row "
                f"{row_number(column, position)} has {column.iloc[position]!r}."
            )
        values = numbers.values
        _check_finite(self.name, column, values)
        gaps = np.isnan(values)
        if self.fill is None and gaps.any():
            raise TableError(
                f"Column {self.name!r} has a gap in row "
                f"{row_number(column, int(gaps.argmax()))}, and the model does not say how "
                "to fill it: fill it, or remove the row."
            )
        if not self.had_gaps:
            surprises.add_gaps(self.name, int(gaps.sum()))
        filled = values if self.fill is None else np.where(gaps, self.fill, values)
        return np.column_stack([filled, gaps] if self.had_gaps else [filled]).astype(np.float64)


@dataclass(frozen=True)
class TextColumn:
    """An input for each category, and one for gaps where there were any."""

    name: str
    categories: tuple[str, ...]
    had_gaps: bool
    kind: ClassVar[str] = "text"

    @property
    def feature_names(self) -> list[str]:
        """Names of the inputs that `encode` gives."""
        names = [f"{self.name} = {category}" for category in self.categories]
        return [*names, f"{self.name} is missing"] if self.had_gaps else names

    def encode(self, column: pd.Series, surprises: Surprises) -> np.ndarray:
        """Rows x inputs."""
        texts = parse_texts(column)
        gaps = missing_cells(column)
        surprises.add_categories(self.name, set(texts[~gaps]) - set(self.categories))
        if not self.had_gaps:
            surprises.add_gaps(self.name, int(gaps.sum()))
        indicators = [texts == category for category in self.categories]
        return np.column_stack([*indicators, gaps] if self.had_gaps else indicators).astype(float)


@dataclass(frozen=True)
class LeftOut:
    """A column that a model does not use."""

    name: str
    reason: str


Column = NumberColumn | TextColumn


def column_to_json(column: Column) -> dict[str, Any]:
    """The column as what JSON can hold."""
    return {"kind": column.kind, **asdict(column)}


def column_from_json(content: dict[str, Any]) -> Column:
    """The column that `column_to_json` was given."""
    values = dict(content)
    match values.pop("kind"):
        case "number":
            return NumberColumn(**values)
        case "text":
            values["categories"] = tuple(values["categories"])
            return TextColumn(**values)
        case kind:
            raise TableError(f"A column is of the unknown kind {kind!r}.")


def choose_column(name: str, column: pd.Series) -> Column | LeftOut:
    """What to do with a column of a training table."""
    missing = missing_cells(column)
    if NAMELESS.fullmatch(name):
        return LeftOut(name, "has no name, probably row labels")
    if missing.all():
        return LeftOut(name, "is empty")
    if holds_dates(column):
        return LeftOut(name, "holds dates or times")
    if not isinstance(column.dtype, pd.CategoricalDtype):
        numbers = parse_numbers(column)
        if not numbers.unreadable.any():
            return _number_column(name, column, numbers.values)
    return _text_column(name, column, missing)


def _number_column(name: str, column: pd.Series, values: np.ndarray) -> Column | LeftOut:
    _check_finite(name, column, values)
    present = np.sort(values[~np.isnan(values)])
    had_gaps = len(present) < len(values)
    if present[0] == present[-1] and not had_gaps:
        return LeftOut(name, "has the same value in every row")
    # The lower of two middle values: a number that occurs, and no sum that could overflow.
    return NumberColumn(name, float(present[(len(present) - 1) // 2]), had_gaps)


def _text_column(name: str, column: pd.Series, missing: np.ndarray) -> Column | LeftOut:
    cells = column.to_numpy(dtype=object)[~missing]
    strange = {type(cell).__name__ for cell in cells if not isinstance(cell, TEXT_LIKE)}
    if strange:
        return LeftOut(name, f"holds values of type {', '.join(sorted(strange))}")
    texts = parse_texts(column)[~missing]
    categories = sorted(set(texts))
    if len(categories) == 1 and not missing.any():
        return LeftOut(name, "has the same value in every row")
    if len(categories) > MAX_CATEGORIES:
        return LeftOut(name, _too_many(column, len(categories)))
    if len(categories) == len(texts) > 1:
        return LeftOut(name, "is text that differs in every row")
    return TextColumn(name, tuple(categories), bool(missing.any()))


def _too_many(column: pd.Series, count: int) -> str:
    unreadable = parse_numbers(column).unreadable
    if unreadable.mean() < 1 - MOSTLY:
        position = int(unreadable.argmax())
        row = row_number(column, position)
        return f"is mostly numbers, but row {row} has {column.iloc[position]!r}"
    return f"is text with {count:,} different values, more than {MAX_CATEGORIES}"


def _check_finite(name: str, column: pd.Series, values: np.ndarray) -> None:
    infinite = np.isinf(values)
    if infinite.any():
        row = row_number(column, int(infinite.argmax()))
        raise TableError(
            f"Column {name!r} is infinite in row {row}: correct it, or leave the cell empty."
        )
