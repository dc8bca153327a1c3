"""What goes wrong with named data: files that are missing, or not as they should be."""

import os
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NamedTuple

import numpy as np
import pooch
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from dvip.tables.cells import TableError

__all__ = [
    "Address",
    "DataError",
    "DataFile",
    "Dataset",
    "DownloadError",
    "Find",
    "MissingDataError",
    "Split",
    "cache_folder",
    "data_folders",
    "download",
    "find",
]


class DataError(TableError):
    """A dataset, or a file of one, is not what was asked for or expected."""


class MissingDataError(FileNotFoundError):
    """A file is in none of the folders and cannot be downloaded; the message says where it goes."""


@dataclass(frozen=True)
class Address:
    """Where a file is public, as it is or as a member of a zip archive.

    `checksum` is that of what the address gives, as "md5:..." or "sha256:..."; None where no
    published one is known, or where the file is updated from time to time.
    """

    url: str
    checksum: str | None = None

    @property
    def is_archive(self) -> bool:
        """Whether the address gives an archive that has the file in it."""
        return self.url.endswith(".zip")


@dataclass(frozen=True)
class DataFile:
    """A file, by its path below the data folder with forward slashes.

    `others` are paths under which the same content is accepted in another format. A file that is
    compressed may also be there unpacked.
    """

    path: str
    addresses: tuple[Address, ...] = ()
    others: tuple[str, ...] = ()

    @property
    def accepted(self) -> tuple[str, ...]:
        """All paths under which the file may be found, the usual one first."""
        unpacked = (self.path.removesuffix(".gz"),) if self.path.endswith(".gz") else ()
        return (self.path, *unpacked, *self.others)


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


# Downloads into the user's cache. A file has its name only once it is complete and checked.
#
# What is on its way has another name, so that an interrupted download is simply started anew and
# two processes do not get in each other's way.

# Seconds to wait for a server to answer, or to send more.
TIMEOUT = 30
BYTES_AT_ONCE = 2**18


class DownloadError(OSError):
    """No address has the file; the message names them all, with reasons."""


def download(file: DataFile, neighbours: Sequence[DataFile] = ()) -> Path:
    """The file's place in the cache, after it was fetched from the first address that has it.

    Neighbours that are in the same archive are unpacked with it.
    """
    failures: list[str] = []
    for address in file.addresses:
        wanted = [other for other in neighbours if address in other.addresses and other != file]
        try:
            _fetch(address, [cache_folder() / part.path for part in (file, *wanted)])
        except (OSError, ValueError, zipfile.BadZipFile, zlib.error) as error:
            failures.append(f"{address.url} ({_reason(error)})")
        else:
            return cache_folder() / file.path
    raise DownloadError(", ".join(failures))


def _fetch(address: Address, targets: Sequence[Path]) -> None:
    """Fetches what an address gives, takes the files out of an archive, and names them last."""
    folder = targets[0].parent
    folder.mkdir(parents=True, exist_ok=True)
    # Beside the target: to rename a file within a file system is one step.
    with tempfile.TemporaryDirectory(prefix=".download-", dir=folder) as temporary:
        fetched = Path(temporary) / "fetched"
        with _Transfer(PurePosixPath(address.url).name) as transfer:
            pooch.get_logger().setLevel("WARNING")  # it announces every download
            pooch.retrieve(
                address.url, address.checksum, fetched.name, temporary, downloader=transfer
            )
        if address.is_archive:
            complete = [_unpacked(fetched, target.name) for target in targets]
        else:
            complete = [fetched]
        for path, target in zip(complete, targets, strict=True):
            path.chmod(0o644)  # temporary files are for their owner alone
            os.replace(path, target)


def _unpacked(archive: Path, name: str) -> Path:
    """A file of an archive, beside it, wherever it is in the archive."""
    with zipfile.ZipFile(archive) as members:
        paths = [path for path in members.namelist() if PurePosixPath(path).name == name]
        if not paths:
            raise ValueError(f"no {name} in it")
        with members.open(paths[0]) as packed, open(archive.parent / name, "wb") as unpacked:
            shutil.copyfileobj(packed, unpacked)
    return archive.parent / name


