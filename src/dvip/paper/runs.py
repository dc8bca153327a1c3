"""Calibration in a few numbers, small enough to be stored with every run."""

import copy
import json
import math
import platform
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Bool, Float

from dvip.files import lock, replace_file
from dvip.layers.layer import WhitenedGaussian
from dvip.metrics import RegressionScores, classification_metrics
from dvip.paper.datasets import DATASETS, Split, load_split
from dvip.paper.methods import METHODS
from dvip.training import TrainingDiverged

__all__ = [
    "LEVELS",
    "Results",
    "Run",
    "class_calibration",
    "curve",
    "execute",
    "interval_calibration",
    "with_prior",
]

# Central intervals whose coverage is counted, and the bins of a PIT histogram.
LEVELS = tuple(round(0.05 * step, 2) for step in range(1, 20))
PIT_BINS = 20
CONFIDENCE_BINS = 15


def interval_calibration(cdf: Float[np.ndarray, " rows"]) -> dict[str, list]:
    """From the predictive cdf at what happened, which is uniform for an honest model.

    `pit` counts it in equal bins; `coverage` is the share of rows within each central interval.
    """
    from_median = 2 * np.abs(cdf - 0.5)
    return {
        "pit": np.histogram(cdf, PIT_BINS, (0, 1))[0].tolist(),
        "coverage": [float(np.mean(from_median <= level)) for level in LEVELS],
    }


def class_calibration(
    confidence: Float[np.ndarray, " rows"], correct: Bool[np.ndarray, " rows"]
) -> dict[str, list]:
    """Rows, summed confidence and right predictions in equal bins of the highest probability."""
    bins = np.minimum((confidence * CONFIDENCE_BINS).astype(int), CONFIDENCE_BINS - 1)
    return {
        name: np.bincount(bins, weights=weights, minlength=CONFIDENCE_BINS).tolist()
        for name, weights in (
            ("rows", np.ones(len(bins))),
            ("confidence", confidence),
            ("correct", correct.astype(float)),
        )
    }


GRID_POINTS = 400
NUM_DRAWS = 8
# Of the range of the inputs, on both sides.
MARGIN = 0.05


def curve(estimator: Any, split: Split) -> dict[str, list]:
    """The predictive distribution on a grid, draws from the prior, and the points themselves."""
    inputs = np.concatenate([split.inputs, split.test_inputs])[:, 0]
    margin = MARGIN * np.ptp(inputs)
    grid = np.linspace(inputs.min() - margin, inputs.max() + margin, GRID_POINTS)
    distribution = estimator.predict_dist(grid[:, None])
    lower, upper = distribution.interval(0.95)
    draws = with_prior(estimator).sample_functions(NUM_DRAWS, random_state=0)(grid[:, None])
    return {
        name: np.round(np.asarray(values, float), 5).tolist()
        for name, values in {
            "grid": grid,
            "mean": distribution.mean,
            "lower": lower,
            "upper": upper,
            "prior_draws": draws,
            "x": split.inputs[:, 0],
            "y": split.targets,
            "test_x": split.test_inputs[:, 0],
            "test_y": split.test_targets,
        }.items()
    }


def with_prior(estimator: Any) -> Any:
    """The fitted estimator with every layer's posterior put back to its (learned) prior."""

    def at_prior(node: Any) -> Any:
        if not isinstance(node, WhitenedGaussian):
            return node
        units, _, coefficients = node.q.shape
        return WhitenedGaussian.create(units, coefficients, scale=1.0)

    prior = copy.copy(estimator)
    prior.model_ = jax.tree.map(
        at_prior, estimator.model_, is_leaf=lambda node: isinstance(node, WhitenedGaussian)
    )
    return prior


# Rows at once, as a predictive distribution is a hundred times its inputs.
ROWS_AT_ONCE = 10_000
# Scores on training rows are of so many of them at most.
MAX_TRAIN_ROWS = 5_000
# Some readers leave out rows, and CO2 has a row more every month.
MIN_SHARE_OF_ROWS = 0.9
# Packages that may change a result.
PACKAGES = ("dvip", "jax", "jaxlib", "equinox", "optax", "numpy", "scikit-learn")


