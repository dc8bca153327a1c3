"""The commands and their options. What they do is imported when they run: `--help` is quick."""

import json
from pathlib import Path
from typing import Annotated

import typer

from dvip.cli.console import reports_errors
from dvip.cli.judgement import commands
from dvip.cli.options import (
    DEFAULT_MODEL,
    CoordinatorOption,
    DecimalOption,
    DistributedOption,
    EncodingOption,
    JsonOption,
    Model,
    ModelArgument,
    NumProcessesOption,
    ProcessIdOption,
    QuietOption,
    SepOption,
    TableArgument,
    Task,
    opened,
    printing,
)
from dvip.cli.prior import read_prior
from dvip.registry import LIKELIHOODS, PRIORS

__all__ = ["app"]

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # usage errors in plain lines
    help="""Deep Bayesian regression and classification, with honest error bars.

    \b
    A first look:       dvip demo
    Look at a prior:    dvip prior houses.csv --target price --prior "linear + gp" --out prior.png
    Train on a table:   dvip fit houses.csv --target price --out model
    Predict new rows:   dvip predict model new.csv --out predictions.csv
    Judge a model:      dvip evaluate model other.csv
    A page for a model: dvip report model other.csv --out page.html
    Compare models:     dvip compare houses.csv --target price
    What to measure:    dvip suggest model candidates.csv
    Known datasets:     dvip datasets

    Tables are CSV (.csv, .tsv, also .gz), Parquet (.parquet, .pq), Excel (.xlsx), folders of
    Parquet files, or - for standard input. CSV and Parquet may also be at an address: s3://,
    gs://, hdfs:// or file://.
    """,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from dvip import __version__

        typer.echo(f"dvip {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    show_version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    pass


@app.command()
@reports_errors
def fit(
    table: TableArgument,
    target: Annotated[
        list[str],
        typer.Option(help="The column to predict. Repeat it for several in a regression."),
    ],
    out: Annotated[Path, typer.Option(help="Folder for the model. A model there is replaced.")],
    task: Annotated[
        Task,
        typer.Option(
            help="auto: classification for text, true/false or two-valued targets, else regression."
        ),
    ] = Task.AUTO,
    noise_column: Annotated[
        list[str] | None,
        typer.Option(
            help="The column of the target's known errors, standard deviations in its unit. Repeat "
            "it for several targets, in their order."
        ),
    ] = None,
    weight: Annotated[
        str | None,
        typer.Option(help="The column that says how many times each row counts."),
    ] = None,
    drop: Annotated[
        list[str] | None, typer.Option(help="A column not to use. Repeat it for several.")
    ] = None,
    test_fraction: Annotated[
        float | None,
        typer.Option(
            min=0.001, max=0.999, help="Share of the rows to split off, for metrics on unseen data."
        ),
    ] = None,
    model: Annotated[
        Model,
        typer.Option(
            help="Deep variational implicit process, deep GP, sparse implicit process, or one of "
            "the methods that they are compared to (docs/neighbours.md)."
        ),
    ] = DEFAULT_MODEL,
    inference: Annotated[
        str | None,
        typer.Option(
            help="Of dvip. auto, the default: candidates are tried on rows that they leave out, "
            "and mixed. vi: one model as the options say, by default the paper's. mcmc: its "
            "posterior is sampled, also of deep-gp. exact: a Gaussian process in closed form."
        ),
    ] = None,
    layers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Layers; by default chosen, 3 with --inference vi and for deep-gp, 1 for sip.",
        ),
    ] = None,
    prior: Annotated[
        str | None,
        typer.Option(
            help=f"Prior over functions of dvip and sip: {PRIORS.listed()}, with options and "
            "combined by +, * and |, or curves(FILE), as for `dvip prior`; by default chosen, bnn "
            "with --inference vi and for sip."
        ),
    ] = None,
    likelihood: Annotated[
        str | None,
        typer.Option(
            help=f"Of the target given the functions: {LIKELIHOODS.listed()}; by default what "
            "suits the task."
        ),
    ] = None,
    prior_samples: Annotated[
        int | None,
        typer.Option(min=2, help="Prior functions of a layer; 20 by default, 200 for sip."),
    ] = None,
    alpha: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="Of the α-energy that is optimised, 0 is the ELBO; by default chosen, 0 with "
            "--inference vi and for deep-gp, 1 for sip.",
        ),
    ] = None,
    max_iter: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Training steps; by default chosen by the number of rows, with --inference vi "
            "50,000 (deep-gp 10,000, sip 3,000 a layer), and more for more than 2,000 rows.",
        ),
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Rows a step, of all processes together.")
    ] = None,
    learning_rate: Annotated[
        float | None, typer.Option(help="Of Adam, at the first step; for trainings that diverge.")
    ] = None,
    members: Annotated[
        int | None,
        typer.Option(
            min=1, help="Train so many models and average their predictions, as one; 5 is good."
        ),
    ] = None,
    validation_fraction: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            max=0.999,
            help="Share of the rows that the training leaves out, to score itself by and to stop "
            "when nothing improves.",
        ),
    ] = None,
    calibrate: Annotated[
        bool | None,
        typer.Option(
            "--calibrate/--no-calibrate",
            help="Correct the width of the intervals, or the probabilities, by rows that were left "
            "out.",
        ),
    ] = None,
    max_seconds: Annotated[
        float | None, typer.Option(help="End the training after so many seconds, where it is.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="The same number gives the same model.")] = 0,
    stream: Annotated[
        bool | None,
        typer.Option(
            "--stream/--no-stream",
            help="Read the table as it is needed, in bounded memory. By default, folders and "
            "tables of more than 20 million numbers.",
        ),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="Folder for checkpoints, from which --resume can go on."),
    ] = None,
    checkpoint_every: Annotated[
        int | None,
        typer.Option(min=1, help="Steps between two checkpoints; by default one a minute."),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on from the newest checkpoint, if there is one."),
    ] = False,
    report: Annotated[
        Path | None,
        typer.Option(
            help="HTML file for a page about the model, judged by the rows split off: 20 % of them "
            "unless --test-fraction says otherwise."
        ),
    ] = None,
    sep: SepOption = None,
    encoding: EncodingOption = None,
    decimal: DecimalOption = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
    distributed: DistributedOption = False,
    coordinator: CoordinatorOption = None,
    num_processes: NumProcessesOption = None,
    process_id: ProcessIdOption = None,
) -> None:
    """Train a model on a table.

    Numbers are used as they are, text with up to 20 different values becomes categories, gaps are
    filled. Columns that cannot be used are reported and left out.

    \b
    Examples:
      dvip fit houses.csv --target price --out model
      dvip fit iris.parquet --target species --out model --test-fraction 0.2
      dvip fit houses.csv --target price --out model --report page.html
      dvip fit lab.csv --target yield --out model --drop batch --layers 2 --max-iter 5000
      dvip fit lab.csv --target yield --out model --model deep-gp
      dvip fit lab.csv --target yield --out model --model sip
      dvip fit lab.csv --target yield --out model --model deep-ensemble
      dvip fit co2.csv --target ppm --out model --prior "linear + periodic(period=1) + gp"
      dvip fit lab.csv --target yield --out model --members 5 --calibrate
      dvip fit stars.csv --target flux --noise-column flux_error --out model
      dvip fit survey.csv --target income --weight persons --out model --json > fitted.json
      dvip fit werte.csv --target y --out model --sep ";" --decimal , --encoding latin-1
      dvip fit big.csv --target y --out model --checkpoint checkpoints --resume
      srun dvip fit big.csv --target y --out model --batch-size 4000 --distributed
      dvip fit folder_of_parquet --target yield --out model --max-iter 20000
    """
    from dvip.cli.fit import fit_table
    from dvip.cli.long_runs import Checkpointing, Distributing

    parameters = {
        "n_layers": layers,
        "prior": None if prior is None else read_prior(prior),
        "likelihood": likelihood,
        "n_prior_samples": prior_samples,
        "alpha": alpha,
        "random_state": seed,
        "max_iter": max_iter,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "n_members": members,
        "validation_fraction": validation_fraction,
        "calibrate": calibrate,
        "max_seconds": max_seconds,
        "inference": inference,
    }
    checkpointing = Checkpointing(checkpoint, checkpoint_every, resume)
    with (
        printing(quiet=quiet or as_json),
        opened(table, sep, encoding, decimal) as given,
        Distributing(distributed, coordinator, num_processes, process_id).together(),
    ):
        fitted = fit_table(
            given,
            out,
            model=model.value,
            targets=target,
            noise=noise_column or [],
            weight=weight,
            task=None if task is Task.AUTO else task.value,
            drop=drop or [],
            test_fraction=test_fraction,
            stream=stream,
            parameters={name: value for name, value in parameters.items() if value is not None},
            checkpointing=checkpointing,
            verbose=not quiet,
            report=report,
        )
    if as_json and fitted is not None:
        typer.echo(json.dumps(fitted, indent=1))


