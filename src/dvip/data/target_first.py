"""Large CSV files without a header: the target first, then the inputs; tests are the last rows."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from dvip.data.dataset import Find, Split
from dvip.data.errors import DataError
from dvip.data.splitting import last_rows
from dvip.tables.reading import readable

__all__ = ["read_last_rows_as_test", "read_two_files"]

# Bytes of text that are parsed at a time.
BLOCK_SIZE = 8 * 2**20


def read_last_rows_as_test(
    find: Find, split: int, *, path: str, rows: int, num_inputs: int, num_test: int, labels: bool
) -> Split:
    """One file with all rows, which are known to be so many."""
    inputs, targets = _read(find(path), rows, num_inputs)
    return last_rows(inputs, _targets(targets, labels), num_test)


def read_two_files(
    find: Find, split: int, *, train: tuple[str, int], test: tuple[str, int], num_inputs: int
) -> Split:
    """A file for training and one for testing, each with its number of rows; targets are labels."""
    parts: list[np.ndarray] = []
    for path, rows in (train, test):
        inputs, targets = _read(find(path), rows, num_inputs)
        parts += [inputs, _targets(targets, labels=True)]
    return Split(*parts)


def _targets(values: np.ndarray, labels: bool) -> np.ndarray:
    return values.astype(np.int64 if labels else np.float64)


def _read(path: Path, rows: int, num_inputs: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and targets, in single precision.

    The arrays have their final size from the start, and the text is parsed in blocks: reading ten
    million rows needs hardly more memory than they take.
    """
    inputs, targets = np.empty((rows, num_inputs), np.float32), np.empty(rows, np.float32)
    names = [str(column) for column in range(num_inputs + 1)]
    end = 0
    with readable(path):
        blocks = pa_csv.open_csv(
            path,
            read_options=pa_csv.ReadOptions(column_names=names, block_size=BLOCK_SIZE),
            convert_options=pa_csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.float32()), null_values=[]
            ),
        )
        with blocks:
            for block in blocks:
                start, end = end, end + len(block)
                if end > rows:
                    break
                targets[start:end] = block.column(0)
                for column in range(num_inputs):
                    inputs[start:end, column] = block.column(column + 1)
    if end > rows:
        raise DataError(f"{path} has more than the expected {rows:,} rows: it is another file.")
    if end < rows:
        raise DataError(f"{path} has {end:,} of the expected {rows:,} rows: it is not complete.")
    return inputs, targets
