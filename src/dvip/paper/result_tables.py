"""Tables of an experiment: ours beside the paper's, the best in bold, the number of runs shown."""

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import NamedTuple

from dvip.paper.methods import METHODS
from dvip.paper.summaries import Cell, Estimate, Summary, higher_is_better

__all__ = ["Row", "Table", "agreement", "command", "markdown", "mixture", "tables"]

# Significant digits are those of the paper: two after the point, more where values are small.
DIGITS = {
    "accuracy": 4,
    "log_likelihood": 3,
    "auc": 4,
    "coverage_95": 3,
    "cpu_seconds": 1,
    "seconds": 1,
}
MEANINGS = {
    "nll": "Test negative log-likelihood, lower is better",
    "rmse": "Test root mean squared error, lower is better",
    "crps": "Test continuous ranked probability score, lower is better",
    "accuracy": "Test accuracy, higher is better",
    "log_likelihood": "Test log-likelihood, higher is better",
    "auc": "Test area under the ROC curve, higher is better",
    "coverage_95": "Test rows inside 95 % intervals, 0.95 is best",
    "seconds": "Seconds of training",
    "cpu_seconds": "CPU seconds of training, over all cores",
    "nll_train": "Negative log-likelihood of training rows",
    "rmse_train": "Root mean squared error of training rows",
    "crps_train": "Continuous ranked probability score of training rows",
}


class Row(NamedTuple):
    """A line of a table: whose figures of which method, and a text and its emphasis a dataset."""

    method: str
    source: str  # "dvip" or "paper"
    texts: tuple[str, ...]
    best: tuple[bool, ...]


class Table(NamedTuple):
    """One metric of an experiment."""

    metric: str
    title: str
    datasets: tuple[str, ...]
    rows: tuple[Row, ...]


def tables(summary: Summary) -> list[Table]:
    """A table for each metric."""
    return [_table(summary, metric) for metric in summary.metrics()]


def agreement(summary: Summary, metric: str) -> str:
    """How many cells are as good as the paper's, in words; nothing if none can be compared."""
    verdicts = {key: cell.agrees(metric) for key, cell in summary.cells.items()}
    known = {key: verdict for key, verdict in verdicts.items() if verdict is not None}
    dvip = [verdict for (_, method), verdict in known.items() if method.startswith("dvip")]
    if not known:
        return ""
    of_dvip = f" Of DVIP's: {sum(dvip)} of {len(dvip)}." if 0 < len(dvip) < len(known) else ""
    return (
        f"{sum(known.values())} of {len(known)} cells are better than the paper's or within two "
        f"combined standard errors of it.{of_dvip}"
    )


def mixture(summary: Summary) -> str:
    """Which means are over runs of different settings; nothing if none is."""
    names = [f"{METHODS[cell.method].label} on {cell.dataset}" for cell in summary.mixed]
    return f"Runs of different settings are pooled in {', '.join(names)}." if names else ""


def markdown(summary: Summary) -> str:
    """All tables of an experiment."""
    parts = [f"# {summary.experiment.title}", _about(summary)]
    parts += [mixture(summary)] if summary.mixed else []
    for table in tables(summary):
        parts += [f"## {table.title}", _markdown_table(table)]
        verdict = agreement(summary, table.metric)
        parts += [verdict] if verdict else []
    return "\n\n".join(parts) + "\n"


def command(summary: Summary) -> str:
    """What makes the results."""
    steps = f" --max-iter {summary.other_budget}" if summary.other_budget else ""
    return f"dvip reproduce {summary.experiment.name}{steps}"


def _about(summary: Summary) -> str:
    return (
        f"`{command(summary)}`. Means over splits or seeds with "
        "standard errors, in brackets the number of runs; below each, what the paper has. The best "
        "mean of each column is bold, among ours, however many runs they are of, and among all of "
        "the paper's."
    )


def _table(summary: Summary, metric: str) -> Table:
    datasets = tuple(summary.datasets)
    ours = {key: cell.ours(metric) for key, cell in summary.cells.items()}
    # The paper's best may be a method that we have not run.
    paper = {
        (dataset, method): summary.paper(dataset, method, metric)
        for dataset, method in product(datasets, summary.experiment.methods)
    }
    our_best = {dataset: _best(ours, dataset, metric) for dataset in datasets}
    paper_best = {dataset: _best(paper, dataset, metric) for dataset in datasets}
    rows = []
    for method in summary.methods:
        label = METHODS[method].label
        texts = []
        for dataset in datasets:
            text = _text(ours.get((dataset, method)), metric)
            runs = _runs(summary.cells.get((dataset, method)), text)
            texts.append(f"{text} {runs}".strip())
        best = tuple(method in our_best[dataset] for dataset in datasets)
        rows.append(Row(label, "dvip", tuple(texts), best))
        texts = [_text(paper[dataset, method], metric, small_digits=2) for dataset in datasets]
        if any(texts):
            best = tuple(method in paper_best[dataset] for dataset in datasets)
            rows.append(Row(label, "paper", tuple(texts), best))
    return Table(metric, MEANINGS[metric], datasets, tuple(rows))


def _best(values: Mapping[tuple[str, str], Estimate | None], dataset: str, metric: str) -> set[str]:
    """The methods with the best mean, more than one if they are equal; none if there is one."""
    means = {m: v.mean for (d, m), v in values.items() if d == dataset and v is not None}
    if len(means) < 2:
        return set()
    badness = {method: _badness(mean, metric) for method, mean in means.items()}
    return {method for method, bad in badness.items() if bad == min(badness.values())}


def _badness(mean: float, metric: str) -> float:
    """The lower, the better."""
    if metric == "coverage_95":
        return abs(mean - 0.95)
    return -mean if higher_is_better(metric) else mean


def _runs(cell: Cell | None, value: str) -> str:
    """How many runs a value is of, or that there is none because they diverged."""
    if cell is None or not (value or cell.num_diverged):
        return ""
    diverged = f", {cell.num_diverged} diverged" if cell.num_diverged else ""
    return f"({len(cell.finished)}{diverged})"


def _text(value: Estimate | None, metric: str, *, small_digits: int = 4) -> str:
    """A mean and its standard error, small means with more digits."""
    if value is None:
        return ""
    digits = DIGITS.get(metric, 2 if abs(value.mean) >= 0.1 else small_digits)
    stderr = "" if math.isnan(value.stderr) else f" ± {value.stderr:.{digits}f}"
    return f"{value.mean:.{digits}f}{stderr}"


def _markdown_table(table: Table) -> str:
    lines = [_line(["method", "", *table.datasets]), _line(["---"] * (2 + len(table.datasets)))]
    previous = None
    for row in table.rows:
        name = row.method if row.method != previous else ""
        previous = row.method
        texts = [f"**{t}**" if b and t else t for t, b in zip(row.texts, row.best, strict=True)]
        lines.append(_line([name, row.source, *texts]))
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
