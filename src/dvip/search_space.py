"""Spaces to search: boxes of numbers, whole numbers and categories, as a cube and back.

A point of the cube has a number from 0 to 1 for each number of a row, and for each category one
that is 1 where the row is of it and 0 elsewhere.
"""

import math
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

__all__ = ["ROUNDING", "Category", "Dimension", "Integer", "Points", "Real", "Space"]

Points = Float[np.ndarray, "rows width"]

# Values beyond the bounds by roundings are taken for the bounds.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Real:
    """A number between two bounds; with `log`, orders of magnitude count alike."""

    low: float
    high: float
    log: bool = False

    def __post_init__(self) -> None:
        _check_bounds(self.low, self.high)
        if self.log and not self.low > 0:
            raise ValueError(f"bounds ({self.low}, {self.high}) with log=True must be positive.")

    def encoded(self, values: Sequence[Any]) -> Points:
        """As a column of the cube; a ValueError where a value is none of this dimension."""
        given = _as_numbers(values)
        slack = ROUNDING * (self.high - self.low)
        _check_each(given, (given >= self.low - slack) & (given <= self.high + slack), self)
        given, low, high = np.clip(given, self.low, self.high), self.low, self.high
        if self.log:
            given, low, high = np.log(given), math.log(low), math.log(high)
        return ((given - low) / (high - low))[:, None]

    def decoded(self, points: Points) -> np.ndarray:
        """The values of a column of the cube."""
        if self.log:
            low, high = math.log(self.low), math.log(self.high)
            return np.clip(np.exp(low + points[:, 0] * (high - low)), self.low, self.high)
        return np.clip(self.low + points[:, 0] * (self.high - self.low), self.low, self.high)

    def __str__(self) -> str:
        return f"from {self.low:g} to {self.high:g}"


@dataclass(frozen=True)
class Integer:
    """A whole number between two bounds, both of which are possible."""

    low: int
    high: int

    def __post_init__(self) -> None:
        _check_bounds(self.low, self.high)
        if self.low != int(self.low) or self.high != int(self.high):
            raise ValueError(f"bounds ({self.low}, {self.high}) must be whole numbers.")

    def encoded(self, values: Sequence[Any]) -> Points:
        """As a column of the cube; a ValueError where a value is none of this dimension."""
        given = _as_numbers(values)
        possible = (given >= self.low) & (given <= self.high) & (given == np.round(given))
        _check_each(given, possible, self)
        return ((given - self.low) / (self.high - self.low))[:, None]

    def decoded(self, points: Points) -> np.ndarray:
        """The whole numbers nearest to a column of the cube."""
        return np.round(self.low + points[:, 0] * (self.high - self.low)).astype(np.int64)

    def __str__(self) -> str:
        return f"a whole number from {self.low} to {self.high}"


@dataclass(frozen=True)
class Category:
    """One of several values, of which none is between others."""

    values: tuple[Any, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(self.values))
        plain = all(isinstance(value, str | bool | int | float) for value in self.values)
        if len(self.values) < 2 or len(set(self.values)) < len(self.values) or not plain:
            raise ValueError(
                f"categories {self.values!r} must be two or more different texts or numbers."
            )

    def encoded(self, values: Sequence[Any]) -> Points:
        """As columns of the cube; a ValueError where a value is none of this dimension."""
        _check_each(values, [value in self.values for value in values], self)
        places = [self.values.index(value) for value in values]
        return np.eye(len(self.values))[places]

    def decoded(self, points: Points) -> np.ndarray:
        """The categories of the largest columns."""
        return np.array(self.values, dtype=object)[points.argmax(axis=1)]

    def __str__(self) -> str:
        return f"one of {', '.join(map(repr, self.values))}"


Dimension = Real | Integer | Category
KINDS = {"real": Real, "integer": Integer, "category": Category}


