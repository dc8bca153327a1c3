"""What all estimators share: `fit` and `partial_fit`, from rows to a trained model; saving."""

import abc
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from dvip.batches import ArrayData, Batch, padded_batches
from dvip.calibration import Calibration
from dvip.estimators.builder import check_count
from dvip.estimators.ensembles import seconds_left
from dvip.estimators.inputs import NAMES_OF_COLUMNS, with_errors
from dvip.estimators.resumption import checkpoint_folder, training_seed
from dvip.estimators.sampled_fits import SamplingBuilder
from dvip.estimators.scales import MAX_SCALED, merge_duplicates
from dvip.estimators.serialisation import save_estimator
from dvip.function_draws import Draws, Together
from dvip.objectives import Ensemble
from dvip.prediction import draw_functions, members_of
from dvip.runtime import derived_seed, precision, use_compilation_cache
from dvip.sources import Source, StreamedRows, cached_rows
from dvip.sources.records import RowsContent, Targets
from dvip.training import (
    CheckpointFolder,
    Data,
    Optimiser,
    TrainingDiverged,
    TrainingResult,
    TrainingSettings,
    is_first_process,
    row_counter,
    train_members,
    train_once,
)

__all__ = ["DeepEstimator"]

MAX_SEED = np.iinfo(np.int32).max

# Samples propagated in training when the α-energy of a deep model needs a log-mean-exp.
SAMPLES_FOR_ALPHA = 10

# Fewer steps than these train hardly anything.
FEW_STEPS = 50

# Where a streamed model starts, principal directions and inducing points, depends on a random
# sample of so many rows, or of as many as have so many numbers.
MAX_SAMPLED_ROWS, MAX_SAMPLED_NUMBERS = 100_000, 2**23


