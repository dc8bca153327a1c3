"""Methods side by side, over tables and splits, as tables in Markdown."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import rankdata

from dvip import __version__
from report.markdown import line, plus_minus
from report.summaries import Mean, different, matching
from results_file import Entry

REFERENCE = "exact GP"
# Worst tables that are listed.
NUM_WORST = 5
# Test rows of a table, in all splits, that tell how often intervals are right.
ENOUGH_ROWS = 100

TITLES = {
    "arena": "Tables to choose defaults on",
    "published": "Published splits",
    "bde": "The split of bde",
    "gaps": "Gaps",
    "random": "Random small tables",
    "times": "Times",
    "classification": "Classes",
}


class Difference(NamedTuple):
    """By how much a score is worse than that of the reference, where it is worst."""

    value: float
    table: str
    split: int


def ranks(entries: Iterable[Entry], score: str, methods: Sequence[str]) -> dict[str, Mean]:
    """Mean ranks by a score, 1 for the lowest, over tables and splits that all methods have."""
    values = _complete(entries, score, methods)
    if not values:
        return {}
    by_block = np.stack([rankdata([block[name] for name in methods]) for block in values.values()])
    return {name: Mean.of(column) for name, column in zip(methods, by_block.T, strict=True)}


def worst_difference(
    entries: Iterable[Entry], score: str, method: str, reference: str
) -> Difference | None:
    """Of the tables and splits that both methods have."""
    pairs = _complete(entries, score, [method, reference])
    differences = [
        Difference(block[method] - block[reference], *place) for place, block in pairs.items()
    ]
    return max(differences, key=lambda difference: difference.value, default=None)


def _complete(
    entries: Iterable[Entry], score: str, methods: Sequence[str]
) -> dict[tuple[str, int], dict[str, float]]:
    """Scores by table and split, then by method, where all of the methods have one."""
    blocks: dict[tuple[str, int], dict[str, float]] = {}
    for entry in entries:
        if "failed" not in entry:
            block = blocks.setdefault((entry["table"], entry["split"]), {})
            block[entry["method"]] = entry[score]
    return {
        place: block for place, block in blocks.items() if all(name in block for name in methods)
    }


def page(results: dict[str, list[Entry]], methods: Iterable[str]) -> str:
    """One section for each part that has results; methods are in their order."""
    order = list(methods)
    sections = [f"# `DVIPRegressor()` as it comes\n\n{_introduction()}"]
    for name, entries in results.items():
        if entries:
            present = [method for method in order if matching(entries, method=method)]
            text = f"{SECTIONS[name](entries, present)}{_of_earlier(entries)}"
            sections.append(f"## {TITLES[name]}\n\n{text}")
    return "\n\n".join(sections) + "\n"


def _introduction() -> str:
    return (
        f"Made by `DVIP_DATA=... python benchmarks/default.py`, dvip {__version__}, seed 0. Scores "
        "are means over splits with their standard errors; lower is better. Coverage is the share "
        "of all test rows in central intervals. Seconds of a fit are of all threads: the wall "
        "clock (`fit_seconds`) says little where others run, and some runs were held up. The "
        "exact GP sees 2,000 rows of a longer table, at random; the deep GP is dvip's, with two "
        "layers, and takes 20,000 steps at most where there are more than 10,000 rows. CatBoost "
        "has the loss RMSEWithUncertainty and stops on a tenth of the rows."
    )


def _of_earlier(entries: list[Entry]) -> str:
    """Which runs are of a state of the default before its last changes (`"earlier": true`)."""
    numbers = Counter(entry["table"] for entry in entries if entry.get("earlier"))
    if not numbers:
        return ""
    listed = ", ".join(f"{table} {number}" for table, number in numbers.items())
    return f"\n\nRuns of dvip before the last changes of its default, by table: {listed}."


def _score_table(entries: list[Entry], methods: Sequence[str]) -> str:
    head = ["table", "method", "splits", "NLL", "RMSE", "CRPS", "in 90 %", "in 50 %", "CPU s"]
    rows = []
    for table, method, runs in _groups(entries, methods):
        scores = [plus_minus(Mean.of(r["nll"] for r in runs))]
        scores += [_significant(Mean.of(r[name] for r in runs)) for name in ("rmse", "crps")]
        seconds = np.mean([r["processor_seconds"] for r in runs])
        covered = [f"{_coverage(runs, share):.1%}" for share in (90, 50)]
        rows.append([table, method, str(len(runs)), *scores, *covered, f"{seconds:.1f}"])
    return _table(head, rows) + _failures(entries)


def _comparison(entries: list[Entry], methods: Sequence[str]) -> str:
    """Scores, how often intervals are right, and how the methods rank."""
    texts = [_score_table(entries, methods), _pooled_coverage(entries, methods)]
    count = len(_complete(entries, "nll", methods))
    if len(methods) > 1 and count:
        rows = []
        by_score = [ranks(entries, score, methods) for score in ("nll", "crps")]
        for method in methods:
            worst = worst_difference(entries, "nll", method, REFERENCE)
            where = f"{worst.value:+.3f} ({worst.table}, {worst.split})" if worst else ""
            mean_ranks = [plus_minus(of[method]) for of in by_score]
            rows.append([method, *mean_ranks, "" if method == REFERENCE else where])
        head = ["method", "rank by NLL", "rank by CRPS", f"worst NLL minus the {REFERENCE}'s"]
        texts += [
            f"Mean ranks over the {count} pairs of table and split that all these methods have:",
            _table(head, rows),
        ]
    parts = _parts(entries)
    return "\n\n".join([*texts, parts] if parts else texts)


def _pooled_coverage(entries: list[Entry], methods: Sequence[str]) -> str:
    """Of 90 % intervals, over all rows, and in the tables where they hold the fewest and most."""
    head = ["method", "all test rows in 90 %", "fewest of a table", "most"]
    rows = []
    for method in methods:
        groups = [runs for _, other, runs in _groups(entries, methods) if other == method]
        large = [runs for runs in groups if sum(r["test_rows"] for r in runs) >= ENOUGH_ROWS]
        shares = [(_coverage(runs, 90), runs[0]["table"]) for runs in large]
        ends = [f"{end[0]:.1%} ({end[1]})" for end in (min(shares), max(shares))] if shares else []
        if groups:
            pooled = _coverage([run for runs in groups for run in runs], 90)
            rows.append([method, f"{pooled:.1%}", *(ends or ["", ""])])
    text = f"90 % intervals, over all splits; tables with {ENOUGH_ROWS} test rows or more:"
    return f"{text}\n\n{_table(head, rows)}"


def _parts(entries: list[Entry]) -> str:
    """The candidates of the default: what each scores alone, beside the mixture of all."""
    runs = [entry for entry in entries if "parts" in entry]
    if not runs:
        return ""
    names = list(dict.fromkeys(part["name"] for run in runs for part in run["parts"]))
    rows = []
    for table in sorted(different(runs, "table")):
        of_table = matching(runs, table=table)
        cells = [_part_cell(of_table, name) for name in names]
        rows.append(
            [table, str(len(of_table)), *cells, f"{np.mean([r['nll'] for r in of_table]):.3f}"]
        )
    text = (
        "Candidates of the default, calibrated: mean weight and, over the splits where it was "
        "kept, the NLL of each alone; and that of their mixture:"
    )
    return f"{text}\n\n{_table(['table', 'splits', *names, 'mixture'], rows)}"


def _part_cell(runs: list[Entry], name: str) -> str:
    parts = [part for run in runs for part in run["parts"] if part["name"] == name]
    if not parts:
        return ""
    weight = f"{np.mean([part['weight'] for part in parts]):.0%}"
    alone = [part["nll"] for part in parts if "nll" in part]
    return f"{weight}: {np.mean(alone):.3f}" if alone else weight


def _gaps(entries: list[Entry], methods: Sequence[str]) -> str:
    head = ["table", "method", "splits", "NLL", "worst NLL", "in 90 %", "lowest in 90 %"]
    rows = []
    for table, method, runs in _groups(entries, methods):
        nll, covered = ([r[name] for r in runs] for name in ("nll", "coverage_90"))
        numbers = [plus_minus(Mean.of(nll)), f"{max(nll):.3f}"]
        shares = [f"{_coverage(runs, 90):.1%}", f"{min(covered):.1%}"]
        rows.append([table, method, str(len(runs)), *numbers, *shares])
    by_split = [
        [table, str(split), *(_gap_cell(entries, table, split, method) for method in methods)]
        for table, split in sorted({(entry["table"], entry["split"]) for entry in entries})
    ]
    split_head = ["table", "input", *(f"{method}: NLL, in 90 %" for method in methods)]
    parts = [_table(head, rows) + _failures(entries), "Each split:", _table(split_head, by_split)]
    return "\n\n".join(parts)


def _gap_cell(entries: list[Entry], table: str, split: int, method: str) -> str:
    runs = matching(entries, table=table, split=split, method=method)
    good = [run for run in runs if "failed" not in run]
    return f"{good[0]['nll']:.3f}, {good[0]['coverage_90']:.1%}" if good else ""


def _random(entries: list[Entry], methods: Sequence[str]) -> str:
    """The NLL minus that of the normal distribution of the training targets."""
    texts = []
    for method in methods:
        runs = matching(entries, method=method)
        good = [run for run in runs if "failed" not in run]
        groups = {"all": good}
        for field in ("function", "noise"):
            for value in sorted(different(good, field)):
                groups[f"{field}: {value}"] = matching(good, **{field: value})
        for trouble in sorted({name for run in good for name in run["troubles"]}):
            groups[f"with {trouble}"] = [run for run in good if trouble in run["troubles"]]
        groups["up to 50 rows"] = [run for run in good if run["rows"] <= 50]
        groups["more rows"] = [run for run in good if run["rows"] > 50]
        rows = []
        for name, some in groups.items():
            if some:
                gains = np.array([_excess(run) for run in some])
                numbers = [plus_minus(Mean.of(gains)), f"{np.median(gains):.3f}"]
                worse = [f"{np.mean(gains > limit):.1%}" for limit in (0, 0.1)]
                rows.append([name, str(len(some)), *numbers, *worse, f"{gains.max():+.3f}"])
        worst = sorted(good, key=_excess)[: -NUM_WORST - 1 : -1]
        head = ["tables", "number", "mean", "median", "above 0", "above 0.1", "worst"]
        listed = "; ".join(
            f"{run['split']} ({run['rows']} rows, {run['inputs']} inputs, {run['function']}, "
            f"{', '.join([run['noise'], *run['troubles']])}) {_excess(run):+.3f}"
            for run in worst
        )
        texts += [
            f"The NLL of {method} minus that of the normal distribution with the mean and the "
            f"standard deviation of the training targets, on 200 test rows; {len(runs)} tables, "
            f"{len(runs) - len(good)} failures.",
            _table(head, rows) + _failures(runs),
            f"Worst, by number: {listed}.",
        ]
    return "\n\n".join(texts)


def _excess(run: Entry) -> float:
    return run["nll"] - run["normal_nll"]


def _times(entries: list[Entry], methods: Sequence[str]) -> str:
    del methods
    good = sorted((e for e in entries if "failed" not in e), key=lambda e: e["split"])
    names = ("fit_seconds", "process_seconds")
    rows = [
        [
            f"{entry['split']:,}",
            *(f"{entry[f'{state}_{name}']:.1f}" for state in ("cold", "warm") for name in names),
            f"{entry['warm_processor_seconds']:.1f}",
            f"{entry['warm_prediction_seconds']:.2f}",
            f"{entry['cold_megabytes']:.0f}",
        ]
        for entry in good
    ]
    head = ["rows", "cold fit, s", "process", "warm fit, s", "process"]
    head += ["CPU of a warm fit", "1,000 predictions", "MB at most"]
    return (
        "Some rows of kin40k, 8 inputs, in a process of its own. Cold is with an empty cache of "
        "compiled programs, warm with that of the run before.\n\n"
        + _table(head, rows)
        + _failures(entries)
    )


SECTIONS: dict[str, Callable[[list[Entry], Sequence[str]], str]] = {
    "arena": _comparison,
    "published": _comparison,
    "bde": _score_table,
    "gaps": _gaps,
    "random": _random,
    "times": _times,
}


def _groups(entries: list[Entry], methods: Sequence[str]) -> Iterable[tuple[str, str, list[Entry]]]:
    """Runs of each table and method that did not fail."""
    good = [entry for entry in entries if "failed" not in entry]
    for table, method in itertools.product(sorted(different(good, "table")), methods):
        runs = matching(good, table=table, method=method)
        if runs:
            yield table, method, runs


def _coverage(runs: list[Entry], share: int) -> float:
    weights = [run["test_rows"] for run in runs]
    return float(np.average([run[f"coverage_{share}"] for run in runs], weights=weights))


def _significant(mean: Mean) -> str:
    """Three digits that count: errors of naval are some 0.0005."""
    digits = max(0, 2 - int(np.floor(np.log10(mean.mean)))) if mean.mean > 0 else 3
    alone = f"{mean.mean:.{digits}f}"
    return alone if np.isnan(mean.error) else f"{alone} ± {mean.error:.{digits}f}"


def _failures(entries: list[Entry]) -> str:
    failed = [entry for entry in entries if "failed" in entry]
    if not failed:
        return ""
    names = (f"{e['method']} on {e['table']}, {e['split']} ({e['failed']})" for e in failed)
    return f"\n\nFailed: {'; '.join(names)}."


def _table(head: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    return "\n".join([line(head), line(["---"] * len(head)), *map(line, rows)])
