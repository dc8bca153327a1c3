"""Datasets by name: every public format, on small files of exactly that format; the errors."""

import gzip
import json
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from dvip.cli import app
from dvip.data import DATASETS, Address, DataError, MissingDataError, data_folders, load_split
from dvip.paper.datasets import images as generated
from dvip.paper.datasets import large_tables

NOBODY_LISTENS = "http://127.0.0.1:9"

pytestmark = pytest.mark.usefixtures("empty_cache")


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "data"


@pytest.fixture
def random():
    return np.random.default_rng(0)


def offline(name, **options):
    """A dataset whose addresses do not answer, with other options of its reader: small files."""
    dataset = DATASETS[name]
    parts = tuple(
        replace(part, addresses=tuple(Address(NOBODY_LISTENS) for _ in part.addresses))
        for part in dataset.parts
    )
    return replace(dataset, parts=parts, read=partial(dataset.read, **options))


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def rows_of(table, separator=","):
    return "".join(separator.join(str(value) for value in row) + "\n" for row in table)


def check_rows(split, table, train, test):
    """The split has just these rows of a table whose last column is the target."""
    np.testing.assert_allclose(split.inputs, table[train, :-1], rtol=1e-6)
    np.testing.assert_allclose(split.targets, table[train, -1], rtol=1e-6)
    np.testing.assert_allclose(split.test_inputs, table[test, :-1], rtol=1e-6)
    np.testing.assert_allclose(split.test_targets, table[test, -1], rtol=1e-6)


# UCI sets with published splits.

UCI_SPLITS = {0: ([5, 0, 3, 1], [4, 2]), 1: ([0, 1, 2, 3, 4], [5])}


@pytest.fixture
def energy(folder, random):
    """A table of energy's shape with a second target, which is not to be used."""
    table = random.standard_normal((6, 10)).round(4)
    place = folder / "uci/energy/data"
    write(place / "data.txt", rows_of(table, "\t"))
    write(place / "index_features.txt", rows_of([[k] for k in range(8)]))
    write(place / "index_target.txt", "8\n")
    for number, (train, test) in UCI_SPLITS.items():
        write(place / f"index_train_{number}.txt", rows_of([[k] for k in train]))
        write(place / f"index_test_{number}.txt", "".join(f"{k:.6e}\n" for k in test))
    return place, table[:, :9]


@pytest.mark.parametrize("number", UCI_SPLITS)
def test_published_splits(energy, folder, number):
    train, test = UCI_SPLITS[number]
    check_rows(load_split("energy", number, folder), energy[1], train, test)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("data.txt", "1 2 3\n4 5\n", "data.txt cannot be read, it may be damaged"),
        ("data.txt", "1 2 x\n", "data.txt cannot be read, it may be damaged"),
        ("data.txt", "", "data.txt is empty"),
        ("data.txt", rows_of(np.ones((3, 10)), " "), "row 5, but data.txt beside it has 3 rows"),
        ("index_features.txt", rows_of([[k] for k in range(7)]), "have 7 columns, expected are 8"),
        ("index_features.txt", "0\n11\n", "names column 11, but data.txt beside it has 10 columns"),
        ("index_target.txt", "8\n9\n", "names 2 columns, expected is 1"),
        ("index_train_0.txt", "0\n1\n2\n", "Training and test rows overlap in split 0"),
        ("index_train_0.txt", "0.5\n", "must hold one whole number a line"),
        ("index_train_0.txt", "-1\n", "names row -1"),
    ],
)
def test_damaged_uci_files(energy, folder, file, content, message):
    write(energy[0] / file, content)
    with pytest.raises(DataError if "damaged" not in message else ValueError, match=message):
        load_split("energy", 0, folder)


def test_missing_index_file(energy, folder):
    (energy[0] / "index_test_0.txt").unlink()
    with pytest.raises(
        MissingDataError, match=r"energy: uci/energy/data/index_test_0\.txt is not in"
    ):
        offline("energy").load(0, folder)


