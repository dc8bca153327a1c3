"""The page as one HTML file: tables that scroll, figures inside, no network, texts escaped."""

import base64
import warnings
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from dvip.files import check_writable, expanded, replace_file
from dvip.metrics import HIGHER_IS_BETTER, MEANINGS
from dvip.plots.effects import EffectDisplay
from dvip.plots.honesty import CalibrationDisplay, ReliabilityDisplay
from dvip.plots.pictures import HONEST, OURS, image, name_axes, target_label
from dvip.plots.rows import BoundDisplay, MeasuredDisplay, VarianceDisplay
from dvip.report.findings import FAR, ROWS_OF_CRPS, Findings, NamedRow

__all__ = ["check_page", "page_of", "written_page"]

# Columns whose effects are drawn, targets, and classes of a table.
MAX_EFFECTS, MAX_TARGETS, MAX_CLASSES = 6, 4, 12
# Functions that these effects are of, and rows that they are means over.
NUM_FUNCTIONS, ROWS_OF_EFFECTS = 40, 50

STYLE = """
:root { --ink: #1b1b1e; --soft: #5c5c64; --line: #e3e3e8; --ours: #1f5f99; --ground: #f6f7f9; }
* { box-sizing: border-box; }
body { margin: 0; background: #fff; color: var(--ink); overflow-wrap: anywhere;
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 1.25rem 1rem 4rem; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: 0.5rem 0; }
h2 { font-size: 1.2rem; margin: 2.5rem 0 0.25rem; padding-top: 1rem;
  border-top: 1px solid var(--line); }
p, figcaption, li { max-width: 46rem; }
p, figcaption { color: var(--soft); margin: 0.35rem 0; }
.short { background: var(--ground); border-left: 4px solid var(--ours); padding: 0.6rem 1rem; }
.short p { color: var(--ink); }
.wide { overflow-x: auto; margin: 0.5rem 0; }
table { border-collapse: collapse; font-size: 0.88rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.3rem 0.7rem; text-align: right; white-space: nowrap; overflow-wrap: normal; }
th:first-child, td:first-child, td.text, th.text { text-align: left; }
td.text { white-space: normal; min-width: 12rem; overflow-wrap: anywhere; }
thead th { border-bottom: 1px solid var(--ink); }
tbody tr + tr > * { border-top: 1px solid var(--line); }
td.bar { background: linear-gradient(90deg, #cfe0f0 var(--share), transparent var(--share)); }
pre { background: var(--ground); padding: 0.8rem 1rem; overflow-x: auto; border-radius: 4px; }
figure { margin: 1rem 0; }
img { display: block; max-width: 100%; height: auto; }
img.broad { min-width: 600px; }
@media print { .wide { overflow: visible; } }
"""


