"""What becomes of X: tables encoded, images and sequences flattened, everything scaled.

What is learned from the inputs of the training, their names, shape, encoding, scales and range, is
kept with the estimator and applied to every later X. Known errors of rows are read here, too.
"""

import math
import warnings
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, check_X_y, validate_data

from dvip.estimators.scales import (
    MAX_TARGET_SCALE,
    Standardiser,
    decided_by_one_row,
    hardly_vary,
    warn_of_faint,
)
from dvip.processes import ImplicitProcess
from dvip.sources import Source
from dvip.sources.records import RowsContent
from dvip.tables import TableEncoder
from dvip.tables.cells import is_number_type, quoted

__all__ = [
    "NAMES_OF_COLUMNS",
    "ExtrapolationWarning",
    "InputReader",
    "as_pandas",
    "check_kind",
    "errors_of_rows",
    "with_errors",
]

# What a source notes of its columns besides the inputs: names of the targets and of their errors.
NAMES_OF_COLUMNS = ("target_names_", "noise_names_")

# Beyond the range of the training rows by more than this share of its width, a prediction is an
# extrapolation.
MARGIN = 0.25


class ExtrapolationWarning(UserWarning):
    """Rows lie far outside the range of the training rows; `columns` counts them by column."""

    def __init__(self, columns: dict[str, int], num_rows: int):
        self.columns, self.num_rows = columns, num_rows
        most = max(columns.values())
        super().__init__(
            f"{most:,} of {num_rows:,} rows lie far outside the range of the training rows in "
            f"{quoted(columns)}: predictions there are extrapolations, and too sure of themselves."
        )


