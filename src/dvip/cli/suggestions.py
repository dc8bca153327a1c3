"""`dvip suggest`: which rows of a table to measure next, by a saved model."""

from pathlib import Path

import pandas as pd
import typer
from rich.console import Console
from rich.table import Table

from dvip.cli.console import counted
from dvip.cli.predict import Doubts, inputs_of
from dvip.estimators import load
from dvip.tables import TableError, TableFile, check_table_output, read_blocks, table_writer

__all__ = ["suggest_rows"]

# Columns that are put before those of the table.
OWN = ("row", "reduction")
DEFAULT_NUMBER = 10


def suggest_rows(path: Path, table: TableFile, number: int | None, out: Path | None) -> None:
    """Prints, or writes, the rows of a table that would tell a model most, the best first."""
    if out is not None:
        check_table_output(out, table.path)
    model = load(path)
    if model.task != "regression":
        raise TableError(f"{path} is a classification: rows are suggested for regressions only.")
    encoder, read_inputs = inputs_of(model, path, table, getattr(model, "target_names_", ()))
    frame = pd.concat(list(read_blocks(table, encoder.text_columns)), ignore_index=True)
    taken = set(OWN) & set(map(str, frame.columns))
    if taken:
        raise TableError(f"{table} has a column {taken.pop()!r}, which is written: rename it.")
    number = min(DEFAULT_NUMBER, len(frame)) if number is None else number
    if number > len(frame):
        raise TableError(f"{table} has {counted(len(frame), 'row')}: ask for fewer than {number}.")
    with Doubts().told() as doubts:
        doubts.rows = len(frame)
        found = model.suggest_rows(read_inputs(frame), number)
    chosen = frame.iloc[found.rows].reset_index(drop=True)
    chosen.insert(0, OWN[1], found.reductions)
    chosen.insert(0, OWN[0], found.rows + 1)
    if out is not None:
        with table_writer(out) as append:
            append(chosen)
        typer.echo(
            f"Wrote {counted(number, 'row')} to {out}: together they would reduce the mean "
            f"variance of the function by {found.reductions.sum():.0%}."
        )
        return
    shown = Table("row", "reduction")
    for row, reduction in zip(found.rows, found.reductions, strict=True):
        shown.add_row(f"{row + 1:,}", f"{reduction:.1%}")
    Console().print(shown)
