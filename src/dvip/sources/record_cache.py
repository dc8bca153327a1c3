"""The rows of a source in a file of records, made once and shared by later fits.

A cache is a folder with `rows.bin` and `rows.json`. It appears under its name only when it is
complete, is named by what its rows depend on (files with their sizes and times, columns,
precision), and is checked before it is used. Of several processes that need it, one makes it.
"""

import hashlib
import json
import os
import shutil
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pooch

from dvip.files import expanded, lock, why_not_writable
from dvip.sources.records import ColumnStatistics, RowsContent, Targets, write_rows
from dvip.sources.source import Source

__all__ = ["cached_rows"]

# Changes when files of older versions cannot be read any more.
FORMAT = 2
# Caches that are kept; those that were used longest ago make room.
MAX_KEPT = 3
# A folder under construction that nothing was written to for so many seconds is of a process that
# was killed.
ABANDONED_AFTER = 3600
BYTES_AT_ONCE = 2**22
LOCKS = ".locks"
# The environment variable that names a folder for caches.
VARIABLE = "DVIP_ROW_CACHE"


@contextmanager
def cached_rows(
    source: Source,
    targets: Targets,
    dtype: str,
    on_rows: Callable[[int], None] = lambda rows: None,
) -> Iterator[tuple[Path, RowsContent]]:
    """The file of records of a source, and what it holds; made unless there is one.

    In the user's cache folder, or in that which `DVIP_ROW_CACHE` names. With `off`, for sources
    that do not say when they change, and where the user's cache folder cannot be written, it is a
    temporary file that does not outlive the fit.
    """
    folder = _folder(source, targets, dtype)
    content = None if folder is None else _read(folder)
    if folder is None or (content is None and not _can_be_made(folder)):
        with tempfile.TemporaryDirectory(prefix="dvip-rows-") as temporary:
            yield _write(source, targets, dtype, Path(temporary), on_rows)
        return
    if content is None:
        with lock(folder.parent / LOCKS / folder.name, wait=True):
            content = _read(folder) or _make(source, targets, dtype, folder, on_rows)
    with suppress(OSError):  # a folder that others made
        os.utime(folder / "rows.json")
    yield folder / "rows.bin", content


def _folder(source: Source, targets: Targets, dtype: str) -> Path | None:
    """Where the cache of a source is, or is to be; None if it is to have none."""
    chosen = os.environ.get(VARIABLE, str(pooch.os_cache("dvip") / "rows"))
    fingerprint = source.fingerprint()
    if chosen == "off" or fingerprint is None:
        return None
    key = [FORMAT, dtype, targets.kind, fingerprint]
    return expanded(chosen) / hashlib.sha256(json.dumps(key).encode()).hexdigest()[:32]


def _can_be_made(folder: Path) -> bool:
    """Whether a cache can be written there; it is an error if the user chose the place."""
    reason = why_not_writable(folder.parent)
    if reason is not None and VARIABLE in os.environ:
        raise OSError(
            f"{VARIABLE} names the folder {folder.parent}, which cannot be used. {reason} Name "
            f"another one, or use a temporary file with {VARIABLE}=off."
        )
    return reason is None


