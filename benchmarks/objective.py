"""Test scores against the α of the objective, on a few tables, with both BNN priors.

    python benchmarks/objective.py --data FOLDER --tables airfoil,autompg,concreteslump

A table is NAME.csv or NAME.csv.gz in the folder, its target the last column. NAME-test-mask.csv.gz
has a column for each fold, of which the first is taken; without it, a tenth of the rows is left out
at random. Two layers, BNN 10-10, S = 20, three samples, the target standardised. Results are kept
in results/objective.json, a second call goes on; the figure is docs/figures/objective.png.
"""

import argparse
import time
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from dvip import BayesianNeuralNetwork, DVIPRegressor
from report.plots import STYLE
from report.summaries import different, matching
from results_file import Entry, ResultsFile

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "objective.json"
FIGURE = HERE.parent / "docs" / "figures" / "objective.png"
ALPHAS = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)
PRIORS = {"constrained": "#0072b2", "unconstrained": "#d55e00"}
SCORES = {
    "nll": "NLL",
    "rmse": "RMSE",
    "crps": "CRPS",
    "coverage_90": "90 % intervals cover",
}


def read_table(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """All columns, and which rows are left out."""
    path = next(path for path in sorted(folder.glob(f"{name}.csv*")))
    try:
        table = np.loadtxt(path, delimiter=",")
    except ValueError:  # a line of names
        table = np.loadtxt(path, delimiter=",", skiprows=1)
    mask = folder / f"{name}-test-mask.csv.gz"
    if mask.exists():
        return table, np.loadtxt(mask, delimiter=",")[:, 0] > 0
    return table, np.random.default_rng(0).permutation(len(table)) < len(table) // 10


def scores(table: np.ndarray, left_out: np.ndarray, key: Entry) -> Entry:
    train, test = table[~left_out], table[left_out]
    offset, scale = train[:, -1].mean(), train[:, -1].std()
    model = DVIPRegressor.paper(
        n_layers=2,
        prior=BayesianNeuralNetwork(constrained=key["prior"] == "constrained"),
        alpha=key["alpha"],
        n_training_samples=3,
        max_iter=key["steps"],
        batch_size=50,
        random_state=key["seed"],
    )
    start = time.perf_counter()
    model.fit(train[:, :-1], (train[:, -1] - offset) / scale)
    seconds = time.perf_counter() - start
    predicted, targets = model.predict_dist(test[:, :-1]), (test[:, -1] - offset) / scale
    low, high = predicted.interval(0.9)
    return {
        "nll": float(-np.mean(predicted.log_prob(targets))),
        "rmse": float(np.sqrt(np.mean(np.square(predicted.mean - targets)))),
        "crps": float(np.mean(predicted.crps(targets))),
        "coverage_90": float(np.mean((low <= targets) & (targets <= high))),
        "seconds": seconds,
    }


def draw(entries: list[Entry], path: Path) -> None:
    """A row of panels for each score, a column for each table that has results at every α.

    A line is the mean over seeds.
    """
    tables = [
        table
        for table in different(entries, "table")
        if len(different(matching(entries, table=table), "alpha")) == len(ALPHAS)
    ]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(2.8 * len(tables), 7.6), layout="constrained")
        panels = figure.subplots(len(SCORES), len(tables), squeeze=False, sharex=True)
        for row, (score, label) in enumerate(SCORES.items()):
            panels[row, 0].set_ylabel(label)
            for axes, table in zip(panels[row], tables, strict=True):
                for prior, colour in PRIORS.items():
                    runs = matching(entries, table=table, prior=prior)
                    axes.scatter(
                        [run["alpha"] for run in runs], [run[score] for run in runs], 8, colour
                    )
                    alphas = sorted(different(runs, "alpha"))
                    means = [
                        np.mean([run[score] for run in matching(runs, alpha=alpha)])
                        for alpha in alphas
                    ]
                    axes.plot(alphas, means, color=colour, label=prior)
                if score == "coverage_90":
                    axes.axhline(0.9, color="#555555", linestyle="--", linewidth=1.0)
                    axes.set_xlabel("α")
                axes.grid(True)
        for axes, table in zip(panels[0], tables, strict=True):
            axes.set_title(table)
        panels[0, 0].legend(frameon=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--data", type=Path, help="folder of the tables; without it, only the figure is drawn")
    add("--tables", default="airfoil,autompg,concreteslump", help="names separated by commas")
    add("--seeds", type=int, default=2)
    add("--steps", type=int, default=2_000)
    parsed = parser.parse_args()
    results = ResultsFile(RESULTS)
    for name in parsed.tables.split(",") if parsed.data else ():
        table, left_out = read_table(parsed.data, name)
        for alpha in ALPHAS:
            for prior in PRIORS:
                for seed in range(parsed.seeds):
                    key = {"table": name, "prior": prior, "alpha": alpha, "seed": seed}
                    key["steps"] = parsed.steps
                    if key not in results:
                        results.add(key, scores(table, left_out, key))
    draw(list(results), FIGURE)


if __name__ == "__main__":
    main()
