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

from dvip.data.files import Address, DataFile
from dvip.data.locating import cache_folder

__all__ = ["DownloadError", "download"]

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