class DeepEstimator(SamplingBuilder):
    """A deep model behind scikit-learn's interface.

    A task, regression or classification, says what becomes of the targets; a kind of model says
    which layers it has, in `_make_layer`, and stores its parameters in `__init__`.
    """

    # Fitted attributes, besides those of the inputs.
    n_iter_: int
    bound_history_: np.ndarray
    n_samples_seen_: int
    _optimiser: Sequence[Optimiser] | None
    # When the last fit began.
    _started: float

    # The share of the training over which the KL gains its weight.
    _kl_warm_up: ClassVar[float] = 0.0

    # Of y, for scikit-learn's validation.
    _y_options: ClassVar[Mapping[str, bool]] = {}

    @abc.abstractmethod
    def _read_targets(self, y: Any, *, first: bool, classes: Any = None) -> np.ndarray:
        """Targets as numbers, rows x outputs, not scaled yet; the first time, notes their kind."""

    @abc.abstractmethod
    def _scale_targets(self, targets: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
        """The numbers on the scale of the model, which is noted where weights are given.

        After the columns of the targets there may be as many of their known errors.
        """

    @abc.abstractmethod
    def _fitted_calibration(self, data: Data) -> Calibration:
        """How predictions are to be corrected, by rows that members left out."""

    @abc.abstractmethod
    def _stream_targets(self) -> Targets:
        """What makes numbers of the targets of a source."""

    @abc.abstractmethod
    def _note_stream_targets(
        self, content: RowsContent
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Notes the targets of a source; their mean and scale for the model, and the classes."""

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        noise_std: Any = None,
        checkpoint_dir: str | Path | None = None,
        checkpoint_every: int | None = None,
        resume: bool = False,
    ) -> Self:
        """Trains the model.

        If an error or Ctrl-C ends it, the estimator is as it was before, except after
        `TrainingDiverged`, which keeps the last finite model.

        Parameters
        ----------
        X : array of shape (rows, inputs), DataFrame, or Source
            A DataFrame may have text, categories, truth values and gaps: they are encoded as
            `TableEncoder` does it, and columns are taken by name at prediction. With a prior that
            reads images or sequences also arrays of shape (rows, height, width),
            (rows, height, width, channels) or (rows, length, channels). A source, such as
            `open_source` gives, brings its targets and need not fit in memory.
        y : array of shape (rows,), for regressions also (rows, targets)
            Numbers, or labels of any type.
        sample_weight : array of shape (rows,), optional
            How many times each row counts; a weight of 2 is the same as the row twice.
        noise_std : number, or array of shape (rows,) or of the shape of y, optional
            Of a regression: the known error of each row's target, a standard deviation in the unit
            of y. Rows with small errors count for more, and the noise that is learned is what the
            errors do not explain. Pass it to `predict`, too, for rows whose error is known.
        checkpoint_dir : path, optional
            Folder for checkpoints, of which the last three are kept. Ctrl-C and SIGTERM then take
            effect only when one more is written.
        checkpoint_every : int, optional
            Steps between two of them; by default there is one a minute.
        resume : bool, default False
            Go on from the newest checkpoint, if there is one. All else must be as it was, and the
            result is that of a training without the break, bit for bit.

        Returns
        -------
        self
        """
        self._started = time.monotonic()
        with (
            checkpoint_folder(checkpoint_dir, checkpoint_every, resume) as checkpoints,
            self._told_of_fit(X, y),
            self._undone_on_failure(),
        ):
            self.check_parameters()
            if isinstance(X, Source):
                if not (y is None and sample_weight is None and noise_std is None):
                    raise ValueError(
                        "A source brings its targets, weights and errors: leave out y, "
                        "sample_weight and noise_std, and say where they are when you make it."
                    )
                self._fit_source(X, checkpoints)
            else:
                for name in NAMES_OF_COLUMNS:
                    self.__dict__.pop(name, None)
                X, y = self._read_training_rows(X, y, **self._y_options)
                self._fit_rows(X, y, sample_weight, checkpoints, noise_std)
        return self

    @contextmanager
    def _undone_on_failure(self) -> Iterator[None]:
        """Takes back what was set on the estimator if an error, or Ctrl-C, ends the training.

        Scales, classes and model belong together. A training that diverged has set all of them: its
        last finite model is kept, where there is one.
        """
        before = dict(self.__dict__)
        try:
            yield
        except BaseException as error:
            if not (isinstance(error, TrainingDiverged) and hasattr(self, "model_")):
                self.__dict__.clear()
                self.__dict__.update(before)
            raise

    def _fit_rows(
        self,
        X: np.ndarray,
        y: np.ndarray,
        sample_weight: Any,
        checkpoints: CheckpointFolder | None,
        noise_std: Any = None,
    ) -> None:
        """Notes the scales of rows in memory, and trains on them."""
        errors = self._read_errors(noise_std, y, first=True)
        data = self._prepared(X, y, self._checked_weights(sample_weight, X), errors, checkpoints)
        self._train_on(data, data.inputs, checkpoints)

    def _read_errors(self, noise_std: Any, y: np.ndarray, *, first: bool) -> np.ndarray | None:
        """The known errors of the targets, rows x outputs, where there are some."""
        del y, first
        if noise_std is not None:
            raise ValueError("noise_std is for regressions, labels have no error: leave it out.")
        return None

    def _prepared(
        self,
        X: np.ndarray,
        y: np.ndarray,
        weights: np.ndarray,
        errors: np.ndarray | None,
        checkpoints: CheckpointFolder | None,
    ) -> ArrayData:
        """Rows in memory as the model sees them, each once."""
        counted = weights > 0
        if not counted.all():
            X, y, weights = X[counted], y[counted], weights[counted]
            errors = None if errors is None else errors[counted]
        if len(X) == 1:
            warnings.warn("One row to train on: the spread of y is made up.", stacklevel=4)
        targets = with_errors(self._read_targets(y, first=True), errors)
        rows = merge_duplicates(X, targets, weights)
        weights = rows[2]
        inputs = self._scale_inputs(rows[0], weights)
        targets = self._scale_targets(rows[1], weights).astype(self.precision)
        self._start_training(checkpoints)
        inputs = self._carrying(inputs, rows[0], training=True, first=True)
        return ArrayData(inputs, targets, weights.astype(self.precision))

    def _checked_weights(self, sample_weight: Any, X: np.ndarray) -> np.ndarray:
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if not weights.any():
            raise ValueError("sample_weight is zero in every row: no row counts.")
        if weights.sum() < 1:
            warnings.warn(
                f"sample_weight adds up to {weights.sum():.0e} rows: the model stays near its "
                "prior. A weight is how many times a row counts.",
                stacklevel=4,
            )
        if weights.max() > np.finfo(self.precision).max:
            raise ValueError(
                f"sample_weight has values up to {weights.max():.0e}, too large for "
                f"{self.precision}: divide all weights by a number."
            )
        return weights

    def _fit_source(self, source: Source, checkpoints: CheckpointFolder | None) -> None:
        """One pass for scales and labels, then training on rows as they are read."""
        if source.in_memory:
            rows = source.gathered()
            X, y = self._read_training_rows(rows.inputs, rows.targets, **self._y_options)
            self._note_names(source)
            self._fit_rows(X, y, rows.weights, checkpoints, rows.noise_std)
            return
        self._start_training(checkpoints)
        with ExitStack() as open_files:
            shown = self.verbose and is_first_process()
            with row_counter(source.num_rows, "reading", shown=shown) as done:
                path, content = open_files.enter_context(
                    cached_rows(source, self._stream_targets(), self.precision, done)
                )
            self._note_source(source, content)
            mean, scale, classes = self._note_stream_targets(content)
            data = StreamedRows(
                path,
                content,
                np.concatenate([self.input_scaler_.mean, mean]),
                np.concatenate([self.input_scaler_.scale, scale]),
                MAX_SCALED,
                classes,
            )
            open_files.enter_context(closing(data))
            num_sampled = min(MAX_SAMPLED_ROWS, 1 + MAX_SAMPLED_NUMBERS // content.num_inputs)
            sample = data.rows(self.seed_, 0, min(num_sampled, data.num_rows))
            self._train_on(data, np.asarray(sample.inputs), checkpoints)

    def _start_training(self, checkpoints: CheckpointFolder | None = None) -> None:
        """What comes before rows are looked at, once the parameters are checked."""
        use_compilation_cache()
        self.seed_ = training_seed(self.random_state, checkpoints)

    def _settings(self, max_iter: int) -> TrainingSettings:
        num_samples = self.n_training_samples
        if num_samples is None:
            num_samples = SAMPLES_FOR_ALPHA if self._alpha > 0 and self._num_layers > 1 else 1
        # Numbers of NumPy, as a grid search gives, would be traced like arrays.
        return TrainingSettings(
            max_iter=max_iter,
            batch_size=int(self.batch_size),
            learning_rate=float(self._learning_rate),
            alpha=float(self._alpha),
            num_samples=int(num_samples),
            seed=self.seed_,
            kl_warm_up=self._kl_warm_up,
        )

    def _train_on(
        self, data: Data, inputs: np.ndarray, checkpoints: CheckpointFolder | None = None
    ) -> None:
        """Fits the model to scaled data. It starts from these inputs: all of them, or a sample."""
        self.__dict__.pop("diagnostics_", None)
        if self.inference == "mcmc":
            self._sample_on(data, checkpoints)
            return
        max_iter = self._num_steps(data.num_rows)
        if max_iter < FEW_STEPS:
            warnings.warn(
                f"max_iter={max_iter} steps are too few to learn from; thousands are usual.",
                ConvergenceWarning,
                stacklevel=4,
            )
        self.n_samples_seen_ = data.num_rows
        self._optimiser = None
        with self._progress(max_iter * self._num_members) as report:
            results = self._train_members(data, inputs, checkpoints, max_iter, report)
        self._warn_if_too_short(results, max_iter)
        self.__dict__.pop("calibration_", None)
        if self._calibrates:
            self.calibration_ = self._fitted_calibration(data)

    def _train_members(
        self,
        data: Data,
        inputs: np.ndarray,
        checkpoints: CheckpointFolder | None,
        max_iter: int,
        report: Callable[[int, float], Any],
    ) -> list[TrainingResult]:
        """Trains the model, or all members of an ensemble, and keeps them."""
        with precision(self.precision):
            members = self._members(data, inputs, self._settings(max_iter), checkpoints)
            left = seconds_left(self.max_seconds, self._started)
            try:
                stoppable = self._is_followed
                results = train_members(members, self.precision, report, left, stoppable=stoppable)
            except TrainingDiverged as stopped:
                if self.n_members is None:
                    self._keep([stopped.result])
                raise
        self._keep(results)
        return results

    def _partial_fit(
        self, X: Any, y: Any, sample_weight: Any, classes: Any = None, noise_std: Any = None
    ) -> Self:
        """Visits each row once; the first call makes the model, at the scales of its rows."""
        with self._undone_on_failure():
            self.check_parameters()  # they may have changed since the last call
            self._check_not_sampled()
            if self._left_out_share() is not None:
                raise ValueError(
                    "partial_fit leaves out no rows: use fit, or neither calibrate nor "
                    "validation_fraction."
                )
            first = not hasattr(self, "model_")
            X, y = self._read_training_rows(X, y, reset=first, **self._y_options)
            weights = self._checked_weights(sample_weight, X)
            targets = self._read_targets(y, first=first, classes=classes)
            targets = with_errors(targets, self._read_errors(noise_std, y, first=first))
            if first:
                self._start_training()
                self.n_samples_seen_ = self.n_iter_ = 0
            noted = weights if first else None
            inputs, of_model = self._scale_inputs(X, noted), self._scale_targets(targets, noted)
            scaled = (self._carrying(inputs, X, training=True, first=first), of_model, weights)
            rows: Any = [array.astype(self.precision) for array in scaled]
            self._train_once(Batch(*rows))
        return self

    def _train_once(self, rows: Batch) -> None:
        """A step on each batch of scaled rows, in random order; the model is made if need be."""
        self.n_samples_seen_ += len(rows.inputs)
        batches = padded_batches(rows, int(self.batch_size), (self.seed_, self.n_iter_))
        num_steps = self.n_iter_ + len(batches.inputs)
        with precision(self.precision):
            if not hasattr(self, "model_"):
                seeds = [derived_seed(self.seed_, index) for index in range(self._num_members)]
                made = tuple(self.build_model(np.asarray(rows.inputs), seed) for seed in seeds)
                self.model_ = made[0] if self.n_members is None else Ensemble(made)
            models: Any = members_of(self.model_)
            optimisers = getattr(self, "_optimiser", None) or [None] * len(models)
            settings = self._settings(1)
            results, after = [], []
            try:
                for index, (model, optimiser) in enumerate(zip(models, optimisers, strict=True)):
                    own = settings.of_member(derived_seed(self.seed_, index), settings.batch_size)
                    result, optimiser = train_once(
                        model, optimiser, batches, self.n_samples_seen_, own
                    )
                    results.append(result)
                    after.append(optimiser)
            except TrainingDiverged as stopped:
                # The next call starts from the last finite model, without the moments that led
                # away.
                self._optimiser = None
                if self.n_members is None:
                    steps = self.n_iter_
                    self._keep([stopped.result])
                    self.n_iter_ = steps
                raise
        self._optimiser = after
        self._keep(results)
        self.n_iter_ = num_steps

    def _draw(self, n: int, random_state: Any) -> Draws:
        """n functions of scaled inputs."""
        check_is_fitted(self)
        check_count("n", n)
        return self._draw_values(n, int(check_random_state(random_state).randint(MAX_SEED)))

    @abc.abstractmethod
    def _draw_values(self, n: int, seed: int) -> Draws:
        """What a draw gives to users, of the trained model."""

    def _draw_latent(self, n: int, seed: int) -> Draws:
        """n functions of the last layer's units."""
        models = members_of(self.model_)
        # Members take turns.
        turns = [np.arange(index, n, len(models)) for index in range(len(models))]
        with precision(self.precision):
            draws = [
                (turn, draw_functions(model.network, len(turn), derived_seed(seed, index)))
                for index, (model, turn) in enumerate(zip(models, turns, strict=True))
                if len(turn)
            ]
        return draws[0][1] if len(draws) == 1 else Together(n, draws)

    def save(self, path: str | Path) -> None:
        """Writes the fitted model to a folder, as JSON and safetensors.

        A model that is already there is replaced, in one step, only once the new one is complete.
        Parameters that `set_params` changed since must still describe the model: `n_layers` or
        `prior`, for instance, may not have changed without another `fit`.

        Parameters
        ----------
        path : str or Path
            The folder, which is new or holds a model.
        """
        check_is_fitted(self)
        save_estimator(self, path)
