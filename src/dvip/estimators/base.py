"""What all estimators share: checking, scaling, building, training, function draws, saving."""

import abc
import math
import numbers
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from dvip.estimators.preparation import fit_source
from dvip.estimators.scales import Standardiser, as_rows
from dvip.estimators.serialisation import save_estimator, training_identity, training_seed
from dvip.estimators.undoing import undone_on_failure
from dvip.likelihoods import Likelihood
from dvip.network import MakeLayer, SampleNoise, build_network, default_widths
from dvip.objectives import DeepModel
from dvip.prediction import draw_functions, sample_noise
from dvip.processes import ImplicitProcess
from dvip.runtime import PRECISIONS, precision, use_compilation_cache
from dvip.sources import Source
from dvip.training import (
    ArrayData,
    CheckpointFolder,
    Data,
    TrainingDiverged,
    TrainingResult,
    TrainingSettings,
    is_first_process,
    progress_bar,
    train,
)

__all__ = ["DeepEstimator", "check_count", "one_each"]

# Samples propagated in training when the α-energy of a deep model needs a log-mean-exp.
SAMPLES_FOR_ALPHA = 10

# Tables of up to so many rows have the fewest training steps.
ROWS_FOR_FEWEST_STEPS = 2_000


def default_max_iter(num_rows: int, fewest: int, most: int) -> int:
    """Training steps for a table of that many rows: as their square root, within limits."""
    steps = fewest * math.sqrt(num_rows / ROWS_FOR_FEWEST_STEPS)
    return int(np.clip(steps, fewest, most))


