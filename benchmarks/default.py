"""How good `DVIPRegressor()` is as it comes, beside what else people would use as it comes.

    pip install ".[peers]" && DVIP_DATA=... python benchmarks/default.py
    DVIP_DATA=... python benchmarks/default.py --parts arena --methods dvip --splits 0 1
    DVIP_DATA=... python benchmarks/default.py --parts random --splits 0-49

Parts, of which all run unless `--parts` says otherwise:

- arena: seven tables, folds 0-2, with a target that is standardised on the training rows
- published: nine UCI sets, the published splits 0-4, on the scale of the data
- bde: airfoil and bike on the split that scikit-learn-contrib/bde publishes its scores of
- gaps: test rows in the middle third of an input's range, one split an input
- random: 200 small tables that are made up; the split is the number of the table
- times: a fit in a process of its own, cold and warm; the split is the number of rows
- classification: `DVIPClassifier()` and peers on four tables, results in `classification.json`

Results go to `benchmarks/results/default_PART.json`, one entry a run, as they arrive, and as tables
to `default.md`; runs that are already there are not repeated, unless `--again` says so or they are
marked as of an earlier state of the default (`"earlier": true`).
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

import classification
import contestants
from contestants import CATBOOST, DVIP, ENSEMBLE, EXACT_GP, NGBOOST, OWN_DEEP_GP
from dvip import GaussianMixture
from dvip.data import Split, load_split
from dvip.metrics import regression_metrics
from random_tables import random_table
from report import comparison
from results_file import Entry, ResultsFile
from splits import ARENA, BDE, GAPS, arena_split, bde_split, gap_split

RESULTS = Path(__file__).parent / "results"
SMALL, LARGE = ("boston", "concrete", "energy", "yacht", "wine-red"), ("kin8nm", "naval", "power")
PUBLISHED = (*SMALL, *LARGE, "protein")
SLOWEST = "deep GP"
# The names of the methods, and who they are among the contestants.
METHODS = {
    "dvip": DVIP,
    "exact GP": EXACT_GP,
    "MLP ensemble": ENSEMBLE,
    "NGBoost": NGBOOST,
    "CatBoost": CATBOOST,
    SLOWEST: OWN_DEEP_GP,
}
CLASSIFIERS = ("dvip", "logistic regression", "CatBoost", "five MLPs")
TIMED_ROWS = (150, 500, 1_500, 10_000, 40_000)
# The slowest takes fewer steps on long tables than it would by itself: a fit takes minutes.
LONG, DEEP_GP_STEPS = 10_000, 20_000


@dataclass(frozen=True)
class Part:
    """Tables with the splits of each, and what is measured of a method on one of them."""

    splits: Mapping[str, Sequence[int]]
    methods: Sequence[str]
    measure: Callable[[str, int, str], Entry]


def settings(method: str, rows: int) -> dict[str, Any]:
    """What is not as it comes."""
    if method != SLOWEST:
        return {}
    return {"n_layers": 2, **({"max_iter": DEEP_GP_STEPS} if rows > LONG else {})}


def fit_and_score(split: Split, method: str) -> Entry:
    """Scores on the test rows, and what it took."""
    given = settings(method, len(split.inputs))
    model = contestants.make(METHODS[method], given)
    started, processor = time.perf_counter(), time.process_time()
    model.fit(split.inputs, split.targets)
    seconds, processor = time.perf_counter() - started, time.process_time() - processor
    scores = regression_metrics(model.predict_dist(split.test_inputs), split.test_targets)
    jax.clear_caches()  # programs of other shapes would fill the memory
    entry = {**scores, "rows": len(split.inputs), "test_rows": len(split.test_inputs)}
    entry |= {"fit_seconds": seconds, "processor_seconds": processor}
    if hasattr(model, "choice_"):
        entry["parts"] = of_parts(model, split)
    return entry | ({"settings": given} if given else {})


def of_parts(model: Any, split: Split) -> list[Entry]:
    """What each candidate of the default would score alone, and weighs."""
    inputs, kept = model._scaled(split.test_inputs), iter(model.parts_)
    parts = []
    for name, left_out, weight in model.choice_:
        part: Entry = {"name": name, "score_left_out": left_out, "weight": weight}
        if weight > 0:
            alone = next(kept)._distribution(inputs)
            part["nll"] = -float(np.mean(alone.log_prob(split.test_targets)))
        parts.append(part)
    return parts


def scored(read: Callable[[str, int], Split]) -> Callable[[str, int, str], Entry]:
    return lambda table, split, method: fit_and_score(read(table, split), method)


def score_random(table: str, number: int, method: str) -> Entry:
    """Beside the normal distribution of the training targets."""
    del table
    made = random_table(number)
    split = made.split
    facts = {"function": made.function, "noise": made.noise, "troubles": list(made.troubles)}
    normal = GaussianMixture(
        np.full((len(split.test_targets), 1), split.targets.mean()),
        np.full((len(split.test_targets), 1), split.targets.var()),
        np.array(0.0),
    )
    facts |= {"inputs": split.inputs.shape[1], "rows": len(split.inputs)}
    facts["normal_nll"] = regression_metrics(normal, split.test_targets)["nll"]
    return facts | attempt(lambda: fit_and_score(split, method))


def time_fit(table: str, rows: int, method: str) -> Entry:
    """Twice: with an empty cache of compiled programs, and with what the first left there."""
    del table, method
    command = [sys.executable, str(Path(__file__).with_name("timed_fit.py")), str(rows)]
    entry = {}
    with tempfile.TemporaryDirectory() as cache:
        for name in ("cold", "warm"):
            environment = {**os.environ, "DVIP_COMPILATION_CACHE": cache}
            started = time.perf_counter()
            finished = subprocess.run(
                command, env=environment, capture_output=True, text=True, check=False
            )
            if finished.returncode:
                raise RuntimeError(finished.stderr.strip().splitlines()[-1])
            times = json.loads(finished.stdout.splitlines()[-1])
            times["process_seconds"] = time.perf_counter() - started
            entry |= {f"{name}_{key}": value for key, value in times.items()}
    return entry


def attempt(measure: Callable[[], Entry]) -> Entry:
    """A run that fails is a result, too."""
    try:
        return measure()
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {error}"}


ALL = tuple(METHODS)
PARTS = {
    "arena": Part(dict.fromkeys(ARENA, range(3)), ALL, scored(arena_split)),
    "published": Part(dict.fromkeys(PUBLISHED, range(5)), ALL, scored(load_split)),
    "bde": Part(dict.fromkeys(BDE, range(1)), ALL, scored(lambda table, _: bde_split(table))),
    "gaps": Part(
        {table: range(count) for table, count in GAPS.items()},
        ("dvip", "exact GP"),
        scored(gap_split),
    ),
    "random": Part({"random": range(200)}, ("dvip",), score_random),
    "times": Part({"kin40k": TIMED_ROWS}, ("dvip",), time_fit),
}
CLASSIFICATION = "classification"


def run(name: str, options: argparse.Namespace) -> None:
    """The runs of a part that are asked for, split by split, and the slowest method last."""
    part, results = PARTS[name], ResultsFile(options.out / f"default_{name}.json")
    runs = [
        (table, split, method)
        for table, splits in part.splits.items()
        for split in splits
        for method in part.methods
        if table in (options.tables or [table])
        and split in (options.splits or [split])
        and method in (options.methods or [method])
    ]
    runs.sort(key=lambda run: (run[2] == SLOWEST, run[1]))
    for table, split, method in runs:
        key = {"part": name, "table": table, "split": split, "method": method}
        if key not in results or options.again:
            results.add(key, attempt(lambda run=(table, split, method): part.measure(*run)))
            write_page(options.out)


def run_classification(options: argparse.Namespace) -> None:
    results = ResultsFile(options.out / "classification.json")
    tables = [name for name in classification.DATASETS if name in (options.tables or [name])]
    models = [name for name in CLASSIFIERS if name in (options.methods or [name])]
    classification.measure_all(results, tables, options.splits or range(3), models, options.again)
    (options.out / "classification.md").write_text(classification.markdown(results))
    write_page(options.out)


def write_page(folder: Path) -> None:
    """The tables of all parts that have results."""
    results = {name: list(ResultsFile(folder / f"default_{name}.json")) for name in PARTS}
    page = comparison.page(results, METHODS)
    classes = ResultsFile(folder / "classification.json")
    shown = [entry for entry in classes if entry["contestant"] in CLASSIFIERS]
    if shown:
        note = "`DVIPClassifier()` and peers; a higher log-likelihood is better."
        table = classification.markdown(shown)
        page += f"\n## {comparison.TITLES[CLASSIFICATION]}\n\n{note}\n\n{table}"
    (folder / "default.md").write_text(page)


def numbers(text: str) -> list[int]:
    """`7`, or `0-49` with both ends."""
    first, _, last = text.partition("-")
    return list(range(int(first), int(last or first) + 1))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = (*PARTS, CLASSIFICATION)
    tables = {table for part in PARTS.values() for table in part.splits}
    tables |= set(classification.DATASETS)
    methods = dict.fromkeys([*METHODS, *CLASSIFIERS])
    parser.add_argument("--parts", nargs="+", choices=parts, default=parts)
    parser.add_argument("--tables", nargs="+", choices=sorted(tables), metavar="NAME")
    parser.add_argument("--splits", nargs="+", type=numbers, metavar="N or N-M")
    parser.add_argument("--methods", nargs="+", choices=methods, metavar="NAME")
    parser.add_argument("--again", action="store_true", help="repeat what is there")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.splits:
        options.splits = [number for some in options.splits for number in some]
    for name in options.parts:
        if name == CLASSIFICATION:
            run_classification(options)
        else:
            run(name, options)


if __name__ == "__main__":
    main()
