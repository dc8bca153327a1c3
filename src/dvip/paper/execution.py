"""A run: a method is trained on a split of a dataset and judged, in numbers that are stored."""

import copy
import math
import platform
import time
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Bool, Float

from dvip.layers.layer import WhitenedGaussian
from dvip.metrics import scores
from dvip.objectives import DeepModel
from dvip.paper.datasets.catalogue import DATASETS, load_split
from dvip.paper.datasets.dataset import Split
from dvip.paper.grids import METHODS
from dvip.paper.results import Run
from dvip.training import TrainingDiverged

__all__ = [
    "LEVELS",
    "class_calibration",
    "curve",
    "execute",
    "interval_calibration",
    "with_prior",
]

# Central intervals whose coverage is counted, and bins: few enough to be stored with every run.
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
    """The predictive distribution on a grid, functions drawn from the posterior and, where one is
    learned, from the prior, and the points themselves."""
    inputs = np.concatenate([split.inputs, split.test_inputs])[:, 0]
    margin = MARGIN * np.ptp(inputs)
    grid = np.linspace(inputs.min() - margin, inputs.max() + margin, GRID_POINTS)
    distribution = estimator.predict_dist(grid[:, None])
    lower, upper = distribution.interval(0.95)

    def draws(model: Any) -> np.ndarray:
        return model.sample_functions(NUM_DRAWS, random_state=0)(grid[:, None])

    prior = with_prior(estimator)
    return {
        name: np.round(np.asarray(values, float), 5).tolist()
        for name, values in {
            "grid": grid,
            "mean": distribution.mean,
            "lower": lower,
            "upper": upper,
            "draws": draws(estimator),
            **({} if prior is None else {"prior_draws": draws(prior)}),
            "x": split.inputs[:, 0],
            "y": split.targets,
            "test_x": split.test_inputs[:, 0],
            "test_y": split.test_targets,
        }.items()
    }


def with_prior(estimator: Any) -> Any:
    """The fitted estimator with every layer's posterior put back to its (learned) prior.

    None where its layers have other posteriors.
    """
    model = getattr(estimator, "model_", None)
    if not isinstance(model, DeepModel) or not any(
        _is_posterior(node) for node in jax.tree.leaves(model, is_leaf=_is_posterior)
    ):
        return None

    def at_prior(node: Any) -> Any:
        if not _is_posterior(node):
            return node
        units, _, coefficients = node.q.shape
        return WhitenedGaussian.create(units, coefficients, scale=1.0)

    prior = copy.copy(estimator)
    prior.model_ = jax.tree.map(at_prior, estimator.model_, is_leaf=_is_posterior)
    return prior


def _is_posterior(node: Any) -> bool:
    return isinstance(node, WhitenedGaussian)


# Rows at once, as a predictive distribution is a hundred times its inputs.
ROWS_AT_ONCE = 10_000
# Scores on training rows are of so many of them at most.
MAX_TRAIN_ROWS = 5_000
# Some readers leave out rows, and CO2 has a row more every month.
MIN_SHARE_OF_ROWS = 0.9
# Packages that may change a result.
PACKAGES = ("dvip", "jax", "jaxlib", "equinox", "optax", "numpy", "scikit-learn")


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
        # A mixture of models has no bound of its own, a process in closed form none at all.
        history = getattr(estimator, "bound_history_", ())
        if len(history):
            result["bound"] = float(np.ravel(history)[-1])
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
    metrics, calibration = scores_and_calibration(estimator, split.test_inputs, split.test_targets)
    seconds = time.perf_counter() - started
    chosen = np.random.default_rng(0).permutation(len(split.targets))[:MAX_TRAIN_ROWS]
    train_metrics, _ = scores_and_calibration(
        estimator, split.inputs[chosen], split.targets[chosen]
    )
    judged: dict[str, Any] = {
        "metrics": metrics,
        "train_metrics": train_metrics,
        "scoring_seconds": round(seconds, 3),
        "calibration": calibration,
    }
    if split.inputs.shape[1:] == (1,):
        judged["curve"] = curve(estimator, split)
    return judged


def scores_and_calibration(
    estimator: Any, inputs: np.ndarray, targets: np.ndarray
) -> tuple[dict[str, float], dict[str, list]]:
    """Metrics, and how calibrated the predictions are."""
    seen: list[Any] = []

    def note(prediction: Any, y: np.ndarray) -> None:
        if estimator.task == "regression":
            seen.append(prediction.cdf(y))
        else:
            correct = estimator.classes_[prediction.argmax(axis=1)] == y
            seen.append(np.stack([prediction.max(axis=1), correct]))

    metrics = scores(estimator, _blocks(inputs, targets), each=note)
    if estimator.task == "regression":
        return metrics, interval_calibration(np.concatenate(seen))
    confidence, correct = np.concatenate(seen, axis=1)
    return metrics, class_calibration(confidence, correct.astype(bool))


def _blocks(inputs: np.ndarray, targets: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for start in range(0, len(targets), ROWS_AT_ONCE):
        yield inputs[start : start + ROWS_AT_ONCE], targets[start : start + ROWS_AT_ONCE]


def _plain(value: Any) -> Any:
    """A parameter for JSON: processes by their class and options."""
    if not isinstance(value, eqx.Module):
        return value
    return repr(value)
