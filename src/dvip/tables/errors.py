"""The one error of this part: a table, or something in it, that cannot be used."""

import difflib
from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

__all__ = ["TableError", "check_present", "quoted", "row_name"]

# Names that a message lists before it says how many more there are.
MAX_LISTED = 8


class TableError(ValueError):
    """A table cannot be read, written or used; the message says what to do, in a line or two."""


def quoted(names: Iterable[str]) -> str:
    """Names for a message: in quotes, with the tail of a long list counted."""
    listed = [repr(name) for name in names]
    more = len(listed) - MAX_LISTED
    return ", ".join(listed[:MAX_LISTED]) + (f" and {more} more" if more > 0 else "")


def row_name(column: pd.Series, position: int) -> str:
    """The row as the user would look it up: counted from 1, with the file where it is known.

    Row labels count the rows of a file from 0; readers note the file in `attrs`.
    """
    label = column.index[position]
    number = (label if isinstance(label, int | np.integer) else position) + 1
    file = column.attrs.get("file")
    return f"row {number}" if file is None else f"row {number} of {file}"


def check_present(wanted: Sequence[str], columns: Sequence[str]) -> None:
    """Raises an error that offers similar names unless every wanted column is there."""
    there = set(columns)
    missing = [name for name in wanted if name not in there]
    if not missing:
        return
    folded = {name.casefold(): name for name in columns}
    close = difflib.get_close_matches(missing[0].casefold(), list(folded), n=3, cutoff=0.6)
    if close:
        hint = f"Did you mean {' or '.join(repr(folded[name]) for name in close)}?"
    else:
        hint = f"It has {quoted(columns)}."
    raise TableError(f"The table has no column {quoted(missing)}. {hint}")
