"""Many rounds as a median and the middle half; many splits as a mean and its standard error."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from contestants import DVIP
from results_file import Entry
from tables import PAPER_NLL


@dataclass(frozen=True)
class Rounds:
    """The median over rounds and the middle half of them."""

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> "Rounds":
        return cls(*np.quantile(list(values), [0.25, 0.5, 0.75]).tolist())


@dataclass(frozen=True)
class Mean:
    """The mean over splits and its standard error, which one split cannot have."""

    mean: float
    error: float

    @classmethod
    def of(cls, values: Iterable[float]) -> "Mean":
        array = np.array(list(values))
        error = array.std(ddof=1) / np.sqrt(len(array)) if len(array) > 1 else np.nan
        return cls(float(array.mean()), float(error))


@dataclass(frozen=True)
class Quality:
    """A contestant, as it was set, on a dataset."""

    dataset: str
    contestant: str
    settings: dict
    splits: int
    seconds: Mean
    nll: Mean
    rmse: Mean
    crps: Mean
    coverage: float

    @property
    def label(self) -> str:
        steps = self.settings.get("max_iter")
        return f"dvip, {steps:,} steps" if self.contestant == DVIP else self.contestant

    @property
    def reaches_paper(self) -> bool:
        """Whether the mean NLL is no worse than the paper's by more than two standard errors."""
        error = 0.0 if np.isnan(self.nll.error) else self.nll.error
        return self.nll.mean <= PAPER_NLL.get(self.dataset, -np.inf) + 2 * error


def matching(entries: Iterable[Entry], **fields: object) -> list[Entry]:
    return [
        entry
        for entry in entries
        if all(entry.get(name) == value for name, value in fields.items())
    ]


def different(entries: Iterable[Entry], field: str) -> list:
    """The values of a field, each once, in the order of their appearance."""
    values: list = []
    for entry in entries:
        if entry[field] not in values:
            values.append(entry[field])
    return values


def round_ratios(
    entries: list[Entry], slow: Entry, fast: Entry, field: str = "seconds"
) -> Rounds | None:
    """How many times faster one is than the other, in each round that both were in."""
    slow_seconds, fast_seconds = (
        {entry["round"]: entry[field] for entry in matching(entries, **fields)}
        for fields in (slow, fast)
    )
    both = slow_seconds.keys() & fast_seconds.keys()
    return Rounds.of(slow_seconds[r] / fast_seconds[r] for r in both) if both else None


def qualities(entries: list[Entry], dataset: str) -> list[Quality]:
    """dvip first, from the shortest training to the longest; then the peers."""
    found = []
    of_dataset = matching(entries, dataset=dataset)
    for contestant in different(of_dataset, "contestant"):
        runs_of_all = matching(of_dataset, contestant=contestant)
        for settings in different(runs_of_all, "settings"):
            runs = matching(runs_of_all, settings=settings)
            rows = [run["test_rows"] for run in runs]
            found.append(
                Quality(
                    dataset,
                    contestant,
                    settings,
                    len(runs),
                    *(Mean.of(run[f] for run in runs) for f in ("seconds", "nll", "rmse", "crps")),
                    float(np.average([run["coverage_90"] for run in runs], weights=rows)),
                )
            )
    return sorted(
        found, key=lambda q: (q.contestant != DVIP, q.contestant, q.settings.get("max_iter", 0))
    )


def time_to_quality(of_dataset: list[Quality]) -> Quality | None:
    """dvip's smallest budget that reaches the paper's NLL."""
    return next((q for q in of_dataset if q.contestant == DVIP and q.reaches_paper), None)
