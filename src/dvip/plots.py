"""Pictures of how good predictions are, from counts that were gathered block by block."""

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from dvip.files import check_writable, replace_file
from dvip.metrics import ClassificationScores, RegressionScores

__all__ = ["calibration_figure", "check_picture", "image", "prior_figure", "write_picture"]

KINDS = ("png", "pdf", "svg")
OURS, HONEST, CHANCE, NOTES = "#1f5f99", "#6b6b70", "#e7e7ea", "#8a8a90"
FAR = "#d1495b"
# Bars of the histogram: some bins of the counts each.
NUM_BARS = 20
# Bins of fewer rows than these say nothing, and are not drawn.
FEW_ROWS = 10
# Standard errors of an honest model that are shaded.
ERRORS = 2.0


def calibration_figure(judged: RegressionScores | ClassificationScores, title: str = "") -> Figure:
    """How honest the probabilities of a model are, on the rows that were judged.

    Parameters
    ----------
    judged : RegressionScores or ClassificationScores
        As `dvip.metrics.judged` gives them. Of a regression, the picture is a histogram of the
        predictive cdf at what was observed, flat for an honest model, and the observed coverage of
        central intervals against the promised one. Of a classification it is how often the
        predicted class was right against its probability, and a histogram of that probability.
    title : str
        Of the whole figure; the metrics are in a line below it.

    Returns
    -------
    Figure
        Of matplotlib; `write_picture` writes it.
    """
    figure = Figure(figsize=(10, 4.9), layout="constrained")
    left, right = figure.subplots(1, 2)
    if isinstance(judged, RegressionScores):
        _draw_levels(left, judged)
        _draw_coverage(right, judged)
    else:
        _draw_reliability(left, judged)
        _draw_confidences(right, judged)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_axisbelow(True)
    metrics = "    ".join(
        f"{name.replace('_', ' ')} {value:.3g}"
        for name, value in judged.metrics().items()
        if not name.startswith("coverage")  # the picture has more of them
    )
    # (Dollars in the name of a file are no formulas.)
    figure.suptitle(f"{title}\n" if title else "", x=0.01, ha="left", size=13, parse_math=False)
    figure.text(0.01, 0.925, metrics, color=NOTES, size=10)
    return figure


def _draw_levels(axes: Axes, judged: RegressionScores) -> None:
    """A histogram of the predictive cdf at the targets, relative to that of an honest model."""
    counts = judged.levels.reshape(NUM_BARS, -1).sum(axis=1)
    number, edges = counts.sum(), np.linspace(0, 1, NUM_BARS + 1)
    chance = ERRORS * np.sqrt((NUM_BARS - 1) / number)
    axes.axhspan(max(0.0, 1 - chance), 1 + chance, color=CHANCE, lw=0, label="chance")
    heights = counts * NUM_BARS / number
    axes.bar(edges[:-1], heights, 1 / NUM_BARS, align="edge", color=OURS, ec="white", alpha=0.85)
    axes.axhline(1, color=HONEST, ls="--", lw=1.2, label="honest")
    axes.set(xlim=(0, 1), ylim=(0, max(2.0, 1.15 * heights.max())))
    axes.set(xlabel="predictive cdf at the observed target", ylabel="relative frequency")
    axes.set_title("Where the targets fell", loc="left", size=11)
    axes.legend(loc="upper right", frameon=False, ncols=2, fontsize=9)


def _draw_coverage(axes: Axes, judged: RegressionScores) -> None:
    """Which share of the targets was inside central intervals."""
    promised, observed = judged.coverage()
    chance = ERRORS * np.sqrt(promised * (1 - promised) / judged.levels.sum())
    axes.fill_between(promised, promised - chance, promised + chance, color=CHANCE, lw=0)
    axes.plot([0, 1], [0, 1], color=HONEST, ls="--", lw=1.2)
    axes.plot(promised, observed, color=OURS, lw=2.2)
    for percent in (50, 90):
        share = float(np.interp(percent / 100, promised, observed))
        axes.plot(percent / 100, share, "o", color=OURS, ms=6, mec="white", zorder=3)
        axes.annotate(
            f"{percent} % intervals hold {100 * share:.0f} %",
            (percent / 100, share),
            (-8, 6),
            textcoords="offset points",
            ha="right",
            size=9,
            bbox={"fc": "white", "ec": "none", "alpha": 0.8, "pad": 1},
        )
    axes.text(0.03, 0.95, "intervals too wide", color=NOTES, size=9, va="top")
    axes.text(0.97, 0.03, "intervals too narrow", color=NOTES, size=9, ha="right")
    axes.set(xlim=(0, 1), ylim=(0, 1.02), xlabel="promised coverage", ylabel="observed coverage")
    axes.set_title("Central intervals", loc="left", size=11)


def _draw_reliability(axes: Axes, judged: ClassificationScores) -> None:
    """How often the predicted class was right, with standard errors, against its probability."""
    held = judged.confidence_counts >= min(FEW_ROWS, judged.confidence_counts.max())
    counts = judged.confidence_counts[held]
    confidence = judged.confidence_sums[held] / counts
    accuracy = judged.right_counts[held] / counts
    # Of an honest model in a bin of so many rows.
    chance = ERRORS * np.sqrt(confidence * (1 - confidence) / counts)
    axes.plot([0, 1], [0, 1], color=HONEST, ls="--", lw=1.2, label="honest")
    axes.errorbar(
        confidence, confidence, chance, fmt="none", color=CHANCE, elinewidth=7, label="chance"
    )
    axes.plot(confidence, accuracy, "o-", color=OURS, lw=1.6, ms=6, mec="white", label="the model")
    least = np.floor(10 * min(confidence.min(), accuracy.min(), 0.9)) / 10
    axes.set(xlim=(least, 1.01), ylim=(least, 1.02))
    axes.text(0.03, 0.95, "too modest", color=NOTES, size=9, va="top", transform=axes.transAxes)
    axes.text(0.97, 0.03, "too sure", color=NOTES, size=9, ha="right", transform=axes.transAxes)
    axes.set(xlabel="probability of the predicted class", ylabel="share that was right")
    axes.set_title("Reliability", loc="left", size=11)
    axes.legend(loc="lower right", bbox_to_anchor=(1, 0.06), frameon=False, fontsize=9)


