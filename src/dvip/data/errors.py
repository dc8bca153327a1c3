"""What goes wrong with named data: files that are missing, or not as they should be."""

from dvip.tables.errors import TableError

__all__ = ["DataError", "MissingDataError"]


class DataError(TableError):
    """A dataset, or a file of one, is not what was asked for or expected."""


class MissingDataError(FileNotFoundError):
    """A file is in none of the folders and cannot be downloaded; the message says where it goes."""
