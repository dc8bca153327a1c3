"""`dvip report MODEL TABLE` and `dvip fit --report`: a page for a model."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import typer

from dvip.cli.predict import Doubts, columns_to_judge, inputs_of, label_reader, labelled_blocks
from dvip.estimators import load
from dvip.persistence import MODEL
from dvip.report import findings_of, page_of, written_page
from dvip.report.findings import MAX_ROWS
from dvip.report.markup import check_page
from dvip.tables import TableError, TableFile, error_numbers, sampled

__all__ = ["is_model", "report_model", "row_labels", "rows_of", "write_report"]


def is_model(folder: Path) -> bool:
    """Whether a folder holds a model, rather than results."""
    return (folder / MODEL.manifest).exists()


def report_model(
    path: Path,
    table: TableFile,
    out: Path,
    given: Sequence[str] = (),
    given_noise: Sequence[str] = (),
) -> None:
    """Writes the page of a saved model, judged by a table."""
    check_page(out)
    model = load(path)
    targets, noise = columns_to_judge(model, path, given, given_noise)
    encoder, read_inputs = inputs_of(model, path, table, (*targets, *noise))
    with Doubts().told() as doubts:
        blocks = labelled_blocks(model, encoder, table, targets, doubts)
        rows = (frame.assign(**_as_columns(y)) for frame, y in blocks)
        frame, total = sampled(rows, MAX_ROWS)
    y = frame[[name for name in frame if str(name).startswith(TARGET)]].to_numpy()
    errors = error_numbers(frame, noise) if noise else None
    inputs = read_inputs(frame.drop(columns=[*_as_columns(y)]))
    if not hasattr(model, "target_names_"):
        model.target_names_ = targets
    write_report(
        model,
        inputs,
        y,
        out,
        f"{path} on {table}",
        str(path),
        labels=row_labels(frame),
        num_rows=total,
        noise_std=errors,
    )


# Names that no column of a table has.
TARGET = "\x00target "


def _as_columns(y: np.ndarray) -> dict[str, np.ndarray]:
    """Targets as columns of a table, to go with its rows."""
    columns = y[:, None] if y.ndim == 1 else y
    return {f"{TARGET}{place}": columns[:, place] for place in range(columns.shape[1])}


def write_report(
    model: Any,
    inputs: Any,
    y: np.ndarray,
    out: Path,
    title: str,
    folder: str,
    *,
    labels: Sequence[Any],
    num_rows: int,
    noise_std: Any = None,
    training: tuple[Any, Any] | None = None,
) -> None:
    """Writes a page, and tells where it is."""
    if model.task == "classification":
        y = _known_labels(model, y)
        training = None if training is None else (training[0], _known_labels(model, training[1]))
    elif y.ndim == 2 and not model.target_shape_:
        y = y[:, 0]
    given: dict[str, Any] = {"noise_std": noise_std, "training": training, "labels": labels}
    found = findings_of(model, inputs, y, title=title, **given)
    found.num_rows = num_rows
    page = page_of(found, folder)
    written_page(out, page)
    typer.echo(f"Wrote {out} ({len(page) / 1e6:.1f} MB): open it in a browser.")


def _known_labels(model: Any, labels: np.ndarray) -> np.ndarray:
    """Labels as the model has them, whatever they look like in a table."""
    read = label_reader(model)
    known = {read(label): label for label in model.classes_.tolist()}
    found = [known.get(read(label)) for label in labels.ravel().tolist()]
    unknown = [given for given, label in zip(labels.ravel(), found, strict=True) if label is None]
    if unknown:
        raise TableError(
            f"The label {unknown[0]} is not among the classes that the model was trained on: "
            "remove or rename its rows."
        )
    return np.array(found, dtype=model.classes_.dtype)


def row_labels(frame: pd.DataFrame) -> list[str]:
    """What rows are called: their numbers in the file, counted from 1, as in messages."""
    return [f"{number + 1:,}" for number in frame.index]


def rows_of(frames: Iterator[pd.DataFrame], seed: int = 0) -> pd.DataFrame:
    """At most as many rows as a page, or its baselines, are made of."""
    return sampled(frames, MAX_ROWS, seed)[0]
