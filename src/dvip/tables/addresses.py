"""Tables elsewhere than in this machine's folders: addresses such as `s3://bucket/rows.parquet`."""

import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any, BinaryIO, cast
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType, LocalFileSystem

from dvip.files import expanded
from dvip.tables.cells import TableError

__all__ = ["TableAddress", "located", "opened", "place", "reachable"]

# Two letters at least: one is a drive.
SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
# What pyarrow reads, wherever it was built with all of its filesystems.
KNOWN = "s3://, gs://, hdfs:// and file://"
WITH_BUCKETS = ("s3", "gs", "gcs")
RETRY_SECONDS = 30
# Bytes that are read at once of a text file; each time is a request.
READ_BUFFER = 2**21
# Where the credentials of a filesystem are looked for.
CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE or ~/.aws",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS or `gcloud auth application-default login`",
    "hdfs": "those of Hadoop's client",
}
# How servers say what is wrong, in the messages of pyarrow.
DENIED = re.compile(
    r"access.?denied|forbidden|http (response|status) code:? 40[13]|credentials?\b|unauthenticated|"
    r"invalid_?(access_key_id|client_token_id|signature)|signature_?does_?not_?match|"
    r"unrecognized_client|could not create an? oauth2",
    re.IGNORECASE,
)
NO_BUCKET = re.compile(r"bucket '?[^']*'? not found|no_?such_?bucket", re.IGNORECASE)
UNREACHABLE = re.compile(
    r"network_connection|curlcode|couldn'?t connect|could not connect|timed? ?out|"
    r"unable to load libhdfs|libjvm|couldn'?t resolve",
    re.IGNORECASE,
)


class TableAddress:
    """A file or folder on a filesystem that pyarrow knows, with what readers need of a `Path`.

    Nothing is asked of the filesystem before it must be. In messages, an address has neither the
    credentials nor the options that may be part of it.
    """

    def __init__(self, uri: str, shown: str | None = None, found: Any = None):
        parts = urlsplit(uri)
        self.uri, self.scheme = uri, parts.scheme.lower()
        self.shown = shown or f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        self._found: tuple[FileSystem, str] | None = found

    def __str__(self) -> str:
        return self.shown

    def __repr__(self) -> str:
        return f"TableAddress({self.shown!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TableAddress) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[str, str]:
        return self.uri, self.shown

    @property
    def name(self) -> str:
        """Without its folder."""
        return PurePosixPath(self.shown).name

    @property
    def suffix(self) -> str:
        """What the name ends in."""
        return PurePosixPath(self.shown).suffix

    @property
    def place(self) -> tuple[FileSystem, str]:
        """The filesystem, and where it has the file."""
        if self._found is None:
            with reachable(self):
                try:
                    self._found = FileSystem.from_uri(self.uri + self._patience)
                except (pa.ArrowException, ValueError) as error:
                    raise TableError(self._why_no_filesystem(error)) from None
        return self._found

    @property
    def _patience(self) -> str:
        """Of Google's storage: by default it would be asked again for a quarter of an hour."""
        if self.scheme not in ("gs", "gcs") or "retry_limit_seconds" in self.uri:
            return ""
        return f"{'&' if '?' in self.uri else '?'}retry_limit_seconds={RETRY_SECONDS}"

    def _why_no_filesystem(self, error: Exception) -> str:
        reason = str(error).partition("\n")[0].replace(self.uri, self.shown)
        if "nrecognized filesystem" in reason or isinstance(error, pa.ArrowNotImplementedError):
            return (
                f"{self.shown} cannot be read: {self.scheme}:// is none of {KNOWN}. Download the "
                "table and name the file."
            )
        return f"{self.shown} is not an address that can be read: {reason}"

    @cached_property
    def _info(self) -> FileInfo:
        return self._asked()

    def _asked(self) -> FileInfo:
        with reachable(self):
            system, path = self.place
            info = system.get_file_info(path)
            if info.type != FileType.NotFound:
                return info
            bucket = path.partition("/")[0]
            if (
                self.scheme in WITH_BUCKETS
                and system.get_file_info(bucket).type == FileType.NotFound
            ):
                raise TableError(f"There is no bucket {bucket!r}, or it is hidden: {self.shown}.")
        raise TableError(f"There is no file {self.shown}.")

    def is_dir(self) -> bool:
        """Whether it is a folder; an error if there is nothing."""
        return self._info.type == FileType.Directory

    def stat(self) -> SimpleNamespace:
        """Size and time of a file, as they are now."""
        info = self._asked()
        return SimpleNamespace(st_size=info.size, st_mtime_ns=info.mtime_ns)

    def state(self) -> list[Any]:
        """What changes when the file changes; without credentials."""
        options, status = urlsplit(self.uri).query, self.stat()
        return [self.shown, options, status.st_size, status.st_mtime_ns]

    def relative_to(self, folder: "TableAddress") -> PurePosixPath:
        """The rest of the address, from a folder on."""
        return PurePosixPath(self.place[1]).relative_to(folder.place[1])

    def files(self) -> "list[TableAddress]":
        """All files of a folder and its folders, by name."""
        with reachable(self):
            system, path = self.place
            found = system.get_file_info(FileSelector(path, recursive=True))
        inside = [PurePosixPath(info.path).relative_to(path) for info in found if info.is_file]
        # Names that begin so are notes of the programs that wrote the folder.
        tables = [file for file in inside if not any(part[0] in "._" for part in file.parts)]
        base, here = self.shown.rstrip("/"), path.rstrip("/")
        return [
            TableAddress(self.uri, f"{base}/{file}", (system, f"{here}/{file}"))
            for file in sorted(tables)
        ]