class _Transfer:
    """A download by pooch, with a bar on a terminal, that checks that all bytes have come.

    It is its own progress bar: what `total`, `update`, `reset` and `close` are is pooch's choice.
    """

    def __init__(self, name: str):
        console = Console(stderr=True)
        columns = (TextColumn(name), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        self._bar = Progress(*columns, console=console, disable=not console.is_terminal)
        self._task = self._bar.add_task(name, total=None)
        self.total = 0

    def __enter__(self) -> "_Transfer":
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def __call__(self, url: str, output_file: str, requesting: Any) -> None:
        fetch = pooch.HTTPDownloader(
            progressbar=self,
            chunk_size=BYTES_AT_ONCE,
            timeout=TIMEOUT,
            headers={
                "Accept-Encoding": "identity"
            },  # bytes as they are, so that they can be counted
        )
        fetch(url, output_file, requesting)
        size = os.path.getsize(output_file)
        if size < self.total:
            raise OSError(f"only {size:,} of {self.total:,} bytes came")

    def update(self, size: int) -> None:
        self._bar.update(self._task, total=self.total or None, advance=size)

    def reset(self) -> None:
        self._bar.reset(self._task)

    def close(self) -> None:
        pass


def _reason(error: Exception) -> str:
    """What went wrong, short enough to stand beside an address."""
    response = getattr(error, "response", None)
    if response is not None:
        return f"HTTP status {response.status_code}"
    if type(error).__module__.startswith("requests"):
        return type(error).__name__
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


class Split(NamedTuple):
    """Rows to train on and rows to test on: inputs (rows, columns) and one target a row.

    Targets are floats for a regression and integer labels for a classification.
    """

    inputs: np.ndarray
    targets: np.ndarray
    test_inputs: np.ndarray
    test_targets: np.ndarray


# From the path of a file below the data folder to where it is on this machine.
Find = Callable[[str], Path]


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A dataset by name.

    `num_splits` is how many splits into training and test rows are published; 1 where there is one
    test part, which then every split number gives, so that runs differ by their seeds alone; None
    where the number of a split seeds a random one. `parts` are the files that are looked for
    and `read` makes a `Split` of them; it asks for the files that it needs.
    """

    name: str
    task: Literal["regression", "classification"]
    rows: int
    num_inputs: int
    num_splits: int | None
    address: str
    licence: str
    parts: tuple[DataFile, ...]
    read: Callable[[Find, int], Split]

    @property
    def files(self) -> tuple[str, ...]:
        """The paths of the files, below the data folder."""
        return tuple(part.path for part in self.parts)

    def found(self, data: Path | None = None) -> dict[str, Path | None]:
        """Where each file is on this machine; None where it is not."""
        folders = data_folders(data)
        return {part.path: find(part, folders) for part in self.parts}

    def load(self, split: int = 0, data: Path | None = None) -> Split:
        """The rows of a split. Files that are in none of the folders are downloaded."""
        self._check_split(split)
        loaded = self.read(partial(self._locate, folders=data_folders(data)), split)
        self._check_shapes(loaded)
        return loaded

    def _locate(self, path: str, *, folders: list[Path]) -> Path:
        part = next(part for part in self.parts if part.path == path)
        place = find(part, folders)
        if place is not None:
            return place
        looked = f"{self.name}: {path} is not in {' or '.join(map(str, folders))}"
        by_hand = f"by hand as {folders[0] / path}"
        if not part.addresses:
            raise MissingDataError(
                f"{looked}, and cannot be downloaded by itself: put it there {by_hand}. "
                f"Its source is {self.address}."
            )
        try:
            return download(part, self.parts)
        except DownloadError as error:
            raise MissingDataError(
                f"{looked}, and cannot be downloaded from {error}. Put it there {by_hand}."
            ) from error

    def _check_split(self, split: int) -> None:
        if split < 0:
            raise DataError(f"{self.name} has no split {split}: splits are counted from 0.")
        if self.num_splits not in (None, 1) and split >= self.num_splits:
            raise DataError(
                f"{self.name} has no split {split}: its published splits are 0 to "
                f"{self.num_splits - 1}."
            )

    def _check_shapes(self, split: Split) -> None:
        for part, inputs, targets in (
            ("training", split.inputs, split.targets),
            ("test", split.test_inputs, split.test_targets),
        ):
            if inputs.shape != (len(targets), self.num_inputs):
                raise DataError(
                    f"The {part} inputs of {self.name} have {inputs.shape[1]} columns, expected "
                    f"are {self.num_inputs}: {self._suspects()}"
                )
            if not len(targets):
                raise DataError(f"{self.name} has no {part} rows: {self._suspects()}")
            for values in (inputs, targets):
                # The minimum is NaN if any value is: no second array of the size of the data.
                if not np.isfinite(values.min()) or not np.isfinite(values.max()):
                    raise DataError(
                        f"The {part} rows of {self.name} have values that are missing or "
                        f"infinite: {self._suspects()}"
                    )

    def _suspects(self) -> str:
        return f"check {self.files[0]}{' and its neighbours' if len(self.files) > 1 else ''}."
