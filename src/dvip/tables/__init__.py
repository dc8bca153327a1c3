"""Tables in files: reading, encoding for a model, writing. Knows nothing of models."""

from dvip.tables.cells import TableError, TableWarning
from dvip.tables.columns import LeftOut, NumberColumn, Surprises, TextColumn, deciding_value
from dvip.tables.encoder import TableEncoder
from dvip.tables.formats import (
    ROWS_AT_ONCE,
    check_table_output,
    gap_texts,
    num_numbers,
    num_rows,
    read_blocks,
    read_table,
    table_files,
    table_writer,
)
from dvip.tables.given import STANDARD, TableFile, TextFormat, given_table
from dvip.tables.survey import (
    RowSplit,
    TableSurvey,
    check_one_error_each,
    error_numbers,
    has_targets,
    sampled,
    survey_table,
    target_numbers,
    weight_numbers,
)

__all__ = [
    "ROWS_AT_ONCE",
    "STANDARD",
    "LeftOut",
    "NumberColumn",
    "RowSplit",
    "Surprises",
    "TableEncoder",
    "TableError",
    "TableFile",
    "TableSurvey",
    "TableWarning",
    "TextColumn",
    "TextFormat",
    "check_one_error_each",
    "check_table_output",
    "deciding_value",
    "error_numbers",
    "gap_texts",
    "given_table",
    "has_targets",
    "num_numbers",
    "num_rows",
    "read_blocks",
    "read_table",
    "sampled",
    "survey_table",
    "table_files",
    "table_writer",
    "target_numbers",
    "weight_numbers",
]
