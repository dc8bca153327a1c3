"""Weighted mean, deviation and range of each column, in one pass over blocks."""

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import IO, Any, ClassVar

import numpy as np
import pandas as pd
from jaxtyping import Float

from dvip.sources.source import Block, Source

__all__ = [
    "ColumnStatistics",
    "LabelTargets",
    "NumberTargets",
    "RowsContent",
    "Targets",
    "write_rows",
]


@dataclass(frozen=True)
class ColumnStatistics:
    """Of some rows; those of two sets of rows make those of both."""

    weight: float
    mean: Float[np.ndarray, " columns"]
    # Weighted sum of squared differences from the mean.
    squares: Float[np.ndarray, " columns"]
    low: Float[np.ndarray, " columns"]
    high: Float[np.ndarray, " columns"]

    @classmethod
    def of(
        cls, values: Float[np.ndarray, "rows columns"], weights: Float[np.ndarray, " rows"]
    ) -> "ColumnStatistics":
        """Of the rows of a block."""
        weight = float(weights.sum())
        # Rows of weight zero do not count, and all of a block may be.
        shares = weights / weight if weight > 0 else weights
        mean = shares @ values
        squares = weights @ np.square(values - mean)
        counted = values if weights.all() else values[weights > 0]
        low = counted.min(axis=0, initial=np.inf)
        return cls(weight, mean, squares, low, counted.max(axis=0, initial=-np.inf))

    def merged(self, other: "ColumnStatistics") -> "ColumnStatistics":
        """Of both sets of rows: the formula of Chan, Golub and LeVeque, which cancels nothing."""
        weight = self.weight + other.weight
        if weight == 0:
            return self
        share = other.weight / weight
        difference = other.mean - self.mean
        return ColumnStatistics(
            weight,
            self.mean + share * difference,
            self.squares + other.squares + self.weight * share * np.square(difference),
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
        )

    @property
    def std(self) -> Float[np.ndarray, " columns"]:
        """The standard deviation; zero of a constant column, exactly."""
        std = np.sqrt(self.squares / self.weight)
        return np.where(self.low == self.high, 0.0, std)


# Distinct labels, beyond which they are no classes but a mistake.
MAX_LABELS = 10_000


@dataclass
class NumberTargets:
    """Targets of a regression, rows x outputs."""

    # From the user's numbers to those that are modelled, such as their logarithms.
    transform: Callable[[np.ndarray], np.ndarray] = lambda numbers: numbers
    # Rows of one kind are not those of another.
    kind: str = "numbers"
    # Raises an error if rows with known errors cannot be used.
    check_errors: Callable[[], None] = lambda: None

    def encode(self, block: Block) -> np.ndarray:
        """The numbers of a block that are modelled; then the known errors, where it has some."""
        numbers = self._numbers(block)
        if block.noise_std is None:
            return numbers
        self.check_errors()
        return np.hstack([numbers, _known_errors(block, numbers.shape)])

    def _numbers(self, block: Block) -> np.ndarray:
        targets = block.targets.reshape(len(block), -1)
        try:
            numbers = targets.astype(np.float64)
        except (TypeError, ValueError):
            for row, values in enumerate(targets):
                _check_number(values, block, row)
            raise
        return self.transform(numbers)

    def finish(self) -> np.ndarray | None:
        """Nothing to translate."""
        return None