def located(path: str | os.PathLike[str] | TableAddress) -> Path:
    """A path, or the address that a text is. (It does what readers need of a path.)"""
    if isinstance(path, str) and SCHEME.match(path) and "://" in path:
        return cast(Path, TableAddress(path))
    if isinstance(path, Path) and SCHEME.match(str(path)):
        raise TableError(f"{path} is an address that lost a slash: give it as text, not as a Path.")
    return cast(Path, path) if isinstance(path, TableAddress) else expanded(Path(path))


def place(path: Path | TableAddress) -> tuple[FileSystem, str]:
    """The filesystem of a file, and where it has the file."""
    return path.place if isinstance(path, TableAddress) else (LocalFileSystem(), str(path))


@contextmanager
def opened(path: Path | TableAddress) -> Iterator[BinaryIO]:
    """The bytes of a file, wherever it is."""
    if not isinstance(path, TableAddress):
        with open(path, "rb") as file:
            yield file
        return
    with reachable(path):
        system, name = path.place
        with io.BufferedReader(system.open_input_file(name), READ_BUFFER) as file:
            yield file


@contextmanager
def reachable(path: Path | TableAddress) -> Iterator[None]:
    """What a filesystem elsewhere complains of is one `TableError` that says what to look at."""
    try:
        yield
    except OSError as error:
        if not isinstance(path, TableAddress):
            raise
        raise TableError(_told(path, error)) from error


def _told(address: TableAddress, error: OSError) -> str:
    reason = " ".join(str(error).split()).replace(address.uri, address.shown)
    if NO_BUCKET.search(reason):
        return f"There is no bucket of that name, or it is hidden: {address}."
    if UNREACHABLE.search(reason):
        return f"{address} cannot be reached: {reason[:200]}"
    if isinstance(error, PermissionError) or DENIED.search(reason):
        where = CREDENTIALS.get(address.scheme, "")
        looked = f" They are looked for in the usual places: {where}." if where else ""
        return f"{address} may not be read with these credentials, or with none.{looked}"
    if isinstance(error, FileNotFoundError):
        return f"There is no file {address}."
    return f"{address} cannot be read: {reason[:200]}"
