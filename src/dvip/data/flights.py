"""Arrival delays of flights: the paper's Airline set, and New York's departures of 2013.

Both have the same eight inputs. Times of day are written as hhmm (1259, then 1300) and become
minutes since midnight.
"""

import numpy as np
import pyarrow as pa

from dvip.data.dataset import Find, Split
from dvip.data.errors import DataError
from dvip.data.named_columns import read_columns
from dvip.data.splitting import last_rows, random_split

__all__ = ["INPUTS", "TARGET", "read_airline", "read_flights"]

CLOCK_TIMES = ("ArrTime", "DepTime")
INPUTS = ("Month", "DayofMonth", "DayOfWeek", "plane_age", "AirTime", "Distance", *CLOCK_TIMES)
TARGET = "ArrDelay"


def read_airline(find: Find, split: int, *, path: str, num_train: int, num_test: int) -> Split:
    """The first rows train, the next ones test."""
    place = find(path)
    rows = num_train + num_test
    table = read_columns(place, _types(), _numbers, max_rows=rows)
    if len(table) < rows:
        raise DataError(f"{place} has {len(table):,} of the {rows:,} rows needed.")
    return last_rows(table[:, :-1], table[:, -1].astype(np.float64), num_test)


def read_flights(find: Find, split: int, *, path: str, test_share: float) -> Split:
    """A random split."""
    table = read_columns(find(path), _types(), _numbers)
    return random_split(table[:, :-1], table[:, -1].astype(np.float64), test_share, seed=split)


def _types() -> dict[str, pa.DataType]:
    return dict.fromkeys([*INPUTS, TARGET], pa.float32())


def _numbers(batch: pa.RecordBatch) -> np.ndarray:
    numbers = np.column_stack([np.asarray(column) for column in batch.columns])
    for name in CLOCK_TIMES:
        hours, minutes = np.divmod(numbers[:, INPUTS.index(name)], 100)
        numbers[:, INPUTS.index(name)] = 60 * hours + minutes
    return numbers