@dataclass
class LabelTargets:
    """Labels of a classification: each is the number of labels that appeared before it."""

    kind: ClassVar[str] = "labels"
    codes: dict[Any, int] = field(default_factory=dict)

    def encode(self, block: Block) -> np.ndarray:
        """The codes of a block, rows x 1."""
        labels = block.targets.reshape(-1)
        if block.noise_std is not None:
            raise ValueError("Labels have no error: make the source without noise_std.")
        if len(labels) != len(block):
            raise ValueError(f"Labels have the shape {block.targets.shape}, expected one a row.")
        if labels.dtype.kind in "mM":
            raise ValueError("Labels of a stream cannot be times: write them as text.")
        try:
            distinct, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
        except TypeError:
            raise ValueError(
                f"Labels before {block.row_name(len(block) - 1)} are of types that do not compare, "
                "such as numbers and text, or missing."
            ) from None
        for label, position in zip(distinct.tolist(), first, strict=True):
            if label not in self.codes:
                self._check(label, block.row_name(int(position)))
                self.codes[label] = len(self.codes)
        codes = np.array([self.codes[label] for label in distinct.tolist()], dtype=np.float64)
        return codes[inverse.reshape(-1)][:, None]

    def _check(self, label: Any, row: str) -> None:
        known = next(iter(self.codes), label)
        if isinstance(label, float) and label != np.round(label):
            raise ValueError(
                f"Unknown label type: {row} has {label}, which is no label. Use a regressor for "
                "numbers, or fill what is missing."
            )
        if isinstance(label, str) != isinstance(known, str):
            raise ValueError(f"Labels are of several types: {row} has {label!r} after {known!r}.")
        if len(self.codes) == MAX_LABELS:
            raise ValueError(f"There are more than {MAX_LABELS:,} different labels.")

    def finish(self) -> np.ndarray | None:
        """The labels, in the order of their codes."""
        return np.array(list(self.codes))


Targets = NumberTargets | LabelTargets


def _known_errors(block: Block, shape: tuple[int, ...]) -> np.ndarray:
    """One for each number of the targets, rows x outputs."""
    given = np.asarray(block.noise_std)
    if given.shape not in ((shape[0],), shape):
        raise ValueError(
            f"noise_std has the shape {given.shape} for targets of the shape {shape}: give one for "
            "each row, or for each target."
        )
    errors = np.full(given.shape, np.nan)  # what is no number stays so
    if given.dtype.kind in "iufO":
        numbers = pd.to_numeric(given.reshape(-1), errors="coerce")
        errors = numbers.astype(np.float64).reshape(given.shape)
    bad = ~(np.isfinite(errors) & (errors > 0))
    if bad.any():
        row = int(np.argwhere(bad)[0][0])
        raise ValueError(
            f"The known error of {block.row_name(row)} is {given[row]}: errors are positive "
            "numbers."
        )
    return np.broadcast_to(errors.reshape(len(errors), -1), shape)


def _check_number(values: np.ndarray, block: Block, row: int) -> None:
    try:
        values.astype(np.float64)
    except (TypeError, ValueError):
        shown = ", ".join(repr(value) for value in values.tolist())
        raise ValueError(f"The target of {block.row_name(row)} is no number: {shown}.") from None


# One pass over a source: its rows as records of a file, and the statistics of its columns.
#
# A record is a row's inputs, targets and weight in the precision of the model. Values are stored
# in units of the first block, (value - shift) / unit: they keep their digits in single precision
# whatever their scale, and once the statistics of all rows are known, scaled values are one
# product and one sum away. (The first block's mean is within √(rows / rows of the block) standard
# deviations of that of all rows, so that little cancels.)


@dataclass(frozen=True)
class RowsContent:
    """What a file of records holds."""

    num_rows: int
    num_inputs: int
    num_outputs: int
    # Of the targets of a row: () is one number or label.
    target_shape: tuple[int, ...]
    dtype: str
    # (value - shift) / unit is stored of inputs and targets; their statistics are in these units.
    shift: np.ndarray
    unit: np.ndarray
    statistics: ColumnStatistics
    max_weight: float
    labels: np.ndarray | None
    checksum: int

    @property
    def num_columns(self) -> int:
        """How many numbers a record has."""
        return self.num_inputs + self.num_outputs + 1

    @property
    def row_bytes(self) -> int:
        """How many bytes a record has."""
        return self.num_columns * np.dtype(self.dtype).itemsize

    @property
    def mean(self) -> np.ndarray:
        """Of inputs and targets, in the units of the source."""
        return self.shift + self.unit * self.statistics.mean

    @property
    def std(self) -> np.ndarray:
        """Of inputs and targets, in the units of the source."""
        return self.unit * self.statistics.std

    @property
    def range(self) -> np.ndarray:
        """The smallest and the largest values of inputs and targets, in the units of the source."""
        ends = np.stack([self.statistics.low, self.statistics.high])
        return self.shift + self.unit * ends

    @property
    def largest(self) -> np.ndarray:
        """The largest magnitude of inputs and targets, in the units of the source."""
        return np.abs(self.range).max(axis=0)


