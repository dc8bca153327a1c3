"""The paper's figures from our runs: scores and times, curves of one input, calibration."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from dvip.paper.execution import LEVELS
from dvip.paper.grids import METHODS
from dvip.paper.summaries import Cell, Estimate, Summary, higher_is_better

__all__ = [
    "calibration_figure",
    "curves_figure",
    "figures",
    "reliability_figure",
    "scores_figure",
    "side_by_side_figure",
]

OURS, PAPER = "#1f5f99", "#c98a2b"
TRAIN, TEST, DRAWS, BAND = "#1b1b1e", "#d1495b", "#3f7d5b", "#d6e6f4"
MAX_COLUMNS, MAX_CALIBRATIONS = 4, 12
# A method far worse than all others would squeeze them to a line: up to a quarter of a panel's
# values is written at its edge where the others then have so many times the space.
FAR = 5.0
LABELS = {
    "nll": "test negative log-likelihood",
    "accuracy": "test accuracy",
    "cpu_seconds": "CPU seconds of training",
    "seconds": "seconds of training",
}


def figures(summary: Summary) -> dict[str, Figure]:
    """What there is to draw of an experiment, by name."""
    drawn: dict[str, Figure] = {}
    if not summary.cells:
        return drawn
    metrics = list(summary.metrics())
    if metrics and not summary.experiment.timed and len(summary.methods) > 1:
        drawn["scores"] = scores_figure(summary, metrics[0])
    if len(summary.methods) > 1:
        drawn["times"] = scores_figure(summary, "cpu_seconds", log=True)
    for name, cells in _curves(summary).items():
        if len(cells) <= MAX_COLUMNS and all(_has_prior(cell) for cell in cells):
            drawn[f"curves-{name}"] = curves_figure(cells)
        else:
            drawn[f"side-by-side-{name}"] = side_by_side_figure(cells)
    if not summary.experiment.timed:
        drawn |= _calibration(summary)
    return drawn


def _calibration(summary: Summary) -> dict[str, Figure]:
    """The calibration of intervals or of classes, whatever the methods predict."""
    results = {method: _finished(summary, method) for method in summary.methods}
    known = {
        method: found
        for method, found in results.items()
        if found and all("calibration" in result for result in found)
    }
    if not known:
        return {}
    first = next(iter(known.values()))[0]["calibration"]
    if "coverage" in first:
        return {"calibration": calibration_figure(known)}
    return {"reliability": reliability_figure(known)}


def _finished(summary: Summary, method: str) -> list[dict[str, Any]]:
    """What all runs of a method gave, on whatever dataset."""
    return [
        result
        for (_, name), cell in summary.cells.items()
        if name == method
        for result in cell.finished
    ]


def _panels(number: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    columns = min(number, MAX_COLUMNS)
    rows = -(-number // columns)
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    for empty in axes[number:]:
        empty.set_axis_off()
    return figure, axes[:number]


def scores_figure(summary: Summary, metric: str, *, log: bool = False) -> Figure:
    """A panel a dataset with a line a method: ours and the paper's, with standard errors."""
    methods = summary.methods
    figure, panels = _panels(len(summary.datasets), 3.0, 1.1 + 0.24 * len(methods))
    handles: dict[str, Any] = {}
    for axes, dataset in zip(panels, summary.datasets, strict=True):
        points = _points(summary, dataset, metric)
        values = [point.value.mean for point in points]
        limits = None if log else _limits(values, higher_is_better(metric))
        handles |= _draw_points(axes, points, limits)
        axes.set_title(dataset, loc="left", size=11)
        first_column = axes.get_subplotspec().is_first_col()  # type: ignore[union-attr]
        names = [METHODS[method].label for method in methods]
        axes.set_yticks(range(len(methods)), names if first_column else [""] * len(methods))
        axes.set_ylim(len(methods) - 0.4, -0.6)
        axes.grid(axis="x", color="#e6e6e6", lw=0.7)
        axes.set_axisbelow(True)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(axis="y", length=0)
        if log:
            _set_decades(axes)
    figure.supxlabel(LABELS.get(metric, f"test {metric}"), size=10)
    figure.legend(
        handles.values(), handles.keys(), loc="outside upper right", ncols=2, frameon=False
    )
    return figure


def _set_decades(axes: Axes) -> None:
    """A logarithmic scale of a decade at least, so that small differences look small."""
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    more = max(1.0, math.sqrt(10 * low / high))
    axes.set_xlim(low / more, high * more)
    # Over more than three decades, labels of 3, 30, ... would run into the others.
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 3) if high < 1_000 * low else (1,)))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