@app.command()
@reports_errors
def predict(
    model: ModelArgument,
    table: TableArgument,
    out: Annotated[
        Path,
        typer.Option(
            help="CSV or Parquet file for the predictions, one that is there is replaced; - is "
            "standard output."
        ),
    ],
    quantiles: Annotated[
        str, typer.Option(help="Quantiles for a regression, separated by commas.")
    ] = "0.05,0.25,0.5,0.75,0.95",
    samples: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Samples sent through the layers for each row; those of the model, usually 100, "
            "by default. Fewer are faster.",
        ),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            help="A column of the table to copy to the predictions. Repeat it for several."
        ),
    ] = None,
    digits: Annotated[
        int | None,
        typer.Option(
            "--precision",
            min=1,
            max=17,
            help="Digits of each number in a text file; all of them by default.",
        ),
    ] = None,
    sep: SepOption = None,
    encoding: EncodingOption = None,
    decimal: DecimalOption = None,
    quiet: QuietOption = False,
    distributed: DistributedOption = False,
    coordinator: CoordinatorOption = None,
    num_processes: NumProcessesOption = None,
    process_id: ProcessIdOption = None,
) -> None:
    """Predict every row of a table, in the order of its rows.

    A regression gives mean, std and quantiles (q05, q25, ...), of several targets each with its
    name before them (price_mean); a classification gives prediction and the probability of every
    class (p_...). The memory needed does not grow with the table.
    A model that was fitted with --noise-column adds the errors of that column, where it is there.
    Of several processes, each writes a file of its own with its part of the rows.

    \b
    Examples:
      dvip predict model new.csv --out predictions.csv
      dvip predict model new.parquet --out predictions.parquet --quantiles 0.1,0.5,0.9
      dvip predict model folder_of_parquet --out predictions.parquet --samples 10
      dvip predict model new.xlsx --out predictions.csv --keep id --precision 4
      cat new.csv | dvip predict model - --out - | head
    """
    from dvip.cli.long_runs import Distributing
    from dvip.cli.predict import parse_quantiles, predict_table

    distributing = Distributing(distributed, coordinator, num_processes, process_id)
    levels = parse_quantiles(quantiles)
    with opened(table, sep, encoding, decimal) as given:
        predict_table(
            model,
            given,
            out,
            levels,
            samples,
            distributing.part(),
            keep=keep or [],
            digits=digits,
            quiet=quiet,
        )


