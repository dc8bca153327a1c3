"""One self-contained page of all results: tables, figures and calibration, without a network."""

import base64
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from matplotlib.figure import Figure

from dvip.files import replace_file
from dvip.paper.figures import figures
from dvip.paper.summaries import Summary, Table, agreement, command, markdown, mixture, tables
from dvip.paper.verdicts import Verdict, verdicts, verdicts_table
from dvip.plots import image

__all__ = ["html_report", "write_experiment"]

CAPTIONS = {
    "scores": "Means over runs with standard errors; values far worse than all others are written "
    "at the edge.",
    "times": "CPU seconds of training. The paper's machine was another one, and it trained longer.",
    "calibration": "Above: the share of test rows inside central intervals, against the interval's "
    "probability; an honest model is on the diagonal. Below: the predictive cdf at what happened; "
    "an honest model is flat. All datasets pooled.",
    "reliability": "How often the predicted class was right, against its probability; an honest "
    "model is on the diagonal. The size of a point is its share of the rows. All datasets pooled.",
    "curves": "Above: predictions and held-out points. Below: functions of the learned prior.",
    "side": "Predictions, held-out points, and some functions of the posterior.",
}

CLAIMS = "What the paper says of its neighbours"

# These come after the tables.
CALIBRATION = ("calibration", "reliability")

STYLE = """
:root { --ink: #1b1b1e; --soft: #63636b; --line: #e3e3e8; --paper: #fff; --ours: #1f5f99; }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0.5rem 0; }
h2 { font-size: 1.35rem; margin: 3rem 0 0.25rem; padding-top: 1rem;
  border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.75rem 0 0.5rem; }
p, figcaption { max-width: 46rem; color: var(--soft); margin: 0.35rem 0; }
nav { display: flex; flex-wrap: wrap; gap: 0.4rem 1rem; margin: 1rem 0; }
a { color: var(--ours); }
code { background: #f3f3f6; padding: 0.1rem 0.3rem; border-radius: 4px; font-size: 0.9em; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.82rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.25rem 0.5rem; text-align: right; white-space: nowrap; }
th:first-child { text-align: left; }
th:first-child, td:first-child { position: sticky; left: 0; background: var(--paper); }
.words th, .words td { text-align: left; white-space: normal; vertical-align: top; }
thead th { border-bottom: 1px solid var(--ink); }
tr.dvip > * { border-top: 1px solid var(--line); }
tr.paper td { color: var(--soft); }
figure { margin: 1rem 0; }
img { display: block; max-width: 100%; height: auto; }
img.broad { min-width: 640px; }
@media print { .wide { overflow: visible; } }
"""


def write_experiment(summary: Summary, folder: Path) -> list[Path]:
    """Writes an experiment's tables and figures beside its results; returns the files."""
    stem = summary.experiment.name
    if summary.other_budget:
        stem += f"-max-iter-{summary.other_budget}"
    text = markdown(summary)
    claims = verdicts_table(summary)
    if claims:
        text = f"{text}\n## {CLAIMS}\n\n{claims}\n"
    pages = {folder / f"{stem}.md": text.encode()}
    for name, figure in figures(summary).items():
        path = folder / "figures" / f"{stem}-{name}.png"
        pages[path] = image(figure, "png")
    for path, content in pages.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, content)
    return list(pages)


def html_report(summaries: Sequence[Summary]) -> str:
    """The whole page."""
    links = "".join(
        f'<a href="#{s.experiment.name}">{escape(s.experiment.title)}</a>' for s in summaries
    )
    sections = "".join(map(_section, summaries))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>dvip: results</title><style>{STYLE}</style></head><body><main>"
        "<h1>Deep variational implicit processes: results beside the paper's</h1>"
        "<p>Means over splits or seeds with standard errors, in brackets the number of runs. Rows "
        "named <em>paper</em> are what the paper prints. The best mean of each column is bold, "
        "among ours, however many runs they are of, and among all of the paper's.</p>"
        f"<nav>{links}</nav>{sections}</main></body></html>\n"
    )


def _section(summary: Summary) -> str:
    name = summary.experiment.name
    drawn = figures(summary)
    calibration = {kind: drawn.pop(kind) for kind in CALIBRATION if kind in drawn}
    parts: list[str] = [
        f'<section id="{name}"><h2>{escape(summary.experiment.title)}</h2>',
        f"<p><code>{command(summary)}</code></p>",
        *(_figure(kind, figure) for kind, figure in drawn.items()),
        *(_table(table, agreement(summary, table.metric)) for table in tables(summary)),
    ]
    if calibration:
        parts += ["<h3>Calibration</h3>", *(_figure(*item) for item in calibration.items())]
    found = verdicts(summary)
    if found:
        parts.append(_claims(found))
    if summary.mixed:
        parts.append(f"<p>{escape(mixture(summary))}</p>")
    return "".join([*parts, _diverged(summary), "</section>"])


def _claims(found: Sequence[Verdict]) -> str:
    rows = "".join(
        f'<tr class="dvip"><th>{escape(claim)}</th><td>{escape(numbers)}</td>'
        f"<td><b>{escape(verdict)}</b></td></tr>"
        for claim, numbers, verdict in found
    )
    return (
        f'<h3>{CLAIMS}</h3><div class="wide"><table class="words"><thead><tr><th>it says</th>'
        f"<th>seen</th><th>verdict</th></tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _diverged(summary: Summary) -> str:
    """Why runs diverged; the texts are of result files, which anyone may have written."""
    reasons = sorted(
        {str(r["error"]) for cell in summary.cells.values() for r in cell.results if r["error"]}
    )
    return "".join(f"<p>Diverged: {escape(reason)}</p>" for reason in reasons)


def _figure(kind: str, figure: Figure) -> str:
    data = base64.b64encode(image(figure, "svg")).decode()
    caption = CAPTIONS[kind.split("-")[0]]
    broad = ' class="broad"' if figure.get_figwidth() > 7 else ""
    return (
        f'<figure><div class="wide"><img{broad} alt="{escape(caption)}" '
        f'src="data:image/svg+xml;base64,{data}"></div>'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _table(table: Table, verdict: str) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in ("method", "", *table.datasets))
    body = "".join(
        f'<tr class="{row.source}"><th>{escape(row.method) if row.source == "dvip" else ""}</th>'
        f"<td>{row.source}</td>{''.join(_cells(row.texts, row.best))}</tr>"
        for row in table.rows
    )
    note = f"<p>{escape(verdict)}</p>" if verdict else ""
    return (
        f'<h3>{escape(table.title)}</h3><div class="wide"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>{note}"
    )


def _cells(texts: Iterable[str], best: Iterable[bool]) -> Iterable[str]:
    for text, bold in zip(texts, best, strict=True):
        shown = escape(text)
        yield f"<td><b>{shown}</b></td>" if bold else f"<td>{shown}</td>"
