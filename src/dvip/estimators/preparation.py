"""Fitting to a source, and to batches that the user brings."""

from contextlib import ExitStack, closing
from typing import Any

import numpy as np

from dvip.batches import Batch
from dvip.estimators.scales import MAX_SCALED, as_rows
from dvip.runtime import precision
from dvip.sources import Source, StreamedRows, cached_rows
from dvip.sources.records import RowsContent
from dvip.training import CheckpointFolder, TrainingDiverged, is_first_process, row_counter
from dvip.training.trainer import train_on_batches

__all__ = ["fit_rows_once", "fit_source"]

# Where a model starts, principal directions and inducing points, depends on a random sample of so
# many rows, or of as many as have so many numbers.
MAX_SAMPLED_ROWS, MAX_SAMPLED_NUMBERS = 100_000, 2**23


def fit_source(
    estimator: Any,
    source: Source,
    y: Any,
    sample_weight: Any,
    checkpoints: CheckpointFolder | None,
) -> None:
    """Fits an estimator to all rows of a source."""
    if y is not None or sample_weight is not None:
        raise ValueError(
            "A source brings its targets and weights: leave out y and sample_weight, and say where "
            "they are when you make the source."
        )
    estimator._start_training(checkpoints)
    with ExitStack() as open_files:
        shown = estimator.verbose and is_first_process()
        with row_counter(source.num_rows, "reading", shown=shown) as done:
            path, content = open_files.enter_context(
                cached_rows(source, estimator._stream_targets(), estimator.precision, done)
            )
        _note_inputs(estimator, source, content)
        mean, scale, classes = estimator._note_stream_targets(content)
        data = StreamedRows(
            path,
            content,
            np.concatenate([estimator.input_scaler_.mean, mean]),
            np.concatenate([estimator.input_scaler_.scale, scale]),
            MAX_SCALED,
            classes,
        )
        open_files.enter_context(closing(data))
        num_sampled = min(MAX_SAMPLED_ROWS, 1 + MAX_SAMPLED_NUMBERS // content.num_inputs)
        sample = data.rows(estimator.seed_, 0, min(num_sampled, data.num_rows))
        estimator._train_on(data, np.asarray(sample.inputs), checkpoints)


def _note_inputs(estimator: Any, source: Source, content: RowsContent) -> None:
    """What validation notes of arrays: number, names and shape of the inputs, and their scales."""
    if source.input_shape is not None:  # an error unless the prior reads such inputs
        as_rows(
            np.empty((0, *source.input_shape)), estimator._input_process(), type(estimator).__name__
        )
    if content.max_weight > np.finfo(content.dtype).max:
        raise ValueError(f"Weights up to {content.max_weight:.0e} are too large: divide them.")
    estimator.n_features_in_ = content.num_inputs
    estimator.__dict__.pop("feature_names_in_", None)
    if source.feature_names is not None:
        estimator.feature_names_in_ = np.array(list(source.feature_names), dtype=object)
    estimator.input_shape_ = source.input_shape or (content.num_inputs,)
    inputs = slice(0, content.num_inputs)
    moments = (content.mean[inputs], content.std[inputs], content.largest[inputs])
    estimator._scale_inputs_by(*moments)


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
