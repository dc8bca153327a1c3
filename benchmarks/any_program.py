"""What a prior that is a program knows: seasons, simulators and past curves beside GP and BNN.

    python benchmarks/any_program.py --seeds 3

Four tasks: months of carbon dioxide in gaps of three years (the data of `dvip datasets`, found by
DVIP_DATA); the second half of a damped oscillation, and of predators and prey, from 64 noisy points
of the first; a growth curve from three points and forty past curves. The last three are those of
`examples/`. Every model has one layer but the deep GP, which has three. Results go to
`benchmarks/results/any_program.json`, as they arrive, and as a table to `any_program.md`; runs that
are there are not repeated. The picture is `docs/figures/any-program.png`, of seed 0.
"""

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from dvip import CurvePrior, DeepGPRegressor, DVIPRegressor, SimulatorPrior, __version__
from dvip.data import load_split
from results_file import ResultsFile

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "examples"))

import damped_oscillator  # noqa: E402
import growth_curves  # noqa: E402
import predators_and_prey  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"
FIGURE = ROOT / "docs" / "figures" / "any-program.png"
GAPS = [(1967, 1970), (1981, 1984), (1995, 1998), (2009, 2012)]
STEPS = 5_000
SHOWN_SEED = 0
SEASON = "linear + periodic(period=1) + gp"


class Task(NamedTuple):
    """Rows to learn from and to predict, the prior that knows, and known errors, if any."""

    inputs: np.ndarray
    targets: np.ndarray
    test_inputs: np.ndarray
    test_targets: np.ndarray
    prior: Any
    errors: float | None = None


def co2(seed: int) -> Task:
    """All months; those of the gaps are for testing."""
    del seed
    split = load_split("co2", 0)
    years = np.concatenate([split.inputs, split.test_inputs])
    ppm = np.concatenate([split.targets, split.test_targets])
    order = np.argsort(years[:, 0])
    years, ppm = years[order], ppm[order]
    gap = np.any([(years[:, 0] >= a) & (years[:, 0] < b) for a, b in GAPS], axis=0)
    return Task(years[~gap], ppm[~gap], years[gap], ppm[gap], SEASON)


def oscillator(seed: int) -> Task:
    """The second half of an oscillation."""
    return Task(*damped_oscillator.observed(seed), SimulatorPrior(damped_oscillator.oscillator))


def prey(seed: int) -> Task:
    """The second half of the numbers of prey."""
    simulator = SimulatorPrior(predators_and_prey.numbers_of_prey, predators_and_prey.KNOWN)
    return Task(*predators_and_prey.observed(seed), simulator)


def growth(seed: int) -> Task:
    """A curve from three points."""
    curves, new = growth_curves.bank(seed)
    days, error, places = growth_curves.DAYS, growth_curves.ERROR, [8, 16, 22]
    measured = new[places] + error * np.random.default_rng(seed).normal(size=3)
    prior = CurvePrior(days, curves)
    return Task(days[places, None], measured, days[:, None], new, prior, error)


TASKS: dict[str, Callable[[int], Task]] = {
    "co2": co2,
    "oscillator": oscillator,
    "prey": prey,
    "growth": growth,
}
METHODS = ("program", "gp", "bnn", "exact gp", "deep gp")


def model_of(method: str, task: Task, seed: int) -> Any:
    """One layer with that prior, or the deep GP."""
    if method == "deep gp":
        return DeepGPRegressor(n_inducing=50, max_iter=STEPS, random_state=seed)
    if method == "exact gp":
        return DVIPRegressor(inference="exact", random_state=seed)
    prior = task.prior if method == "program" else method
    options = {"inference": "vi", "n_layers": 1, "max_iter": STEPS, "random_state": seed}
    return DVIPRegressor(prior=prior, **options)


def fitted(method: str, task: Task, seed: int) -> Any:
    """The trained model."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model_of(method, task, seed).fit(task.inputs, task.targets, noise_std=task.errors)


def scores(model: Any, task: Task) -> dict[str, float]:
    """Of the rows to predict."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        predicted = model.predict_dist(task.test_inputs)
    low, high = predicted.interval(0.95)
    y = task.test_targets
    return {
        "rmse": float(np.sqrt(np.mean(np.square(predicted.mean - y)))),
        "crps": float(predicted.crps(y).mean()),
        "coverage_95": float(np.mean((low < y) & (y < high))),
    }


def seconds_a_step(prior: Any, rounds: int = 3) -> float:
    """Of a training on 2,000 rows with 100 prior functions: two lengths, and their difference."""
    random = np.random.default_rng(0)
    inputs = random.uniform(0, 20, size=(2_000, 1))
    targets = np.sin(2 * inputs[:, 0]) + 0.1 * random.normal(size=2_000)
    times = {}
    for _ in range(rounds):
        for steps in (500, 4_500):
            options = {"inference": "vi", "n_layers": 1, "n_prior_samples": 100}
            model = DVIPRegressor(prior=prior, max_iter=steps, **options)
            started = time.perf_counter()
            model.fit(inputs, targets)
            taken = time.perf_counter() - started
            times[steps] = min(taken, times.get(steps, np.inf))
    return (times[4_500] - times[500]) / 4_000


