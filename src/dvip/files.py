"""Files that are whole or not there: written under a temporary name, then renamed."""

import os
import tempfile
from pathlib import Path

__all__ = ["replace_file", "settle", "why_not_writable"]


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


def why_not_writable(folder: Path) -> str | None:
    """Why no file can be written in `folder`, which need not exist yet; None if one can."""
    existing = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    try:
        # Asking for permissions is not enough: the file system itself may be read-only.
        with tempfile.TemporaryFile(dir=existing):
            return None
    except OSError as error:
        reason = error.strerror or type(error).__name__
        return f"Nothing can be written in {existing}: {reason}."
