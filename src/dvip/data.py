"""The paper's datasets, by the name that users know them by."""

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
