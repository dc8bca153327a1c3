"""Our results in means and tables, beside the paper's (Ortega, Rodríguez-Santana and
Hernández-Lobato, ICLR 2023).

`paper_results.csv` holds what its tables print, with one sign put right: deep GPs of five layers on
kin8nm have an NLL of -1.30 in one table, which another prints without the minus. Of its neighbours
it holds what their own papers print, where we know it: fBNN (Sun et al., 2019; we do not know their
errors), dropout (Gal and Ghahramani, 2016) and deep ensembles (Lakshminarayanan et al., 2017, whose
standard deviations over 20 splits, 5 of protein, are turned into errors of the mean).
"""

import csv
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from dvip.metrics import HIGHER_IS_BETTER
from dvip.paper.grids import EXPERIMENTS, METHODS, Experiment
from dvip.paper.results import Results

__all__ = [
    "Cell",
    "Estimate",
    "Row",
    "Summary",
    "Table",
    "agreement",
    "command",
    "higher_is_better",
    "markdown",
    "mixture",
    "paper_estimate",
    "summarise",
    "summarise_all",
    "tables",
    "value_of",
]

# Ours is a share of one.
PERCENT = ("accuracy",)


class Estimate(NamedTuple):
    """A mean over splits or seeds and its standard error; of one run the error is NaN."""

    mean: float
    stderr: float


@cache
def _paper() -> dict[tuple[str, str, str, str, str], Estimate]:
    text = files("dvip.paper").joinpath("paper_results.csv").read_text("utf-8")
    table = {}
    for row in csv.DictReader(text.splitlines()):
        unit = 0.01 if row["metric"] in PERCENT else 1.0
        mean, stderr = unit * float(row["mean"]), unit * float(row["stderr"])
        key = (row["experiment"], row["dataset"], row["method"], row["variant"], row["metric"])
        table[key] = Estimate(mean, stderr)
    return table


def paper_estimate(
    experiment: str, dataset: str, method: tuple[str, str], metric: str
) -> Estimate | None:
    """What the paper has for its method and variant; None if it has nothing."""
    return _paper().get((experiment, dataset, *method, metric))


TIMES = ("seconds", "cpu_seconds")
TRAIN = "_train"
# A standard error that the paper prints as 0.00 is below this; it prints accuracies in percent.
SMALLEST_STDERR = 0.005
SMALLEST_STDERR_OF_PERCENT = {"accuracy": 0.01 * SMALLEST_STDERR}
# Splits that differ by a few rows may differ by a few steps, but not by such a factor.
MAX_RATIO_OF_STEPS = 1.05
# What settings may differ in (a number of steps that was given says no more than the steps done),
# and the `inference` of models that choose their number of steps for each split.
OF_A_RUN = ("random_state", "max_iter")
CHOOSES = "auto"


def higher_is_better(metric: str) -> bool:
    """Whether a large value of a metric is a good one."""
    return metric.removesuffix(TRAIN) in HIGHER_IS_BETTER


def value_of(result: Mapping[str, Any], metric: str) -> float:
    """A number of a run's result: a metric, `..._train` of the training part, or a time."""
    if metric in result:
        return float(result[metric])
    part = "train_metrics" if metric.endswith(TRAIN) else "metrics"
    return float(result.get(part, {}).get(metric.removesuffix(TRAIN), math.nan))


def estimate(values: Iterable[float]) -> Estimate:
    """Mean and standard error of what is finite."""
    finite = np.array([value for value in values if math.isfinite(value)])
    if not len(finite):
        return Estimate(math.nan, math.nan)
    stderr = finite.std(ddof=1) / math.sqrt(len(finite)) if len(finite) > 1 else math.nan
    return Estimate(float(finite.mean()), float(stderr))


