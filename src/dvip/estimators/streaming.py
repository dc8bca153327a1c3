"""Fitting to a source: one pass for scales and labels, then training on rows as they are read."""

from contextlib import ExitStack, closing
from typing import Any

import numpy as np

from dvip.estimators.scaling import MAX_SCALED
from dvip.estimators.shapes import as_rows
from dvip.sources import Source, StreamedRows, cached_rows
from dvip.sources.writing import RowsContent
from dvip.training import CheckpointFolder, is_first_process, row_counter

__all__ = ["fit_source"]

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