@pytest.mark.parametrize(("name", "number"), [("energy", 20), ("protein", 5), ("mnist", -1)])
def test_split_out_of_range(name, number):
    with pytest.raises(DataError, match=f"{name} has no split {number}"):
        load_split(name, number)


def test_unknown_dataset():
    with pytest.raises(DataError, match="no dataset 'enery': known are boston, energy"):
        load_split("enery")


# CO2.

MONTHS = [
    (1958 + k // 12, k % 12 + 1, 21200 + 30 * k, round(1958.0411 + k / 12, 4), 315 + k, 1, 1, 1)
    for k in range(22)
]
MISSING_MONTHS = (0, 7)
CO2_FILE = "co2/monthly_in_situ_co2_mlo.csv"


def co2_file(style):
    months = [list(month) for month in MONTHS]
    for k in MISSING_MONTHS:
        months[k][4] = -99.99
    if style == "plain":
        return "yr,mn,date_excel,date,co2,sa,fit,sa_fit\n" + rows_of(months)
    comments = '"----"\n" Atmospheric CO2 at Mauna Loa, 19.5°N, since 1958 "\n" "\n'
    header = "  Yr, Mn,    Date,      Date,     CO2,seasonally,  fit, adjusted\n"
    units = "    ,   ,   Excel,          ,   [ppm],     [ppm],     ,\n"
    return comments + header + units + rows_of([*months], ", ").replace("\n", ", MLO\n")


@pytest.mark.parametrize("style", ["plain", "scripps"])
@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_co2_holds_out_the_second_and_fourth_fifth(folder, style, encoding):
    write(folder / CO2_FILE, co2_file(style).encode(encoding))
    months = np.array([month[3:5] for k, month in enumerate(MONTHS) if k not in MISSING_MONTHS])
    train, test = [*range(4), *range(8, 12), *range(16, 20)], [*range(4, 8), *range(12, 16)]
    check_rows(load_split("co2", data=folder), months, train, test)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (co2_file("plain") + "1959,12,21", "Line 24 of .* is not a month"),
        (co2_file("plain") + "1959,12,21900,1970.5,320\n", "date 1970.5 in the year 1959"),
        ("not found\n", "has 0 months with a value"),
        ("", "has 0 months with a value"),
    ],
)
def test_damaged_co2_file(folder, content, message):
    write(folder / CO2_FILE, content)
    with pytest.raises(DataError, match=message):
        load_split("co2", data=folder)


# Large files with the target first.


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


# Images.


def idx(array):
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return bytes([0, 0, 8, array.ndim]) + sizes + array.astype(np.uint8).tobytes()


@pytest.fixture
def mnist(folder, random):
    arrays = {
        "train-images-idx3-ubyte": random.integers(0, 256, (5, 28, 28)),
        "train-labels-idx1-ubyte": np.array([3, 1, 4, 1, 5]),
        "t10k-images-idx3-ubyte": random.integers(0, 256, (2, 28, 28)),
        "t10k-labels-idx1-ubyte": np.array([9, 0]),
    }
    for name, array in arrays.items():
        write(folder / f"mnist/{name}.gz", gzip.compress(idx(array)))
    return arrays


