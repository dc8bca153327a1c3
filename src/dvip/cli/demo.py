"""A first look: the height of the ground along a line, learned from some of its points.

The data are a map of heights around the Jacksboro fault that comes with matplotlib.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import typer
from matplotlib import cbook
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.preprocessing import StandardScaler

from dvip.cli.console import print_metrics
from dvip.cli.fit import train_model
from dvip.distributions import GaussianMixture
from dvip.estimators.implicit_processes import DVIPRegressor
from dvip.files import check_writable
from dvip.metrics import regression_metrics
from dvip.tables import TableError, table_writer

__all__ = ["Profile", "demo_metrics", "demo_model", "demonstrate", "draw_figure", "load_profile"]

KM_PER_DEGREE = 111.2
MAP_ROW = 170
LENGTH_KM = 18.0
# Nothing is measured there: the interesting place of the figure.
GAP_KM = (10.8, 12.2)
MEASURED_SHARE = 0.5

NUM_DRAWS = 8
MARGIN_KM = 1.0


@dataclass(frozen=True)
class Profile:
    """Heights along a line: the points that a model may see, and the rest."""

    measured: pd.DataFrame
    unseen: pd.DataFrame


def load_profile() -> Profile:
    """Half of the points of a west-east line through the map, and none within the gap."""
    heights: Any = cbook.get_sample_data("jacksboro_fault_dem.npz")
    with heights:
        latitude = np.radians((heights["ymin"] + heights["ymax"]) / 2)
        spacing = float(heights["dx"] * KM_PER_DEGREE * np.cos(latitude))
        height = heights["elevation"][MAP_ROW].astype(float)
    km = spacing * np.arange(len(height))
    line = pd.DataFrame({"km": km.round(3), "height": height})[km <= LENGTH_KM]
    in_gap = line["km"].between(*GAP_KM)
    chosen = np.random.default_rng(0).random(len(line)) < MEASURED_SHARE
    return Profile(line[chosen & ~in_gap], line[~chosen | in_gap])


def demo_model(max_iter: int | None = None, verbose: bool = False) -> DVIPRegressor:
    """The default, which chooses by itself."""
    return DVIPRegressor(max_iter=max_iter, verbose=verbose)


def baseline_prediction(profile: Profile, inputs: pd.DataFrame) -> GaussianMixture:
    """scikit-learn's Gaussian process, fitted by its marginal likelihood: a Gaussian a row."""
    kernel = ConstantKernel() * RBF(0.1, (1e-2, 1e2)) + WhiteKernel(0.01, (1e-6, 1e1))
    process = GaussianProcessRegressor(kernel, normalize_y=True, random_state=0)
    scaler = StandardScaler().fit(profile.measured[["km"]])
    process.fit(scaler.transform(profile.measured[["km"]]), profile.measured["height"])
    mean, std = process.predict(scaler.transform(inputs), return_std=True)
    return GaussianMixture(mean[:, None], np.square(std)[:, None], np.zeros(()))


def demo_metrics(model: DVIPRegressor, profile: Profile) -> dict[str, dict[str, float]]:
    """The model and an exact Gaussian process on the points that neither has seen."""
    inputs, height = profile.unseen[["km"]], profile.unseen["height"].to_numpy()
    return {
        "DVIP": regression_metrics(model.predict_dist(inputs), height),
        "exact GP": regression_metrics(baseline_prediction(profile, inputs), height),
    }


def draw_figure(model: DVIPRegressor, profile: Profile, path: Path) -> None:
    """Mean, intervals, function draws, and what the model has and has not seen."""
    figure = Figure(figsize=(11, 6), layout="constrained")
    axes = figure.subplots()
    _draw_prediction(axes, model)
    _draw_points(axes, profile.unseen, size=2.8, colour="#d1495b", label="points held back")
    _draw_points(axes, profile.measured, size=4.2, colour="#1b1b1e", label="training points")
    axes.axvspan(*GAP_KM, color="#f4ecdd", lw=0, zorder=0)
    axes.text(
        float(np.mean(GAP_KM)),
        0.03,
        "no training\npoints here",
        transform=axes.get_xaxis_transform(),
        ha="center",
        color="#7a6a4f",
        size=9,
    )
    axes.set(xlim=(-MARGIN_KM, LENGTH_KM + MARGIN_KM), xlabel="distance [km]", ylabel="height [m]")
    axes.set_title("The ground along a line, and how sure the model is of it", loc="left", size=14)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=6, frameon=False, columnspacing=1.4)
    figure.savefig(path, dpi=150)


def _draw_points(axes: Axes, points: pd.DataFrame, *, size: float, colour: str, label: str) -> None:
    axes.plot(points["km"], points["height"], "o", color=colour, ms=size, mew=0, label=label)


def _draw_prediction(axes: Axes, model: DVIPRegressor) -> None:
    grid = np.linspace(-MARGIN_KM, LENGTH_KM + MARGIN_KM, 600)
    places = pd.DataFrame({"km": grid})
    distribution = model.predict_dist(places)
    for probability, colour in ((0.9, "#d6e6f4"), (0.5, "#a9cbe6")):
        lower, upper = distribution.interval(probability)
        label = f"{100 * probability:.0f} % interval"
        axes.fill_between(grid, lower, upper, color=colour, label=label, lw=0)
    draws = model.sample_functions(NUM_DRAWS, random_state=0)(places)
    lines = axes.plot(grid, draws.T, color="#3f7d5b", lw=0.8, alpha=0.8)
    lines[0].set_label(f"{NUM_DRAWS} function draws")
    axes.plot(grid, distribution.mean, color="#1f5f99", lw=2.2, label="mean")


def demonstrate(out: Path) -> None:
    """Runs the demonstration, with its files in the folder `out`."""
    if out.exists() and not out.is_dir():
        raise TableError(f"{out} is a file: give the name of a folder.")
    check_writable(out)
    profile = load_profile()
    measured, unseen = profile.measured, profile.unseen
    typer.echo("The height of the ground along a line of 18 km, from a map that is part of")
    typer.echo(f"matplotlib: {len(measured)} points to learn from, {len(unseen)} held back.")
    inputs, height = measured[["km"]], measured["height"].to_numpy()
    model = train_model(demo_model(verbose=True), inputs, height, num_rows=len(height))
    model.target_names_ = ("height",)  # for `dvip evaluate`
    print_metrics("On the points held back", demo_metrics(model, profile))
    write_files(out, model, profile)
    tell_next(out)


def write_files(out: Path, model: DVIPRegressor, profile: Profile) -> None:
    """The figure, the model and the tables."""
    out.mkdir(parents=True, exist_ok=True)
    draw_figure(model, profile, out / "figure.png")
    model.save(out / "model")
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