@app.command()
@reports_errors
def suggest(
    model: ModelArgument,
    table: TableArgument,
    number: Annotated[int | None, typer.Option(min=1, help="How many rows; up to 10.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="CSV or Parquet file for these rows, instead of a list.")
    ] = None,
    sep: SepOption = None,
    encoding: EncodingOption = None,
    decimal: DecimalOption = None,
) -> None:
    """Say which rows of a table to measure next, to learn most about all of them.

    Rows are chosen one after another, so that none tells what another has told. Each has its
    number, counted from 1, and by what share it would reduce the mean variance of the function.

    \b
    Examples:
      dvip suggest model candidates.csv --number 5
      dvip suggest model candidates.csv --number 96 --out plate.csv
    """
    from dvip.cli.suggestions import suggest_rows

    with opened(table, sep, encoding, decimal) as given:
        suggest_rows(model, given, number, out)


@app.command()
@reports_errors
def demo(
    out: Annotated[
        Path, typer.Option(help="Folder for the figure, the model and two tables.")
    ] = Path("dvip-demo"),
) -> None:
    """Train on data that came with the installation, and draw what was learned.

    \b
    Examples:
      dvip demo
      dvip demo --out pictures
    """
    from dvip.cli.demo import demonstrate

    demonstrate(out)


app.add_typer(commands)