def page_of(found: Findings, model_folder: str | None = None) -> str:
    """The whole page."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of letters that no font has
        sections = "".join(_sections(found, model_folder))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(found.title)}</title><style>{STYLE}</style></head><body><main>"
        f"<h1>{escape(found.title)}</h1>{sections}</main></body></html>\n"
    )


def check_page(path: str | Path) -> None:
    """Raises an error, which says what to do, unless a page can be written there."""
    path = expanded(path)
    if path.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"{path} must end in .html to be a page.")
    if path.is_dir():
        raise ValueError(f"{path} is a folder: give the name of a file, such as page.html.")
    check_writable(path.parent)


def written_page(path: str | Path, page: str) -> Path:
    """Writes a page in one step."""
    file = expanded(path)
    check_page(file)
    file.parent.mkdir(parents=True, exist_ok=True)
    replace_file(file, page.encode())
    return file


def _sections(found: Findings, folder: str | None) -> Iterator[str]:
    yield _about(found)
    lines = "".join(f"<p>{escape(line)}</p>" for line in _in_short(found))
    yield f'<div class="short">{lines}</div>'
    yield _scores(found)
    yield from _honesty(found)
    yield from _targets(found)
    yield _columns(found)
    yield from _effects(found)
    yield _rows("Rows that it is least sure of", found.unsure, "how sure", found)
    yield from _far(found)
    yield from _training(found)
    yield _again(found, folder)


def _about(found: Findings) -> str:
    model = found.model
    target = ", ".join(getattr(model, "target_names_", ("y",)))
    steps = f", {model.n_iter_:,} steps" if model.n_iter_ else ""
    judged = len(found.targets)
    some = (
        "" if judged == found.num_rows else f", {judged:,} of {found.num_rows:,} chosen at random"
    )
    number = len(model.input_scaler_.mean)
    inputs = "1 input" if number == 1 else f"{number:,} inputs"
    return (
        f"<p>{escape(type(model).__name__)}, a {model.task} of <b>{escape(target)}</b>, trained on "
        f"{model.n_samples_seen_:,} rows with {inputs}{steps}. Judged by {judged:,} rows{some}.</p>"
    )


def _in_short(found: Findings) -> Iterator[str]:
    own = found.scores["this model"]
    others = {name: scores for name, scores in found.scores.items() if name != "this model"}
    if found.is_regression:
        target = target_label(found.model)
        line = f"Its predictions are off by {own['rmse']:.4g} (root mean square)"
        for name, scores in others.items():
            line += f", {name} by {scores['rmse']:.4g}"
        yield f"{line}; unit: that of {target}."
        held = own["coverage_90"]
        verdict = "as they should"
        error = 2 * np.sqrt(0.09 / len(found.targets))
        if held < 0.9 - error:
            verdict = "fewer than they should: be careful with its intervals"
        elif held > 0.9 + error:
            verdict = "more than they need: its intervals are wide"
        yield f"Its 90 % intervals hold {held:.0%} of the rows, {verdict}."
    else:
        line = f"It is right in {own['accuracy']:.1%} of the rows"
        for name, scores in others.items():
            line += f", {name} in {scores['accuracy']:.1%}"
        yield f"{line}."
        sure = float(found.prediction.max(axis=1).mean())
        yield f"On average it is {sure:.1%} sure of the class that it predicts."
    if found.important:
        yield f"What matters most: {', '.join(found.important[:3])}."
    if found.num_far:
        number = "1 row looks" if found.num_far == 1 else f"{found.num_far:,} rows look"
        yield f"{number} unlike the rows of the training: be careful there."


def _scores(found: Findings) -> str:
    names = list(found.scores)
    own = found.scores["this model"]
    rows: list[list[str | Cell]] = []
    for metric in own:
        values = [found.scores[name].get(metric, np.nan) for name in names]
        best = np.nanargmax(values) if metric in HIGHER_IS_BETTER else np.nanargmin(values)
        bold = not metric.startswith("coverage")
        cells = [
            f"<b>{value:.4g}</b>" if bold and place == best else f"{value:.4g}"
            for place, value in enumerate(values)
        ]
        rows.append([escape(metric), *cells, Cell(escape(MEANINGS[metric]), is_text=True)])
    head: list[str | Cell] = ["metric", *map(escape, names), Cell("meaning", is_text=True)]
    how = f"<p>{escape(found.how_compared)}</p>" if found.how_compared else ""
    if found.is_regression and len(found.targets) > ROWS_OF_CRPS:
        how += f"<p>The crps is of {ROWS_OF_CRPS:,} of the rows.</p>"
    return f"<h2>How good it is</h2>{_table(head, rows)}{how}"


def _honesty(found: Findings) -> Iterator[str]:
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    yield "<h2>Is it honest?</h2>"
    if found.is_regression:
        CalibrationDisplay(found.judged).plot(kind="coverage", ax=left)  # type: ignore[arg-type]
        CalibrationDisplay(found.judged).plot(kind="pit", ax=right)  # type: ignore[arg-type]
        caption = (
            "Left: how many rows fell into central intervals, against how many should; an honest "
            "model is on the dashed line. Right: where in its distribution each row fell; an "
            "honest model is flat, but for chance."
        )
    else:
        ReliabilityDisplay(found.judged).plot(ax=left)  # type: ignore[arg-type]
        ReliabilityDisplay(found.judged).plot(kind="confidence", ax=right)  # type: ignore[arg-type]
        caption = (
            "Left: how often the predicted class was right, against its probability; an honest "
            "model is on the dashed line. Right: how sure it was."
        )
    yield _figure(figure, caption)


def _targets(found: Findings) -> Iterator[str]:
    if not found.is_regression:
        yield _confusion(found)
        return
    yield "<h2>Measured and predicted</h2>"
    number = 1 if found.targets.ndim == 1 else found.targets.shape[1]
    for target in range(min(number, MAX_TARGETS)):
        prediction, y = found.prediction, found.targets
        if y.ndim == 2:
            prediction, y = prediction.target(target), y[:, target]
        label = target_label(found.model, target)
        figure = Figure(figsize=(10, 4.2), layout="constrained")
        left, right = figure.subplots(1, 2)
        MeasuredDisplay(y, prediction, label).plot(ax=left)
        residuals, many = (y - prediction.mean) / prediction.std, len(y) > 300
        right.axhspan(-2, 2, color="#eef2f7", lw=0)
        right.axhline(0, color=HONEST, ls="--", lw=1.2)
        size = 1.8 if many else 3.5
        right.plot(
            prediction.mean, residuals, "o", color=OURS, ms=size, mew=0, alpha=0.5, rasterized=many
        )
        right.spines[["top", "right"]].set_visible(False)
        name_axes(right, f"predicted {label}", "error in standard deviations")
        yield _figure(
            figure,
            "Left: an interval of 90 % for each row, or for some of them. Right: errors in units "
            "of the predicted standard deviation; most rows should be in the shaded band at every "
            "height.",
        )
        if number == 1:
            figure = Figure(figsize=(10, 3.2), layout="constrained")
            VarianceDisplay.from_predictions(
                prediction, labels=("rows by their variance", label), ax=figure.subplots()
            )
            yield _figure(
                figure,
                "Where the uncertainty is from: noise would remain with any number of rows, the "
                "rest would shrink with more of them.",
            )


def _confusion(found: Findings) -> str:
    classes = found.model.classes_.tolist()
    if len(classes) > MAX_CLASSES:
        return ""
    places = {label: place for place, label in enumerate(classes)}
    counts = np.zeros((len(classes), len(classes)), dtype=int)
    seen = [places[label] for label in found.targets.tolist()]
    np.add.at(counts, (seen, found.prediction.argmax(axis=1)), 1)
    head = ["was, and predicted as", *(escape(str(label)) for label in classes)]
    rows = [
        [escape(str(label)), *(f"<b>{n:,}</b>" if i == j else f"{n:,}" for j, n in enumerate(row))]
        for i, (label, row) in enumerate(zip(classes, counts.tolist(), strict=True))
    ]
    return f"<h2>What was taken for what</h2>{_table(head, rows)}"


def _columns(found: Findings) -> str:
    largest = max((note.importance or 0 for note in found.columns), default=0) or 1
    rows: list[list[str | Cell]] = []
    for note in found.columns:
        importance = Cell("")
        if note.importance is not None:
            importance = Cell(f"{note.importance:.2f}", share=note.importance / largest)
        rows.append([escape(note.name), Cell(escape(note.became), is_text=True), importance])
    head: list[str | Cell] = ["column", Cell("became", is_text=True), "importance"]
    return (
        f"<h2>What became of every column</h2>{_table(head, rows)}"
        "<p>Importance: by how much predictions change where the column is shuffled, relative to "
        "how much they vary.</p>"
    )


def _effects(found: Findings) -> Iterator[str]:
    names = found.important[:MAX_EFFECTS]
    if not names or len(found.model.input_shape_) > 1:
        return
    width = min(3, len(names))
    height = -(-len(names) // width)
    figure = Figure(figsize=(10, 3.1 * height), layout="constrained")
    axes = np.atleast_1d(figure.subplots(height, width, squeeze=False).ravel())
    model = found.model
    draw = model.sample_functions if found.is_regression else model.sample_probabilities
    functions = draw(NUM_FUNCTIONS, 0)
    for ax, name in zip(axes, names, strict=False):
        place: Any = name
        if not hasattr(found.inputs, "columns"):
            place = [note.name for note in found.columns].index(name)
        EffectDisplay.from_estimator(
            model, found.inputs, place, functions=functions, max_rows=ROWS_OF_EFFECTS, ax=ax
        )
    for ax in axes[len(names) :]:
        ax.set_visible(False)
    yield "<h2>Effects of the most important columns</h2>"
    yield _figure(
        figure,
        "Each thin line is a whole function that agrees with the training rows, averaged over the "
        "other columns; the band holds 90 % of them. Where it is wide, the rows say little.",
    )


def _rows(title: str, rows: Sequence[NamedRow], reason: str, found: Findings) -> str:
    if not rows:
        return ""
    target = target_label(found.model)
    cells = [name for name, _ in rows[0].cells]
    head = ["row", reason, f"predicted {target}", f"measured {target}", *cells]
    body = [
        [
            *map(escape, (row.label, row.reason, row.predicted, row.measured)),
            *(escape(value) for _, value in row.cells),
        ]
        for row in rows
    ]
    return f"<h2>{escape(title)}</h2>{_table([escape(name) for name in head], body)}"


def _far(found: Findings) -> Iterator[str]:
    if found.num_far is None:
        return
    title = "Rows that look unlike the training"
    if not found.num_far:
        yield f"<h2>{title}</h2><p>None: all rows are near rows of the training.</p>"
        return
    yield _rows(title, found.far, "distance", found)
    yield (
        f"<p>1 is the distance between neighbouring rows of the training; {found.num_far:,} of "
        f"{len(found.targets):,} rows are farther than {FAR:g}.</p>"
    )


def _training(found: Findings) -> Iterator[str]:
    choice = getattr(found.model, "choice_", ())
    if choice:
        rows: list[list[str | Cell]] = [
            [
                escape(part.name),
                f"{part.score:.4g}",
                Cell(f"{part.weight:.0%}", share=part.weight),
            ]
            for part in sorted(choice, key=lambda part: -part.weight)
        ]
        yield "<h2>What was chosen</h2>"
        yield _table(["candidate", "log-density of rows left out", "weight"], rows)
    try:
        figure = Figure(figsize=(10, 3), layout="constrained")
        BoundDisplay.from_estimator(found.model, ax=figure.subplots())
    except ValueError:  # a Gaussian process in closed form has no steps
        return
    yield "" if choice else "<h2>The training</h2>"
    yield _figure(figure, "The bound over the training: it should have become level.")


def _again(found: Findings, folder: str | None) -> str:
    shown = repr(folder or "model_dir")
    saved = "" if folder else f"model.save({shown})  # where it is still in memory\n"
    answer = (
        "mean, std = model.predict(X, return_std=True)\nintervals = model.predict_interval(X, 0.9)"
        if found.is_regression
        else "labels = model.predict(X)\nprobabilities = model.predict_proba(X)"
    )
    code = f"{saved}from dvip import load\n\nmodel = load({shown})\n{answer}"
    command = f"dvip predict {folder or 'model_dir'} NEW.csv --out predictions.csv"
    return f"<h2>How to use it again</h2><pre>{escape(code)}</pre><pre>{escape(command)}</pre>"


class Cell(NamedTuple):
    """What is in a cell, as markup: a text that may be long, or a number with a bar behind it."""

    markup: str
    is_text: bool = False
    share: float | None = None


def _table(head: Iterable[str | Cell], rows: Iterable[Sequence[str | Cell]]) -> str:
    """A table that scrolls where it is too wide."""
    titles = "".join(_cell(cell, "th") for cell in head)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    table = f"<table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="wide">{table}</div>'


def _cell(given: str | Cell, tag: str = "td") -> str:
    cell = Cell(given) if isinstance(given, str) else given
    options = ' class="text"' if cell.is_text else ""
    if cell.share is not None:
        options = f' class="bar" style="--share: {100 * cell.share:.0f}%"'
    return f"<{tag}{options}>{cell.markup}</{tag}>"


def _figure(figure: Figure, caption: str) -> str:
    data = base64.b64encode(image(figure, "svg")).decode()
    return (
        f'<figure><div class="wide"><img class="broad" alt="{escape(caption)}" '
        f'src="data:image/svg+xml;base64,{data}"></div>'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )
