"""`dvip demo`: trains, compares, draws, and leaves files to try the other commands with."""

from pathlib import Path

import typer

from dvip.cli.fitting import train_model
from dvip.cli.printing import print_metrics
from dvip.demo import Profile, demo_metrics, demo_model, draw_figure, load_profile
from dvip.estimators import DVIPRegressor
from dvip.estimators.saving import save_estimator
from dvip.tables import TableEncoder, TableError, check_folder, table_writer

__all__ = ["demonstrate"]


def demonstrate(out: Path) -> None:
    """Runs the demonstration, with its files in the folder `out`."""
    if out.exists() and not out.is_dir():
        raise TableError(f"{out} is a file: give the name of a folder.")
    check_folder(out)
    profile = load_profile()
    measured, unseen = profile.measured, profile.unseen
    typer.echo("The height of the ground along a line of 18 km, from a map that is part of")
    typer.echo(f"matplotlib: {len(measured)} points to learn from, {len(unseen)} held back.")
    inputs, height = measured[["km"]].to_numpy(), measured["height"].to_numpy()
    model = train_model(demo_model(verbose=True), inputs, height, num_rows=len(height))
    print_metrics("On the points held back", demo_metrics(model, profile))
    write_files(out, model, profile)
    tell_next(out)


def write_files(out: Path, model: DVIPRegressor, profile: Profile) -> None:
    """The figure, the model and the tables."""
    out.mkdir(parents=True, exist_ok=True)
    draw_figure(model, profile, out / "figure.png")
    encoder = TableEncoder.fit(profile.measured, targets=["height"])
    save_estimator(model, out / "model", table=encoder.to_json())
    for name, table in (("measured.csv", profile.measured), ("unseen.csv", profile.unseen)):
        with table_writer(out / name) as append:
            append(table)


def tell_next(out: Path) -> None:
    """What a newcomer can do now."""
    typer.echo(f"Look at {out / 'figure.png'}: the intervals are wider where there are no points.")
    typer.echo("Next, with the files in that folder or with a table of yours:")
    typer.echo(f"  dvip evaluate {out / 'model'} {out / 'unseen.csv'}")
    typer.echo(f"  dvip predict {out / 'model'} {out / 'unseen.csv'} --out predictions.csv")
    typer.echo(f"  dvip fit {out / 'measured.csv'} --target height --out my-model")
