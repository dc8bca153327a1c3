"""One pass over a source: its rows as records of a file, and the statistics of its columns.

A record is a row's inputs, targets and weight in the precision of the model. Values are stored in
units of the first block, (value - shift) / unit: they keep their digits in single precision
whatever their scale, and once the statistics of all rows are known, scaled values are one product
and one sum away. (The first block's mean is within √(rows / rows of the block) standard deviations
of that of all rows, so that little cancels.)
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from dvip.sources.source import Block, Source
from dvip.sources.statistics import ColumnStatistics
from dvip.sources.targets import Targets

__all__ = ["RowsContent", "write_rows"]


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
    def largest(self) -> np.ndarray:
        """The largest magnitude of inputs and targets, in the units of the source."""
        ends = (self.statistics.low, self.statistics.high)
        return np.maximum(*(np.abs(self.shift + self.unit * end) for end in ends))


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
            shift, unit = _units(values, num_inputs if targets.kind == "labels" else None)
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


def _units(values: np.ndarray, labels_from: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Shift and unit from the first block; labels, which are counted, have none."""
    # Dividing by the largest magnitude first keeps the squares of huge values finite.
    largest = np.abs(values).max(axis=0)
    largest[largest == 0] = 1.0
    reduced = values / largest
    shift, unit = reduced.mean(axis=0) * largest, reduced.std(axis=0) * largest
    constant = (unit <= 1e-14 * largest) | (unit < np.finfo(float).tiny)
    unit = np.where(constant, largest, unit)
    if labels_from is not None:
        shift[labels_from:], unit[labels_from:] = 0.0, 1.0
    return shift, unit


def _column_name(source: Source, column: int, num_inputs: int) -> str:
    if column >= num_inputs:
        return "The target"
    names: Any = source.feature_names
    return f"Input {column + 1}" if names is None else f"Column {names[column]!r}"