def test_mnist(folder, mnist):
    train, labels, test, test_labels = mnist.values()
    # One of the files is there unpacked.
    packed = folder / "mnist/t10k-images-idx3-ubyte.gz"
    write(packed.with_suffix(""), gzip.decompress(packed.read_bytes()))
    packed.unlink()
    split = load_split("mnist", 7, folder)
    np.testing.assert_allclose(split.inputs, train.reshape(5, 784) / 255, rtol=1e-6)
    np.testing.assert_allclose(split.test_inputs, test.reshape(2, 784) / 255, rtol=1e-6)
    assert split.targets.tolist() == labels.tolist()
    assert split.test_targets.tolist() == test_labels.tolist()
    assert (split.inputs.dtype, split.targets.dtype) == (np.float32, np.int64)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (lambda images: gzip.compress(idx(images))[:-40], "cannot be read, it may be damaged"),
        (lambda images: idx(images)[:-40], "has 3,880 values, its header says 3,920"),
        (lambda images: idx(images)[:9], "is not an IDX file of bytes in 3 dimensions"),
        (lambda images: b"", "is not an IDX file"),
        (lambda images: gzip.compress(idx(images[0])), "is not an IDX file of bytes in 3 dim"),
        (lambda images: idx(images[:4]), "has 4 images, but .* 5 labels"),
        (lambda images: idx(images[:, :27]), "have 756 columns, expected are 784"),
    ],
)
def test_damaged_images(folder, mnist, content, message):
    images = mnist["train-images-idx3-ubyte"]
    write(folder / "mnist/train-images-idx3-ubyte.gz", content(images))
    with pytest.raises(ValueError, match=message):
        load_split("mnist", 0, folder)


def test_rectangles(folder, random):
    table = random.uniform(0, 1, (6, 785)).round(6)
    table[:, -1] = [0, 1, 1, 0, 1, 0]
    train, test = ("rectangles/rectangles_im_train.amat", "rectangles/rectangles_im_test.amat")
    write(folder / train, rows_of(table[:4], " "))
    write(folder / test, rows_of(table[4:], " ").replace("\n", " \n"))  # a space at the end
    split = load_split("rectangles", 0, folder)
    check_rows(split, table, range(4), range(4, 6))
    assert split.targets.dtype == np.int64
    write(folder / test, rows_of(table[4:, 1:], " "))
    with pytest.raises(DataError, match="has 784 values a row, expected are 784 pixels and a lab"):
        load_split("rectangles", 0, folder)


def filled_shape(inside):
    """Height and width of what is inside, if it is a rectangle smaller than the image."""
    height, width = (int(inside.any(axis=axis).sum()) for axis in (1, 0))
    return (height, width) if 0 < inside.sum() == height * width < inside.size else None


def is_allowed(height, width):
    fraction = height * width / 784
    return min(height, width) >= 10 and abs(height - width) >= 5 and 0.25 <= fraction <= 0.75


def test_generated_rectangles_are_labelled_by_their_shape(monkeypatch):
    # A black and a white photograph: a rectangle on the other colour can be measured.
    photographs = np.stack([np.zeros((40, 50), np.uint8), np.full((40, 50), 255, np.uint8)])
    monkeypatch.setattr(generated, "_photographs", lambda: photographs)
    monkeypatch.setattr(generated, "IMAGES_AT_ONCE", 150)
    read = partial(generated.generate_rectangles, num_train=300, num_test=100)
    split = read(None, 0)
    images = np.vstack([split.inputs, split.test_inputs]).reshape(-1, 28, 28)
    labels = np.concatenate([split.targets, split.test_targets])
    assert len(split.targets) == 300
    measured = 0
    for image, label in zip(images, labels, strict=True):
        assert set(np.unique(image)) <= {0.0, 1.0}
        # What is left beside a rectangle that spans the image is a rectangle too.
        shapes = [shape for shape in map(filled_shape, (image == 0, image == 1)) if shape]
        allowed = [shape for shape in shapes if is_allowed(*shape)]
        assert all(label == (height > width) for height, width in allowed)
        assert bool(allowed) == bool(shapes)
        measured += bool(allowed)
    assert measured > 150  # about half have the colour of their background
    assert 0.4 < labels.mean() < 0.6
    assert all(np.array_equal(a, b) for a, b in zip(split, read(None, 0), strict=True))
    assert not np.array_equal(split.inputs, read(None, 1).inputs)


def test_generated_rectangles_are_patches_of_photographs():
    split = offline("rectangles-generated", num_train=20, num_test=10).load(2)
    assert split.inputs.shape == (20, 784)
    assert split.test_inputs.shape == (10, 784)
    assert (split.inputs.dtype, split.targets.dtype) == (np.float32, np.int64)
    assert split.inputs.min() >= 0
    assert 0.5 < split.inputs.max() <= 1
    assert split.inputs.std(axis=1).min() > 0


