"""`dvip predict`: predictions for every row of a table, in bounded memory."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import typer

from dvip.cli.distributing import Part
from dvip.cli.table_model import TableModel, open_model
from dvip.tables import check_table_output, num_rows, read_blocks, table_writer
from dvip.tables.parsing import text_of
from dvip.training import row_counter

__all__ = ["parse_quantiles", "predict_table"]

WHOLE = Part()


def parse_quantiles(text: str) -> list[float]:
    """The numbers in "0.05,0.5"; an empty text is none."""
    try:
        quantiles = [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        quantiles = [-1.0]
    if not all(0 < p < 1 for p in quantiles):
        raise typer.BadParameter(
            f"{text!r} must be numbers between 0 and 1 with commas between, such as 0.05,0.5,0.95.",
            param_hint="'--quantiles'",
        )
    return sorted(set(quantiles))


def predict_table(
    model: Path,
    table: Path,
    out: Path,
    quantiles: Sequence[float],
    samples: int | None = None,
    part: Part = WHOLE,
) -> None:
    """Writes the predictions of a saved model for a table, or for a part of its rows."""
    out = part.file(out)
    check_table_output(out, table)
    opened = open_model(model, table)
    if samples is not None:
        opened.estimator.set_params(n_predictive_samples=samples)
    total = num_rows(table)
    wanted = None
    if part.number > 1:
        total = total or sum(len(block) for block in read_blocks(table))
        wanted = part.rows(total)
        total = len(wanted)
    rows = 0
    with table_writer(out) as append, row_counter(total, "predicting") as done:
        for frame, inputs in opened.blocks(table, wanted):
            append(predictions(opened, inputs, quantiles))
            rows += len(frame)
            done(len(frame))
    typer.echo(f"Wrote predictions for {rows:,} rows to {out}.")


def predictions(model: TableModel, inputs: Any, quantiles: Sequence[float]) -> pd.DataFrame:
    """A row of predictions for each row of inputs."""
    if model.is_classifier:
        return class_predictions(model.estimator, inputs)
    distribution = model.estimator.predict_dist(inputs)
    columns = {
        "mean": distribution.mean,
        "std": distribution.std,
        **{quantile_name(p): distribution.quantile(p) for p in quantiles},
    }
    if distribution.mean.ndim == 1:
        return pd.DataFrame(columns)
    num_targets = distribution.mean.shape[1]
    targets = model.encoder.targets or [f"y{index + 1}" for index in range(num_targets)]
    return pd.DataFrame(
        {
            f"{target}_{name}": values[:, index]
            for index, target in enumerate(targets)
            for name, values in columns.items()
        }
    )


def class_predictions(estimator: Any, inputs: Any) -> pd.DataFrame:
    """The most probable class and the probability of each."""
    probabilities = estimator.predict_proba(inputs)
    classes = estimator.classes_
    columns = {f"p_{text_of(label)}": probabilities[:, i] for i, label in enumerate(classes)}
    most_probable = classes[np.argmax(probabilities, axis=1)]
    return pd.DataFrame({"prediction": most_probable, **columns})


def quantile_name(p: float) -> str:
    """q05 for 0.05, q97.5 for 0.975: percent, with at least two digits before the point."""
    whole, _, rest = f"{100 * p:.10g}".partition(".")
    return f"q{whole.zfill(2)}" + (f".{rest}" if rest else "")