class _Point(NamedTuple):
    source: str  # "dvip" or "paper"
    value: Estimate
    height: float


def _points(summary: Summary, dataset: str, metric: str) -> list[_Point]:
    points = []
    for place, method in enumerate(summary.methods):
        cell = summary.cells.get((dataset, method))
        ours = None if cell is None else cell.ours(metric)
        pair = (("dvip", ours), ("paper", summary.paper(dataset, method, metric)))
        known = [(source, value) for source, value in pair if value is not None]
        # Two of them stand one above the other.
        shifts = (-0.16, 0.16) if len(known) == 2 else (0.0,)
        points += [_Point(*item, place + shift) for item, shift in zip(known, shifts, strict=False)]
    return points


def _draw_points(
    axes: Axes, points: Sequence[_Point], limits: tuple[float, float] | None
) -> dict[str, Any]:
    """Returns what stands for each source in a legend."""
    handles = {}
    for source, value, height in points:
        colour, marker = (OURS, "o") if source == "dvip" else (PAPER, "D")
        stderr = 0.0 if math.isnan(value.stderr) else value.stderr
        if limits is not None and not limits[0] <= value.mean <= limits[1]:
            edge, side = (limits[1], "right") if value.mean > limits[1] else (limits[0], "left")
            axes.text(edge, height, f"{value.mean:.3g}", color=colour, ha=side, va="center", size=8)
            continue
        handles[source] = axes.errorbar(
            value.mean, height, xerr=stderr, fmt=marker, color=colour, ms=4.5, capsize=2, lw=1.2
        )
    if limits is not None:
        margin = 0.06 * (limits[1] - limits[0])
        axes.set_xlim(limits[0] - margin, limits[1] + margin)
    return handles


def _limits(values: Sequence[float], higher_is_better: bool) -> tuple[float, float] | None:
    """The range to show where some values are far worse than all others; None if none is."""
    ordered = sorted(values, reverse=higher_is_better)  # from the best to the worst
    for number in range(len(ordered) // 4, 0, -1):
        near = ordered[:-number]
        if abs(ordered[-number] - near[0]) > FAR * abs(near[-1] - near[0]):
            return min(near), max(near)
    return None


def _curves(summary: Summary) -> dict[str, list[Cell]]:
    """For each dataset of one input, the cells with curves."""
    cells: dict[str, list[Cell]] = {}
    for (dataset, _), cell in summary.cells.items():
        if cell.finished and "curve" in cell.finished[0]:
            cells.setdefault(dataset, []).append(cell)
    return cells


def curves_figure(cells: Sequence[Cell]) -> Figure:
    """For each method, its prediction with 95 % intervals, and draws from its learned prior."""
    figure = Figure(figsize=(5 * len(cells), 6.4), layout="constrained")
    panels = figure.subplots(2, len(cells), squeeze=False, sharex=True)
    for column, cell in enumerate(cells):
        drawn = cell.finished[0]["curve"]
        _draw_prediction(panels[0, column], drawn)
        panels[0, column].set_title(METHODS[cell.method].label, loc="left", size=12)
        lines = panels[1, column].plot(
            drawn["grid"], np.transpose(drawn["prior_draws"]), color=DRAWS, lw=0.9
        )
        lines[0].set_label("draws from the learned prior")
    for axes in panels.flat:
        axes.spines[["top", "right"]].set_visible(False)
    limits = [limit for axes in panels[0] for limit in axes.get_ylim()]
    for axes in panels[0]:
        axes.set_ylim(min(limits), max(limits))
    handles = [handle for axes in panels[:, 0] for handle in axes.get_legend_handles_labels()[0]]
    figure.legend(handles=handles, loc="outside lower center", ncols=5, frameon=False)
    return figure


def _has_prior(cell: Cell) -> bool:
    return "prior_draws" in cell.finished[0]["curve"]


def side_by_side_figure(cells: Sequence[Cell]) -> Figure:
    """A panel for each method: its prediction with 95 % intervals, and draws of its posterior."""
    figure, panels = _panels(len(cells), 3.4, 2.3)
    curves = [cell.finished[0]["curve"] for cell in cells]
    points = np.concatenate([[*drawn["y"], *drawn["test_y"]] for drawn in curves])
    margin = 0.35 * np.ptp(points)
    for axes, cell, drawn in zip(panels, cells, curves, strict=True):
        _draw_prediction(axes, drawn)
        if "draws" in drawn:
            lines = axes.plot(drawn["grid"], np.transpose(drawn["draws"]), color=DRAWS, lw=0.5)
            lines[0].set_label("draws of the posterior")
        axes.set_title(METHODS[cell.method].label, loc="left", size=10)
        axes.set_ylim(points.min() - margin, points.max() + margin)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=7)
    handles = panels[0].get_legend_handles_labels()[0]
    figure.legend(handles=handles, loc="outside lower center", ncols=5, frameon=False)
    return figure


