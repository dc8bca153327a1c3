"""Columns by name out of large CSV or Parquet files, a block of rows at a time."""

from collections.abc import Callable, Generator, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from dvip.data.errors import DataError
from dvip.tables.errors import quoted
from dvip.tables.reading import is_parquet, readable

__all__ = ["read_columns"]


def read_columns(
    path: Path,
    types: Mapping[str, pa.DataType],
    convert: Callable[[pa.RecordBatch], np.ndarray],
    max_rows: int | None = None,
) -> np.ndarray:
    """What `convert` makes of the named columns, block by block; at most the first `max_rows`."""
    blocks: list[np.ndarray] = []
    rows = 0
    with readable(path):
        batches = _parquet_batches(path, types) if is_parquet(path) else _csv_batches(path, types)
        for batch in batches:
            blocks.append(convert(batch))
            rows += len(blocks[-1])
            if max_rows is not None and rows >= max_rows:
                break
        batches.close()
    if not rows:
        raise DataError(f"{path} has no rows.")
    return np.concatenate(blocks)[:max_rows]


def _csv_batches(
    path: Path, types: Mapping[str, pa.DataType]
) -> Generator[pa.RecordBatch, None, None]:
    with pa_csv.open_csv(path) as header:
        _check_names(path, header.schema.names, types)
    options = pa_csv.ConvertOptions(include_columns=list(types), column_types=dict(types))
    with pa_csv.open_csv(path, convert_options=options) as batches:
        yield from batches


def _parquet_batches(
    path: Path, types: Mapping[str, pa.DataType]
) -> Generator[pa.RecordBatch, None, None]:
    with pq.ParquetFile(path) as file:
        _check_names(path, file.schema_arrow.names, types)
        for batch in file.iter_batches(columns=list(types)):
            columns = [batch.column(name).cast(kind) for name, kind in types.items()]
            yield pa.RecordBatch.from_arrays(columns, names=list(types))


def _check_names(path: Path, names: list[str], types: Mapping[str, pa.DataType]) -> None:
    missing = [name for name in types if name not in names]
    if missing:
        raise DataError(f"{path} has no column {quoted(missing)}. It has {quoted(names)}.")