def _make(
    source: Source, targets: Targets, dtype: str, folder: Path, on_rows: Callable[[int], None]
) -> RowsContent:
    """Makes a cache beside its place and moves it there."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    _make_room(folder.parent)
    with tempfile.TemporaryDirectory(prefix=".making-", dir=folder.parent) as temporary:
        _, content = _write(source, targets, dtype, Path(temporary), on_rows)
        made = _read(folder)
        if made is not None:  # another process was quicker, where there are no locks
            return made
        shutil.rmtree(folder, ignore_errors=True)  # one that is damaged
        complete = Path(temporary) / "complete"
        complete.mkdir()
        for name in ("rows.bin", "rows.json"):
            os.replace(Path(temporary) / name, complete / name)
        try:
            os.replace(complete, folder)
        except OSError:  # there is one now, again where there are no locks
            made = _read(folder)
            if made is None:
                raise
            return made
    return content


def _write(
    source: Source, targets: Targets, dtype: str, folder: Path, on_rows: Callable[[int], None]
) -> tuple[Path, RowsContent]:
    before = source.fingerprint()
    path = folder / "rows.bin"
    _check_space(source, dtype, folder)
    try:
        with open(path, "wb") as file:
            content = write_rows(source, targets, dtype, file, on_rows)
        (folder / "rows.json").write_text(_sealed(_to_json(content)))
    except OSError as error:
        if error.errno is None or error.filename not in (None, str(path)):
            raise
        raise OSError(
            f"The rows could not be written to {folder.parent} ({error.strerror}) after "
            f"{path.stat().st_size / 1e9:.1f} GB: make room, or name another folder with "
            "DVIP_ROW_CACHE."
        ) from error
    if source.fingerprint() != before:
        raise ValueError("The files of the source changed while they were read: start again.")
    return path, content


def _check_space(source: Source, dtype: str, folder: Path) -> None:
    """Raises an error before a long pass if its result cannot fit."""
    if source.num_rows is None:
        return
    block = next(iter(source.blocks()), None)
    if block is None:
        return
    width = block.inputs.shape[1] + block.targets.reshape(len(block), -1).shape[1] + 1
    needed = source.num_rows * width * np.dtype(dtype).itemsize
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise OSError(
            f"The rows take {needed / 1e9:.1f} GB as {dtype}, but {folder.parent} has "
            f"{free / 1e9:.1f} GB left: make room, or name another folder with DVIP_ROW_CACHE."
        )


def _read(folder: Path) -> RowsContent | None:
    """What a cache holds; None if there is none, or it is damaged."""
    try:
        content = _from_json(_unsealed((folder / "rows.json").read_text()))
        checksum = 0
        with open(folder / "rows.bin", "rb") as file:
            while data := file.read(BYTES_AT_ONCE):
                checksum = zlib.crc32(data, checksum)
            size = file.tell()
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    complete = size == content.num_rows * content.row_bytes and checksum == content.checksum
    return content if complete else None


def _make_room(root: Path) -> None:
    """Removes what was used longest ago, and what killed processes left."""

    def age(path: Path) -> float:
        times = [file.stat().st_mtime for file in (path, *path.glob("rows.*")) if file.exists()]
        return time.time() - max(times, default=0.0)

    folders = [path for path in root.iterdir() if path.is_dir() and path.name != LOCKS]
    making = [path for path in folders if path.name.startswith(".making-")]
    kept = sorted((path for path in folders if path not in making), key=age)
    abandoned = [path for path in making if age(path) > ABANDONED_AFTER]
    for path in (*kept[MAX_KEPT - 1 :], *abandoned):
        shutil.rmtree(path, ignore_errors=True)


def _sealed(values: dict[str, Any]) -> str:
    """JSON with a checksum."""
    text = json.dumps(values)
    return f"{hashlib.sha256(text.encode()).hexdigest()}\n{text}"


def _unsealed(text: str) -> dict[str, Any]:
    digest, _, content = text.partition("\n")
    if hashlib.sha256(content.encode()).hexdigest() != digest:
        raise ValueError("The checksum does not match.")
    return json.loads(content)


def _to_json(content: RowsContent) -> dict[str, Any]:
    values = asdict(content)
    labels = values.pop("labels")
    statistics = values.pop("statistics")
    return {
        **values,
        **{name: values[name].tolist() for name in ("shift", "unit")},
        "statistics": {name: np.asarray(entry).tolist() for name, entry in statistics.items()},
        "labels": None if labels is None else [labels.dtype.str, labels.tolist()],
    }


def _from_json(values: dict[str, Any]) -> RowsContent:
    labels, statistics = values.pop("labels"), values.pop("statistics")
    target_shape = values.pop("target_shape")
    return RowsContent(
        **{**values, **{name: np.array(values[name]) for name in ("shift", "unit")}},
        target_shape=tuple(target_shape),
        statistics=ColumnStatistics(
            statistics.pop("weight"),
            **{name: np.array(entry) for name, entry in statistics.items()},
        ),
        labels=None if labels is None else np.array(labels[1], dtype=labels[0]),
    )
