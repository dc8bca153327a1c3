"""What becomes of X: tables encoded, images and sequences flattened, everything scaled.

What is learned from the inputs of the training, their names, shape, encoding, scales and range, is
kept with the estimator and applied to every later X.
"""

import math
import warnings
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, check_X_y, validate_data

from dvip.processes import ImplicitProcess
from dvip.sources import Source
from dvip.sources.records import RowsContent
from dvip.tables import TableEncoder
from dvip.tables.cells import is_number_type, quoted

__all__ = [
    "MAX_SCALED",
    "ExtrapolationWarning",
    "InputReader",
    "Standardiser",
    "merge_duplicates",
]

# The scale of a constant column is its size, within these.
CONSTANT_SCALES = (1e-100, 1.0)

# Numbers that are scaled, or averaged, at once: large tables are not copied for it.
MAX_NUMBERS = 2**22

# Scaled values are kept within this: farther out a prediction is meaningless, but stays finite.
MAX_SCALED = 1e6


@dataclass(frozen=True)
class _Channels:
    """Columns as channels next to each other, place after place; a channel is one by default."""

    num_columns: int
    given: int | None

    def _reshaped(self, columns: np.ndarray) -> np.ndarray:
        return columns.reshape(-1, self.given or self.num_columns)

    def mean(self, columns: np.ndarray) -> np.ndarray:
        return self._reshaped(columns).mean(axis=0)

    def largest(self, columns: np.ndarray) -> np.ndarray:
        """The largest magnitude of each channel; one where all is zero."""
        largest = self._reshaped(columns).max(axis=0)
        return np.where(largest == 0, 1.0, largest)

    def by_column(self, channels: np.ndarray) -> np.ndarray:
        return np.tile(channels, self.num_columns // len(channels))


@dataclass(frozen=True)
class Standardiser:
    """z = (value - mean) / scale for each column; a constant one is scaled by its size, up to 1."""

    mean: Float[np.ndarray, " columns"]
    scale: Float[np.ndarray, " columns"]

    @classmethod
    def fit(
        cls,
        values: Float[np.ndarray, "rows columns"],
        weights: Float[np.ndarray, " rows"],
        num_channels: int | None = None,
    ) -> "Standardiser":
        """Weighted mean and standard deviation of each column.

        Columns that are pixels or times, with the channels next to each other, share those of
        their channel: a pixel that is almost always black would be blown up by its own.
        """
        # Dividing by the largest magnitude first keeps the squares of huge values finite.
        channels = _Channels(values.shape[1], num_channels)
        largest = channels.largest(np.maximum(values.max(axis=0), -values.min(axis=0)))
        top = channels.by_column(largest)

        def average(columns: slice, centre: np.ndarray | None = None) -> np.ndarray:
            reduced = values[:, columns] / top[columns]
            if centre is not None:
                reduced = np.square(reduced - centre[columns])
            return np.average(reduced, axis=0, weights=weights)

        parts = _parts_of_columns(values)
        mean = channels.mean(np.concatenate([average(part) for part in parts]))
        centre = channels.by_column(mean)
        squares = channels.mean(np.concatenate([average(part, centre) for part in parts]))
        return cls._of_reduced(channels, mean, np.sqrt(squares), largest)

    @classmethod
    def of_moments(
        cls,
        mean: Float[np.ndarray, " columns"],
        std: Float[np.ndarray, " columns"],
        largest: Float[np.ndarray, " columns"],
        num_channels: int | None = None,
    ) -> "Standardiser":
        """From mean, standard deviation and largest magnitude of each column."""
        channels = _Channels(len(mean), num_channels)
        top = channels.largest(largest)
        mean, std = mean / channels.by_column(top), std / channels.by_column(top)
        pooled = channels.mean(mean)
        # The variance of a channel is that within its columns and that between them.
        squares = np.square(std) + np.square(mean - channels.by_column(pooled))
        return cls._of_reduced(channels, pooled, np.sqrt(channels.mean(squares)), top)

    @classmethod
    def _of_reduced(
        cls, channels: "_Channels", mean: np.ndarray, std: np.ndarray, largest: np.ndarray
    ) -> "Standardiser":
        """From the moments of each channel, divided by its largest magnitude."""
        # A constant column may have a standard deviation of a few roundings. One whose standard
        # deviation is too small to divide by is as good as constant: its size is its scale.
        scale = std * largest
        constant = (std <= 1e-14) | (scale < np.finfo(float).tiny)
        scale = np.where(constant, np.clip(largest, *CONSTANT_SCALES), scale)
        return cls(channels.by_column(mean * largest), channels.by_column(scale))

    def transform(
        self, values: Float[np.ndarray, "rows columns"], dtype: Any = np.float64
    ) -> np.ndarray:
        """Values to z, of that type."""
        scaled = np.empty(values.shape, dtype)
        with np.errstate(over="ignore"):
            for rows in _parts(*values.shape):
                z = (values[rows] - self.mean) / self.scale
                scaled[rows] = np.clip(z, -MAX_SCALED, MAX_SCALED)
        return scaled


def _parts(num_rows: int, num_columns: int) -> list[slice]:
    """Neighbouring rows, as many as are looked at together."""
    step = max(1, MAX_NUMBERS // max(1, num_columns))
    return [slice(start, min(start + step, num_rows)) for start in range(0, num_rows, step)]


def _parts_of_columns(values: Float[np.ndarray, "rows columns"]) -> list[slice]:
    """Neighbouring columns, as many as are looked at together; of several never one alone.

    (Sums of a single column would have other roundings.)
    """
    num_parts = min(-(-values.size // MAX_NUMBERS), values.shape[1] // 2)
    ends = np.linspace(0, values.shape[1], max(1, num_parts) + 1).astype(int)
    return [slice(start, end) for start, end in pairwise(ends.tolist())]


def merge_duplicates(
    inputs: Float[np.ndarray, "rows inputs"],
    targets: Float[np.ndarray, "rows outputs"],
    weights: Float[np.ndarray, " rows"],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same weighted data with each distinct row once, in an order of its own.

    A row of weight two is then the same as that row twice, a row of weight zero the same as none,
    exactly; and the order in which rows come does not matter.
    """
    rows = np.empty((len(inputs), inputs.shape[1] + targets.shape[1]))
    np.concatenate([inputs, targets], axis=1, out=rows)
    rows += 0.0  # makes -0.0 equal to 0.0
    as_bytes = rows.view(f"V{rows.shape[1] * rows.itemsize}").ravel()
    order = np.argsort(as_bytes, kind="stable")
    order = order[weights[order] > 0]
    # A part at a time: np.unique would copy all rows twice.
    new = np.ones(len(order), dtype=bool)
    for part in _parts(len(order), rows.shape[1]):
        part = slice(max(1, part.start), part.stop)
        new[part] = as_bytes[order[part]] != as_bytes[order[part.start - 1 : part.stop - 1]]
    totals = np.bincount(np.cumsum(new) - 1, weights=weights[order])
    merged = rows[order[new]]
    return merged[:, : inputs.shape[1]], merged[:, inputs.shape[1] :], totals


# Where all values agree to this share, or vary by less than this, most of their digits are lost.
FAINT, SMALLEST_SPREAD = 1e-12, 1e-290


def hardly_vary(values: Float[np.ndarray, "rows columns"]) -> Bool[np.ndarray, " columns"]:
    """Whether a column varies by little more than roundings, or by too little to compute with."""
    low, high = values.min(axis=0), values.max(axis=0)
    with np.errstate(over="ignore"):
        spread = high - low
    faint = (spread < FAINT * np.maximum(np.abs(low), np.abs(high))) | (spread < SMALLEST_SPREAD)
    return (high > low) & faint


def warn_of_faint(what: str) -> None:
    """Tells that the values of `what` have too few digits left."""
    warnings.warn(
        f"The values of {what} differ by hardly more than roundings: subtract an offset, or "
        "rescale them, before they are made floating-point numbers.",
        UserWarning,
        stacklevel=3,
    )


# A column whose deviation would shrink by this factor without its most distant row has the scale of
# that row.
DECIDING = 100.0


def decided_by_one_row(
    values: Float[np.ndarray, "rows columns"],
) -> Bool[np.ndarray, " columns"]:
    """Whether one row alone decides the scale of a column that varies without it, too."""
    parts = _parts_of_columns(values)
    return np.concatenate([_decided_by_one_row(values[:, part]) for part in parts])


def _decided_by_one_row(values: np.ndarray) -> np.ndarray:
    decided = np.zeros(values.shape[1], dtype=bool)
    with np.errstate(over="ignore", invalid="ignore"):
        distances = np.abs(values - values.mean(axis=0))
        farthest = distances.argmax(axis=0)
        largest, total = distances.max(axis=0), distances.sum(axis=0)
        # The farthest is then as far from the mean as all others together.
        for column in np.flatnonzero(largest >= 0.49 * total):
            others = np.delete(values[:, column], farthest[column])
            spread = np.ptp(others) if len(others) > 1 else 0.0
            decided[column] = 0 < DECIDING * spread < largest[column]
    return decided


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
        for name in ("encoder_", "feature_names_in_", "n_features_in_", "target_names_"):
            self.__dict__.pop(name, None)
        if source.encoder is not None:
            self.encoder_ = source.encoder
            self.feature_names_in_ = source.encoder.feature_names_in_
            self.n_features_in_ = source.encoder.n_features_in_
        elif source.feature_names is not None:
            self.feature_names_in_ = np.array(list(source.feature_names), dtype=object)
        if source.target_names is not None:
            self.target_names_ = tuple(source.target_names)

    def _scale_inputs(self, inputs: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
        """Scaled inputs. Scales and ranges are noted where weights are given.

        There is one scale for each column of a table, or each channel of images, sequences.
        """
        if weights is not None:
            self._fit_input_scaler(inputs, weights)
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
        check_kind("X", X)
        if hasattr(self, "encoder_"):
            X = self._encoded(X)
        else:
            if len(self.input_shape_) > 1 or getattr(X, "ndim", 0) > 2:
                X = self._as_rows_of_the_same_shape(X)
            X = validate_data(self, X, reset=False, dtype=np.float64)
        self._warn_of_extrapolation(X)
        return self.input_scaler_.transform(X, self.precision)

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


def check_kind(name: str, values: Any) -> None:
    """Raises an error for arrays that would be taken for other numbers than they stand for."""
    if np.ma.is_masked(values):
        raise ValueError(f"{name} is a masked array with hidden values: fill or remove them first.")
    kind = getattr(getattr(values, "dtype", None), "kind", None)
    if name == "X" and kind in ("m", "M"):
        raise ValueError(f"{name} holds dates or times: make numbers of them, such as days.")
    if not isinstance(values, pd.DataFrame):
        return
    if not (len(values) and len(values.columns)):
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
