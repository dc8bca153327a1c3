"""Optimisation of three standard functions: dvip, random search, and BoTorch where it is installed.

    python benchmarks/optimisation.py
    pip install ".[botorch]" && python benchmarks/optimisation.py --methods "GP, qLogNEI"

Branin, Hartmann 6 and Ackley 5 are minimised with 60 evaluations and ten seeds. All methods but
random search begin with the same ten points. Regret is the difference between the least value that
was seen and the least that there is. Results go to `benchmarks/results/optimisation.json`, one
entry a run, as they arrive, as a table to `optimisation.md` and as a figure to
`docs/figures/optimisation.png`; runs that are already there are not repeated, unless `--again` says
so.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.stats import qmc

from results_file import Entry, ResultsFile

RESULTS = Path(__file__).parent / "results"
FIGURE = Path(__file__).parent.parent / "docs" / "figures" / "optimisation.png"
NUM_STARTING, NUM_EVALUATIONS, SEEDS = 10, 60, range(10)
DVIP, RANDOM, BOTORCH = "dvip", "random search", "GP, qLogNEI"


@dataclass(frozen=True)
class Problem:
    """A function of rows of a box, and its minimum."""

    bounds: tuple[tuple[float, float], ...]
    function: Callable[[np.ndarray], np.ndarray]
    minimum: float

    def scaled(self, unit: np.ndarray) -> np.ndarray:
        """Rows of the unit cube as rows of the box."""
        low, high = np.transpose(self.bounds)
        return low + unit * (high - low)


def branin(X: np.ndarray) -> np.ndarray:
    x, y = X.T
    bowl = y - 5.1 / (4 * np.pi**2) * x**2 + 5 / np.pi * x - 6
    return bowl**2 + 10 * (1 - 1 / (8 * np.pi)) * np.cos(x) + 10


HEIGHTS = np.array([1.0, 1.2, 3.0, 3.2])
WIDTHS = np.array(
    [
        [10, 3, 17, 3.5, 1.7, 8],
        [0.05, 10, 17, 0.1, 8, 14],
        [3, 3.5, 1.7, 10, 17, 8],
        [17, 8, 0.05, 10, 0.1, 14],
    ]
)
CENTRES = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)


def hartmann(X: np.ndarray) -> np.ndarray:
    squares = np.square(X[:, None] - CENTRES)
    return -np.exp(-np.sum(WIDTHS * squares, axis=2)) @ HEIGHTS


def ackley(X: np.ndarray) -> np.ndarray:
    far = np.exp(-0.2 * np.sqrt(np.mean(np.square(X), axis=1)))
    return 20 + np.e - 20 * far - np.exp(np.mean(np.cos(2 * np.pi * X), axis=1))


PROBLEMS = {
    "Branin": Problem(((-5.0, 10.0), (0.0, 15.0)), branin, 0.39788735772973816),
    "Hartmann 6": Problem(((0.0, 1.0),) * 6, hartmann, -3.3223680114155147),
    "Ackley 5": Problem(((-32.768, 32.768),) * 5, ackley, 0.0),
}


def starting_points(problem: Problem, seed: int) -> np.ndarray:
    """Those that every method has, in the unit cube."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # ten are no power of two
        return qmc.Sobol(len(problem.bounds), seed=seed).random(NUM_STARTING)


def run_random(problem: Problem, seed: int) -> tuple[np.ndarray, list[float]]:
    random = np.random.default_rng(seed)
    X = problem.scaled(random.uniform(size=(NUM_EVALUATIONS, len(problem.bounds))))
    return problem.function(X), []


def run_dvip(problem: Problem, seed: int) -> tuple[np.ndarray, list[float]]:
    from dvip.optimise import Optimisation

    search = Optimisation(problem.bounds, seed=seed)
    X = problem.scaled(starting_points(problem, seed))
    values, seconds = list(problem.function(X)), []
    search.observe(X, values)
    while len(values) < NUM_EVALUATIONS:
        started = time.perf_counter()
        row = search.suggest(1)
        seconds.append(time.perf_counter() - started)
        values.append(float(problem.function(row)[0]))
        search.observe(row, values[-1:])
    return np.array(values), seconds


