"""The paper's datasets, by the name that users know them by."""

from dvip.paper.datasets import (
    DATASETS,
    Address,
    DataError,
    DataFile,
    Dataset,
    MissingDataError,
    Split,
    cache_folder,
    data_folders,
    load_split,
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
