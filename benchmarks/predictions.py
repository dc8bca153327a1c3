"""Predictions of the recipe, an ensemble that leaves out rows and is calibrated, on real tables.

    DVIP_DATA=... python benchmarks/predictions.py                     published splits 0-4
    DVIP_DATA=... python benchmarks/predictions.py --arena             tables to choose settings on

The recipe (`recipe`) is one for all tables; it was chosen on those of `arena/`, and what it adapts
to a table it takes from the training rows.
Scores of the published splits are on the scale of the data; those of the other tables are of a
target that is standardised on the training rows. Results go to
`benchmarks/results/predictions.json`, one entry a run, as they arrive, and as a table to
`predictions.md`; runs that are already there are not repeated.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dvip import BayesianNeuralNetwork, DVIPRegressor, __version__
from dvip.data import Split, load_split
from dvip.metrics import regression_metrics
from results_file import Entry, ResultsFile
from splits import ARENA, arena_split

PUBLISHED = ("energy", "concrete", "power", "kin8nm", "naval", "protein")
# The split that scikit-learn-contrib/bde publishes its scores of.
BDE = "bike"
# Rows from which on a table is large: more steps and wider networks pay, and noise is often not
# Gaussian.
LARGE = 5_000
# Noise that depends on the inputs costs twice the time: it must have a score better by MARGIN after
# a short training, and steps of the whole training are fewer then. Where the score, for a target of
# variance 1, is above CLEAN, little is noise, and more steps are worth more.
STUDENT_T, INPUT_DEPENDENT = "student-t", "heteroscedastic-student-t"
SCREENING_STEPS, MARGIN, CLEAN = 2_000, 0.02, 0.5
STEPS = {STUDENT_T: 15_000, INPUT_DEPENDENT: 7_000}
COMMON = {"n_layers": 2, "alpha": 1.0, "n_training_samples": 3}

RESULTS = Path(__file__).parent / "results"


def recipe(inputs: np.ndarray, targets: np.ndarray) -> dict[str, Any]:
    """The settings for a table, from its training rows.

    On a large one, whether the noise depends on the inputs is decided by a fifth of these rows that
    short trainings of single models leave out.
    """
    members = {**COMMON, "n_members": 5, "calibrate": True}
    if len(inputs) < LARGE:
        small = BayesianNeuralNetwork(constrained=False)
        return {**members, "prior": small, "likelihood": "gaussian", "max_iter": 6_000}
    wide = {"prior": BayesianNeuralNetwork(hidden=(20, 20), constrained=False)}
    constant, varying = (_screened(inputs, targets, name, wide) for name in STEPS)
    clean = constant + np.log(np.std(targets)) > CLEAN
    family = INPUT_DEPENDENT if varying > constant + MARGIN and not clean else STUDENT_T
    return {**members, **wide, "likelihood": family, "max_iter": STEPS[family]}


def _screened(inputs: np.ndarray, targets: np.ndarray, family: str, prior: dict[str, Any]) -> float:
    """The best score of left-out rows in a short training."""
    short = {"likelihood": family, "max_iter": SCREENING_STEPS, "validation_fraction": 0.2}
    model = DVIPRegressor.paper(**COMMON, **prior, **short).fit(inputs, targets)
    return float(model.validation_scores_[:, 2].max())


def default(inputs: np.ndarray, targets: np.ndarray) -> dict[str, Any]:
    """What `DVIPRegressor.paper()` does: the paper's DVIP 3."""
    del inputs, targets
    return {}


METHODS = {"recipe": recipe, "default": default}


def run(split: Split, method: str) -> Entry:
    """Scores of one model, and what it took."""
    started, processor = time.monotonic(), time.process_time()
    settings = METHODS[method](split.inputs, split.targets)
    model = DVIPRegressor.paper(**settings).fit(split.inputs, split.targets)
    seconds, processor = time.monotonic() - started, time.process_time() - processor
    scores = regression_metrics(model.predict_dist(split.test_inputs), split.test_targets)
    entry = {**scores, "rows": len(split.inputs), "test_rows": len(split.test_inputs)}
    if model.n_members:
        raw = model._predicted(model._scaled(split.test_inputs), model.model_.members)
        judged = regression_metrics(raw, split.test_targets)
        best = [float(s[s[:, 2].argmax(), 1]) for s in _by_member(model.validation_scores_)]
        entry |= {"nll_before_calibration": judged["nll"], "best_steps": best}
        entry |= {"likelihood": settings["likelihood"]}
        entry |= dict(zip(("scale", "tail"), map(float, model.calibration_[:2]), strict=True))
    return {**entry, "fit_seconds": seconds, "processor_seconds": processor}


def _by_member(scores: np.ndarray) -> list[np.ndarray]:
    return [scores[scores[:, 0] == member] for member in np.unique(scores[:, 0])]


def table_of(entries: list[Entry]) -> str:
    """Means over the splits, with standard errors of the NLL."""
    frame = pd.DataFrame(entries)
    lines = [
        "| table | splits | method | NLL | before calibration | RMSE | CRPS | in 90 % | fit, s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for (table, method), runs in frame.groupby(["table", "method"], sort=False):
        error = runs.nll.std() / np.sqrt(len(runs)) if len(runs) > 1 else np.nan
        before = runs.reindex(columns=["nll_before_calibration"]).mean().item()
        numbers = [
            f"{runs.nll.mean():.3f} ± {error:.3f}" if len(runs) > 1 else f"{runs.nll.mean():.3f}",
            "" if np.isnan(before) else f"{before:.3f}",
            *(f"{runs[name].mean():.4g}" for name in ("rmse", "crps")),
            f"{np.average(runs.coverage_90, weights=runs.test_rows):.1%}",
            f"{runs.fit_seconds.mean():.0f}",
        ]
        lines.append(f"| {table} | {len(runs)} | {method} | {' | '.join(numbers)} |")
    return "\n".join(lines)


def write_page(results: ResultsFile, path: Path) -> None:
    """The table, and how it was made."""
    path.write_text(
        "# Predictions of the recipe\n\n"
        f"`python benchmarks/predictions.py`, dvip {__version__}, seed 0. Published splits are on "
        "the scale of the data; tables of `arena`, and bike on bde's split, have a standardised "
        "target.\n\n"
        f"{table_of(results.entries)}\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arena", action="store_true", help="the tables of arena/, to choose on")
    parser.add_argument("--tables", nargs="+", default=None)
    parser.add_argument("--methods", nargs="+", default=["recipe"], choices=list(METHODS))
    parser.add_argument("--splits", nargs="+", type=int, default=None)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    name = "predictions_arena" if options.arena else "predictions"
    results = ResultsFile(options.out / f"{name}.json")
    tables = options.tables or (ARENA if options.arena else (*PUBLISHED, BDE))
    for number in options.splits or range(2 if options.arena else 5):
        for table in tables:
            if table == BDE and not options.arena and number > 0:
                continue  # one split is published
            for method in options.methods:
                key = {"table": table, "split": number, "method": method}
                if key in results:
                    continue
                arena = options.arena or table == BDE
                split = arena_split(table, number) if arena else load_split(table, number)
                results.add(key, run(split, method))
                write_page(results, options.out / f"{name}.md")


if __name__ == "__main__":
    main()
