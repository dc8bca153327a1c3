"""Tables of an experiment: ours beside the paper's, the best in bold, the number of runs shown."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from dvip.experiments.methods import METHODS
from dvip.experiments.paper import Estimate
from dvip.experiments.summaries import Cell, Summary, higher_is_better

__all__ = ["Row", "Table", "agreement", "markdown", "tables"]

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


def markdown(summary: Summary) -> str:
    """All tables of an experiment."""
    parts = [f"# {summary.experiment.title}", _about(summary)]
    for table in tables(summary):
        parts += [f"## {table.title}", _markdown_table(table)]
        verdict = agreement(summary, table.metric)
        parts += [verdict] if verdict else []
    return "\n\n".join(parts) + "\n"


def _about(summary: Summary) -> str:
    steps = "" if summary.max_iter is None else f" --max-iter {summary.max_iter}"
    if summary.max_iter == summary.experiment.max_iter:
        steps = ""
    return (
        f"`dvip reproduce {summary.experiment.name}{steps}`. Means over splits or seeds with "
        "standard errors, in brackets the number of runs; below each, what the paper has. The best "
        "of each column is bold, among ours and among the paper's."
    )


def _table(summary: Summary, metric: str) -> Table:
    datasets = tuple(summary.datasets)
    rows = []
    for source in ("dvip", "paper"):
        values = {
            (dataset, method): cell.ours(metric) if source == "dvip" else cell.paper(metric)
            for (dataset, method), cell in summary.cells.items()
        }
        best = {dataset: _best(values, dataset, metric) for dataset in datasets}
        for method in summary.methods:
            found = [values.get((dataset, method)) for dataset in datasets]
            if source == "paper" and not any(found):
                continue
            cells = [summary.cells.get((dataset, method)) for dataset in datasets]
            texts = [_text(value, metric) for value in found]
            if source == "dvip":
                texts = [f"{t} {_runs(c, t)}".strip() for t, c in zip(texts, cells, strict=True)]
            emphasis = [best[dataset] == method for dataset in datasets]
            rows.append(Row(METHODS[method].label, source, tuple(texts), tuple(emphasis)))
    order = [METHODS[method].label for method in summary.methods]
    rows.sort(key=lambda row: order.index(row.method))  # stable: ours, then the paper's
    return Table(metric, MEANINGS[metric], datasets, tuple(rows))


def _best(values: dict[tuple[str, str], Estimate | None], dataset: str, metric: str) -> str | None:
    """The method with the best mean; none where there is nothing to choose from."""
    means = {m: v.mean for (d, m), v in values.items() if d == dataset and v is not None}
    if len(means) < 2:
        return None
    if metric == "coverage_95":
        return min(means, key=lambda method: abs(means[method] - 0.95))
    choose = max if higher_is_better(metric) else min
    return choose(means, key=means.__getitem__)


def _runs(cell: Cell | None, value: str) -> str:
    """How many runs a value is of, or that there is none because they diverged."""
    if cell is None or not (value or cell.num_diverged):
        return ""
    diverged = f", {cell.num_diverged} diverged" if cell.num_diverged else ""
    return f"({len(cell.finished)}{diverged})"


def _text(value: Estimate | None, metric: str) -> str:
    if value is None:
        return ""
    digits = DIGITS.get(metric, 2 if abs(value.mean) >= 0.1 else 4)
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
