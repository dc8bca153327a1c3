"""Files that are whole or not there, written under a temporary name and renamed; and locks."""

import enum
import os
import re
import secrets
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # where there are no such locks
    fcntl = None  # type: ignore[assignment]

__all__ = [
    "Hold",
    "check_writable",
    "expanded",
    "lock",
    "remove_leftovers",
    "replace_file",
    "settle",
    "why_not_writable",
]

# A temporary file of a process that was killed is removed when it is so many seconds old.
ABANDONED_AFTER = 3600.0
# What is left of `s3://bucket/file` in a path. (A single letter is a drive.)
ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/[^/]")


def expanded(path: str | Path) -> Path:
    """A path as the user means it: `~` is the home folder."""
    try:
        return Path(path).expanduser()
    except RuntimeError:  # nobody of that name: it is a name like any other
        return Path(path)


def replace_file(path: Path, data: bytes) -> None:
    """Writes a file, in place of one that may be there, in one step."""
    # Not the number of the process alone: threads share it, and so may machines share a folder.
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def remove_leftovers(folder: Path, pattern: str, *, keep: str = "", all_ages: bool) -> None:
    """Removes files of a folder, all that match but `keep`, or only those nobody writes any more.

    What cannot be removed, as others have removed it or have it open, stays for the next time.
    """
    for path in folder.glob(pattern):
        with suppress(OSError):
            if path.name != keep and (all_ages or _age(path) > ABANDONED_AFTER):
                path.unlink()


def _age(path: Path) -> float:
    return time.time() - path.stat().st_mtime


def settle(folder: Path) -> None:
    """Has the names in a folder outlast a power failure, where the system can do that."""
    if hasattr(os, "O_DIRECTORY"):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class Hold(enum.IntEnum):
    """Who has a lock. It is true unless somebody else has it."""

    TAKEN = 0
    # There are no locks here, on some network file systems and other operating systems.
    UNKNOWN = 1
    OURS = 2


@contextmanager
def lock(path: Path, *, wait: bool) -> Iterator[Hold]:
    """A lock, which is ours while this lasts unless another has it; `wait` for its end.

    On a folder that is there, or on a file, which is made. The system frees it when a process ends,
    however it ends.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if fcntl is None:
        yield Hold.UNKNOWN
        return
    flags = os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT
    descriptor = os.open(path, flags, 0o666)
    try:
        hold = Hold.OURS
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            hold = Hold.TAKEN
        except OSError:
            hold = Hold.UNKNOWN
        yield hold
    finally:
        os.close(descriptor)


def why_not_writable(folder: Path) -> str | None:
    """Why no file can be written in `folder`, which need not exist yet; None if one can."""
    existing = folder
    if ADDRESS.match(str(folder)):
        return f"{folder} is an address: files are written to folders of this machine."
    try:
        existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        # Asking for permissions is not enough: the file system itself may be read-only.
        with tempfile.TemporaryFile(dir=existing):
            return None
    except OSError as error:
        reason = error.strerror or type(error).__name__
        return f"Nothing can be written in {existing}: {reason}."


def check_writable(folder: Path) -> None:
    """Raises an error unless files can be written in `folder`, which need not exist yet."""
    reason = why_not_writable(folder)
    if reason is not None:
        raise OSError(reason)
