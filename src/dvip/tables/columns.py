"""How one column of a table becomes inputs of a model, and how that is decided."""

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from dvip.tables.cells import (
    MAX_COUNTED,
    Numbers,
    TableError,
    TableWarning,
    has_unit,
    holds_dates,
    is_number_type,
    missing_cells,
    parse_numbers,
    parse_texts,
    quoted,
    row_name,
)

__all__ = [
    "NAMELESS",
    "CellSurvey",
    "Column",
    "ColumnSurvey",
    "LeftOut",
    "NumberColumn",
    "Surprises",
    "TextColumn",
    "column_from_json",
    "column_to_json",
    "deciding_value",
    "in_units",
]


@dataclass
class Surprises:
    """What a table has that the training table did not have, gathered over its blocks."""

    gaps: dict[str, int] = field(default_factory=dict)
    categories: dict[str, set[str]] = field(default_factory=dict)

    @contextmanager
    def gathering(self) -> Iterator[None]:
        """Within it, all tables that are encoded tell it their surprises, which no warning does."""
        token = _GATHERING.set(self)
        try:
            yield
        finally:
            _GATHERING.reset(token)

    @classmethod
    @contextmanager
    def told(cls) -> Iterator["Surprises"]:
        """Surprises that are warned of at the end, or that of an outer `gathering`."""
        outer = _GATHERING.get()
        surprises = cls() if outer is None else outer
        yield surprises
        if outer is None:
            for line in surprises.lines():
                warnings.warn(line, TableWarning, stacklevel=2)

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
            f"{name!r} has {count:,} gap{'' if count == 1 else 's'}, the training table had none "
            "there: filled as usual."
            for name, count in self.gaps.items()
        ]
        return new + gaps


_GATHERING: ContextVar[Surprises | None] = ContextVar("gathering", default=None)