@dataclass(frozen=True, order=True)
class Run:
    """What identifies a run. `max_iter` is given where it is not the estimator's default.

    A `timed` run is trained twice: the times are of the second training, without compilation.
    """

    dataset: str
    method: str
    split: int = 0
    seed: int = 0
    max_iter: int | None = None
    timed: bool = False

    @property
    def path(self) -> Path:
        """Where its result is, below the folder of all results."""
        budget = "" if self.max_iter is None else f"-max-iter-{self.max_iter}"
        timed = "-timed" if self.timed else ""
        name = f"split-{self.split}-seed-{self.seed}{budget}{timed}.json"
        return Path(self.dataset) / self.method / name

    @property
    def random_state(self) -> int:
        """Another for each split: standard errors then include the luck of the prior functions."""
        return 1_000 * self.seed + self.split

    def __str__(self) -> str:
        budget = "" if self.max_iter is None else f", {self.max_iter:,} steps"
        return f"{self.dataset}, {self.method}, split {self.split}, seed {self.seed}{budget}"


def execute(run: Run, data: Path | None = None) -> dict[str, Any]:
    """Trains and judges. A training that diverges is a result too, with an `error`."""
    split = load_split(run.dataset, run.split, data)
    _check_whole(run.dataset, split)
    settings = {"random_state": run.random_state}
    if run.max_iter is not None:
        settings["max_iter"] = run.max_iter
    task = DATASETS[run.dataset].task
    estimator = METHODS[run.method].estimator(task, **settings)
    result = {
        **asdict(run),
        "task": task,
        "estimator": type(estimator).__name__,
        "settings": {name: _plain(value) for name, value in estimator.get_params().items()},
        "rows": {"train": len(split.targets), "test": len(split.test_targets)},
        "inputs": int(split.inputs[0].size),
        "versions": {package: version(package) for package in PACKAGES},
        "python": platform.python_version(),
        "machine": platform.machine(),
    }
    for _ in range(2 if run.timed else 1):
        result |= fit(estimator, split)
    if result["error"] is None:
        result["bound"] = float(estimator.bound_history_[-1])
        judged = judge(estimator, split)
        infinite = [name for name, score in judged["metrics"].items() if not math.isfinite(score)]
        if infinite:
            result["error"] = f"Not finite on the test part: {', '.join(infinite)}."
        else:
            result |= judged
    result["finished"] = datetime.now(UTC).isoformat(timespec="seconds")
    return result


def _check_whole(name: str, split: Split) -> None:
    """A file that was cut off at the end of a line is not to be compared with the paper."""
    rows, expected = len(split.targets) + len(split.test_targets), DATASETS[name].rows
    if rows < MIN_SHARE_OF_ROWS * expected:
        raise ValueError(
            f"{name} has {rows:,} rows here and should have {expected:,}: its files are not whole. "
            "Delete them, to have them downloaded again, or replace them."
        )


def fit(estimator: Any, split: Split) -> dict[str, Any]:
    """Trains, and says how it ended, after how many steps and how long."""
    started, cpu_started = time.perf_counter(), time.process_time()
    error = None
    try:
        estimator.fit(split.inputs, split.targets)
    except TrainingDiverged as stopped:
        error = str(stopped)
    return {
        "error": error,
        "steps": estimator.n_iter_,
        "seconds": round(time.perf_counter() - started, 3),
        "cpu_seconds": round(time.process_time() - cpu_started, 3),
    }


def judge(estimator: Any, split: Split) -> dict[str, Any]:
    """Scores on the test part and on training rows, calibration, and curves of one input."""
    started = time.perf_counter()
    metrics, calibration = scores(estimator, split.test_inputs, split.test_targets)
    seconds = time.perf_counter() - started
    chosen = np.random.default_rng(0).permutation(len(split.targets))[:MAX_TRAIN_ROWS]
    train_metrics, _ = scores(estimator, split.inputs[chosen], split.targets[chosen])
    judged: dict[str, Any] = {
        "metrics": metrics,
        "train_metrics": train_metrics,
        "scoring_seconds": round(seconds, 3),
        "calibration": calibration,
    }
    if split.inputs.shape[1:] == (1,):
        judged["curve"] = curve(estimator, split)
    return judged


