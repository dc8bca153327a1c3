"""Files that are whole or not there, written under a temporary name and renamed; and locks."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # where there are no such locks
    fcntl = None  # type: ignore[assignment]

__all__ = ["lock", "replace_file", "settle", "why_not_writable"]


def replace_file(path: Path, data: bytes) -> None:
    """Writes a file, in place of one that may be there, in one step."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def settle(folder: Path) -> None:
    """Has the names in a folder outlast a power failure, where the system can do that."""
    if hasattr(os, "O_DIRECTORY"):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def lock(path: Path, *, wait: bool) -> Iterator[bool]:
    """Whether nobody else holds this lock; it is ours while this lasts. With `wait`, always.

    The system releases it when a process ends, however it ends. Where there are no locks, on some
    network file systems and other operating systems, nobody is known to hold one.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a") as file:
        free = True
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                free = False
            except OSError:
                pass
        yield free


def why_not_writable(folder: Path) -> str | None:
    """Why no file can be written in `folder`, which need not exist yet; None if one can."""
    existing = folder
    try:
        existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        # Asking for permissions is not enough: the file system itself may be read-only.
        with tempfile.TemporaryFile(dir=existing):
            return None
    except OSError as error:
        reason = error.strerror or type(error).__name__
        return f"Nothing can be written in {existing}: {reason}."
