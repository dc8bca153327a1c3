"""The results as pictures: time against NLL for each dataset, and the time of a step."""

from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from contestants import DEEP_GP, DVIP, ENSEMBLE, EXACT_GP, NGBOOST
from report.summaries import Quality, Rounds, different, matching, qualities, round_ratios
from results_file import Entry
from tables import PAPER_NLL

COLOURS = {
    DVIP: "#0072b2",
    DEEP_GP: "#d55e00",
    EXACT_GP: "#009e73",
    NGBOOST: "#cc79a7",
    ENSEMBLE: "#e69f00",
}
MARKERS = {DVIP: "o", DEEP_GP: "s", EXACT_GP: "D", NGBOOST: "^", ENSEMBLE: "v"}
STYLE = {
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titleweight": "bold",
    "axes.axisbelow": True,
    "grid.color": "#e5e5e5",
}
COLUMNS = 3


def plot_quality(entries: list[Entry], path: Path) -> None:
    """A panel for each dataset: left and down is better."""
    datasets = different(entries, "dataset")
    columns = min(COLUMNS, len(datasets) + 1)
    rows = -(-(len(datasets) + 1) // columns)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(3.6 * columns, 3.0 * rows), layout="constrained")
        panels = np.ravel(figure.subplots(rows, columns))
        for axes, dataset in zip(panels, datasets, strict=False):
            _draw_dataset(axes, dataset, qualities(entries, dataset))
        for axes in panels[len(datasets) :]:
            axes.axis("off")
        _draw_legend(panels[len(datasets)], different(entries, "contestant"))
        figure.suptitle("Test NLL against seconds of training, compilation included", weight="bold")
        figure.savefig(path, dpi=160)


def _draw_dataset(axes: Axes, dataset: str, of_dataset: list[Quality]) -> None:
    ceiling = _ceiling(dataset, of_dataset)
    for name in dict.fromkeys(quality.contestant for quality in of_dataset):
        points = [quality for quality in of_dataset if quality.contestant == name]
        axes.errorbar(
            [point.seconds.mean for point in points],
            [min(point.nll.mean, ceiling) for point in points],
            yerr=[_error(point) if point.nll.mean <= ceiling else 0.0 for point in points],
            color=COLOURS[name],
            marker=MARKERS[name],
            markersize=6 if name == DVIP else 7,
            linewidth=1.8,
            elinewidth=1.0,
            capsize=2.5,
            zorder=3 if name == DVIP else 2,
        )
    for point in of_dataset:
        _annotate(axes, point, ceiling)
    if dataset in PAPER_NLL:
        axes.axhline(PAPER_NLL[dataset], color="#555555", linestyle="--", linewidth=1.0, zorder=1)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.margins(x=0.1)
    axes.set_title(dataset)
    axes.set_xlabel("seconds")
    axes.set_ylabel("test NLL")
    axes.grid(True)


def _ceiling(dataset: str, of_dataset: list[Quality]) -> float:
    """What is worse than this is drawn at the edge: it would squeeze all that is of interest."""
    of_dvip = [point.nll.mean for point in of_dataset if point.contestant == DVIP]
    worst = max([*of_dvip, PAPER_NLL.get(dataset, -np.inf)])
    best = min(point.nll.mean for point in of_dataset)
    return best + 1.5 * (worst - best) if worst > best else np.inf


def _error(point: Quality) -> float:
    return 0.0 if np.isnan(point.nll.error) else point.nll.error


def _annotate(axes: Axes, point: Quality, ceiling: float) -> None:
    """dvip's steps; the value of a point that was moved to the edge."""
    if point.nll.mean > ceiling:
        text, offset = f"↑ {point.nll.mean:.1f}", (0, -12)
    elif point.contestant == DVIP:
        text, offset = f"{point.settings['max_iter'] / 1000:g}k", (6, 5)
    else:
        return
    axes.annotate(
        text,
        (point.seconds.mean, min(point.nll.mean, ceiling)),
        xytext=offset,
        textcoords="offset points",
        ha="left" if offset[0] else "center",
        va="bottom" if offset[0] else "top",
        fontsize=7,
        color=COLOURS[point.contestant],
    )


def _draw_legend(axes: Axes, names: list[str]) -> None:
    for name in names:
        label = "dvip, 3 layers (thousands of steps)" if name == DVIP else name
        line = "-" if name == DVIP else ""
        axes.plot([], [], color=COLOURS[name], marker=MARKERS[name], linestyle=line, label=label)
    axes.plot([], [], color="#555555", linestyle="--", label="the paper's DVIP 3")
    axes.legend(loc="center", frameon=False, title="± one standard error over the splits")


def plot_steps(entries: list[Entry], path: Path) -> None:
    """Bars on a logarithmic scale, the middle half of the rounds on top, the ratio above."""
    depths = sorted(different(entries, "layers"))
    names = [name for name in (DVIP, DEEP_GP) if matching(entries, contestant=name)]
    width = 0.8 / len(names)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(5.6, 3.6), layout="constrained")
        axes = figure.subplots()
        for place, name in enumerate(names):
            times = [
                Rounds.of(
                    1e3 * run["seconds"] for run in matching(entries, layers=depth, contestant=name)
                )
                for depth in depths
            ]
            medians = np.array([time.median for time in times])
            noise = [
                medians - [time.low for time in times],
                [time.high for time in times] - medians,
            ]
            bars = axes.bar(
                np.arange(len(depths)) + (place - (len(names) - 1) / 2) * width,
                medians,
                width,
                yerr=noise,
                color=COLOURS[name],
                label=name,
                error_kw={"elinewidth": 1.0, "capsize": 2.5},
            )
            labels = [f"{median:.2g}" for median in medians]
            if name == DVIP:
                labels = [
                    _with_ratio(label, entries, depth)
                    for label, depth in zip(labels, depths, strict=True)
                ]
            axes.bar_label(bars, labels, padding=3, fontsize=8)
        axes.set_yscale("log")
        axes.margins(y=0.15)
        axes.set_xticks(range(len(depths)), [str(depth) for depth in depths])
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.set_xlabel("layers")
        axes.set_ylabel("milliseconds")
        axes.set_title("A training step on a batch of 100 rows")
        axes.grid(True, axis="y")
        axes.legend(frameon=False, loc="upper left")
        figure.savefig(path, dpi=160)


def _with_ratio(label: str, entries: list[Entry], depth: int) -> str:
    ratios = round_ratios(
        entries,
        {"layers": depth, "contestant": DEEP_GP},
        {"layers": depth, "contestant": DVIP},
    )
    return f"{label}\n({ratios.median:.0f}×)" if ratios else label