class DeepEstimator(BaseEstimator):
    """A deep model behind scikit-learn's interface. Subclasses say which layers and likelihood."""

    # Parameters of every estimator; `__init__` is the subclass's own.
    n_layers: int
    n_units: int | Sequence[int] | None
    alpha: float
    input_propagation: bool | Sequence[bool]
    max_iter: int | None
    batch_size: int
    learning_rate: float
    n_training_samples: int | None
    n_predictive_samples: int
    precision: str
    random_state: Any
    verbose: bool

    # Fitted attributes.
    model_: DeepModel
    input_scaler_: Standardiser
    input_shape_: tuple[int, ...]
    n_features_in_: int
    n_iter_: int
    bound_history_: np.ndarray
    seed_: int
    n_samples_seen_: int

    # Positive whole numbers among the parameters; a subclass adds its own.
    _counts: ClassVar[tuple[str, ...]] = (
        "n_layers",
        "batch_size",
        "n_predictive_samples",
    )

    # Training steps where `max_iter` is not given: the fewest, and the most that many rows get.
    _default_steps: ClassVar[tuple[int, int]] = (50_000, 200_000)

    # The share of the training over which the KL gains its weight.
    _kl_warm_up: ClassVar[float] = 0.0

    # Where the posterior scales of inner layers start: at their input, almost without noise.
    _inner_q_scale: ClassVar[float] = 1e-5

    @abc.abstractmethod
    def _layer_maker(self) -> MakeLayer:
        """Makes the layers of this model."""

    @abc.abstractmethod
    def _likelihood(self) -> tuple[Likelihood, int]:
        """The likelihood at its starting point, and how many units it reads."""

    @abc.abstractmethod
    def _fit_arrays(
        self, X: Any, y: Any, sample_weight: Any, checkpoints: CheckpointFolder | None
    ) -> None:
        """Checks arrays, notes their scales, and trains on them."""

    def _q_scale(self, index: int) -> float:
        """Where a layer's posterior scale starts. The last layer starts at its prior."""
        return 1.0 if index == self.n_layers - 1 else self._inner_q_scale

    def _input_process(self) -> ImplicitProcess | None:
        """The process that reads the inputs, where there is one."""
        return None

    def _check_parameters(self) -> None:
        for name in self._counts:
            check_count(name, getattr(self, name))
        for name in ("max_iter", "n_training_samples"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        if not (isinstance(self.alpha, numbers.Real) and 0 <= self.alpha <= 1):
            raise ValueError(f"alpha={self.alpha!r} must lie between 0 (the ELBO) and 1.")
        rate = self.learning_rate
        if not (isinstance(rate, numbers.Real) and 0 < rate < np.inf):
            raise ValueError(f"learning_rate={rate!r} must be a positive number.")
        if self.precision not in PRECISIONS:
            raise ValueError(f"precision={self.precision!r} must be one of {PRECISIONS}.")

    def _validated(self, X: Any, y: Any, **options: Any) -> tuple[np.ndarray, np.ndarray]:
        """Inputs, as rows, and targets of a training. Notes the natural shape of an input."""
        X, shape = as_rows(X, self._input_process(), type(self).__name__)
        X, y = validate_data(self, X, y, dtype=np.float64, **options)
        self.input_shape_ = shape or X.shape[1:]
        return X, y

    def _num_channels(self) -> int | None:
        """Channels of images and sequences, which have a scale each; None is one a column."""
        process = self._input_process()
        if process is not None:
            process = process.for_inputs_of_shape(self.input_shape_)
        return None if process is None else process.num_channels

    def _fit_input_scaler(self, inputs: np.ndarray, weights: np.ndarray) -> None:
        """One mean and scale for each column of a table, or each channel of images, sequences."""
        self.input_scaler_ = Standardiser.fit(inputs, weights, self._num_channels())

    def _scale_inputs_by(self, mean: np.ndarray, std: np.ndarray, largest: np.ndarray) -> None:
        """The same, from what is known of each column."""
        moments = (mean, std, largest)
        self.input_scaler_ = Standardiser.of_moments(*moments, self._num_channels())

    def _inner_widths(self, num_inputs: int) -> tuple[int, ...]:
        if self.n_units is None:
            return default_widths(num_inputs, self.n_layers, 1)[:-1]
        widths = one_each(self.n_units, self.n_layers - 1)
        if len(widths) != self.n_layers - 1 or not all(map(_is_count, widths)):
            raise ValueError(
                f"n_units={self.n_units!r}: give one positive width, or a width for each of the "
                f"{self.n_layers - 1} inner layers."
            )
        return tuple(map(int, widths))

    def _propagate_inputs(self) -> tuple[bool, ...]:
        flags = one_each(self.input_propagation, self.n_layers - 1)
        are_flags = all(isinstance(flag, bool | np.bool_) for flag in flags)
        if len(flags) != self.n_layers - 1 or not are_flags:
            raise ValueError(
                f"input_propagation={self.input_propagation!r}: give True, False, or one of them "
                f"for each of the {self.n_layers - 1} inner layers."
            )
        return (*flags, False)

    def _num_training_samples(self) -> int:
        if self.n_training_samples is not None:
            return int(self.n_training_samples)
        return SAMPLES_FOR_ALPHA if self.alpha > 0 and self.n_layers > 1 else 1

    def _build(self, inputs: np.ndarray) -> DeepModel:
        """The model at its starting point, for scaled inputs."""
        likelihood, num_outputs = self._likelihood()
        network = build_network(
            inputs,
            (*self._inner_widths(inputs.shape[1]), num_outputs),
            self._layer_maker(),
            self._propagate_inputs(),
            self.seed_,
        )
        return DeepModel(network, likelihood)

    def _fit(
        self, X: Any, y: Any, sample_weight: Any, checkpoints: CheckpointFolder | None
    ) -> Self:
        """Trains on arrays or on a source, or leaves the estimator as it was."""
        with undone_on_failure(self):
            self._check_parameters()
            if isinstance(X, Source):
                fit_source(self, X, y, sample_weight, checkpoints)
            else:
                self._fit_arrays(X, y, sample_weight, checkpoints)
        return self

    def _start_training(self, checkpoints: CheckpointFolder | None = None) -> None:
        """What comes before data are looked at, once the parameters are checked."""
        use_compilation_cache()
        self.seed_ = training_seed(self.random_state, checkpoints)

    def _settings(self, max_iter: int) -> TrainingSettings:
        # Numbers of NumPy, as a grid search gives, would be traced like arrays.
        return TrainingSettings(
            max_iter=max_iter,
            batch_size=int(self.batch_size),
            learning_rate=float(self.learning_rate),
            alpha=float(self.alpha),
            num_samples=self._num_training_samples(),
            seed=self.seed_,
            kl_warm_up=self._kl_warm_up,
        )

    def _train(
        self,
        inputs: np.ndarray,
        targets: np.ndarray,
        sample_weight: np.ndarray,
        checkpoints: CheckpointFolder | None = None,
    ) -> None:
        """Fits the model to validated inputs and to targets that are already scaled or encoded."""
        self._start_training(checkpoints)
        inputs = self.input_scaler_.transform(inputs)
        if sample_weight.max() > np.finfo(self.precision).max:
            raise ValueError(
                f"sample_weight has values up to {sample_weight.max():.0e}, too large for "
                f"{self.precision}: divide all weights by a number."
            )
        data = ArrayData(
            inputs.astype(self.precision),
            targets.astype(self.precision),
            sample_weight.astype(self.precision),
        )
        self._train_on(data, data.inputs, checkpoints)

    def _train_on(
        self, data: Data, inputs: np.ndarray, checkpoints: CheckpointFolder | None = None
    ) -> None:
        """Fits the model to scaled data. It starts from these inputs: all of them, or a sample."""
        settings = self._settings(
            int(self.max_iter or default_max_iter(data.num_rows, *self._default_steps))
        )
        self.n_samples_seen_ = data.num_rows
        self._optimiser = None
        with (
            precision(self.precision),
            progress_bar(settings.max_iter, shown=self.verbose and is_first_process()) as report,
        ):
            model = self._build(inputs)
            try:
                identity = (
                    {} if checkpoints is None else training_identity(self, data.fingerprint())
                )
                result = train(model, data, settings, report, checkpoints, identity)
                self._keep(result, settings.max_iter)
            except TrainingDiverged as stopped:
                self._keep(stopped.result, stopped.step)
                raise

    def _start_partial_fit(self) -> bool:
        """Whether `partial_fit` is called on a model that has seen no data; notes that it has.

        Parameters may have changed since the last call, and are checked each time.
        """
        self._check_parameters()
        first = not hasattr(self, "model_")
        if first:
            self._start_training()
            self.n_samples_seen_ = self.n_iter_ = 0
        return first

    def _keep(self, result: TrainingResult, num_steps: int) -> None:
        self.model_ = result.model
        self.bound_history_ = result.bounds
        self.n_iter_ = num_steps

    def _scaled(self, X: Any) -> np.ndarray:
        """Inputs for prediction, validated and scaled."""
        check_is_fitted(self)
        process = self._input_process()
        X, shape = as_rows(X, process, type(self).__name__)
        if process is not None and shape is not None:
            process.for_inputs_of_shape(self.input_shape_).for_inputs_of_shape(shape)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        return self.input_scaler_.transform(X).astype(self.precision)

    def _sample_noise(self) -> SampleNoise:
        check_count("n_predictive_samples", self.n_predictive_samples)
        return sample_noise(self.model_.network, self.n_predictive_samples, self.seed_)

    def _draw_latent(self, n: int, random_state: Any) -> Callable[[Any], np.ndarray]:
        """n functions of the last layer's units: f(X) has shape (n, rows, units)."""
        check_is_fitted(self)
        check_count("n", n)
        seed = int(check_random_state(random_state).randint(np.iinfo(np.int32).max))
        with precision(self.precision):
            draws = draw_functions(self.model_.network, n, seed)
        return lambda X: np.moveaxis(draws(self._scaled(X)), 1, 2)

    def save(self, path: str | Path) -> None:
        """Writes the fitted model to a folder, as JSON and safetensors.

        A model that is already there is replaced, in one step, only once the new one is complete.
        Parameters that `set_params` changed since must still describe the model: `n_layers` or
        `prior`, for instance, may not have changed without another `fit`.
        """
        check_is_fitted(self)
        save_estimator(self, path)


def one_each(given: Any, number: int) -> tuple:
    """What was given for each layer, or one thing for all of them."""
    return tuple(given) if isinstance(given, Sequence | np.ndarray) else (given,) * number


def _is_count(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= 1)


def check_count(name: str, value: Any) -> None:
    """Raises an error unless the parameter is a positive whole number."""
    if not _is_count(value):
        raise ValueError(f"{name}={value!r} must be a whole number of at least 1.")
