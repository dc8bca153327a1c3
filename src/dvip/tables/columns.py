"""How one column of a table becomes inputs of a model, and how that is decided."""

import re
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from dvip.tables.cells import (
    Numbers,
    TableError,
    holds_dates,
    is_number_type,
    missing_cells,
    parse_numbers,
    parse_texts,
    quoted,
    row_name,
)

__all__ = [
    "Column",
    "ColumnSurvey",
    "LeftOut",
    "NumberColumn",
    "Surprises",
    "TextColumn",
    "choose_column",
    "column_from_json",
    "column_to_json",
]


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
                f"Column {self.name!r} should hold numbers, but "
                f"{row_name(column, position)} has {column.iloc[position]!r}."
            )
        values = numbers.values
        infinite = np.isinf(values)
        if infinite.any():
            raise infinite_cell(self.name, row_name(column, int(infinite.argmax())))
        gaps = np.isnan(values)
        if self.fill is None and gaps.any():
            raise TableError(
                f"Column {self.name!r} has a gap in "
                f"{row_name(column, int(gaps.argmax()))}, and the model does not say how "
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


def infinite_cell(name: str, row: str) -> TableError:
    """The error for a number that is infinite."""
    return TableError(f"Column {name!r} is infinite in {row}: correct it, or leave the cell empty.")


# What to do with each column of a training table: a number, categories, or nothing.
#
# A column is surveyed block by block, so that a table of any length is decided on in one pass.

# Distinct texts up to which a column is a set of categories. Each becomes an input; a column with
# more is nearly always a name, an identifier or free text.
MAX_CATEGORIES = 20
# Distinct texts that are counted.
MAX_COUNTED = 10_000
# A text column with at least this share of numbers is probably meant to be one.
MOSTLY = 0.8

# Cells of a text column; what else a file can hold, such as lists, is no category.
TEXT_LIKE = (str, bool, int, float, np.generic)

# Empty headers, as pandas names them, and the row labels that it writes to Parquet.
NAMELESS = re.compile(r"\s*|Unnamed: \d+|__index_level_\d+__")


@dataclass
class ColumnSurvey:
    """What was seen of a column so far."""

    name: str
    num_rows: int = 0
    num_missing: int = 0
    only_dates: bool = True
    is_categorical: bool = False
    # As numbers.
    low: float = np.inf
    high: float = -np.inf
    first_infinite: str | None = None
    num_unreadable: int = 0
    first_unreadable: tuple[str, Any] | None = None
    # Values, with the rank that their row has in the sample for the median.
    sampled: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)
    # As text.
    texts: set[str] = field(default_factory=set)
    strange_types: set[str] = field(default_factory=set)
    # Which of the two a block of a file without types was read as.
    read_as: set[str] = field(default_factory=set)

    def add(self, column: pd.Series, ranks: np.ndarray, max_rank: int) -> None:
        """Looks at a block. Rows whose rank is at most `max_rank` are in the median's sample."""
        missing = missing_cells(column)
        self.num_rows += len(column)
        self.num_missing += int(missing.sum())
        self.is_categorical |= isinstance(column.dtype, pd.CategoricalDtype)
        if missing.all():
            return
        self.only_dates = self.only_dates and holds_dates(column)
        if self.only_dates:
            return
        numbers = parse_numbers(column)
        self._add_numbers(column, numbers)
        chosen = (ranks <= max_rank) & ~np.isnan(numbers.values)
        self.sampled.append((ranks[chosen], numbers.values[chosen]))
        self.read_as.add("numbers" if is_number_type(column) else "text")
        self._add_texts(column, missing)

    def _add_numbers(self, column: pd.Series, numbers: Numbers) -> None:
        self.low = float(np.fmin(self.low, np.fmin.reduce(numbers.values)))
        self.high = float(np.fmax(self.high, np.fmax.reduce(numbers.values)))
        infinite = np.isinf(numbers.values)
        if self.first_infinite is None and infinite.any():
            self.first_infinite = row_name(column, int(infinite.argmax()))
        if self.first_unreadable is None and numbers.unreadable.any():
            position = int(numbers.unreadable.argmax())
            self.first_unreadable = (row_name(column, position), column.iloc[position])
        self.num_unreadable += int(numbers.unreadable.sum())

    def _add_texts(self, column: pd.Series, missing: np.ndarray) -> None:
        """Texts of all cells; of a column of numbers, until there are too many for categories."""
        if is_number_type(column):
            if len(self.texts) > MAX_CATEGORIES:
                return
            column = column[~missing].drop_duplicates()[: MAX_CATEGORIES + 1]
            self.texts.update(parse_texts(column))
            return
        cells = column.to_numpy(dtype=object)[~missing]
        self.strange_types |= {
            type(cell).__name__ for cell in cells if not isinstance(cell, TEXT_LIKE)
        }
        if len(self.texts) < MAX_COUNTED:
            self.texts.update(parse_texts(column)[~missing])

    def thin(self, max_rank: int) -> None:
        """Keeps the values of the median's sample whose rank is at most `max_rank`."""
        self.sampled = [
            (ranks[ranks <= max_rank], values[ranks <= max_rank]) for ranks, values in self.sampled
        ]

    @property
    def is_mixed(self) -> bool:
        """Whether some blocks were numbers and some text: then texts depend on the blocks."""
        return len(self.read_as) > 1

    def choose(self) -> Column | LeftOut:
        """What to do with the column."""
        if NAMELESS.fullmatch(self.name):
            return LeftOut(self.name, "has no name, probably row labels")
        if self.num_missing == self.num_rows:
            return LeftOut(self.name, "is empty")
        if self.only_dates:
            return LeftOut(self.name, "holds dates or times")
        if not self.is_categorical and not self.num_unreadable:
            return self._number_column()
        return self._text_column()

    def _number_column(self) -> Column | LeftOut:
        if self.first_infinite is not None:
            raise infinite_cell(self.name, self.first_infinite)
        had_gaps = self.num_missing > 0
        if self.low == self.high and not had_gaps:
            return LeftOut(self.name, "has the same value in every row")
        present = np.sort(np.concatenate([values for _, values in self.sampled]))
        # The lower of two middle values: a number that occurs, and no sum that could overflow. In a
        # long column of gaps, none of the few numbers may be in the sample.
        middle = present[(len(present) - 1) // 2] if len(present) else self.low
        return NumberColumn(self.name, float(middle), had_gaps)

    def _text_column(self) -> Column | LeftOut:
        if self.strange_types:
            types = ", ".join(sorted(self.strange_types))
            return LeftOut(self.name, f"holds values of type {types}")
        num_texts = self.num_rows - self.num_missing
        if len(self.texts) == 1 and not self.num_missing:
            return LeftOut(self.name, "has the same value in every row")
        if len(self.texts) > MAX_CATEGORIES:
            return LeftOut(self.name, self._too_many())
        if len(self.texts) == num_texts > 1:
            return LeftOut(self.name, "is text that differs in every row")
        return TextColumn(self.name, tuple(sorted(self.texts)), self.num_missing > 0)

    def _too_many(self) -> str:
        if self.first_unreadable and self.num_unreadable < (1 - MOSTLY) * self.num_rows:
            row, cell = self.first_unreadable
            return f"is mostly numbers, but {row} has {cell!r}"
        over = "over " if len(self.texts) > MAX_COUNTED else ""
        count = f"{over}{min(len(self.texts), MAX_COUNTED):,}"
        return f"is text with {count} different values, more than {MAX_CATEGORIES}"


def choose_column(name: str, column: pd.Series) -> Column | LeftOut:
    """What to do with a column of a training table that is there as a whole."""
    survey = ColumnSurvey(name)
    survey.add(column, np.zeros(len(column), np.uint64), 0)
    return survey.choose()
