"""Large tables: on small files of exactly their formats; what is damaged is named."""

import gzip

import numpy as np
import pandas as pd
import pytest
from data_files import check_rows, offline, rows_of, write

from dvip.data import DATASETS, DataError, load_split
from dvip.paper.datasets import large_tables

pytestmark = pytest.mark.usefixtures("empty_cache")


def test_year(folder, random):
    table = random.standard_normal((12, 91)).round(5)
    table[:, 0] = random.integers(1922, 2012, 12)
    years = table[:, :1].astype(int).astype(object)
    write(folder / "year/YearPredictionMSD.txt", rows_of(np.hstack([years, table[:, 1:]])))
    split = offline("year", rows=12, num_test=5).load(data=folder)
    check_rows(split, np.roll(table, -1, axis=1), range(7), range(7, 12))
    assert split.inputs.dtype == np.float32
    assert split.targets.dtype == np.float64
    published = DATASETS["year"].read.keywords
    assert published["rows"] - published["num_test"] == 463_715


def physics(random, rows, num_inputs):
    """Rows as in HIGGS and SUSY: the label and the inputs in scientific notation."""
    table = random.standard_normal((rows, num_inputs + 1))
    table[:, 0] = random.integers(0, 2, rows)
    return table, "".join(",".join(f"{value:.18e}" for value in row) + "\n" for row in table)


@pytest.mark.parametrize(("name", "num_inputs"), [("susy", 18), ("higgs", 28)])
@pytest.mark.parametrize("packed", [True, False])
def test_particles(folder, random, name, num_inputs, packed):
    table, text = physics(random, 9, num_inputs)
    file = folder / name / f"{name.upper()}.csv{'.gz' if packed else ''}"
    write(file, gzip.compress(text.encode()) if packed else text)
    split = offline(name, rows=9, num_test=2).load(data=folder)
    check_rows(split, np.roll(table, -1, axis=1), range(7), range(7, 9))
    assert split.targets.dtype == split.test_targets.dtype == np.int64
    assert split.inputs.dtype == np.float32


def test_rows_are_put_together_from_blocks(folder, random, monkeypatch):
    monkeypatch.setattr("dvip.paper.datasets.large_tables.BLOCK_SIZE", 2_000)  # about three rows
    table, text = physics(random, 40, 18)
    write(folder / "susy/SUSY.csv.gz", gzip.compress(text.encode()))
    split = offline("susy", rows=40, num_test=10).load(data=folder)
    check_rows(split, np.roll(table, -1, axis=1), range(30), range(30, 40))


def test_higgs_subset(folder, random):
    train, train_text = physics(random, 6, 28)
    test, test_text = physics(random, 3, 28)
    files = {"higgs/HIGGS_train_10k.csv.gz": train_text, "higgs/HIGGS_test_5k.csv.gz": test_text}
    for path, text in files.items():
        write(folder / path, gzip.compress(text.encode()))
    train_file, test_file = files
    dataset = offline("higgs-subset", train=(train_file, 6), test=(test_file, 3))
    split = dataset.load(data=folder)
    check_rows(split, np.roll(np.vstack([train, test]), -1, axis=1), range(6), range(6, 9))


def damaged_susy(random, kind):
    _, text = physics(random, 9, 18)
    lines = text.splitlines(keepends=True)
    whole = gzip.compress(text.encode())
    return {
        "truncated": whole[: len(whole) // 2],
        "not packed": b"<html>Not here</html>",
        "too few rows": gzip.compress("".join(lines[:5]).encode()),
        "too many rows": gzip.compress((text + lines[0]).encode()),
        "too few columns": gzip.compress(physics(random, 9, 17)[1].encode()),
        "text": gzip.compress(text.replace(lines[4].split(",")[3], "abc").encode()),
        "gap": gzip.compress(text.replace(lines[4].split(",")[3], "").encode()),
        "not a number": gzip.compress(text.replace(lines[4].split(",")[3], "nan").encode()),
    }[kind]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("truncated", "SUSY.csv.gz cannot be read, it may be damaged"),
        ("not packed", "SUSY.csv.gz cannot be read, it may be damaged"),
        ("too few rows", "has 5 of the expected 9 rows: it is not complete"),
        ("too many rows", "has more than the expected 9 rows"),
        ("too few columns", "cannot be read, it may be damaged: .*[Ee]xpected 19 columns, got 18"),
        ("text", "cannot be read, it may be damaged: .*abc"),
        ("gap", "cannot be read, it may be damaged"),
        ("not a number", "The training rows of susy have values that are missing or infinite"),
    ],
)
def test_damaged_large_file(folder, random, kind, message):
    write(folder / "susy/SUSY.csv.gz", damaged_susy(random, kind))
    with pytest.raises(ValueError, match=message) as caught:
        offline("susy", rows=9, num_test=2).load(data=folder)
    assert "\n" not in str(caught.value)


# Flights.