@dataclass(frozen=True)
class Cell:
    """A method on a dataset: its results, and the paper's names for it."""

    experiment: str
    dataset: str
    method: str
    paper_name: tuple[str, str]
    results: tuple[dict[str, Any], ...]

    @property
    def finished(self) -> list[dict[str, Any]]:
        """The results of runs that did not diverge."""
        return [result for result in self.results if result["error"] is None]

    @property
    def num_diverged(self) -> int:
        """How many runs diverged."""
        return len(self.results) - len(self.finished)

    def ours(self, metric: str) -> Estimate | None:
        """Mean and standard error over the runs; None where no run has the metric."""
        value = estimate(value_of(result, metric) for result in self.finished)
        return None if math.isnan(value.mean) else value

    def paper(self, metric: str) -> Estimate | None:
        """The paper's figure."""
        return paper_estimate(self.experiment, self.dataset, self.paper_name, metric)

    def agrees(self, metric: str) -> bool | None:
        """Whether ours is better than the paper's or within two combined standard errors.

        None where either is missing or ours is of a single run, for times, which are of other
        machines, and where the paper prints 0.00, with which nothing can agree or disagree.
        """
        ours, paper = self.ours(metric), self.paper(metric)
        if ours is None or paper is None or math.isnan(ours.stderr):
            return None
        if metric in TIMES or paper.mean == 0:
            return None
        paper_stderr = paper.stderr or SMALLEST_STDERR_OF_PERCENT.get(metric, SMALLEST_STDERR)
        paper_stderr = 0.0 if math.isnan(paper_stderr) else paper_stderr  # it is not known
        worse = ours.mean - paper.mean
        if higher_is_better(metric):
            worse = -worse
        return worse <= 2 * math.hypot(ours.stderr, paper_stderr)

    @property
    def is_mixed(self) -> bool:
        """Whether runs of different settings or lengths are pooled, such as of other releases."""
        settings = [
            {k: v for k, v in r.get("settings", {}).items() if k not in OF_A_RUN}
            for r in self.results
        ]
        steps = [
            result["steps"]
            for result in self.finished
            if "steps" in result and result.get("settings", {}).get("inference") != CHOOSES
        ]
        return any(other != settings[0] for other in settings) or (
            max(steps, default=0) > MAX_RATIO_OF_STEPS * min(steps, default=0)
        )


@dataclass(frozen=True)
class Summary:
    """An experiment's cells that have results."""

    experiment: Experiment
    cells: dict[tuple[str, str], Cell]
    max_iter: int | None

    @property
    def other_budget(self) -> int | None:
        """The number of steps, where it is not the experiment's own."""
        return None if self.max_iter == self.experiment.max_iter else self.max_iter

    @property
    def datasets(self) -> list[str]:
        """Datasets with results, in the order of the grid."""
        return [name for name in self.experiment.datasets if any(name == d for d, _ in self.cells)]

    @property
    def methods(self) -> list[str]:
        """Methods with results, in the order of the grid."""
        return [name for name in self.experiment.methods if any(name == m for _, m in self.cells)]

    def paper(self, dataset: str, method: str, metric: str) -> Estimate | None:
        """The paper's figure, also where there is no result of ours."""
        names = self.experiment.methods[method]
        return paper_estimate(self.experiment.name, dataset, names, metric)

    @property
    def mixed(self) -> list[Cell]:
        """Cells that pool runs of different settings."""
        return [cell for cell in self.cells.values() if cell.is_mixed]

    def metrics(self) -> Iterator[str]:
        """Metrics of the experiment that any cell has."""
        for metric in self.experiment.metrics:
            if any(cell.ours(metric) for cell in self.cells.values()):
                yield metric


def summarise(experiment: Experiment, results: Results, max_iter: int | None = None) -> Summary:
    """What is there of an experiment, at its own budget or at another number of steps."""
    steps = max_iter or experiment.max_iter
    cells = {}
    for dataset, method in product(experiment.datasets, experiment.methods):
        found = results.find(dataset, method, steps, timed=experiment.timed)
        if found:
            name = experiment.methods[method]
            cells[dataset, method] = Cell(experiment.name, dataset, method, name, tuple(found))
    return Summary(experiment, cells, steps)


def summarise_all(results: Results, max_iter: int | None = None) -> list[Summary]:
    """All experiments that have results at their own budgets or at another number of steps."""
    summaries = [summarise(experiment, results, max_iter) for experiment in EXPERIMENTS.values()]
    if not any(summary.cells for summary in summaries):
        steps = "the experiments' own" if max_iter is None else "this"
        raise ValueError(
            f"{results.folder} has no results at {steps} number of steps: make some with `dvip "
            f"reproduce uci --out {results.folder}`, or choose others with --max-iter."
        )
    return [summary for summary in summaries if summary.cells]


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
    source = summary.experiment.source
    return (
        f"{sum(known.values())} of {len(known)} cells are better than {source}'s or within two "
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
        f"`{command(summary)}`. Means over splits or seeds with standard errors, in brackets the "
        f"number of runs; below each, what {summary.experiment.source} has. The best mean of each "
        "column is bold, among ours, however many runs they are of, and among all of the paper's."
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