@dataclass(frozen=True)
class NumberColumn:
    """Numbers as they are; where there were gaps, a second input says so."""

    name: str
    fill: float | None
    """What stands in for a gap, the median; None where a gap is an error."""
    had_gaps: bool
    unit: str = ""
    """What stands beside every number in the table, such as % or $."""
    kind: ClassVar[str] = "number"

    @property
    def feature_names(self) -> list[str]:
        """Names of the inputs that `encode` gives."""
        return [self.name, f"{self.name} is missing"] if self.had_gaps else [self.name]

    def encode(self, column: pd.Series, surprises: Surprises) -> np.ndarray:
        """Rows x inputs."""
        numbers = parse_numbers(column, self.unit)
        if numbers.unreadable.any():
            position = int(numbers.unreadable.argmax())
            unit = f" with the sign {self.unit}" if self.unit else ""
            raise TableError(
                f"Column {self.name!r} should hold numbers{unit}, but "
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
    """The column that `column_to_json` was given; an error of some kind if it is damaged."""
    values = dict(content)
    kind = values.pop("kind")
    if kind == "text":
        values["categories"] = tuple(values["categories"])
    column: Column = {"number": NumberColumn, "text": TextColumn}[kind](**values)
    texts = [column.name, *(column.categories if isinstance(column, TextColumn) else [column.unit])]
    if not all(isinstance(text, str) for text in texts) or not isinstance(column.had_gaps, bool):
        raise TypeError(content)
    if isinstance(column, NumberColumn) and not np.isfinite(float(column.fill or 0)):
        raise ValueError(content)
    return column


def infinite_cell(name: str, row: str) -> TableError:
    """The error for a number that is infinite."""
    return TableError(f"Column {name!r} is infinite in {row}: correct it, or leave the cell empty.")


# What to do with each column of a training table: a number, categories, or nothing.
#
# A column is surveyed block by block, so that a table of any length is decided on in one pass.

# Distinct texts up to which a column is a set of categories. Each becomes an input; a column with
# more is nearly always a name, an identifier or free text.
MAX_CATEGORIES = 20

# Cells of a text column; what else a file can hold, such as lists, is no category.
TEXT_LIKE = (str, bool, int, float, np.generic)

# Empty headers, as pandas names them, and the row labels that it writes to Parquet.
NAMELESS = re.compile(r"\s*|Unnamed: \d+|__index_level_\d+__")

# A value decides the scale of its column where without it the deviation is less than this share. Of
# fewer rows, none is out of the ordinary.
SHARE_OF_DEVIATION, MIN_ROWS = 1 / 30, 10


def deciding_value(values: np.ndarray, num_rows: int | None = None) -> float | None:
    """The one value that decides a column's scale, such as 1e12 among ages; None as a rule.

    All others would be nearly the same number after the column is divided by its deviation.
    `values` are the column's or a sample of them that has its extremes; then `num_rows` says how
    many there are. Where all others are the same, they were so before.
    """
    if len(values) < MIN_ROWS:
        return None
    middle = np.median(values)
    with np.errstate(over="ignore"):
        far = int(np.abs(values - middle).argmax())
        rest = np.delete(values, far)
        size = np.abs(rest).max() or 1.0  # squares of huge values would be infinite
        deviation = float(np.std(rest / size))
        distance = abs(float(values[far] / size - np.mean(rest / size)))
        whole = distance / np.sqrt(num_rows or len(values))
    decides = 0 < deviation < SHARE_OF_DEVIATION * np.hypot(whole, deviation)
    return float(values[far]) if decides else None


def in_units(units: set[str]) -> str:
    """What a message says of a column in several units."""
    signs = " and ".join(f"with {unit}" if unit else "without a unit" for unit in sorted(units))
    return f"has numbers {signs}"


@dataclass
class CellSurvey:
    """What was seen so far of the cells of a column, block by block."""

    num_rows: int = 0
    is_categorical: bool = False
    only_dates: bool = True
    units: set[str] = field(default_factory=set)
    num_unreadable: int = 0
    # Those that are no numbers with a unit either.
    num_words: int = 0
    first_unreadable: tuple[str, Any] | None = None
    texts: set[str] = field(default_factory=set)
    # Which of the two a block of a file without types was read as.
    read_as: set[str] = field(default_factory=set)

    def _note(self, column: pd.Series, numbers: Numbers) -> None:
        self.read_as.add("numbers" if is_number_type(column) else "text")
        self.units.add(numbers.unit)
        if self.first_unreadable is None and numbers.unreadable.any():
            position = int(numbers.unreadable.argmax())
            self.first_unreadable = (row_name(column, position), column.iloc[position])
        self.num_unreadable += int(numbers.unreadable.sum())
        words = column.to_numpy(dtype=object)[numbers.unreadable]
        self.num_words += sum(not has_unit(cell) for cell in words)

    @property
    def is_mixed(self) -> bool:
        """Whether some blocks were numbers and some text: then texts depend on the blocks."""
        return len(self.read_as) > 1

    @property
    def are_numbers(self) -> bool:
        """Whether all cells are numbers of one unit."""
        return not self.num_unreadable and len(self.units) < 2

    def doubt(self, num_present: int) -> str | None:
        """What keeps a column from being numbers that mostly seems to be; None if it does not."""
        if len(self.units) > 1:
            return in_units(self.units)
        if self.first_unreadable is None or 2 * self.num_words >= num_present:
            return None
        row, cell = self.first_unreadable
        more = self.num_unreadable - 1
        others = f", and {more:,} more such cell{'' if more == 1 else 's'}" if more else ""
        return f"is mostly numbers, but {row} has {cell!r}{others}"

    @property
    def num_texts(self) -> str:
        """How many different texts there are, for a message."""
        over = "over " if len(self.texts) > MAX_COUNTED else ""
        return f"{over}{min(len(self.texts), MAX_COUNTED):,}"


@dataclass
class ColumnSurvey(CellSurvey):
    """What was seen of a column of inputs; some of its cells may be missing."""

    num_missing: int = 0
    # As numbers: the extremes, where they are, and a sample, with the rank of each row in it.
    low: float = np.inf
    high: float = -np.inf
    places: dict[float, str] = field(default_factory=dict)
    sampled: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)
    strange_types: set[str] = field(default_factory=set)

    def add(self, column: pd.Series, ranks: np.ndarray, max_rank: int) -> None:
        """Looks at a block. Rows whose rank is at most `max_rank` are in the sample."""
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
        self._note(column, numbers)
        if not np.isnan(numbers.values).all():
            self._add_extremes(column, numbers.values)
        chosen = (ranks <= max_rank) & ~np.isnan(numbers.values)
        self.sampled.append((ranks[chosen], numbers.values[chosen]))
        self._add_texts(column, missing)

    def _add_extremes(self, column: pd.Series, values: np.ndarray) -> None:
        ends = {int(np.nanargmin(values)), int(np.nanargmax(values))}
        places = {float(values[end]): row_name(column, end) for end in ends}
        self.low, self.high = min(self.low, *places), max(self.high, *places)
        # The first row of each is kept.
        self.places = {
            value: row
            for value, row in {**places, **self.places}.items()
            if value in (self.low, self.high)
        }

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
        """Keeps the values of the sample whose rank is at most `max_rank`."""
        self.sampled = [
            (ranks[ranks <= max_rank], values[ranks <= max_rank]) for ranks, values in self.sampled
        ]

    def choose(self, name: str) -> Column | LeftOut:
        """What to do with the column."""
        if NAMELESS.fullmatch(name):
            return LeftOut(name, "has no name, probably row labels")
        if self.num_missing == self.num_rows:
            return LeftOut(name, "is empty")
        if self.only_dates:
            return LeftOut(name, "holds dates or times")
        if not self.is_categorical and self.are_numbers:
            return self._number_column(name)
        return self._text_column(name)

    def _number_column(self, name: str) -> Column | LeftOut:
        for end in (self.low, self.high):
            if np.isinf(end):
                raise infinite_cell(name, self.places[end])
        had_gaps = self.num_missing > 0
        if self.low == self.high and not had_gaps:
            digits = "the same first 16 digits" if len(self.texts) > 1 else "the same value"
            return LeftOut(name, f"has {digits} in every row")
        present = self._sample()
        # The lower of two middle values: a number that occurs, and no sum that could overflow. In a
        # long column of gaps, none of the few numbers may be in the sample.
        middle = present[(len(present) - 1) // 2] if len(present) else self.low
        (unit,) = self.units
        return NumberColumn(name, float(middle), had_gaps, unit)

    def _sample(self) -> np.ndarray:
        return np.sort(np.concatenate([values for _, values in self.sampled]))

    def warning(self, name: str) -> str | None:
        """What may be a mistake in a column of numbers."""
        sample = self._sample()
        ends = [end for end in (self.low, self.high) if end not in sample[[0, -1][: len(sample)]]]
        value = deciding_value(np.append(sample, ends), self.num_rows - self.num_missing)
        if value is None:
            return None
        return (
            f"{name!r} is {value:g} in {self.places[value]}, so far from all others that they "
            "hardly differ on the scale of the column: correct it, or leave the cell empty."
        )

    def _text_column(self, name: str) -> Column | LeftOut:
        if self.strange_types:
            types = ", ".join(sorted(self.strange_types))
            return LeftOut(name, f"holds values of type {types}")
        num_present = self.num_rows - self.num_missing
        if len(self.texts) == 1 and not self.num_missing:
            return LeftOut(name, "has the same value in every row")
        doubt = None if self.is_categorical else self.doubt(num_present)
        if len(self.texts) > MAX_CATEGORIES:
            if doubt is not None:
                return LeftOut(name, f"{doubt} (correct or empty these cells to use it)")
            reason = f"is text with {self.num_texts} different values, more than {MAX_CATEGORIES}"
            return LeftOut(name, reason)
        if len(self.texts) == num_present > 1:
            return LeftOut(name, doubt or "is text that differs in every row")
        return TextColumn(name, tuple(sorted(self.texts)), self.num_missing > 0)