def _draw_prediction(axes: Axes, drawn: dict[str, list]) -> None:
    grid = drawn["grid"]
    axes.fill_between(grid, drawn["lower"], drawn["upper"], color=BAND, lw=0, label="95 % interval")
    axes.plot(drawn["test_x"], drawn["test_y"], ".", color=TEST, ms=2, label="held out")
    axes.plot(drawn["x"], drawn["y"], ".", color=TRAIN, ms=2, label="training")
    # Above the points: where there are many, they would hide it.
    axes.plot(grid, drawn["mean"], color=OURS, lw=1.2, label="mean", zorder=3)


def calibration_figure(results_by_method: Mapping[str, Sequence[dict[str, Any]]]) -> Figure:
    """Coverage of intervals against their probability, and histograms of the PIT, by method.

    All datasets and runs of a method are pooled, a row counts as a row.
    """
    columns = min(len(results_by_method), MAX_CALIBRATIONS)
    bands = -(-len(results_by_method) // columns)
    figure = Figure(figsize=(2.1 * columns + 0.6, 4.6 * bands), layout="constrained")
    grid = figure.subplots(2 * bands, columns, squeeze=False)
    for axes in grid.flat:
        axes.set_visible(False)
    for place, (method, results) in enumerate(results_by_method.items()):
        rows = np.array([result["rows"]["test"] for result in results], float)
        coverage = np.array([result["calibration"]["coverage"] for result in results])
        pit = np.sum([result["calibration"]["pit"] for result in results], axis=0)
        band, column = divmod(place, columns)
        top, bottom = grid[2 * band : 2 * band + 2, column]
        for axes in (top, bottom):
            axes.set_visible(True)
        _draw_diagonal(top, method)
        top.plot(LEVELS, rows @ coverage / rows.sum(), color=OURS, lw=1.8)
        heights = pit / pit.sum() * len(pit)
        edges = np.linspace(0, 1, len(pit) + 1)
        bottom.stairs(heights, edges, fill=True, color="#a9cbe6")
        bottom.axhline(1, color="#b0b0b0", lw=1)
        bottom.set(xlim=(0, 1), ylim=(0, max(2.0, 1.1 * heights.max())), xticks=(0, 0.5, 1))
        bottom.spines[["top", "right"]].set_visible(False)
        bottom.tick_params(labelsize=8)
        top.set_xlabel("interval's probability", size=8)
        bottom.set_xlabel("cdf at what happened", size=8)
        if column == 0:
            top.set_ylabel("rows inside", size=9)
            bottom.set_ylabel("density", size=9)
    return figure


def reliability_figure(results_by_method: Mapping[str, Sequence[dict[str, Any]]]) -> Figure:
    """How often predictions of classes are right, against the probability they were given.

    A point a bin of probabilities, as large as its share of the rows, all datasets and runs pooled.
    """
    figure = Figure(figsize=(2.1 * len(results_by_method) + 0.6, 2.6), layout="constrained")
    grid = figure.subplots(1, len(results_by_method), squeeze=False)[0]
    for axes, (method, results) in zip(grid, results_by_method.items(), strict=True):
        rows, confidence, correct = (
            np.sum([result["calibration"][name] for result in results], axis=0)
            for name in ("rows", "confidence", "correct")
        )
        filled = rows > 0
        rows, confidence, correct = rows[filled], confidence[filled], correct[filled]
        _draw_diagonal(axes, method)
        sizes = 8 + 150 * rows / rows.sum()
        axes.scatter(confidence / rows, correct / rows, sizes, color=OURS, alpha=0.7, clip_on=False)
        axes.set_xlabel("predicted probability", size=8)
    grid[0].set_ylabel("predictions right", size=9)
    return figure


def _draw_diagonal(axes: Axes, method: str) -> None:
    """A square for shares against probabilities, with the line of an honest model."""
    axes.plot([0, 1], [0, 1], color="#b0b0b0", lw=1)
    axes.set(xlim=(0, 1), ylim=(0, 1), xticks=(0, 0.5, 1), yticks=(0, 0.5, 1), aspect="equal")
    axes.set_title(METHODS[method].label, loc="left", size=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
