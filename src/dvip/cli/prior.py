"""`dvip prior`: functions of a prior over the range of a table, before anything is fitted.

What it does is imported when it runs: `--help` is quick.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dvip.cli.console import counted, reports_errors, warn
from dvip.registry import PRIORS

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from dvip.processes import ImplicitProcess

__all__ = ["commands", "read_prior"]

commands = typer.Typer()

# Columns that are drawn, functions of each, places along a column.
MAX_PANELS, NUM_DRAWN, NUM_PLACES = 4, 25, 200
# Functions and rows that the reach of a prior is estimated from, in standard deviations; the share
# of the rows out of reach that is told.
NUM_JUDGED, MAX_ROWS, REACH, TOLD_SHARE = 200, 1_000, 3.0, 0.02


def read_prior(text: str) -> "str | ImplicitProcess":
    """What `--prior` says: a name as it is, all else as an object, with files of curves read."""
    if text in PRIORS:
        return text
    from dvip.processes.curves import CurvePrior
    from dvip.processes.expressions import parsed_prior

    return parsed_prior(text, CurvePrior.read)


@commands.command()
@reports_errors
def prior(
    table: Annotated[
        Path, typer.Argument(help="A CSV or Parquet file, as for `dvip fit`.", metavar="TABLE")
    ],
    out: Annotated[Path, typer.Option(help="The picture: .png, .pdf or .svg.")],
    prior: Annotated[
        str,
        typer.Option(
            help=f'Names ({PRIORS.listed()}) with +, * and |, such as "linear + '
            "periodic(period=1, on='time') + gp\", and curves(FILE): a table whose first column "
            "is the grid and every other a curve."
        ),
    ] = "bnn",
    target: Annotated[
        str | None,
        typer.Option(help="The column to predict: functions are then on its scale."),
    ] = None,
    drop: Annotated[
        list[str] | None, typer.Option(help="A column not to use. Repeat it for several.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="The same number, the same functions.")] = 0,
) -> None:
    """Draw functions of a prior over the range of a table, with the data beside them.

    Look before you fit: a warning tells where the prior cannot reach the data. Of several columns,
    each is varied with the others at their medians.

    \b
    Examples:
      dvip prior co2.csv --target ppm --prior "linear + periodic(period=1) + gp" --out prior.png
      dvip prior growth.csv --target height --prior "curves(past.csv)" --out prior.png
    """
    from dvip.plots import check_picture, prior_figure, write_picture

    check_picture(out)
    X, y = _read(table, target, drop or [])
    model = _regressor(read_prior(prior))
    columns = _numeric(X)[:MAX_PANELS]
    panels = []
    for name in columns:
        at = _varied(X, name)
        functions = model.sample_prior_functions(NUM_DRAWN, X, seed, y=y, at=at)
        panels.append((name, at[name].to_numpy(float), functions, X[name].to_numpy(float)))
    values = model.sample_prior_functions(NUM_JUDGED, X, seed, y=y)
    far = None if y is None else _out_of_reach(values, y)
    figure = prior_figure(panels, values, y, far, target or "f", prior)
    write_picture(figure, out)
    typer.echo(f"{counted(NUM_DRAWN, 'function')} of {prior} in {out}.")
    if far is not None and far.mean() > TOLD_SHARE:
        _tell_far(X, columns, far)


def _read(
    table: Path, target: str | None, drop: list[str]
) -> "tuple[pd.DataFrame, np.ndarray | None]":
    """Some rows of the table, and their targets."""
    import numpy as np

    from dvip.tables import TableError
    from dvip.tables.formats import read_blocks
    from dvip.tables.survey import has_targets, target_numbers

    frame = next(iter(read_blocks(table, rows=None)))
    lacking = [name for name in [*drop, target] if name and name not in frame.columns]
    if lacking:
        raise TableError(
            f"{table} has no column {lacking[0]!r}; it has {', '.join(map(str, frame.columns))}."
        )
    y = None
    if target is not None:
        frame = frame[has_targets(frame, [target])]
        if frame.empty:
            raise TableError(f"No row of {table} has a value in {target}.")
    if len(frame) > MAX_ROWS:
        places = np.linspace(0, len(frame) - 1, MAX_ROWS).astype(int)
        frame = frame.iloc[places]
    if target is not None:
        y = target_numbers(frame, [target])
    X = frame.drop(columns=[name for name in [*drop, target] if name])
    if not _numeric(X):
        raise TableError(f"{table} has no column of numbers to draw functions over.")
    return X, y


def _regressor(prior: Any) -> Any:
    from dvip.estimators.implicit_processes import DVIPRegressor

    return DVIPRegressor(prior=prior, inference="vi", n_layers=1)


def _numeric(frame: "pd.DataFrame") -> list[str]:
    from dvip.tables.cells import is_number_type

    return [
        name for name in frame.columns if is_number_type(frame[name]) and frame[name].nunique() > 1
    ]


def _varied(frame: "pd.DataFrame", name: str) -> "pd.DataFrame":
    """Rows in which one column goes over its range, the others being as they mostly are."""
    import numpy as np
    import pandas as pd

    numeric = set(_numeric(frame))
    usual = {
        column: frame[column].median() if column in numeric else frame[column].mode().iloc[0]
        for column in frame.columns
        if frame[column].notna().any()
    }
    rows = pd.DataFrame({column: [value] * NUM_PLACES for column, value in usual.items()})
    rows = rows.reindex(columns=frame.columns)
    rows[name] = np.linspace(float(frame[name].min()), float(frame[name].max()), NUM_PLACES)
    return rows.astype({column: frame[column].dtype for column in usual if column not in numeric})


def _out_of_reach(values: "np.ndarray", y: "np.ndarray") -> "np.ndarray":
    """Of each row, whether its target is far from all that the prior gives there."""
    import numpy as np

    return np.abs(y - values.mean(axis=0)) > REACH * values.std(axis=0)


def _tell_far(X: "pd.DataFrame", columns: list[str], far: "np.ndarray") -> None:
    name = columns[0]
    where = X[name].to_numpy(float)[far]
    warn(
        f"the prior does not reach {far.mean():.0%} of the rows: their targets are more than "
        f"{REACH:g} of its standard deviations away, at {name} from {where.min():g} to "
        f"{where.max():g}. Add a term such as linear or gp, or look at units."
    )