# Where files are looked for.


def test_folders_in_order(tmp_path, monkeypatch, empty_cache):
    folders = [tmp_path / "given", tmp_path / "variable", empty_cache]
    monkeypatch.setenv("DVIP_DATA", str(folders[1]))
    folders[0].mkdir()
    assert data_folders(folders[0]) == folders
    assert data_folders() == folders[1:]
    for value, place in reversed(list(enumerate(folders))):
        months = [(year, 1, 1, year, 300 + value) for year in range(1960, 1970)]
        write(place / CO2_FILE, rows_of(months))
        assert load_split("co2", data=folders[0]).targets[0] == 300 + value


def test_folder_that_does_not_exist(tmp_path):
    with pytest.raises(DataError, match=r"There is no folder .*nowhere"):
        load_split("energy", data=tmp_path / "nowhere")


def test_every_dataset_says_what_people_need():
    for name, dataset in DATASETS.items():
        assert dataset.name == name
        assert dataset.address.startswith("http") or not dataset.parts or not dataset.parts
        assert dataset.licence
        assert len(set(dataset.files)) == len(dataset.files)
        assert not any(Path(path).is_absolute() or ".." in path for path in dataset.files)
        assert set(dataset.found().values()) <= {None}


# The command.


def listed(*arguments, **environment):
    result = CliRunner().invoke(app, ["datasets", *arguments], env=environment)
    assert result.exit_code == 0, result.output
    return result.output


def test_command_lists_everything(energy, folder):
    for number in range(2, 20):
        for part in ("train", "test"):
            write(energy[0] / f"index_{part}_{number}.txt", "0\n")
    write(folder / "mnist/train-images-idx3-ubyte.gz", b"")
    blocks = re.split(r"\n(?=\S)", listed("--data", str(folder)))
    by_name = {block.split(":")[0]: block for block in blocks}
    assert set(by_name) >= set(DATASETS)
    for name, dataset in DATASETS.items():
        for part in (dataset.task, f"{dataset.rows:,} x {dataset.num_inputs}", dataset.licence):
            assert part in by_name[name]
        assert dataset.address in by_name[name]
        assert all(path in by_name[name] for path in dataset.files[:1])
    assert f"there: {energy[0]}" in by_name["energy"]
    assert "not there, to be downloaded when needed" in by_name["boston"]
    assert "3 of 4 files are not there, to be downloaded when needed" in by_name["mnist"]
    assert "not there, to be put there by hand" in by_name["taxi"]
    assert "made when it is needed" in by_name["rectangles-generated"]
    assert str(folder) in blocks[-1]


def test_command_on_a_terminal(folder):
    folder.mkdir()
    lines = listed("--data", str(folder), FORCE_COLOR="1", COLUMNS="80").splitlines()
    plain = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines]
    assert max(map(len, plain)) <= 80
    assert {line.split()[0] for line in plain if line.strip()} >= set(DATASETS)


def test_command_as_json(energy, folder):
    result = json.loads(listed("--json", "--data", str(folder)))
    assert result["folders"][0] == str(folder)
    entries = {entry["name"]: entry for entry in result["datasets"]}
    assert list(entries) == list(DATASETS)
    assert entries["energy"]["files"]["uci/energy/data/data.txt"] == str(energy[0] / "data.txt")
    assert entries["energy"]["files"]["uci/energy/data/index_test_7.txt"] is None
    assert not entries["energy"]["there"]
    assert entries["energy"]["downloads"]
    assert not entries["flights"]["downloads"]
    assert entries["rectangles-generated"]["there"]


def test_command_refuses_a_folder_that_is_not_there(tmp_path):
    result = CliRunner().invoke(app, ["datasets", "--data", str(tmp_path / "nowhere")])
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: There is no folder")