class Space:
    """Dimensions with names, whose rows are tables, or without, whose rows are arrays."""

    def __init__(self, given: Any):
        self.named = isinstance(given, Mapping)
        if not (self.named or isinstance(given, Sequence | np.ndarray)) or not len(given):
            raise ValueError(
                "A space is a dictionary such as {'x': (0, 1), 'n': Integer(1, 9), 'kind': ['a', "
                "'b']}, or a list of bounds."
            )
        named = given.items() if self.named else ((f"x{n}", d) for n, d in enumerate(given))
        self.dimensions: dict[str, Dimension] = {
            str(name): _dimension(str(name), each) for name, each in named
        }
        if not self.named and any(isinstance(d, Category) for d in self.dimensions.values()):
            raise ValueError("Categories need names: give the space as a dictionary.")
        widths = [len(d.values) if isinstance(d, Category) else 1 for d in self.dimensions.values()]
        ends = np.cumsum(widths)
        self.places = {
            name: slice(end - width, end)
            for name, end, width in zip(self.dimensions, ends.tolist(), widths, strict=True)
        }
        self.width = int(ends[-1])

    def encoded(self, X: Any) -> Points:
        """Rows as points of the cube; a ValueError, which names the cell, if they are none."""
        columns = self._columns(X)
        points = []
        for name, dimension in self.dimensions.items():
            try:
                points.append(dimension.encoded(columns[name]))
            except ValueError as error:
                where = f"column {name!r}" if self.named else f"column {name[1:]}"
                raise ValueError(f"{where}: {error}") from None
        return np.hstack(points)

    def _columns(self, X: Any) -> dict[str, list[Any]]:
        names = list(self.dimensions)
        if self.named:
            table = X if isinstance(X, pd.DataFrame) else pd.DataFrame(X)
            if sorted(map(str, table.columns)) != sorted(names):
                raise ValueError(
                    f"Rows have the columns {list(map(str, table.columns))}, expected {names}."
                )
            return {name: table[name].tolist() for name in names}
        array = np.asarray(X)
        if array.ndim != 2 or array.shape[1] != len(names):
            raise ValueError(
                f"Rows have the shape {array.shape}, expected (rows, {len(names)}): one column for "
                "each dimension."
            )
        return {name: array[:, index].tolist() for index, name in enumerate(names)}

    def decoded(self, points: Points) -> Any:
        """The rows of points of the cube: a DataFrame, or an array without names."""
        columns = {
            name: dimension.decoded(points[:, self.places[name]])
            for name, dimension in self.dimensions.items()
        }
        if self.named:
            return pd.DataFrame(columns)
        return np.stack([values.astype(float) for values in columns.values()], axis=1)

    def snapped(self, points: Points) -> Points:
        """The nearest points that stand for rows: whole numbers, and one category each."""
        snapped = points.copy()
        for name, dimension in self.dimensions.items():
            if not isinstance(dimension, Real):
                values = dimension.decoded(points[:, self.places[name]])
                snapped[:, self.places[name]] = dimension.encoded(values.tolist())
        return snapped

    def free(self) -> np.ndarray:
        """Which columns of the cube may take any value while a point moves: all numbers."""
        free = np.ones(self.width, dtype=bool)
        for name, dimension in self.dimensions.items():
            free[self.places[name]] = not isinstance(dimension, Category)
        return free

    def neighbours(self, point: Float[np.ndarray, " width"]) -> Points:
        """Points with another category, or with the next whole number; none in a box."""
        found = [np.empty((0, self.width))]
        for name, dimension in self.dimensions.items():
            place = self.places[name]
            if isinstance(dimension, Category):
                others: Any = np.eye(len(dimension.values))
            elif isinstance(dimension, Integer):
                step = 1 / (dimension.high - dimension.low)
                others = np.clip(point[place] + [[step], [-step]], 0, 1)
            else:
                continue
            moved = np.tile(point, (len(others), 1))
            moved[:, place] = others
            found.append(moved)
        return np.concatenate(found)

    def to_json(self) -> dict[str, Any]:
        """As JSON can hold it."""
        kinds = {cls: kind for kind, cls in KINDS.items()}
        entries = [
            {"name": name, "kind": kinds[type(each)], **asdict(each)}
            for name, each in self.dimensions.items()
        ]
        return {"named": self.named, "dimensions": entries}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Space":
        """What `to_json` gave."""
        made = {}
        for entry in content["dimensions"]:
            options = {key: value for key, value in entry.items() if key not in ("name", "kind")}
            made[entry["name"]] = KINDS[entry["kind"]](**options)
        return cls(made if content["named"] else list(made.values()))


def _dimension(name: str, given: Any) -> Dimension:
    """A dimension, or what stands for one: two numbers, or a list of texts."""
    if isinstance(given, Real | Integer | Category):
        return given
    try:
        values = list(given)
        if len(values) == 2 and all(_is_number(value) for value in values):
            return Real(float(values[0]), float(values[1]))
        if not isinstance(given, str) and all(isinstance(value, str) for value in values):
            return Category(tuple(values))
    except (TypeError, ValueError) as error:
        if isinstance(error, ValueError):
            raise ValueError(f"{name}: {error}") from None
    raise ValueError(
        f"{name}: {given!r} is no dimension: give bounds (low, high), a list of texts, or Real, "
        "Integer or Category."
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _check_bounds(low: Any, high: Any) -> None:
    if not (_is_number(low) and _is_number(high) and -math.inf < low < high < math.inf):
        raise ValueError(f"bounds ({low}, {high}) must be two finite numbers, the lower one first.")


def _as_numbers(values: Sequence[Any]) -> np.ndarray:
    try:
        return np.array(values, dtype=float)
    except (TypeError, ValueError):
        raise ValueError("it must hold numbers.") from None


def _check_each(values: Sequence[Any] | np.ndarray, possible: Any, dimension: Dimension) -> None:
    for row, (value, fits) in enumerate(zip(values, possible, strict=True)):
        if not fits:
            shown = repr(value) if isinstance(value, str) else f"{value}"
            raise ValueError(f"{shown} in row {row} is not {dimension}.")