def scores(
    estimator: Any, inputs: np.ndarray, targets: np.ndarray
) -> tuple[dict[str, float], dict[str, list]]:
    """Metrics, and how calibrated the predictions are."""
    if hasattr(estimator, "classes_"):
        blocks = [estimator.predict_proba(block) for block, _ in _blocks(inputs, targets)]
        probabilities = np.concatenate(blocks)
        metrics = classification_metrics(
            probabilities, targets.tolist(), estimator.classes_.tolist()
        )
        correct = estimator.classes_[probabilities.argmax(axis=1)] == targets
        return metrics, class_calibration(probabilities.max(axis=1), correct)
    judged = RegressionScores()
    cdf = []
    for block, y in _blocks(inputs, targets):
        distribution = estimator.predict_dist(block)
        judged.add(distribution, y)
        cdf.append(distribution.cdf(y))
    return judged.metrics(), interval_calibration(np.concatenate(cdf))


def _blocks(inputs: np.ndarray, targets: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for start in range(0, len(targets), ROWS_AT_ONCE):
        yield inputs[start : start + ROWS_AT_ONCE], targets[start : start + ROWS_AT_ONCE]


def _plain(value: Any) -> Any:
    """A parameter for JSON: processes by their class and options."""
    if not isinstance(value, eqx.Module):
        return value
    return repr(value)


# A folder of results, one JSON file a run; several processes may fill it at once.
#
# A run is claimed by a lock on a file of its own, which the system releases when a process ends,
# however it ends. A result is written in one step once it is complete: what is there is whole.

LOCKS = ".locks"


# What a result has, and one of a training that did not diverge.
ALWAYS = ("error", "seconds", "cpu_seconds")
WITHOUT_ERROR = ("metrics", "train_metrics", "rows", "calibration")


def _check(result: dict[str, Any]) -> None:
    """Raises a KeyError if something is missing."""
    for name in (*ALWAYS, *(WITHOUT_ERROR if result["error"] is None else ())):
        result[name]


class Results:
    """What runs gave, by run."""

    def __init__(self, folder: Path):
        if folder.exists() and not folder.is_dir():
            raise FileExistsError(f"{folder} is a file; results are a folder. Choose another name.")
        self.folder = folder

    def __contains__(self, run: Run) -> bool:
        return (self.folder / run.path).exists()

    def find(
        self, dataset: str, method: str, max_iter: int | None, *, timed: bool = False
    ) -> list[dict[str, Any]]:
        """The results of all splits and seeds of a method on a dataset, at a number of steps."""
        folder = self.folder / dataset / method
        found = (self._read(path) for path in sorted(folder.glob("*.json")))
        return [result for run, result in found if (run.max_iter, run.timed) == (max_iter, timed)]

    def _read(self, path: Path) -> tuple[Run, dict[str, Any]]:
        try:
            result = json.loads(path.read_bytes())
            known = [field.name for field in fields(Run) if field.name in result]
            run = Run(**{name: result[name] for name in known})
            _check(result)
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} is damaged ({error}): delete it, and run it again.") from None
        if self.folder / run.path != path:
            raise ValueError(f"{path} holds the result of {run}: put it back, or delete it.")
        return run, result

    def write(self, run: Run, result: dict[str, Any]) -> None:
        """Stores the result of a run."""
        path = self.folder / run.path
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = (f" {json.dumps(name)}: {json.dumps(value)}" for name, value in result.items())
        replace_file(path, ("{\n" + ",\n".join(lines) + "\n}\n").encode())

    def claim(self, run: Run) -> AbstractContextManager[bool]:
        """Whether the run is ours to do: nobody else is doing it while this lasts."""
        name = "--".join(run.path.with_suffix(".lock").parts)
        return lock(self.folder / LOCKS / name, wait=False)