def run_botorch(problem: Problem, seed: int) -> tuple[np.ndarray, list[float]]:
    """A Gaussian process as it comes, and the acquisition that its authors recommend."""
    import torch
    from botorch.acquisition import qLogNoisyExpectedImprovement
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from botorch.optim import optimize_acqf
    from gpytorch.mlls import ExactMarginalLogLikelihood

    torch.manual_seed(seed)
    torch.set_num_threads(1)
    unit = torch.tensor(starting_points(problem, seed), dtype=torch.double)
    cube = torch.stack([torch.zeros_like(unit[0]), torch.ones_like(unit[0])])
    values, seconds = list(problem.function(problem.scaled(unit.numpy()))), []
    while len(values) < NUM_EVALUATIONS:
        started = time.perf_counter()
        targets = -torch.tensor(values, dtype=torch.double)[:, None]
        model = SingleTaskGP(unit, targets)
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        acquisition = qLogNoisyExpectedImprovement(model, unit, prune_baseline=True)
        row, _ = optimize_acqf(acquisition, cube, q=1, num_restarts=10, raw_samples=256)
        seconds.append(time.perf_counter() - started)
        unit = torch.cat([unit, row.detach()])
        values.append(float(problem.function(problem.scaled(row.detach().numpy()))[0]))
    return np.array(values), seconds


METHODS = {RANDOM: run_random, DVIP: run_dvip, BOTORCH: run_botorch}


def measure(problem: Problem, method: str, seed: int) -> Entry:
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        values, seconds = METHODS[method](problem, seed)
    regrets = np.minimum.accumulate(values) - problem.minimum
    return {
        "regret": float(regrets[-1]),
        "regrets": [float(f"{regret:.4g}") for regret in regrets],
        "seconds": time.perf_counter() - started,
        "median_step": float(np.median(seconds)) if seconds else None,
        "longest_step": max(seconds, default=None),
    }


def page(results: ResultsFile) -> str:
    """A table of regrets."""
    lines = [
        "# Optimisation",
        "",
        f"Mean regret after {NUM_EVALUATIONS} evaluations, with its standard error and the worst "
        "of the seeds; `python benchmarks/optimisation.py` makes this page.",
        "",
        "| function | method | seeds | regret | worst | after 30 |",
        "|---|---|---|---|---|---|",
    ]
    for problem in PROBLEMS:
        for method in METHODS:
            entries = [e for e in results if (e["problem"], e["method"]) == (problem, method)]
            if not entries:
                continue
            ends = np.array([entry["regret"] for entry in entries])
            error = ends.std(ddof=1) / np.sqrt(len(ends)) if len(ends) > 1 else np.nan
            half = np.mean([entry["regrets"][NUM_EVALUATIONS // 2 - 1] for entry in entries])
            lines.append(
                f"| {problem} | {method} | {len(ends)} | {ends.mean():.3g} ± {error:.2g} | "
                f"{ends.max():.3g} | {half:.3g} |"
            )
    return "\n".join(lines) + "\n"


def draw(results: ResultsFile, path: Path) -> None:
    """Mean regrets after each evaluation, and where the middle half of the seeds lies."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.2), layout="constrained")
    colours = {DVIP: "C0", BOTORCH: "C1", RANDOM: "0.6"}
    for axes, problem in zip(figure.subplots(1, len(PROBLEMS)), PROBLEMS, strict=True):
        for method, colour in colours.items():
            curves = np.array(
                [e["regrets"] for e in results if (e["problem"], e["method"]) == (problem, method)]
            )
            if len(curves):
                numbers = np.arange(1, NUM_EVALUATIONS + 1)
                axes.plot(numbers, curves.mean(axis=0), color=colour, label=method)
                low, high = np.quantile(curves, [0.25, 0.75], axis=0)
                axes.fill_between(numbers, low, high, color=colour, alpha=0.2, linewidth=0)
        axes.axvline(NUM_STARTING, color="0.8", linewidth=0.8)
        axes.set(title=problem, xlabel="evaluations", yscale="log")
    figure.axes[0].set_ylabel("regret")
    figure.axes[0].legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--problems", nargs="+", choices=PROBLEMS, default=tuple(PROBLEMS))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=(RANDOM, DVIP))
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    parser.add_argument("--again", action="store_true", help="repeat what is there")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    results = ResultsFile(options.out / "optimisation.json")
    for seed in options.seeds:
        for name in options.problems:
            for method in options.methods:
                key = {"problem": name, "method": method, "seed": seed}
                if key not in results or options.again:
                    results.add(key, measure(PROBLEMS[name], method, seed))
    (options.out / "optimisation.md").write_text(page(results))
    if options.out == RESULTS:
        draw(results, FIGURE)


if __name__ == "__main__":
    main()
