"""Functions of a prior over the range of a table, before anything is fitted."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from dvip.plots.pictures import HONEST, OURS

__all__ = ["prior_figure"]

FAR = "#d1495b"


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
