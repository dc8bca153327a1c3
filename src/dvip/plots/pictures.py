"""What all pictures share: axes, colours, labels, files; tables along some of their columns."""

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dvip.files import check_writable, replace_file

__all__ = [
    "CHANCE",
    "HONEST",
    "LIGHT",
    "MEASURED",
    "NOTES",
    "OURS",
    "Display",
    "as_frame",
    "check_picture",
    "column_of",
    "image",
    "name_axes",
    "target_label",
    "typical_rows",
    "write_picture",
]

KINDS = ("png", "pdf", "svg")
OURS, HONEST, CHANCE, NOTES = "#1f5f99", "#6b6b70", "#e7e7ea", "#8a8a90"
LIGHT, MEASURED = "#a9cbe6", "#1b1b1e"


class Display:
    """A picture that is drawn from what it holds, any number of times.

    As scikit-learn's: `from_estimator` and `from_predictions` make one and draw it, `plot` draws it
    again, on axes that are given or on new ones.

    Attributes
    ----------
    ax_ : Axes
        Where it was drawn last.
    figure_ : Figure
        The figure of these axes.
    """

    ax_: Axes
    figure_: Any

    def _axes(self, ax: Axes | None) -> Axes:
        """The axes to draw on, which are noted; new ones of pyplot unless given."""
        if ax is None:
            import matplotlib.pyplot as plt

            ax = plt.subplots(layout="constrained")[1]
        ax.spines[["top", "right"]].set_visible(False)
        ax.set_axisbelow(True)
        self.ax_, self.figure_ = ax, ax.figure
        return ax


def as_frame(X: Any) -> tuple[pd.DataFrame, bool]:
    """Rows as a table with names, and whether it was one; columns of an array are x0, x1, ..."""
    if isinstance(X, pd.DataFrame):
        return X, True
    if hasattr(X, "__arrow_c_stream__"):  # polars, pyarrow
        import pyarrow as pa

        return pa.table(X).to_pandas(), True
    values = np.asarray(X)
    if values.ndim != 2:
        raise ValueError(f"X has the shape {values.shape}: pictures are of rows of columns.")
    return pd.DataFrame(values, columns=[f"x{place}" for place in range(values.shape[1])]), False


def column_of(frame: pd.DataFrame, feature: Any) -> str:
    """The name of a column, from its name or its place."""
    if isinstance(feature, str) and feature in frame.columns:
        return feature
    if isinstance(feature, int | np.integer) and 0 <= feature < frame.shape[1]:
        return frame.columns[feature]
    names = ", ".join(map(str, frame.columns[:10]))
    raise ValueError(f"feature={feature!r} is no column: name one of {names}, or give its place.")


def typical_rows(frame: pd.DataFrame, columns: dict[str, np.ndarray]) -> pd.DataFrame:
    """Rows with these values, and in all other columns the median or the most frequent value."""
    number = len(next(iter(columns.values())))
    rows = {}
    for name in frame.columns:
        column = frame[name]
        if name in columns:
            rows[name] = pd.Series(columns[name])
        elif pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column):
            rows[name] = pd.Series(np.full(number, column.median()))
        else:
            common = column.mode()
            value = common.iloc[0] if len(common) else None
            rows[name] = pd.Series([value] * number, dtype=column.dtype)
    return pd.DataFrame(rows)


def name_axes(ax: Axes, x: str, y: str) -> None:
    """Labels of axes that are names of columns: dollars in them are no formulas."""
    ax.set_xlabel(x, parse_math=False)
    ax.set_ylabel(y, parse_math=False)


def target_label(model: Any, target: int = 0) -> str:
    """The name of a target, where the model knows it."""
    names: Sequence[str] = getattr(model, "target_names_", ())
    return names[target] if target < len(names) else "y"


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