def flight_table(random, rows):
    """Columns in the order of the paper, between others, with clock times as hhmm."""
    columns = {name: random.integers(0, 100, rows) for name in large_tables.FLIGHT_INPUTS}
    for name in ("ArrTime", "DepTime"):
        columns[name] = 100 * random.integers(0, 24, rows) + random.integers(0, 60, rows)
    delays = random.integers(-20, 90, rows)
    frame = pd.DataFrame({"Year": 2008, "ArrDelay": delays, **columns, "Origin": "JFK"})
    expected = frame[[*large_tables.FLIGHT_INPUTS, "ArrDelay"]].astype(float)
    for name in ("ArrTime", "DepTime"):
        expected[name] = [60 * int(f"{t:04d}"[:2]) + int(f"{t:04d}"[2:]) for t in columns[name]]
    return frame, expected.to_numpy()


def test_airline_takes_the_first_rows_and_the_next(folder, random):
    frame, expected = flight_table(random, 12)
    write(folder / "airline/airline.csv", frame.to_csv(index=False))
    split = offline("airline", num_train=7, num_test=3).load(data=folder)
    check_rows(split, expected, range(7), range(7, 10))
    with pytest.raises(DataError, match=r"airline\.csv has 12 of the 800,000 rows needed"):
        load_split("airline", data=folder)
    write(folder / "airline/airline.csv", frame.drop(columns="plane_age").to_csv(index=False))
    with pytest.raises(DataError, match=r"airline\.csv has no column 'plane_age'\. It has 'Year'"):
        load_split("airline", data=folder)
    frame.loc[2, "AirTime"] = np.nan
    write(folder / "airline/airline.csv", frame.to_csv(index=False))
    with pytest.raises(DataError, match="missing or infinite"):
        offline("airline", num_train=7, num_test=3).load(data=folder)


def same_rows(split, table):
    """Whether training and test rows together are the rows of the table."""
    parts = [np.column_stack(part) for part in (split[:2], split[2:])]
    found, expected = np.vstack(parts), table.astype(np.float32)
    return np.array_equal(found[np.lexsort(found.T)], expected[np.lexsort(expected.T)])


def test_flights_are_split_by_seed(folder, random):
    frame, expected = flight_table(random, 40)
    (folder / "flights").mkdir(parents=True)
    frame.to_parquet(folder / "flights/flights.parquet")
    first, again, other = (load_split("flights", seed, folder) for seed in (3, 3, 4))
    assert len(first.test_targets) == len(other.test_targets) == 4
    assert same_rows(first, expected)
    assert same_rows(other, expected)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first.test_inputs, other.test_inputs)


# Taxi.


def trips(random, rows):
    """Trips as in yellow_tripdata_2015-01.csv; some are too short or too long."""
    pickup = pd.Timestamp("2015-01-01") + pd.to_timedelta(random.integers(0, 31 * 86400, rows), "s")
    seconds = np.resize([9, 10, 600, 18_000, 18_001], rows)
    places = {name: random.uniform(-74, 41, rows).round(6) for name in large_tables.PLACES}
    frame = pd.DataFrame(
        {
            "VendorID": 2,
            "tpep_pickup_datetime": pickup,
            "tpep_dropoff_datetime": pickup + pd.to_timedelta(seconds, "s"),
            "passenger_count": 1,
            **places,
            "store_and_fwd_flag": "N",
        }
    )
    midnight = pickup.normalize()
    expected = np.column_stack(
        [
            (pickup - midnight).total_seconds(),
            pickup.day_of_week,
            pickup.day,
            pickup.month,
            *places.values(),
            seconds,
        ]
    )
    return frame, expected[(seconds >= 10) & (seconds <= 18_000)]


TAXI_FILE = "taxi/yellow_tripdata_2015-01.csv"


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "parquet"])
def test_taxi(folder, random, kind):
    frame, expected = trips(random, 50)
    path = folder / TAXI_FILE.replace("csv", kind)
    path.parent.mkdir(parents=True)
    frame.to_parquet(path) if kind == "parquet" else frame.to_csv(path, index=False)
    split = load_split("taxi", 1, folder)
    assert same_rows(split, expected)
    assert len(split.test_targets) == 3
    assert split.inputs.dtype == np.float32


def test_taxi_file_of_today_has_no_coordinates(folder, random):
    frame, _ = trips(random, 5)
    zones = frame.drop(columns=list(large_tables.PLACES[:4])).assign(PULocationID=1, DOLocationID=2)
    write(folder / TAXI_FILE, zones.to_csv(index=False))
    with pytest.raises(DataError, match="has no column 'pickup_latitude', 'pickup_longitude'"):
        load_split("taxi", 0, folder)


def test_taxi_sample(folder, random):
    names = [*large_tables.TRIP_INPUTS, "trip_duration"]
    frame = pd.DataFrame(random.uniform(0, 100, (30, 10)), columns=names)
    (folder / "taxi").mkdir(parents=True)
    frame[names[::-1]].to_parquet(folder / "taxi/yellow_2015-01_sample.parquet")
    assert same_rows(load_split("taxi-sample", 0, folder), frame.to_numpy())
    write(folder / "taxi/yellow_2015-01_sample.parquet", b"PAR1 and then nothing")
    with pytest.raises(ValueError, match=r"sample\.parquet cannot be read, it may be damaged"):
        load_split("taxi-sample", 0, folder)