def table(runs: ResultsFile) -> str:
    """Means over the seeds."""
    lines = [
        "# Priors that are programs",
        "",
        "`python benchmarks/any_program.py --seeds 3`; means over seeds of the noise and the model "
        f"(of co2, of the model alone). {STEPS:,} steps.",
        "",
        "| task | prior | seeds | rmse | crps | 95 % intervals hold |",
        "|---|---|---|---|---|---|",
    ]
    for task in TASKS:
        for method in METHODS:
            found = [run for run in runs if (run["task"], run.get("method")) == (task, method)]
            if not found:
                continue
            means = [np.mean([run[key] for run in found]) for key in ("rmse", "crps")]
            cover = np.mean([run["coverage_95"] for run in found])
            numbers = " | ".join(f"{mean:.3f}" for mean in means)
            lines.append(f"| {task} | {method} | {len(found)} | {numbers} | {cover:.1%} |")
    steps = {run["prior"]: run["seconds"] for run in runs if run["task"] == "step"}
    if steps:
        lines += ["", "A training step of one layer with 100 prior functions, 100 rows:", ""]
        lines += [f"- {prior}: {1e3 * seconds:.3f} ms" for prior, seconds in steps.items()]
    return "\n".join(lines) + "\n"


SHOWN = {"program": "#1f5f99", "exact gp": "#6b6b70", "bnn": "#d1495b"}
TITLES = {
    "co2": "CO2 (ppm): linear + periodic + gp",
    "oscillator": "Oscillation: a simulator",
    "prey": "Predators and prey: a simulator",
    "growth": "Growth: forty past curves",
}


def draw() -> Figure:
    """The tasks of one seed, each with the prior that knows and two that do not."""
    figure = Figure(figsize=(12, 7.6), layout="constrained")
    for axes, name in zip(figure.subplots(2, 2).flat, TASKS, strict=True):
        task = TASKS[name](SHOWN_SEED)
        every = np.concatenate([task.inputs, task.test_inputs])[:, 0]
        places = np.linspace(every.min(), every.max(), 600)
        if name == "co2":
            places = np.linspace(1992, 2001, 400)
            near = (task.inputs[:, 0] > 1992) & (task.inputs[:, 0] < 2001)
            gap = (task.test_inputs[:, 0] > 1992) & (task.test_inputs[:, 0] < 2001)
        else:
            near, gap = np.full(len(task.inputs), True), np.full(len(task.test_inputs), True)
        for method, colour in SHOWN.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                predicted = fitted(method, task, SHOWN_SEED).predict_dist(places[:, None])
            low, high = predicted.interval(0.95)
            axes.plot(places, predicted.mean, color=colour, lw=1.8, label=method)
            if method != "bnn":
                axes.fill_between(places, low, high, color=colour, alpha=0.16, lw=0)
        axes.plot(task.test_inputs[gap, 0], task.test_targets[gap], ".", color="#b5b5ba", ms=3)
        axes.plot(task.inputs[near, 0], task.targets[near], ".", color="black", ms=5)
        values = np.concatenate([task.targets[near], task.test_targets[gap]])
        room = 0.35 * np.ptp(values)
        axes.set(ylim=(values.min() - room, values.max() + room))
        axes.set_title(TITLES[name], loc="left", size=11)
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].legend(frameon=False, ncols=3, fontsize=9, loc="lower right")
    return figure


def main() -> None:
    """Runs what is lacking, then writes the table and the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    number = parser.parse_args().seeds
    runs = ResultsFile(RESULTS / "any_program.json")
    for seed in range(number):
        for name, make in TASKS.items():
            task = make(seed)
            for method in METHODS:
                key = {"task": name, "method": method, "seed": seed, "steps": STEPS}
                if key in runs:
                    continue
                started = time.perf_counter()
                measured = scores(fitted(method, task, seed), task)
                seconds = round(time.perf_counter() - started, 1)
                runs.add(key, {**measured, "seconds": seconds, "version": __version__})
    for name, prior in (
        ("simulator", SimulatorPrior(damped_oscillator.oscillator)),
        ("bnn", "bnn"),
    ):
        key = {"task": "step", "prior": name}
        if key not in runs:
            runs.add(key, {"seconds": seconds_a_step(prior)})
    (RESULTS / "any_program.md").write_text(table(runs))
    FIGURE.parent.mkdir(exist_ok=True)
    draw().savefig(FIGURE, dpi=110)


if __name__ == "__main__":
    main()