class InputReader(BaseEstimator):
    """The part of an estimator that reads inputs."""

    precision: str

    encoder_: TableEncoder
    feature_names_in_: np.ndarray
    n_features_in_: int
    input_shape_: tuple[int, ...]
    input_scaler_: Standardiser
    input_range_: np.ndarray

    def _input_process(self) -> ImplicitProcess | None:
        """The process that reads the inputs, where there is one."""
        return None

    def _read_training_rows(
        self, X: Any, y: Any, *, reset: bool = True, **options: Any
    ) -> tuple[np.ndarray, np.ndarray]:
        """Inputs, as rows of numbers, and targets; notes names, shape and encoding."""
        X, y = as_pandas(X), as_pandas(y)
        check_kind("X", X)
        check_kind("y", y)
        if reset:
            self.__dict__.pop("encoder_", None)
            if _needs_encoding(X):
                validate_data(self, X, skip_check_array=True)  # notes the names
                self.encoder_ = TableEncoder().fit(X)
                _tell_left_out(self.encoder_)
        shape = None
        if hasattr(self, "encoder_"):
            X, y = check_X_y(self._encoded(X), y, dtype=np.float64, estimator=self, **options)
        else:
            X, shape = self._as_rows(X)
            X, y = validate_data(self, X, y, dtype=np.float64, reset=reset, **options)
        self.input_shape_ = shape or X.shape[1:]
        return X, y

    def _note_source(self, source: Source, content: RowsContent) -> None:
        """What is noted of arrays: number, names and shape of the inputs, scales and range."""
        if source.input_shape is not None:  # an error unless the prior reads such inputs
            self._as_rows(np.empty((0, *source.input_shape)))
        self._note_names(source)
        self.n_features_in_ = getattr(self, "n_features_in_", content.num_inputs)
        self.input_shape_ = source.input_shape or (content.num_inputs,)
        inputs, num_channels = slice(0, content.num_inputs), self._num_channels()
        self.input_scaler_ = Standardiser.of_moments(
            content.mean[inputs], content.std[inputs], content.largest[inputs], num_channels
        )
        self._note_range(content.range[:, inputs], num_channels)

    def _note_range(self, values: np.ndarray, num_channels: int | None) -> None:
        """The range of each column of a table; a pixel's says little."""
        self.__dict__.pop("input_range_", None)
        if num_channels is None:
            self.input_range_ = values

    def _note_names(self, source: Source) -> None:
        """Names of the columns of a source, and how they were encoded."""
        for name in ("encoder_", "feature_names_in_", "n_features_in_", *NAMES_OF_COLUMNS):
            self.__dict__.pop(name, None)
        if source.encoder is not None:
            self.encoder_ = source.encoder
            self.feature_names_in_ = source.encoder.feature_names_in_
            self.n_features_in_ = source.encoder.n_features_in_
        elif source.feature_names is not None:
            self.feature_names_in_ = np.array(list(source.feature_names), dtype=object)
        if source.target_names is not None:
            self.target_names_ = tuple(source.target_names)
        if source.noise_names is not None:
            self.noise_names_ = tuple(source.noise_names)

    def _scale_inputs(self, inputs: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
        """Scaled inputs of the training. Scales are noted where weights are given, ranges always.

        There is one scale for each column of a table, or each channel of images, sequences.
        """
        if weights is not None:
            self._fit_input_scaler(inputs, weights)
        elif hasattr(self, "input_range_"):  # of rows that came before
            low, high = self.input_range_
            ends = [np.minimum(low, inputs.min(axis=0)), np.maximum(high, inputs.max(axis=0))]
            self.input_range_ = np.stack(ends)
        return self.input_scaler_.transform(inputs, self.precision)

    def _fit_input_scaler(self, inputs: np.ndarray, weights: np.ndarray) -> None:
        num_channels = self._num_channels()
        self.input_scaler_ = Standardiser.fit(inputs, weights, num_channels)
        self._note_range(np.stack([inputs.min(axis=0), inputs.max(axis=0)]), num_channels)
        faint = hardly_vary(inputs)
        if faint.any():
            warn_of_faint(quoted(np.array(self._input_names())[faint].tolist()))
        lone = decided_by_one_row(inputs)
        # (The encoder of a table has warned already, and named the row.)
        if num_channels is None and lone.any() and not hasattr(self, "encoder_"):
            names = np.array(self._input_names())[lone].tolist()
            warnings.warn(
                f"One value of {quoted(names)} is so large that all others look alike: correct it, "
                "remove its row, or take logarithms.",
                UserWarning,
                stacklevel=2,
            )

    def _num_channels(self) -> int | None:
        """Channels of images and sequences, which have a scale each; None is one a column."""
        process = self._input_process()
        if process is not None:
            process = process.for_inputs_of_shape(self.input_shape_)
        return None if process is None else process.num_channels

    def _input_names(self) -> list[str]:
        """What to call each input in a message."""
        if hasattr(self, "encoder_"):
            return list(self.encoder_.get_feature_names_out())
        if hasattr(self, "feature_names_in_"):
            return list(map(str, self.feature_names_in_))
        return [f"column {number}" for number in range(math.prod(self.input_shape_))]

    def _scaled(self, X: Any) -> np.ndarray:
        """Inputs for prediction, validated and scaled; warns of rows far from the training."""
        check_is_fitted(self)
        rows = self._read_rows(X)
        self._warn_of_extrapolation(rows)
        scaled = self.input_scaler_.transform(rows, self.precision)
        return self._carrying(scaled, rows) if hasattr(self, "simulations_") else scaled

    def _read_rows(self, X: Any) -> np.ndarray:
        """Inputs such as those of the training, as rows of numbers in their own units."""
        X = as_pandas(X)
        check_kind("X", X, no_rows=True)
        if hasattr(self, "encoder_"):
            return self._encoded(X)
        if len(self.input_shape_) > 1 or getattr(X, "ndim", 0) > 2:
            X = self._as_rows_of_the_same_shape(X)
        return validate_data(self, X, reset=False, dtype=np.float64, ensure_min_samples=0)

    def _carrying(
        self, scaled: np.ndarray, rows: np.ndarray, *, training: bool = False, first: bool = False
    ) -> Any:
        """Scaled inputs with what else the first layer reads of the rows behind; here nothing.

        Of a training, the first time notes what it is. Otherwise it may be computed as the rows
        are looked at.
        """
        del rows, training, first
        return scaled

    def _proper(self, inputs: Any) -> np.ndarray:
        """Scaled inputs without what is behind them."""
        return getattr(inputs, "proper", inputs)[:, : len(self.input_scaler_.mean)]

    def _as_rows_of_the_same_shape(self, X: Any) -> Any:
        """Images or sequences as rows; an error unless they are as those of the training."""
        X, shape = self._as_rows(X)
        process = self._input_process()
        if process is not None and shape is not None:
            process.for_inputs_of_shape(self.input_shape_).for_inputs_of_shape(shape)
        return X

    def _encoded(self, X: Any) -> np.ndarray:
        """A table as numbers, its columns taken by name; warns of what training had not."""
        if not isinstance(X, pd.DataFrame):
            names = quoted(self.encoder_.feature_names_in_)
            raise ValueError(
                f"{type(self).__name__} was fitted to a table: pass a DataFrame with the columns "
                f"{names}."
            )
        return self.encoder_.transform(X)

    def _warn_of_extrapolation(self, X: np.ndarray) -> None:
        if not hasattr(self, "input_range_"):  # of images and sequences
            return
        low, high = self.input_range_
        with np.errstate(over="ignore"):
            margin = MARGIN * (high - low)
            counts = ((low - margin > X) | (high + margin < X)).sum(axis=0)
        if counts.any():
            names = self._input_names()
            columns = {names[index]: int(counts[index]) for index in np.flatnonzero(counts)}
            warnings.warn(ExtrapolationWarning(columns, len(X)), stacklevel=2)

    def _as_rows(self, X: Any) -> tuple[Any, tuple[int, ...] | None]:
        """X with each image or sequence as one row, and the shape that it had.

        What has two dimensions or fewer stays as it is, without a shape. More are an error unless
        the process makes use of them.
        """
        process = self._input_process()
        structured = process is not None and process.structured
        if structured and not hasattr(X, "shape"):
            X = np.asarray(X)
        num_rows, *shape = getattr(X, "shape", ()) or (0,)
        if len(shape) < 2:
            return X, None
        if not structured:
            raise ValueError(
                f"X has {1 + len(shape)} dimensions, but {type(self).__name__} expected <= 2, "
                '(rows, inputs), with this prior. For images use prior="conv", for sequences '
                'prior="recurrent", or make each row flat.'
            )
        return np.asarray(X).reshape(num_rows, math.prod(shape)), tuple(shape)


def as_pandas(values: Any) -> Any:
    """Tables of polars, pyarrow and others that speak Arrow, as pandas has them; all else as is."""
    if not hasattr(values, "__arrow_c_stream__") or isinstance(values, pd.DataFrame | pd.Series):
        return values
    import pyarrow as pa

    if hasattr(values, "columns") or hasattr(values, "column_names"):
        return pa.table(values).to_pandas()
    return pa.chunked_array(values).to_pandas()


def check_kind(name: str, values: Any, *, no_rows: bool = False) -> None:
    """Raises an error for arrays that would be taken for other numbers than they stand for.

    A table may have `no_rows` where there is something to predict.
    """
    if np.ma.is_masked(values):
        raise ValueError(f"{name} is a masked array with hidden values: fill or remove them first.")
    kind = getattr(getattr(values, "dtype", None), "kind", None)
    if name == "X" and kind in ("m", "M"):
        raise ValueError(f"{name} holds dates or times: make numbers of them, such as days.")
    if not isinstance(values, pd.DataFrame):
        return
    if not ((no_rows or len(values)) and len(values.columns)):
        raise ValueError(f"{name} is a table of the shape {values.shape}: it has 0 numbers in it.")
    twice = values.columns[values.columns.duplicated()]
    if len(twice):
        raise ValueError(f"{name} has several columns of the name {twice[0]!r}: rename them.")
    if any(isinstance(kind, pd.SparseDtype) for kind in values.dtypes):
        raise ValueError(f"{name} has sparse columns: use its .sparse.to_dense().")


def _needs_encoding(X: Any) -> bool:
    """Whether X is a table with more than numbers: text, categories, dates or gaps."""
    if not isinstance(X, pd.DataFrame) or X.empty:
        return False
    return bool(X.isna().to_numpy().any()) or not all(is_number_type(X[name]) for name in X)


def _tell_left_out(encoder: TableEncoder) -> None:
    if encoder.left_out_:
        reasons = "; ".join(f"{column.name!r} {column.reason}" for column in encoder.left_out_)
        warnings.warn(f"Columns that are left out: {reasons}.", UserWarning, stacklevel=2)


def errors_of_rows(noise_std: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Known errors as rows x outputs, for targets of that shape.

    From one number for all, one for each row, or one for each row and target.
    """
    check_kind("noise_std", noise_std)
    given = np.asarray(noise_std)
    is_text = any(isinstance(value, str | bytes) for value in given.flat[:1])
    try:
        errors = given.astype(np.float64)
    except (TypeError, ValueError):
        is_text = True
    if is_text or given.dtype.kind not in "iufO":
        raise ValueError(
            "noise_std must be numbers: the standard deviation of each row's error, in the unit "
            "of y."
        )
    num_rows = shape[0]
    if errors.shape not in ((), (num_rows,), (num_rows, 1), shape):
        raise ValueError(
            f"noise_std has the shape {errors.shape} for y of the shape {shape}: give one number, "
            f"one for each of the {num_rows:,} rows, or one for each number of y."
        )
    bad = ~((errors > 0) & (errors < MAX_TARGET_SCALE))
    if bad.any():
        value = errors[bad].flat[0]
        row = f" in row {np.argwhere(bad)[0][0] + 1}" if errors.ndim else ""
        raise ValueError(
            f"noise_std is {value}{row}: errors are positive numbers, standard deviations in the "
            "unit of y. Of a row that is known exactly, give a small one."
        )
    if errors.ndim:
        errors = errors.reshape(num_rows, -1)
    return np.broadcast_to(errors, (num_rows, math.prod(shape[1:])))


def with_errors(targets: np.ndarray, errors: np.ndarray | None) -> np.ndarray:
    """Targets with their known errors as further columns, where there are some."""
    return targets if errors is None else np.hstack([targets, errors])
