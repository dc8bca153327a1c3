"""Named datasets: where they are looked for, how they are fetched, read and split."""

from dvip.data.catalogue import DATASETS, load_split
from dvip.data.dataset import Dataset, Split
from dvip.data.errors import DataError, MissingDataError
from dvip.data.files import Address, DataFile
from dvip.data.locating import cache_folder, data_folders

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
