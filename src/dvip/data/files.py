"""A file of a dataset: its place below the data folder, and where it can be had from."""

from dataclasses import dataclass

__all__ = ["Address", "DataFile"]


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
