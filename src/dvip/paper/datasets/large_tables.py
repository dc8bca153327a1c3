"""Large tables: flights, taxi trips, and files with the target first."""

from collections.abc import Callable, Generator, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from dvip.paper.datasets.dataset import DataError, Find, Split
from dvip.tables.cells import quoted
from dvip.tables.formats import is_parquet, readable

__all__ = [
    "FLIGHT_INPUTS",
    "FLIGHT_TARGET",
    "TRIP_INPUTS",
    "TRIP_TARGET",
    "last_rows",
    "random_split",
    "read_airline",
    "read_columns",
    "read_flights",
    "read_last_rows_as_test",
    "read_taxi",
    "read_taxi_sample",
    "read_two_files",
]


def last_rows(inputs: np.ndarray, targets: np.ndarray, num_test: int) -> Split:
    """The last rows are the test part. Nothing is copied."""
    train, test = slice(-num_test), slice(-num_test, None)
    return Split(inputs[train], targets[train], inputs[test], targets[test])


def random_split(inputs: np.ndarray, targets: np.ndarray, test_share: float, seed: int) -> Split:
    """A random part is for testing; the same seed gives the same rows in the same order."""
    order = np.random.default_rng(seed).permutation(len(targets))
    num_test = round(test_share * len(targets))
    test, train = order[:num_test], order[num_test:]
    return Split(inputs[train], targets[train], inputs[test], targets[test])


def read_columns(
    path: Path,
    types: Mapping[str, pa.DataType],
    convert: Callable[[pa.RecordBatch], np.ndarray],
    max_rows: int | None = None,
) -> np.ndarray:
    """What `convert` makes of the named columns, block by block; at most the first `max_rows`."""
    blocks: list[np.ndarray] = []
    rows = 0
    with readable(path):
        batches = _parquet_batches(path, types) if is_parquet(path) else _csv_batches(path, types)
        for batch in batches:
            blocks.append(convert(batch))
            rows += len(blocks[-1])
            if max_rows is not None and rows >= max_rows:
                break
        batches.close()
    if not rows:
        raise DataError(f"{path} has no rows.")
    return np.concatenate(blocks)[:max_rows]


def _csv_batches(
    path: Path, types: Mapping[str, pa.DataType]
) -> Generator[pa.RecordBatch, None, None]:
    with pa_csv.open_csv(path) as header:
        _check_names(path, header.schema.names, types)
    options = pa_csv.ConvertOptions(include_columns=list(types), column_types=dict(types))
    with pa_csv.open_csv(path, convert_options=options) as batches:
        yield from batches


def _parquet_batches(
    path: Path, types: Mapping[str, pa.DataType]
) -> Generator[pa.RecordBatch, None, None]:
    with pq.ParquetFile(path) as file:
        _check_names(path, file.schema_arrow.names, types)
        for batch in file.iter_batches(columns=list(types)):
            columns = [batch.column(name).cast(kind) for name, kind in types.items()]
            yield pa.RecordBatch.from_arrays(columns, names=list(types))


def _check_names(path: Path, names: list[str], types: Mapping[str, pa.DataType]) -> None:
    missing = [name for name in types if name not in names]
    if missing:
        raise DataError(f"{path} has no column {quoted(missing)}. It has {quoted(names)}.")


# Bytes of text that are parsed at a time.
BLOCK_SIZE = 8 * 2**20


def read_last_rows_as_test(
    find: Find, split: int, *, path: str, rows: int, num_inputs: int, num_test: int, labels: bool
) -> Split:
    """One file with all rows, which are known to be so many."""
    inputs, targets = _read(find(path), rows, num_inputs)
    return last_rows(inputs, _targets(targets, labels), num_test)


def read_two_files(
    find: Find, split: int, *, train: tuple[str, int], test: tuple[str, int], num_inputs: int
) -> Split:
    """A file for training and one for testing, each with its number of rows; targets are labels."""
    parts: list[np.ndarray] = []
    for path, rows in (train, test):
        inputs, targets = _read(find(path), rows, num_inputs)
        parts += [inputs, _targets(targets, labels=True)]
    return Split(*parts)


def _targets(values: np.ndarray, labels: bool) -> np.ndarray:
    return values.astype(np.int64 if labels else np.float64)


def _read(path: Path, rows: int, num_inputs: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and targets, in single precision.

    The arrays have their final size from the start, and the text is parsed in blocks: reading ten
    million rows needs hardly more memory than they take.
    """
    inputs, targets = np.empty((rows, num_inputs), np.float32), np.empty(rows, np.float32)
    names = [str(column) for column in range(num_inputs + 1)]
    end = 0
    with readable(path):
        blocks = pa_csv.open_csv(
            path,
            read_options=pa_csv.ReadOptions(column_names=names, block_size=BLOCK_SIZE),
            convert_options=pa_csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.float32()), null_values=[]
            ),
        )
        with blocks:
            for block in blocks:
                start, end = end, end + len(block)
                if end > rows:
                    break
                targets[start:end] = block.column(0)
                for column in range(num_inputs):
                    inputs[start:end, column] = block.column(column + 1)
    if end > rows:
        raise DataError(f"{path} has more than the expected {rows:,} rows: it is another file.")
    if end < rows:
        raise DataError(f"{path} has {end:,} of the expected {rows:,} rows: it is not complete.")
    return inputs, targets


# Arrival delays of flights: the paper's Airline set, and New York's departures of 2013.
#
# Both have the same eight inputs. Times of day are written as hhmm (1259, then 1300) and become
# minutes since midnight.

CLOCK_TIMES = ("ArrTime", "DepTime")
FLIGHT_INPUTS = (
    "Month",
    "DayofMonth",
    "DayOfWeek",
    "plane_age",
    "AirTime",
    "Distance",
    *CLOCK_TIMES,
)
FLIGHT_TARGET = "ArrDelay"


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
    return dict.fromkeys([*FLIGHT_INPUTS, FLIGHT_TARGET], pa.float32())


def _numbers(batch: pa.RecordBatch) -> np.ndarray:
    numbers = np.column_stack([np.asarray(column) for column in batch.columns])
    for name in CLOCK_TIMES:
        hours, minutes = np.divmod(numbers[:, FLIGHT_INPUTS.index(name)], 100)
        numbers[:, FLIGHT_INPUTS.index(name)] = 60 * hours + minutes
    return numbers


# Durations of New York's yellow taxi trips in January 2015, and a sample of them.
#
# The paper's nine inputs in its order; trips of less than 10 seconds or more than 5 hours are left
# out.

CALENDAR = ("time_of_day", "day_of_week", "day_of_month", "month")
PLACES = (
    "pickup_latitude",
    "pickup_longitude",
    "dropoff_longitude",
    "dropoff_latitude",
    "trip_distance",
)
TRIP_INPUTS = (*CALENDAR, *PLACES)
TRIP_TARGET = "trip_duration"

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
    types = dict.fromkeys((*TRIP_INPUTS, TRIP_TARGET), pa.float32())
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
