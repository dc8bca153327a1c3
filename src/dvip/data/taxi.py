"""Durations of New York's yellow taxi trips in January 2015, and a sample of them.

The paper's nine inputs in its order; trips of less than 10 seconds or more than 5 hours are left
out.
"""

import numpy as np
import pyarrow as pa

from dvip.data.dataset import Find, Split
from dvip.data.named_columns import read_columns
from dvip.data.splitting import random_split

__all__ = ["INPUTS", "TARGET", "read_taxi", "read_taxi_sample"]

CALENDAR = ("time_of_day", "day_of_week", "day_of_month", "month")
PLACES = (
    "pickup_latitude",
    "pickup_longitude",
    "dropoff_longitude",
    "dropoff_latitude",
    "trip_distance",
)
INPUTS = (*CALENDAR, *PLACES)
TARGET = "trip_duration"

PICKUP, DROPOFF = "tpep_pickup_datetime", "tpep_dropoff_datetime"
# Seconds.
SHORTEST, LONGEST = 10, 5 * 3600
# The first day of the calendar of NumPy, 1 January 1970; Monday is 0.
FIRST_WEEKDAY = 3


def read_taxi(find: Find, split: int, *, path: str, test_share: float) -> Split:
    """A random split of the month's trips."""
    times = dict.fromkeys((PICKUP, DROPOFF), pa.timestamp("s"))
    types = {**times, **dict.fromkeys(PLACES, pa.float64())}
    return _random_split(read_columns(find(path), types, _trips), test_share, split)


def read_taxi_sample(find: Find, split: int, *, path: str, test_share: float) -> Split:
    """A random split of a table that has inputs and target by name."""
    types = dict.fromkeys((*INPUTS, TARGET), pa.float32())
    table = read_columns(find(path), types, lambda batch: np.column_stack(batch.columns))
    return _random_split(table, test_share, split)


def _random_split(table: np.ndarray, test_share: float, seed: int) -> Split:
    return random_split(table[:, :-1], table[:, -1].astype(np.float64), test_share, seed)


def _trips(batch: pa.RecordBatch) -> np.ndarray:
    """Inputs and duration of the trips of a sensible length, in single precision."""
    pickup, dropoff = (np.asarray(batch.column(name)) for name in (PICKUP, DROPOFF))
    duration = (dropoff - pickup).astype("timedelta64[s]").astype(np.float64)
    kept = (duration >= SHORTEST) & (duration <= LONGEST)
    places = [np.asarray(batch.column(name)) for name in PLACES]
    columns = [*_calendar(pickup), *places, duration]
    return np.column_stack([column[kept].astype(np.float32) for column in columns])


def _calendar(times: np.ndarray) -> tuple[np.ndarray, ...]:
    """Second of the day, day of the week from Monday (0), day of the month, month."""
    seconds, days, months = (times.astype(f"datetime64[{unit}]") for unit in ("s", "D", "M"))
    return (
        (seconds - days).astype(np.int64),
        (days.astype(np.int64) + FIRST_WEEKDAY) % 7,
        (days - months).astype(np.int64) + 1,
        months.astype(np.int64) % 12 + 1,
    )
