"""`partial_fit`: training on batches that the user brings, as scikit-learn has it."""

from typing import Any

import numpy as np

from dvip.objectives import Batch
from dvip.precision import precision
from dvip.training import TrainingDiverged
from dvip.training.online import train_on_batches

__all__ = ["fit_rows_once"]


def fit_rows_once(
    estimator: Any, inputs: np.ndarray, targets: np.ndarray, weights: np.ndarray
) -> None:
    """Visits each row once, in random order, in batches of about `batch_size` rows.

    Inputs and targets are scaled. The model is made if there is none yet.
    """
    estimator.n_samples_seen_ += len(inputs)
    dtype = estimator.precision
    arrays: Any = (inputs.astype(dtype), targets.astype(dtype), weights.astype(dtype))
    rows = Batch(*arrays)
    batches = _batches(rows, int(estimator.batch_size), (estimator.seed_, estimator.n_iter_))
    settings = estimator._settings(max_iter=1)
    with precision(dtype):
        if not hasattr(estimator, "model_"):
            estimator.model_ = estimator._build(arrays[0])
        optimiser = getattr(estimator, "_optimiser", None)
        try:
            result, estimator._optimiser = train_on_batches(
                estimator.model_, optimiser, batches, estimator.n_samples_seen_, settings
            )
        except TrainingDiverged as stopped:
            # The next call starts from the last finite model, without the moments that led away.
            estimator._optimiser = None
            estimator._keep(stopped.result, estimator.n_iter_)
            raise
    estimator._keep(result, estimator.n_iter_ + len(batches.inputs))


def _batches(rows: Batch, batch_size: int, seed: tuple[int, int]) -> Batch:
    """The rows in batches, with a leading step axis.

    All have `batch_size` rows, whatever the number of rows, for one compilation: what is missing is
    made up by rows of weight zero, and the weights of the others make up for that.
    """
    num_rows = len(rows.inputs)
    order = np.random.default_rng(seed).permutation(num_rows)
    parts = np.array_split(order, -(-num_rows // batch_size))
    chosen = np.array([np.resize(part, batch_size) for part in parts])
    counted = np.array([np.arange(batch_size) < len(part) for part in parts])
    share = np.array([batch_size / len(part) for part in parts])[:, None]
    weights = rows.weights[chosen] * (counted * share).astype(rows.weights.dtype)
    return Batch(rows.inputs[chosen], rows.targets[chosen], weights)
