"""Downloads into the user's cache. A file has its name only once it is complete and checked.

What is on its way has another name, so that an interrupted download is simply started anew and two
processes do not get in each other's way.
"""

import os
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import pooch
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from dvip.data.errors import MissingDataError
from dvip.data.files import Address, DataFile
from dvip.data.locating import cache_folder

__all__ = ["download"]

# Seconds to wait for a server to answer, or to send more.
TIMEOUT = 30


def download(dataset: str, file: DataFile, folders: Sequence[Path]) -> Path:
    """The file's place in the cache, after it was fetched from the first address that has it."""
    target = cache_folder() / file.path
    failures: list[str] = []
    for address in file.addresses:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            _fetch(address, target)
        except (OSError, ValueError, zipfile.BadZipFile, zlib.error) as error:
            failures.append(f"{address.url} ({_reason(error)})")
        else:
            return target
    looked = ", ".join(str(folder) for folder in folders)
    tried = f"could not be downloaded from {', '.join(failures)}" if failures else "is not public"
    raise MissingDataError(
        f"{dataset}: {file.path} is not in {looked}, and {tried}. "
        f"Put it there by hand, as {folders[0] / file.path}."
    )


def _fetch(address: Address, target: Path) -> None:
    """Fetches what an address gives, takes the file out of an archive, and names it last."""
    # In the folder of the target: a rename within a file system is one step.
    with tempfile.TemporaryDirectory(prefix=".download-", dir=target.parent) as folder:
        name = PurePosixPath(address.url).name
        with _Transfer(name) as transfer:
            pooch.get_logger().setLevel("WARNING")
            fetched = pooch.retrieve(
                address.url,
                known_hash=address.checksum,
                fname=name,
                path=folder,
                downloader=transfer,
            )
        complete = _unpacked(Path(fetched), target.name) if address.is_archive else Path(fetched)
        complete.chmod(0o644)  # temporary files are for their owner alone
        os.replace(complete, target)


def _unpacked(archive: Path, name: str) -> Path:
    """A file of an archive, beside it, wherever it is in the archive."""
    with zipfile.ZipFile(archive) as members:
        paths = [path for path in members.namelist() if PurePosixPath(path).name == name]
        if not paths:
            raise ValueError(f"has no {name} in it")
        with members.open(paths[0]) as packed, open(archive.parent / name, "wb") as unpacked:
            shutil.copyfileobj(packed, unpacked)
    return archive.parent / name


class _Transfer:
    """Downloads by pooch with a bar on a terminal, and checks that all bytes have come.

    `total` and the methods below it are what pooch asks of a progress bar.
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

    def __call__(self, url: str, output_file: str, _pooch: Any) -> None:
        fetch = pooch.HTTPDownloader(
            progressbar=self, timeout=TIMEOUT, headers={"Accept-Encoding": "identity"}
        )
        fetch(url, output_file, _pooch)
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
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