def _draw_confidences(axes: Axes, judged: ClassificationScores) -> None:
    """How sure the model was, on average as sure as it was right if it is honest."""
    counts, number = judged.confidence_counts, judged.num_rows
    edges = np.linspace(0, 1, len(counts) + 1)
    widths = edges[1] - edges[0]
    axes.bar(edges[:-1], counts / number, widths, align="edge", color=OURS, ec="white", alpha=0.85)
    for value, colour, style, label in (
        (judged.confidence_sums.sum() / number, HONEST, "--", "mean probability"),
        (judged.right_counts.sum() / number, "#d1495b", "-", "accuracy"),
    ):
        axes.axvline(value, color=colour, ls=style, lw=1.6, label=f"{label} {value:.3f}")
    axes.set(xlim=(edges[np.flatnonzero(counts)[0]], 1))
    axes.set(xlabel="probability of the predicted class", ylabel="share of the rows")
    axes.set_title("How sure it was", loc="left", size=11)
    axes.legend(loc="upper left", frameon=False, fontsize=9)


def prior_figure(
    panels: Sequence[tuple[str, np.ndarray, np.ndarray, np.ndarray]],
    values: np.ndarray,
    y: np.ndarray | None,
    far: np.ndarray | None,
    target: str,
    title: str,
) -> Figure:
    """Functions of a prior along each column, with the data and its spread beside them.

    Parameters
    ----------
    panels : sequence of (name, places, functions, rows)
        Of a column: its name, places along it, functions x places, and its values in the data.
    values : array of shape (functions, rows)
        Of the prior at the rows of the data.
    y : array of shape (rows,), optional
        The targets.
    far : array of bool, optional
        Which rows the prior does not reach.
    target : str
        Its name.
    title : str
        Of the whole figure.

    Returns
    -------
    Figure
    """
    number = len(panels)
    figure = Figure(figsize=(3.2 + 3.4 * number, 4.2), layout="constrained")
    ratios = {"width_ratios": [3.0] * number + [1.0]}
    *left, right = np.atleast_1d(figure.subplots(1, number + 1, sharey=True, gridspec_kw=ratios))
    for axes, (name, places, functions, rows) in zip(left, panels, strict=True):
        axes.plot(places, functions.T, color=OURS, lw=0.9, alpha=0.45)
        if y is not None and far is not None:
            axes.plot(rows[~far], y[~far], ".", color=HONEST, ms=3, alpha=0.6)
            axes.plot(rows[far], y[far], ".", color=FAR, ms=4)
        axes.set_xlabel(name, parse_math=False)
    left[0].set_ylabel(target, parse_math=False)
    low, high = np.quantile(values, [0.005, 0.995])
    if y is not None:
        low, high = min(low, y.min()), max(high, y.max())
    room = 0.05 * ((high - low) or 1.0)
    edges = np.linspace(low - room, high + room, 40)
    right.hist(values.ravel(), edges, density=True, orientation="horizontal", color=OURS, alpha=0.5)
    if y is not None:
        options = {"density": True, "orientation": "horizontal", "histtype": "step"}
        right.hist(y, edges, color=HONEST, lw=1.6, **options)
    right.set(xticks=[], xlabel="spread", ylim=(edges[0], edges[-1]))
    shown = [Line2D([], [], color=OURS, label="prior functions")]
    if y is not None:
        shown.append(Line2D([], [], color=HONEST, marker=".", ls="", label="data"))
    if far is not None and far.any():
        shown.append(Line2D([], [], color=FAR, marker=".", ls="", label="data out of reach"))
    left[0].legend(handles=shown, frameon=True, framealpha=0.8, edgecolor="none", fontsize=9)
    for axes in (*left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(title, x=0.01, ha="left", size=12, parse_math=False)
    return figure


def image(figure: Figure, kind: str) -> bytes:
    """A figure as a file of that kind: png, pdf or svg."""
    buffer = BytesIO()
    # Without the date and random names, the same results give the same file.
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind, {})
    with rc_context({"svg.hashsalt": "dvip"}):
        figure.savefig(buffer, format=kind, dpi=130, metadata=metadata)
    return buffer.getvalue()


def check_picture(path: Path) -> None:
    """Raises an error, which says what to do, unless a picture can be written there."""
    if _kind(path) not in KINDS:
        raise ValueError(f"{path} must end in .png, .pdf or .svg to be a picture.")
    if path.is_dir():
        raise ValueError(f"{path} is a folder: give the name of a file.")
    if not path.parent.is_dir():
        raise ValueError(f"There is no folder {path.parent}: make it first, or name another.")
    check_writable(path.parent)


def write_picture(figure: Figure, path: Path) -> None:
    """Writes a figure, of the kind that the file's ending says, in one step."""
    replace_file(path, image(figure, _kind(path)))


def _kind(path: Path) -> str:
    return path.suffix.lower().removeprefix(".")
