"""How one column of a table becomes inputs of a model."""

from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from dvip.tables.errors import TableError, quoted, row_name
from dvip.tables.parsing import missing_cells, parse_numbers, parse_texts

__all__ = [
    "Column",
    "LeftOut",
    "NumberColumn",
    "Surprises",
    "TextColumn",
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
