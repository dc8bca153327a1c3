"""The commands that judge models: `dvip evaluate` and `dvip compare`.

What they do is imported when they run: `--help` is quick.
"""

from pathlib import Path
from typing import Annotated

import typer

from dvip.cli.console import reports_errors
from dvip.cli.options import (
    DecimalOption,
    EncodingOption,
    JsonOption,
    ModelArgument,
    QuietOption,
    SepOption,
    TableArgument,
    Task,
    opened,
    printing,
)

__all__ = ["commands"]

commands = typer.Typer()


@commands.command()
@reports_errors
def evaluate(
    model: ModelArgument,
    table: TableArgument,
    target: Annotated[
        list[str] | None,
        typer.Option(help="The target column; needed only for models that Python code saved."),
    ] = None,
    noise_column: Annotated[
        list[str] | None,
        typer.Option(help="The column of known errors; needed only where --target is."),
    ] = None,
    as_json: JsonOption = False,
    plot: Annotated[
        Path | None,
        typer.Option(
            help="File for a picture of the calibration: .png, .pdf or .svg. One that is there is "
            "replaced."
        ),
    ] = None,
    sep: SepOption = None,
    encoding: EncodingOption = None,
    decimal: DecimalOption = None,
) -> None:
    """Compare a model's predictions with what a table says.

    Regression: nll, rmse, crps, and the share of rows within the central 50, 90 and 95 %
    intervals. Classification: accuracy, log_likelihood, ece, and auc for two classes.

    \b
    Examples:
      dvip evaluate model other.csv
      dvip evaluate model other.csv --json > scores.json
      dvip evaluate model other.csv --plot calibration.png
    """
    from dvip.cli.predict import evaluate_table

    with opened(table, sep, encoding, decimal) as given:
        evaluate_table(model, given, target or [], noise_column or [], as_json=as_json, plot=plot)


@commands.command()
@reports_errors
def compare(
    table: TableArgument,
    target: Annotated[str, typer.Option(help="The column to predict.")],
    task: Annotated[
        Task,
        typer.Option(
            help="auto: classification for text, true/false or two-valued targets, else regression."
        ),
    ] = Task.AUTO,
    drop: Annotated[
        list[str] | None, typer.Option(help="A column not to use. Repeat it for several.")
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(help="Only this method, by the name in the table. Repeat it for several."),
    ] = None,
    folds: Annotated[int, typer.Option(min=2, help="Parts that are left out in turn.")] = 5,
    max_rows: Annotated[
        int, typer.Option(min=20, help="Rows, chosen at random, that are used of a larger table.")
    ] = 5_000,
    max_iter: Annotated[
        int | None, typer.Option(min=1, help="Training steps of dvip's models, for a quick look.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of folds and models.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option(help="CSV or Parquet file for the scores of every method and fold."),
    ] = None,
    sep: SepOption = None,
    encoding: EncodingOption = None,
    decimal: DecimalOption = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Train dvip's models and scikit-learn's on the same folds of a table, and compare them.

    Every row is predicted once, by models that did not see it. Text is encoded and gaps are filled
    in the same way for all of them. Errors are standard errors over the folds.

    \b
    Examples:
      dvip compare houses.csv --target price
      dvip compare iris.csv --target species --folds 3 --json > scores.json
      dvip compare houses.csv --target price --method dvip --method "gradient boosting"
    """
    from dvip.cli.comparison import compare_table

    with printing(quiet=quiet), opened(table, sep, encoding, decimal) as given:
        compare_table(
            given,
            target,
            task=None if task is Task.AUTO else task.value,
            drop=drop or [],
            methods=method or [],
            num_folds=folds,
            max_rows=max_rows,
            max_iter=max_iter,
            seed=seed,
            out=out,
            as_json=as_json,
            quiet=quiet,
        )
