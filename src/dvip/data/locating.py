"""Where files are looked for: a folder that is given, `$DVIP_DATA`, then the user's cache."""

import os
from collections.abc import Sequence
from pathlib import Path

import pooch

from dvip.data.errors import DataError
from dvip.data.files import DataFile

__all__ = ["cache_folder", "data_folders", "find"]


def cache_folder() -> Path:
    """Where downloads go."""
    return Path(pooch.os_cache("dvip")) / "data"


def data_folders(data: str | Path | None = None) -> list[Path]:
    """The folders in which datasets are looked for, in order; the last is the user's cache."""
    given = [Path(data).expanduser()] if data is not None else []
    for folder in given:
        if not folder.is_dir():
            raise DataError(f"There is no folder {folder} to look for data in.")
    variable = os.environ.get("DVIP_DATA")
    named = [Path(variable).expanduser()] if variable else []
    return list(dict.fromkeys([*given, *named, cache_folder()]))


def find(file: DataFile, folders: Sequence[Path]) -> Path | None:
    """The first place where a file is, under any of its names."""
    places = (folder / path for folder in folders for path in file.accepted)
    return next((place for place in places if place.is_file()), None)
