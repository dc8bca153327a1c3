"""The paper's figures from our runs: scores and times, curves of one input, calibration."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from dvip.experiments.calibration import LEVELS
from dvip.experiments.methods import METHODS
from dvip.experiments.summaries import Cell, Summary

__all__ = ["calibration_figure", "curves_figure", "figures", "scores_figure"]

OURS, PAPER = "#1f5f99", "#c98a2b"
TRAIN, TEST, DRAWS, BAND = "#1b1b1e", "#d1495b", "#3f7d5b", "#d6e6f4"
MAX_COLUMNS = 4
# A method far from all others would squeeze them to a line: values beyond this many times the
# middle range of a panel are written at its edge.
FAR = 4.0
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
    first = metrics[0] if metrics else None
    if first is not None and first != "seconds" and len(summary.methods) > 1:
        drawn["scores"] = scores_figure(summary, first)
    if len(summary.methods) > 1:
        drawn["times"] = scores_figure(summary, "cpu_seconds", log=True)
    drawn |= {f"curves-{name}": curves_figure(cells) for name, cells in _curves(summary).items()}
    if any("coverage" in result.get("calibration", {}) for result in _results(summary)):
        drawn["calibration"] = calibration_figure(summary)
    return drawn


def _results(summary: Summary) -> Iterable[dict[str, Any]]:
    return (result for cell in summary.cells.values() for result in cell.finished)


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
    figure, panels = _panels(len(summary.datasets), 3.0, 0.8 + 0.24 * len(methods))
    handles: dict[str, Any] = {}
    for axes, dataset in zip(panels, summary.datasets, strict=True):
        _draw_panel(axes, summary, dataset, metric, handles)
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
            axes.set_xscale("log")
            axes.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
            axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
            axes.xaxis.set_minor_formatter(NullFormatter())
    figure.supxlabel(LABELS.get(metric, f"test {metric}"), size=10)
    figure.legend(
        handles.values(), handles.keys(), loc="outside upper right", ncols=2, frameon=False
    )
    return figure


def _draw_panel(
    axes: Axes, summary: Summary, dataset: str, metric: str, handles: dict[str, Any]
) -> None:
    points = []
    for place, method in enumerate(summary.methods):
        cell = summary.cells.get((dataset, method))
        if cell is None:
            continue
        for name, value, colour, marker, shift in (
            ("paper", cell.paper(metric), PAPER, "D", 0.16),
            ("dvip", cell.ours(metric), OURS, "o", -0.16),
        ):
            if value is not None:
                points.append((name, value, colour, marker, place + shift))
    limits = _limits([value.mean for _, value, *_ in points])
    for name, value, colour, marker, height in points:
        stderr = 0.0 if math.isnan(value.stderr) else value.stderr
        if limits is not None and not limits[0] <= value.mean <= limits[1]:
            edge, side = (limits[1], "right") if value.mean > limits[1] else (limits[0], "left")
            axes.text(edge, height, f"{value.mean:.3g}", color=colour, ha=side, va="center", size=8)
            continue
        handles[name] = axes.errorbar(
            value.mean, height, xerr=stderr, fmt=marker, color=colour, ms=4.5, capsize=2, lw=1.2
        )
    if limits is not None:
        margin = 0.06 * (limits[1] - limits[0])
        axes.set_xlim(limits[0] - margin, limits[1] + margin)


def _limits(values: Sequence[float]) -> tuple[float, float] | None:
    """The range to show where some values are far from all others; None if none is."""
    if len(values) < 4:
        return None
    low, high = np.quantile(values, [0.2, 0.8])
    width = max(high - low, 1e-9) * FAR
    near = [value for value in values if low - width <= value <= high + width]
    return None if len(near) == len(values) else (min(near), max(near))


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


def _draw_prediction(axes: Axes, drawn: dict[str, list]) -> None:
    grid = drawn["grid"]
    axes.fill_between(grid, drawn["lower"], drawn["upper"], color=BAND, lw=0, label="95 % interval")
    axes.plot(grid, drawn["mean"], color=OURS, lw=1.8, label="mean")
    axes.plot(drawn["test_x"], drawn["test_y"], ".", color=TEST, ms=2.5, label="held out")
    axes.plot(drawn["x"], drawn["y"], ".", color=TRAIN, ms=2.5, label="training")


def calibration_figure(summary: Summary) -> Figure:
    """Coverage of intervals against their probability, and histograms of the PIT, by method.

    All datasets and runs of a method are pooled, a row counts as a row.
    """
    methods = [m for m in summary.methods if any(c.finished for c in _of_method(summary, m))]
    figure = Figure(figsize=(2.1 * len(methods) + 0.6, 4.6), layout="constrained")
    grid = figure.subplots(2, len(methods), squeeze=False)
    for column, method in enumerate(methods):
        results = [result for cell in _of_method(summary, method) for result in cell.finished]
        rows = np.array([result["rows"]["test"] for result in results], float)
        coverage = np.array([result["calibration"]["coverage"] for result in results])
        pit = np.sum([result["calibration"]["pit"] for result in results], axis=0)
        top, bottom = grid[:, column]
        top.plot([0, 1], [0, 1], color="#b0b0b0", lw=1)
        top.plot(LEVELS, rows @ coverage / rows.sum(), color=OURS, lw=1.8)
        top.set(xlim=(0, 1), ylim=(0, 1), xticks=(0, 0.5, 1), yticks=(0, 0.5, 1), aspect="equal")
        top.set_title(METHODS[method].label, loc="left", size=10)
        heights = pit / pit.sum() * len(pit)
        edges = np.linspace(0, 1, len(pit) + 1)
        bottom.stairs(heights, edges, fill=True, color="#a9cbe6")
        bottom.axhline(1, color="#b0b0b0", lw=1)
        bottom.set(xlim=(0, 1), ylim=(0, max(2.0, 1.1 * heights.max())), xticks=(0, 0.5, 1))
        for axes in (top, bottom):
            axes.spines[["top", "right"]].set_visible(False)
            axes.tick_params(labelsize=8)
    grid[0, 0].set_ylabel("rows inside", size=9)
    grid[1, 0].set_ylabel("density", size=9)
    for axes in grid[0]:
        axes.set_xlabel("interval's probability", size=8)
    for axes in grid[1]:
        axes.set_xlabel("cdf at what happened", size=8)
    return figure


def _of_method(summary: Summary, method: str) -> list[Cell]:
    return [cell for (_, name), cell in summary.cells.items() if name == method]
