"""Arrow data as a source: tables in memory, results of queries, iterators of record batches."""

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from dvip.sources.source import ROWS_AT_ONCE, TableSource
from dvip.tables import TableError
from dvip.tables.cells import check_distinct

__all__ = ["BatchSource", "RecordBatches", "are_batches"]

# What rows are said to be of, in messages.
NAME = "the batches"


def are_batches(given: Any) -> bool:
    """Whether something is Arrow data: it has a stream of it, or is an iterable of such."""
    if hasattr(given, "__arrow_c_stream__"):
        return True
    return isinstance(given, Iterable) and not isinstance(given, str | bytes | dict)


class RecordBatches:
    """Record batches from wherever they come, as DataFrames of bounded size.

    A table, of pyarrow or polars, and a relation of DuckDB can be read again and again. A reader,
    as DuckDB's `fetch_record_batch` gives, and an iterator can be read once.
    """

    def __init__(self, given: Any):
        if isinstance(given, pd.DataFrame):  # whose stream would have the row labels as a column
            given = pa.Table.from_pandas(given, preserve_index=False)
        self._again = None if _is_spent_by_reading(given) else given
        self._left: Iterator[pa.RecordBatch] | None = None
        if hasattr(given, "__arrow_c_stream__"):
            reader = _reader(given)
            self.schema = reader.schema
            self._left = iter(reader) if self._again is None else None
        else:
            batches = _checked(given)
            first = next(batches, None)
            if first is None:
                raise TableError("There are no batches: the iterator is empty, or was read before.")
            self.schema = first.schema
            self._left = chain([first], batches) if self._again is None else None
        check_distinct(Path(NAME), self.schema.names)
        self.num_rows: int | None = given.num_rows if isinstance(given, pa.Table) else None

    def __str__(self) -> str:
        return NAME

    def frames(self, rows: int, columns: Iterable[str]) -> Iterator[pd.DataFrame]:
        """All rows, of these columns, in blocks of `rows` rows but for the last."""
        wanted = [name for name in self.schema.names if name in set(columns)]
        start = 0
        for table in _gathered(self._batches(), rows, wanted):
            frame = _as_frame(table)
            frame.index = pd.RangeIndex(start, start + len(frame))
            frame.attrs["file"] = NAME
            start += len(frame)
            yield frame
        if not start:
            raise TableError("The batches have no rows.")

    def _batches(self) -> Iterator[pa.RecordBatch]:
        if self._again is not None:
            if hasattr(self._again, "__arrow_c_stream__"):
                return iter(_reader(self._again))
            return _checked(self._again)
        left, self._left = self._left, None
        if left is None:
            raise TableError(
                "The batches were read before, and a reader or an iterator can be read once: open "
                "a new one, or give a table, such as reader.read_all()."
            )
        return left


def _is_spent_by_reading(given: Any) -> bool:
    return isinstance(given, pa.RecordBatchReader | Iterator)


def _reader(given: Any) -> pa.RecordBatchReader:
    try:
        return pa.RecordBatchReader.from_stream(given)
    except (pa.ArrowException, OSError, TypeError, ValueError, RuntimeError) as error:
        raise TableError(f"The stream of a {type(given).__name__} is not Arrow: {error}") from error


def _checked(given: Iterable[Any]) -> Iterator[pa.RecordBatch]:
    """The record batches of an iterable, all of one schema."""
    schema: pa.Schema | None = None
    for number, entry in enumerate(given, start=1):
        if not hasattr(entry, "__arrow_c_stream__"):
            raise TableError(
                f"Batch {number} is a {type(entry).__name__}: expected Arrow record batches, a "
                "table of pyarrow or polars, or the path of a file."
            )
        for batch in _reader(entry):
            if schema is None:
                schema = batch.schema
            if not batch.schema.equals(schema):
                raise TableError(_difference(number, schema, batch.schema))
            yield batch


def _difference(number: int, first: pa.Schema, other: pa.Schema) -> str:
    if first.names != other.names:
        return (
            f"Batch {number} has the columns {', '.join(other.names)}, but the first has "
            f"{', '.join(first.names)}: give batches of one schema."
        )
    name = next(name for name in first.names if first.field(name).type != other.field(name).type)
    return (
        f"Column {name!r} of batch {number} is {other.field(name).type}, but "
        f"{first.field(name).type} in the first: give batches of one schema."
    )


def _gathered(
    batches: Iterator[pa.RecordBatch], rows: int, columns: list[str]
) -> Iterator[pa.Table]:
    """The rows of batches, of whatever sizes, in tables of `rows` rows but for the last."""
    waiting: list[pa.RecordBatch] = []
    number = 0
    try:
        for batch in batches:
            waiting.append(batch.select(columns))
            number += len(batch)
            if number >= rows:
                table = pa.Table.from_batches(waiting)
                for start in range(0, number - number % rows, rows):
                    yield table.slice(start, rows)
                number %= rows
                waiting = table.slice(len(table) - number).to_batches()
    except (pa.ArrowException, OSError) as error:
        raise TableError(f"The batches could not be read to the end: {error}") from error
    if number:
        yield pa.Table.from_batches(waiting)


def _as_frame(table: pa.Table) -> pd.DataFrame:
    """Decimals, which databases like to give, are numbers, and categories what they stand for."""
    fields = []
    for field in table.schema:
        if pa.types.is_decimal(field.type):
            field = field.with_type(pa.float64())
        elif pa.types.is_dictionary(field.type):
            field = field.with_type(field.type.value_type)
        fields.append(field)
    return table.cast(pa.schema(fields)).to_pandas(ignore_metadata=True)


class BatchSource(TableSource):
    """The rows of record batches, encoded as those of a table in a file are."""

    def __init__(self, batches: RecordBatches, *args: Any, **options: Any):
        super().__init__(NAME, *args, **options)
        self.batches = batches

    @property
    def num_rows(self) -> int | None:
        """How many rows there are, where that is known before they are read."""
        return self.batches.num_rows

    def _all_frames(self, rows: int = ROWS_AT_ONCE) -> Iterator[pd.DataFrame]:
        yield from self.batches.frames(rows, self._columns_read())

    def fingerprint(self) -> None:
        """None: whether other batches have the same rows cannot be known."""
        return None
