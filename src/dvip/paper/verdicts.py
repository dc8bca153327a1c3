"""What the paper says of its neighbours, sentence by sentence, beside what the runs have."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import numpy as np

from dvip.paper.grids import GAP_SETS, METHODS, ONE_INPUT
from dvip.paper.summaries import Summary

__all__ = ["EXPERIMENT", "Verdict", "verdicts", "verdicts_table"]

EXPERIMENT = "neighbours"

HOLDS, PARTLY, FAILS = "holds", "holds in part", "does not hold here"
UNDECIDED = "not decided"
# Mean differences within so many standard errors decide nothing.
ERRORS = 2.0
# Times of runs that ended further apart tell of the machine, which has quick and slow days.
SAME_DAY = timedelta(hours=12)

GAPS_OF_MANY_INPUTS = ("boston-gap",)
GAPS_OF_FEW_INPUTS = tuple(name for name in GAP_SETS if name not in GAPS_OF_MANY_INPUTS)


class Verdict(NamedTuple):
    """A sentence, in short; the numbers that speak for or against it; what follows."""

    claim: str
    numbers: str
    verdict: str


class Paired(NamedTuple):
    """Differences of two methods in a metric, a number for each run that both have."""

    differences: np.ndarray
    num_datasets: int

    @property
    def mean(self) -> float:
        """Their mean; not a number if there are none."""
        return float(np.mean(self.differences)) if len(self.differences) else np.nan

    @property
    def stderr(self) -> float:
        """The standard error of the mean."""
        number = len(self.differences)
        return float(np.std(self.differences, ddof=1) / np.sqrt(number)) if number > 1 else np.nan

    @property
    def decided(self) -> str:
        """Whether the first method has more, less, or neither."""
        if not abs(self.mean) > ERRORS * self.stderr:
            return UNDECIDED
        return "more" if self.mean > 0 else "less"

    def __str__(self) -> str:
        if not len(self.differences):
            return "no runs"
        number = len(self.differences)
        if number == 1:
            return f"{self.mean:+.3f} (1 run)"
        sets = "1 set" if self.num_datasets == 1 else f"{self.num_datasets} sets"
        return f"{self.mean:+.3f} ± {self.stderr:.3f} ({number} runs of {sets})"


def paired(
    summary: Summary, metric: str, first: str, second: str, datasets: Sequence[str]
) -> Paired:
    """`first` minus `second`, on the same splits; RMSE and seconds as logarithms of ratios."""
    differences, used = [], 0
    for dataset in datasets:
        cells = [summary.cells.get((dataset, method)) for method in (first, second)]
        if None in cells:
            continue
        ours, theirs = (
            {(run["split"], run["seed"]): run for run in cell.finished}
            for cell in cells
            if cell is not None
        )
        values = [
            _value(ours[key], metric) - _value(theirs[key], metric)
            for key in sorted(ours.keys() & theirs.keys())
            if metric != "cpu_seconds" or _of_one_day(ours[key], theirs[key])
        ]
        differences += values
        used += bool(values)
    return Paired(np.array(differences), used)


def _of_one_day(*runs: Mapping[str, Any]) -> bool:
    ends = [datetime.fromisoformat(run["finished"]) for run in runs]
    return max(ends) - min(ends) <= SAME_DAY


def _value(run: Mapping[str, Any], metric: str) -> float:
    """A score of a run; of errors and times the logarithm."""
    if metric == "cpu_seconds":
        return float(np.log(run["cpu_seconds"]))
    value = run["metrics"][metric]
    return float(np.log(value)) if metric == "rmse" else float(value)


def _label(method: str) -> str:
    return METHODS[method].label


def _over_confident(summary: Summary) -> Verdict:
    methods = ("deep-kernel", "sgp")
    parts, fewer = [], []
    for where, names in (("UCI sets", _tables(summary)), ("gaps", GAP_SETS)):
        both = [
            name for name in names if all((name, method) in summary.cells for method in methods)
        ]
        if not both:
            continue
        ours, theirs = (_mean(summary, "coverage_95", method, both) for method in methods)
        parts.append(
            f"on {where} ({', '.join(both)}) 95 % intervals hold {ours:.1%}, those of the sparse "
            f"GP {theirs:.1%}"
        )
        fewer.append(ours < min(0.93, theirs))
    verdict = UNDECIDED if not fewer else HOLDS if all(fewer) else PARTLY if any(fewer) else FAILS
    claim = "Deep kernel learning is over-confident: its network is not random"
    return Verdict(claim, "; ".join(parts) or "no runs", verdict)


def _covers(summary: Summary) -> Verdict:
    few, many = (
        paired(summary, "coverage_95", "fbnn", "fbnn-rows", names)
        for names in (GAPS_OF_FEW_INPUTS, GAPS_OF_MANY_INPUTS)
    )
    numbers = (
        "rows inside 95 % intervals, with covering points minus without: "
        f"{few} in gaps of 6 to 8 inputs, {many} in gaps of 13"
    )
    if not (len(few.differences) and len(many.differences)) or few.decided == UNDECIDED:
        verdict = UNDECIDED
    else:
        verdict = HOLDS if few.decided == "more" and many.decided != "more" else FAILS
    return Verdict(
        "fBNN needs points that cover the input space, which fails in many dimensions",
        numbers,
        verdict,
    )


# Methods with a fixed prior, and the same with one that is fitted to the data beforehand.
FIXED = {"fbnn-bnn": "fbnn", "fvi-fixed": "fvi"}


def _fixed_prior(summary: Summary) -> Verdict:
    tables = _tables(summary)
    fitted = {
        method: paired(summary, "rmse", method, other, tables) for method, other in FIXED.items()
    }
    learned = {method: paired(summary, "rmse", method, "vip", tables) for method in FIXED}
    numbers = "; ".join(
        f"log RMSE of {_label(method)} minus that with a fitted GP prior {fitted[method]}, minus "
        f"that of VIP, whose prior is learned, {learned[method]}"
        for method in FIXED
    )
    costs = [pair.decided == "more" for pair in fitted.values()]
    better = any(pair.decided == "less" for pair in learned.values())
    gains = any(pair.decided == "less" for pair in fitted.values())
    if all(costs) and not better:
        verdict = HOLDS
    elif any(costs):
        verdict = PARTLY
    else:
        verdict = FAILS if better or gains else UNDECIDED
    return Verdict(
        "fBNN and FVI cannot fit the prior to data, and that costs accuracy", numbers, verdict
    )


def _deep_sip(summary: Summary) -> Verdict:
    pairs = {
        other: paired(summary, "nll", "sip-2", other, _tables(summary))
        for other in ("sip", "dvip-2")
    }
    numbers = "; ".join(
        f"NLL of SIP 2 minus {_label(other)}: {pair}" for other, pair in pairs.items()
    )
    decided = {pair.decided for pair in pairs.values()}
    verdict = HOLDS if decided == {"less"} else FAILS if "more" in decided else UNDECIDED
    return Verdict("SIP's layers in a deep model lead to better results", numbers, verdict)


def _generalise(summary: Summary) -> Verdict:
    tables = _tables(summary)
    pairs = {
        (method, metric): paired(summary, metric, method, "dgp-2", tables)
        for method in ("dvip-2", "dvip-2-gp")
        for metric in ("nll", "cpu_seconds")
    }
    names = {"nll": "NLL", "cpu_seconds": "log CPU seconds (runs of one day)"}
    numbers = "; ".join(
        f"{names[metric]} of {_label(method)} minus DGP 2: {pair}"
        for (method, metric), pair in pairs.items()
    )
    cheaper = pairs["dvip-2", "cpu_seconds"].decided == "less"
    worse = pairs["dvip-2", "nll"].decided == "more"
    if not len(pairs["dvip-2", "nll"].differences):
        verdict = UNDECIDED
    else:
        verdict = {2: HOLDS, 1: PARTLY, 0: FAILS}[cheaper + (not worse)]
    return Verdict("Deep implicit processes generalise deep GPs, at less cost", numbers, verdict)


CLAIMS: tuple[Callable[[Summary], Verdict], ...] = (
    _over_confident,
    _covers,
    _fixed_prior,
    _deep_sip,
    _generalise,
)


def _tables(summary: Summary) -> list[str]:
    """The sets with published random splits."""
    return [name for name in summary.datasets if name not in (*GAP_SETS, *ONE_INPUT)]


def _mean(summary: Summary, metric: str, method: str, datasets: Sequence[str]) -> float:
    cells = [summary.cells.get((name, method)) for name in datasets]
    means = [estimate.mean for cell in cells if cell and (estimate := cell.ours(metric))]
    return float(np.mean(means)) if means else np.nan


def verdicts(summary: Summary) -> list[Verdict]:
    """A verdict for each sentence, where the experiment is about them."""
    if summary.experiment.name != EXPERIMENT:
        return []
    return [claim(summary) for claim in CLAIMS]


def verdicts_table(summary: Summary) -> str:
    """The verdicts as a table in Markdown; nothing for other experiments."""
    found = verdicts(summary)
    if not found:
        return ""
    lines = ["| the paper says | seen | verdict |", "|---|---|---|"]
    lines += [f"| {claim} | {numbers} | **{verdict}** |" for claim, numbers, verdict in found]
    return "\n".join(lines)