def write_rows(
    source: Source,
    targets: Targets,
    dtype: str,
    file: IO[bytes],
    on_rows: Callable[[int], None] = lambda rows: None,
) -> RowsContent:
    """Writes the records of all rows."""
    statistics: ColumnStatistics | None = None
    shift = unit = np.zeros(0)
    num_rows = num_inputs = checksum = 0
    target_shape: tuple[int, ...] = ()
    max_weight = 0.0
    for block in source.blocks():
        if not len(block):
            continue
        values = _values(source, targets, block)
        weights = _weights(block)
        if statistics is None:
            num_inputs, target_shape = block.inputs.shape[1], block.targets.shape[1:]
            # Labels, which are counted, have no shift; nor have errors, whose signs must stay.
            unshifted = num_inputs
            if targets.kind != "labels":
                unshifted += math.prod(target_shape)
            shift, unit = _units(values, unshifted, counted=targets.kind == "labels")
        elif values.shape[1] != len(shift):
            raise ValueError(
                f"{block.row_name(0)} has {values.shape[1]} inputs and targets, rows before it "
                f"have {len(shift)}."
            )
        values = (values - shift) / unit
        if np.abs(values).max() > np.finfo(dtype).max:
            column = int(np.abs(values).max(axis=0).argmax())
            raise ValueError(
                f"{_column_name(source, column, num_inputs)} has values of sizes too different for "
                f"{dtype}, in the rows before {block.row_name(len(block) - 1)}: rescale it."
            )
        of_block = ColumnStatistics.of(values, weights)
        statistics = of_block if statistics is None else statistics.merged(of_block)
        records = np.ascontiguousarray(np.column_stack([values, weights]), dtype)
        checksum = zlib.crc32(records.data, checksum)
        file.write(records.data)
        num_rows += len(block)
        max_weight = max(max_weight, float(weights.max()))
        on_rows(len(block))
    if statistics is None or statistics.weight == 0:
        raise ValueError("The source has no rows" + (" with a weight." if num_rows else "."))
    num_outputs = len(shift) - num_inputs
    return RowsContent(
        num_rows,
        num_inputs,
        num_outputs,
        target_shape,
        dtype,
        shift,
        unit,
        statistics,
        max_weight,
        targets.finish(),
        checksum,
    )


def _values(source: Source, targets: Targets, block: Block) -> np.ndarray:
    """Inputs and targets of a block side by side, all of them finite."""
    values = np.hstack([block.inputs, targets.encode(block)])
    finite = np.isfinite(values)
    if not finite.all():
        row = int(finite.all(axis=1).argmin())
        column = int(finite[row].argmin())
        raise ValueError(
            f"{_column_name(source, column, block.inputs.shape[1])} is {values[row, column]} in "
            f"{block.row_name(row)}: correct, fill or remove it."
        )
    return values


def _weights(block: Block) -> np.ndarray:
    if block.weights is None:
        return np.ones(len(block))
    bad = ~(np.isfinite(block.weights) & (block.weights >= 0))
    if bad.any():
        row = int(bad.argmax())
        raise ValueError(
            f"The weight of {block.row_name(row)} is {block.weights[row]}: weights are numbers of "
            "at least 0."
        )
    return np.asarray(block.weights, dtype=np.float64)


def _units(values: np.ndarray, unshifted: int, *, counted: bool) -> tuple[np.ndarray, np.ndarray]:
    """Shift and unit from the first block; columns from `unshifted` on have no shift."""
    # Dividing by the largest magnitude first keeps the squares of huge values finite.
    largest = np.abs(values).max(axis=0)
    largest[largest == 0] = 1.0
    reduced = values / largest
    shift, unit = reduced.mean(axis=0) * largest, reduced.std(axis=0) * largest
    constant = (unit <= 1e-14 * largest) | (unit < np.finfo(float).tiny)
    unit = np.where(constant, largest, unit)
    shift[unshifted:], unit[unshifted:] = 0.0, 1.0 if counted else largest[unshifted:]
    return shift, unit


def _column_name(source: Source, column: int, num_inputs: int) -> str:
    if column >= num_inputs:
        return "The target"
    names: Any = source.feature_names
    return f"Input {column + 1}" if names is None else f"Column {names[column]!r}"
