"""Named datasets: where they are looked for, how they are fetched, read and split."""

from dvip.paper.datasets.catalogue import DATASETS, load_split
from dvip.paper.datasets.dataset import (
    Address,
    DataError,
    DataFile,
    Dataset,
    MissingDataError,
    Split,
    cache_folder,
    data_folders,
)

__all__ = [
    "DATASETS",
    "Address",
    "DataError",
    "DataFile",
    "Dataset",
    "MissingDataError",
    "Split",
    "cache_folder",
    "data_folders",
    "load_split",
]
