"""One run: a method trained on one split of one dataset, and all that is reported of it."""

import math
import platform
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import equinox as eqx
import numpy as np

from dvip.data import DATASETS, Split, load_split
from dvip.experiments.calibration import class_calibration, interval_calibration
from dvip.experiments.curves import curve
from dvip.experiments.methods import METHODS
from dvip.metrics import (
    add_totals,
    classification_metrics,
    regression_from_totals,
    regression_totals,
)
from dvip.training import TrainingDiverged

__all__ = ["Run", "execute"]

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
    totals: dict[str, float] = {}
    cdf = []
    for block, y in _blocks(inputs, targets):
        distribution = estimator.predict_dist(block)
        totals = add_totals(totals, regression_totals(distribution, y))
        cdf.append(distribution.cdf(y))
    return regression_from_totals(totals), interval_calibration(np.concatenate(cdf))


def _blocks(inputs: np.ndarray, targets: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for start in range(0, len(targets), ROWS_AT_ONCE):
        yield inputs[start : start + ROWS_AT_ONCE], targets[start : start + ROWS_AT_ONCE]


def _plain(value: Any) -> Any:
    """A parameter for JSON: processes by their class and options."""
    if not isinstance(value, eqx.Module):
        return value
    return repr(value)
