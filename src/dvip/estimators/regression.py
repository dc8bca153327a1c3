"""Regression: scaled targets, Gaussian noise, predictive mixtures on the scale of the user."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import _check_sample_weight, assert_all_finite

from dvip.distributions import GaussianMixture
from dvip.estimators.base import DeepEstimator
from dvip.estimators.preparation import fit_rows_once
from dvip.estimators.scales import Standardiser, merge_duplicates
from dvip.estimators.serialisation import checkpoint_folder
from dvip.estimators.undoing import undone_on_failure
from dvip.likelihoods import Gaussian, Likelihood
from dvip.objectives import DeepModel
from dvip.prediction import moments
from dvip.runtime import precision
from dvip.sources import NumberTargets
from dvip.sources.records import RowsContent
from dvip.training import CheckpointFolder

__all__ = ["DeepRegressor"]


# Variances, with room to extrapolate, must be numbers.
MAX_TARGET_SCALE = 1e140


class DeepRegressor(RegressorMixin, DeepEstimator):
    """A deep model with Gaussian noise. `y` may have one column or several."""

    model_: DeepModel[Gaussian]
    target_scaler_: Standardiser
    target_shape_: tuple[int, ...]

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        checkpoint_dir: str | Path | None = None,
        checkpoint_every: int | None = None,
        resume: bool = False,
    ) -> "DeepRegressor":
        """Trains the model.

        Parameters
        ----------
        X : array or DataFrame of shape (rows, inputs), or Source
            With a prior that reads images or sequences also (rows, height, width),
            (rows, height, width, channels) or (rows, length, channels). A source, such as
            `open_source` gives, brings its targets and need not fit in memory.
        y : array of shape (rows,) or (rows, targets)
        sample_weight : array of shape (rows,), optional
            How many times each row counts; a weight of 2 is the same as the row twice.
        checkpoint_dir : path, optional
            Folder for checkpoints, of which the last three are kept. Ctrl-C and SIGTERM then take
            effect only when one more is written.
        checkpoint_every : int, optional
            Steps between two of them; by default there is one a minute.
        resume : bool, default False
            Go on from the newest checkpoint, if there is one. All else must be as it was, and the
            result is that of a training without the break, bit for bit.

        If an error or Ctrl-C ends it, the estimator is as it was before, except after
        `TrainingDiverged`, which keeps the last finite model.
        """
        with checkpoint_folder(checkpoint_dir, checkpoint_every, resume) as checkpoints:
            return self._fit(X, y, sample_weight, checkpoints)

    def _fit_arrays(
        self, X: Any, y: Any, sample_weight: Any, checkpoints: CheckpointFolder | None
    ) -> None:
        inputs, targets, weights = self._checked(X, y, sample_weight)
        self.target_shape_ = targets.shape[1:]
        inputs, targets, weights = merge_duplicates(
            inputs, targets.reshape(len(targets), -1), weights
        )
        self._fit_input_scaler(inputs, weights)
        self._keep_target_scaler(Standardiser.fit(targets, weights))
        self._train(inputs, self.target_scaler_.transform(targets), weights, checkpoints)

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> "DeepRegressor":
        """Trains on these rows, each once, and goes on from there at the next call.

        The scales of inputs and targets, and where the model starts, are those of the first call:
        let it have some thousand rows. Steps are of `batch_size` rows, at a constant
        `learning_rate`; `n_samples_seen_`, the rows of all calls, is the N of the bound.
        """
        with undone_on_failure(self):
            first = self._start_partial_fit()
            inputs, targets, weights = self._checked(X, y, sample_weight, reset=first)
            if first:
                self.target_shape_ = targets.shape[1:]
            if targets.shape[1:] != self.target_shape_:
                raise ValueError(f"y has the shape {targets.shape}, rows had {self.target_shape_}.")
            targets = targets.reshape(len(targets), -1)
            if first:
                self._fit_input_scaler(inputs, weights)
                self._keep_target_scaler(Standardiser.fit(targets, weights))
            scaled = (self.input_scaler_.transform(inputs), self.target_scaler_.transform(targets))
            fit_rows_once(self, *scaled, weights)
        return self

    def _checked(
        self, X: Any, y: Any, sample_weight: Any, **options: Any
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Inputs, targets and weights, validated."""
        X, y = self._validated(X, y, multi_output=True, y_numeric=True, **options)
        y = np.asarray(y, dtype=np.float64)
        assert_all_finite(y, input_name="y")  # objects among them were not looked at before
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        return X, y, weights

    def _keep_target_scaler(self, scaler: Standardiser) -> None:
        fits = (scaler.scale > 1 / MAX_TARGET_SCALE) & (scaler.scale < MAX_TARGET_SCALE)
        if not (fits & (np.abs(scaler.mean) < MAX_TARGET_SCALE**2)).all():
            raise ValueError(
                f"y has the mean {scaler.mean} and the standard deviation {scaler.scale}, too "
                "small or too large to compute with: rescale y."
            )
        self.target_scaler_ = scaler

    def _stream_targets(self) -> NumberTargets:
        return NumberTargets()

    def _note_stream_targets(self, content: RowsContent) -> tuple[np.ndarray, np.ndarray, None]:
        """Mean and scale of the targets of a source."""
        targets = slice(content.num_inputs, None)
        moments = (content.mean[targets], content.std[targets], content.largest[targets])
        self.target_shape_ = content.target_shape
        self._keep_target_scaler(Standardiser.of_moments(*moments))
        return self.target_scaler_.mean, self.target_scaler_.scale, None

    def _likelihood(self) -> tuple[Likelihood, int]:
        num_targets = int(np.prod(self.target_shape_))
        return Gaussian.create(num_targets), num_targets

    def predict_dist(self, X: Any) -> GaussianMixture:
        """The predictive distribution of y for each row: a Gaussian mixture.

        It holds `n_predictive_samples` means and variances for each row; with many millions of rows
        ask for it in blocks, or use `predict`, which keeps only the mean and the deviation.
        """
        means, variances = map(np.concatenate, zip(*self._moments(X), strict=True))
        if not self.target_shape_:
            means, variances = means[:, 0], variances[:, 0]
        return GaussianMixture(means, variances, self._noise_variance())

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The predictive mean of y and, if asked for, its standard deviation."""
        pieces = [
            (means.mean(axis=-1), variances.mean(axis=-1) + means.var(axis=-1))
            for means, variances in self._moments(X)
        ]
        mean, variance = (
            np.concatenate(arrays).reshape(-1, *self.target_shape_)
            for arrays in zip(*pieces, strict=True)
        )
        return (mean, np.sqrt(variance + self._noise_variance())) if return_std else mean

    def sample_functions(self, n: int, random_state: Any = None) -> Callable[[Any], np.ndarray]:
        """n whole functions from the posterior, without the noise of the data.

        The result is called with inputs, f(X) -> (n, rows) or (n, rows, targets), any number of
        times: it is the same functions each time.
        """
        latent = self._draw_latent(n, random_state)
        scaler, shape = self.target_scaler_, self.target_shape_

        def functions(X: Any) -> np.ndarray:
            values = latent(X) * scaler.scale + scaler.mean
            return values.reshape(*values.shape[:2], *shape)

        return functions

    def _moments(self, X: Any) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Means and variances of f, rows x targets x samples, on the user's scale, in pieces."""
        inputs = self._scaled(X)
        scale, offset = self.target_scaler_.scale[:, None], self.target_scaler_.mean[:, None]
        with precision(self.precision):
            for mean, variance in moments(self.model_.network, inputs, self._sample_noise()):
                mean, variance = (np.moveaxis(array, 2, 0) for array in (mean, variance))
                yield mean * scale + offset, variance * np.square(scale)

    def _noise_variance(self) -> np.ndarray:
        """The variance of the noise of the data, for each target, on the user's scale."""
        likelihood = self.model_.likelihood
        variance = np.exp(np.asarray(likelihood.log_variance, dtype=np.float64))
        return (variance * np.square(self.target_scaler_.scale)).reshape(self.target_shape_)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
