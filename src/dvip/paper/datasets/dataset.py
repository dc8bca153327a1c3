"""A dataset by name: its files, where they are looked for, how they are fetched and checked."""

import os
import stat
import tempfile
import zipfile
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
    "Find",
    "MissingDataError",
    "Split",
    "cache_folder",
    "data_folders",
    "fetch",
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


# What a number takes at most, as text with its separator; and what is never too much for a file.
BYTES_A_NUMBER = 32
ALWAYS_SENSIBLE = 2**26
# Seconds to wait for a server to answer, or to send more.
TIMEOUT = 30
BYTES_AT_ONCE = 2**18


def fetch(address: Address, files: Sequence[DataFile], max_bytes: int) -> None:
    """Fetches a file into the cache, or those of an archive; each has its name once it is whole.

    What is on its way has another name, so that an interrupted download is simply started anew and
    two processes do not get in each other's way.
    """
    cache, first = cache_folder(), files[0].path
    transfer = _Transfer(max_bytes)
    pooch.get_logger().setLevel("WARNING")  # it announces every download
    if not address.is_archive:
        fetched = pooch.retrieve(address.url, address.checksum, first, cache, downloader=transfer)
        os.chmod(fetched, 0o644)  # temporary files are for their owner alone
        return
    folder = (cache / first).parent
    folder.mkdir(parents=True, exist_ok=True)
    # Beside the files: to rename one within a file system is one step.
    with tempfile.TemporaryDirectory(prefix=".download-", dir=folder) as temporary:
        archive = Path(
            pooch.retrieve(address.url, address.checksum, "archive", temporary, downloader=transfer)
        )
        members = _members(archive, [Path(file.path).name for file in files], max_bytes)
        pooch.Unzip(members, "unpacked")(str(archive), "download", None)
        for member, file in zip(members, files, strict=True):
            os.replace(archive.parent / "unpacked" / member, cache / file.path)


def _members(archive: Path, names: Sequence[str], max_bytes: int) -> list[str]:
    """Where files are in an archive, which may have them in any folder, and nothing absurd."""
    with zipfile.ZipFile(archive) as opened:
        entries = opened.infolist()
    paths = {PurePosixPath(entry.filename).name: entry.filename for entry in reversed(entries)}
    for entry in entries:
        parts = PurePosixPath(entry.filename.replace("\\", "/"))
        if parts.is_absolute() or ".." in parts.parts or stat.S_ISLNK(entry.external_attr >> 16):
            raise ValueError(f"{entry.filename} in it is a link, or leads out of its folder")
    # No member gives more bytes than it declares.
    size = sum(entry.file_size for entry in entries)
    if size > max_bytes:
        raise ValueError(f"unpacked it would have {size:,} bytes, at most {max_bytes:,} make sense")
    for name in names:
        if name not in paths:
            raise ValueError(f"no {name} in it")
    return [paths[name] for name in names]


class _Transfer(pooch.HTTPDownloader):
    """A download with a bar on a terminal, of all bytes that were promised and of no absurd number.

    It is its own progress bar: what `total`, `update`, `reset` and `close` are is pooch's choice.
    """

    def __init__(self, max_bytes: int):
        super().__init__(
            progressbar=self,
            chunk_size=BYTES_AT_ONCE,
            timeout=TIMEOUT,
            headers={"Accept-Encoding": "identity"},  # bytes as they are: they can be counted
        )
        self.max_bytes = max_bytes
        self.total = 0

    def __call__(self, url: str, output_file: str, owner: Any) -> None:
        console = Console(stderr=True)
        name = PurePosixPath(url).name
        columns = (TextColumn(name), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        with Progress(*columns, console=console, disable=not console.is_terminal) as self.bar:
            self.task = self.bar.add_task(name, total=None)
            super().__call__(url, output_file, owner)
        size = os.path.getsize(output_file)
        if size < self.total:
            raise OSError(f"only {size:,} of {self.total:,} bytes came")

    def update(self, size: int) -> None:
        self.bar.update(self.task, total=self.total or None, advance=size)
        # What has come counts in whole pieces, though the last may be smaller.
        come = self.bar.tasks[0].completed - BYTES_AT_ONCE
        if max(self.total, come) > self.max_bytes:
            raise OSError(f"more than {self.max_bytes:,} bytes, which is more than makes sense")

    def reset(self) -> None:
        self.bar.reset(self.task)

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

    @property
    def max_bytes(self) -> int:
        """All files together are smaller than this, unpacked too."""
        return max(ALWAYS_SENSIBLE, BYTES_A_NUMBER * self.rows * (self.num_inputs + 1))

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
        failures: list[str] = []
        for address in part.addresses:
            # What else is in an archive is kept as well.
            others = [other for other in self.parts if address in other.addresses and other != part]
            try:
                fetch(address, (part, *others), self.max_bytes)
            except Exception as error:  # whatever servers and archives come up with
                failures.append(f"{address.url} ({_reason(error)})")
            else:
                return cache_folder() / path
        raise MissingDataError(
            f"{looked}, and cannot be downloaded from {', '.join(failures)}. Put it there "
            f"{by_hand}."
        )

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
