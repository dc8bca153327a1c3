"""The paper's figures (Ortega, Rodríguez-Santana and Hernández-Lobato, ICLR 2023), to compare with.

`paper_results.csv` holds what its tables print, with one sign put right: deep GPs of five layers on
kin8nm have an NLL of -1.30 in one table, which another prints without the minus.
"""

import csv
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from dvip.paper.grids import EXPERIMENTS, Experiment
from dvip.paper.runs import Results

__all__ = [
    "Cell",
    "Estimate",
    "Summary",
    "higher_is_better",
    "paper_estimate",
    "summarise",
    "summarise_all",
    "value_of",
]

# Ours is a share of one.
PERCENT = ("accuracy",)


class Estimate(NamedTuple):
    """A mean over splits or seeds and its standard error; of one run the error is NaN."""

    mean: float
    stderr: float


@cache
def _table() -> dict[tuple[str, str, str, str, str], Estimate]:
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
    return _table().get((experiment, dataset, *method, metric))


HIGHER_IS_BETTER = ("accuracy", "log_likelihood", "auc")
TIMES = ("seconds", "cpu_seconds")
TRAIN = "_train"
# A standard error that the paper prints as 0.00 is below this; it prints accuracies in percent.
SMALLEST_STDERR = 0.005
SMALLEST_STDERR_OF_PERCENT = {"accuracy": 0.01 * SMALLEST_STDERR}
# Splits that differ by a few rows may differ by a few steps, but not by such a factor.
MAX_RATIO_OF_STEPS = 1.01


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
        worse = ours.mean - paper.mean
        if higher_is_better(metric):
            worse = -worse
        return worse <= 2 * math.hypot(ours.stderr, paper_stderr)

    @property
    def is_mixed(self) -> bool:
        """Whether runs of different settings or lengths are pooled, such as of other releases."""
        settings = [
            {k: v for k, v in r.get("settings", {}).items() if k != "random_state"}
            for r in self.results
        ]
        steps = [result["steps"] for result in self.finished if "steps" in result]
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
