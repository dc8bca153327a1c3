"""Tables in files: reading, encoding for a model, writing. Knows nothing of models."""

from dvip.tables.columns import LeftOut, NumberColumn, Surprises, TextColumn
from dvip.tables.encoding import TableEncoder
from dvip.tables.errors import TableError
from dvip.tables.reading import ROWS_AT_ONCE, num_rows, read_blocks, read_table
from dvip.tables.targets import choose_task, class_labels, target_numbers, with_targets
from dvip.tables.writing import check_folder, check_table_output, table_writer

__all__ = [
    "ROWS_AT_ONCE",
    "LeftOut",
    "NumberColumn",
    "Surprises",
    "TableEncoder",
    "TableError",
    "TextColumn",
    "check_folder",
    "check_table_output",
    "choose_task",
    "class_labels",
    "num_rows",
    "read_blocks",
    "read_table",
    "table_writer",
    "target_numbers",
    "with_targets",
]
