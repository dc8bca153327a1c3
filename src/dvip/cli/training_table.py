"""A table to train on, in memory or streamed: what `dvip fit` needs of either."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import typer

from dvip.tables import TableEncoder, TableError, gap_texts

__all__ = ["TrainingTable", "check_split", "gaps_named", "tell_dropped", "tell_task"]

# Classes that are listed one by one.
MAX_LISTED = 10


@dataclass(frozen=True)
class TrainingTable:
    """The task, the encoding, what to fit to, and what to test on."""

    task: str
    encoder: TableEncoder
    # Arguments of the estimator's `fit`: inputs and targets, or a source.
    fit_to: tuple[Any, ...]
    num_training: int
    num_test: int
    # Gives the inputs and targets of the rows that were split off, block by block.
    test_blocks: Callable[[], Iterable[tuple[np.ndarray, np.ndarray]]]


def tell_dropped(num_dropped: int, table: Path, targets: Sequence[str]) -> None:
    """That rows without a target are not used, and which words were taken for none."""
    if num_dropped:
        what = f"{', '.join(targets)}{gaps_named(table, targets)}"
        typer.echo(f"Dropped {num_dropped:,} rows without a value in {what}.")


def gaps_named(table: Path, targets: Sequence[str]) -> str:
    """Words of a text file that were taken for gaps, in brackets; nothing if there are none."""
    texts = gap_texts(table, targets)
    words = [repr(text) for text in texts if text]
    if not words:
        return ""
    return f" ({' or '.join([*(['empty'] if '' in texts else []), *words])})"


def tell_task(
    task: str, targets: Iterable[str], classes: np.ndarray | None, *, chosen: bool, numbers: bool
) -> None:
    """The task, and how to change it where it was chosen from numbers."""
    what = ", ".join(targets)
    if classes is not None:
        what += f", {len(classes)} classes: {_listed(classes)}"
    typer.echo(f"Task: {task} of {what}.")
    if chosen and numbers:
        other = "regression" if task == "classification" else "classification"
        typer.echo(f"  (chosen from the values of {', '.join(targets)}; --task {other} changes it)")


def check_split(num_rows: int, num_test: int, fraction: float | None) -> None:
    """Raises an error unless there are rows to train on and rows to test on."""
    if fraction is not None and not 0 < num_test < num_rows:
        raise TableError(f"{num_rows} rows are too few to split off {fraction:.1%} for testing.")


def _listed(labels: np.ndarray) -> str:
    more = "" if len(labels) <= MAX_LISTED else ", ..."
    return ", ".join(map(str, labels[:MAX_LISTED])) + more
