"""Regression: targets of one number or several, scaled inside; predictive distributions."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import assert_all_finite

from dvip.calibration import Calibration, LeftOut, best_log_score, fit_scale
from dvip.distributions import Predictive
from dvip.estimators.inputs import errors_of_rows
from dvip.estimators.new_rows import NewRows
from dvip.estimators.predictions import NumberPredictions
from dvip.estimators.sampled_functions import SampledFunctions
from dvip.estimators.scales import (
    MAX_SCALED,
    MAX_TARGET_SCALE,
    Standardiser,
    decided_by_one_row,
    hardly_vary,
    warn_of_faint,
)
from dvip.function_draws import Draws, Mapped
from dvip.likelihoods import Likelihood, Regression
from dvip.objectives import DeepModel, Ensemble
from dvip.prediction import Model, members_of, moments, sample_noises
from dvip.registry import LIKELIHOODS
from dvip.runtime import derived_seed, precision
from dvip.sampled import SampledModel
from dvip.sources import NumberTargets
from dvip.sources.records import RowsContent
from dvip.training import Data

__all__ = ["DeepRegressor"]


# Means and variances of f for some rows: rows x units x samples.
Moments = tuple[np.ndarray, np.ndarray]
Models = Sequence[Model[Regression]]

# Samples propagated for a score while training.
SAMPLES_OF_SCORE = 16

# Where every known error is this many times the standard deviation of y, their unit is wrong.
LARGE_ERROR = 2.0


class DeepRegressor(RegressorMixin, NewRows, NumberPredictions):
    """A deep model of numbers. `y` may have one column or several."""

    task: ClassVar[str] = "regression"
    _y_options: ClassVar[Mapping[str, bool]] = {"multi_output": True, "y_numeric": True}

    model_: DeepModel[Regression] | Ensemble[Regression] | SampledModel[Regression]
    target_scaler_: Standardiser
    target_shape_: tuple[int, ...]
    # Whether the rows of the training had known errors; models of older versions had none.
    known_errors_: bool = False

    def check_parameters(self) -> None:
        """Raises an error, which says what to do, unless the parameters make sense."""
        super().check_parameters()
        likelihood = self._regression()
        if self._calibrates and not likelihood.can_be_calibrated:
            raise ValueError(
                "calibrate=True corrects the scale of predictions, which "
                f"{type(likelihood).__name__} does not allow: leave it out, or use another "
                "likelihood."
            )

    def _default_likelihood(self) -> str:
        return "gaussian"

    @property
    def _num_outputs(self) -> int:
        return int(np.prod(self.target_shape_))

    def _regression(self) -> Regression:
        """The likelihood before it has parameters: how targets are transformed."""
        likelihood = self._chosen_likelihood()
        assert isinstance(likelihood, Regression)  # by its task
        return likelihood

    def _initialised(self, likelihood: Likelihood) -> Likelihood:
        initialised = super()._initialised(likelihood)
        assert isinstance(initialised, Regression)  # by its task
        return initialised.linked(self.target_scaler_.mean, self.target_scaler_.scale)

    def _model_scaler(self) -> Standardiser:
        """From transformed targets to those that the model sees: themselves, unless scaled."""
        if self._regression().standardised:
            return self.target_scaler_
        number = self._num_outputs
        return Standardiser(np.zeros(number), np.ones(number))

    def _read_targets(self, y: Any, *, first: bool, classes: Any = None) -> np.ndarray:
        if getattr(getattr(y, "dtype", None), "kind", None) in ("m", "M"):
            raise ValueError("y holds dates or times: make numbers of them, such as days.")
        try:
            y = np.asarray(y, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"y must be an array of numbers: {error}") from None
        assert_all_finite(y, input_name="y")  # objects among them were not looked at before
        if first:
            self.target_shape_ = y.shape[1:]
        if y.shape[1:] != self.target_shape_:
            expected = ("rows", *self.target_shape_)
            raise ValueError(f"y has the shape {y.shape}, that of the first call was {expected}.")
        return self._regression().transform(y.reshape(len(y), -1))

    def _read_errors(self, noise_std: Any, y: np.ndarray, *, first: bool) -> np.ndarray | None:
        if not first and (noise_std is not None) != self.known_errors_:
            had, instead = ("", "pass") if self.known_errors_ else (" no", "leave out")
            raise ValueError(
                f"The rows of the first call had{had} known errors: {instead} noise_std here, too."
            )
        if noise_std is None:
            return None
        self._check_takes_errors()
        return errors_of_rows(noise_std, y.shape)

    def _check_takes_errors(self) -> None:
        """Raises an error, which says what to do, if the likelihood cannot use known errors."""
        likelihood = self._regression()
        if not likelihood.takes_errors:
            able = ", ".join(
                name for name, cls in LIKELIHOODS.items() if getattr(cls, "takes_errors", False)
            )
            raise ValueError(
                f"The likelihood {type(likelihood).__name__} cannot use known errors of rows: "
                f"leave them out, or choose one of {able}."
            )

    def _scale_targets(self, targets: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
        targets, errors = np.split(targets, [self._num_outputs], axis=1)
        if weights is not None:
            if hardly_vary(targets).any():
                warn_of_faint("y")
            if decided_by_one_row(targets).any():
                warnings.warn(
                    "One value of y is so large that all others look alike: correct it, remove its "
                    "row, or take logarithms.",
                    stacklevel=2,
                )
            self._keep_target_scaler(Standardiser.fit(targets, weights))
            self._note_errors(errors.min(axis=0))
        scaled = self._model_scaler().transform(targets)
        if self.known_errors_:
            with np.errstate(over="ignore"):
                of_model = np.minimum(errors / self._model_scaler().scale, MAX_SCALED)
            scaled = np.hstack([scaled, of_model])
        return scaled

    def _note_errors(self, smallest: np.ndarray) -> None:
        """Whether there are known errors; warns if the smallest are more than y's spread allows."""
        self.known_errors_ = len(smallest) > 0
        scale = self.target_scaler_.scale
        if self.known_errors_ and (smallest > LARGE_ERROR * scale).any():
            index = (smallest / scale).argmax()
            warnings.warn(
                f"noise_std is {smallest[index]:.3g} or more in every row, but y varies by "
                f"{scale[index]:.3g} only: is it in the unit of y? The model will learn little.",
                stacklevel=2,
            )

    def _keep_target_scaler(self, scaler: Standardiser) -> None:
        fits = (scaler.scale > 1 / MAX_TARGET_SCALE) & (scaler.scale < MAX_TARGET_SCALE)
        if not (fits & (np.abs(scaler.mean) < MAX_TARGET_SCALE**2)).all():
            raise ValueError(
                f"y has the mean {scaler.mean} and the standard deviation {scaler.scale}, too "
                "small or too large to compute with: rescale y."
            )
        self.target_scaler_ = Standardiser(*self._regression().scales(scaler.mean, scaler.scale))

    def _stream_targets(self) -> NumberTargets:
        likelihood = self._regression()
        kind = f"numbers of {type(likelihood).__name__}"
        return NumberTargets(likelihood.transform, kind, self._check_takes_errors)

    def _note_stream_targets(self, content: RowsContent) -> tuple[np.ndarray, np.ndarray, None]:
        self.target_shape_ = content.target_shape
        end = content.num_inputs + self._num_outputs
        targets = slice(content.num_inputs, end)
        moments = (content.mean[targets], content.std[targets], content.largest[targets])
        self._keep_target_scaler(Standardiser.of_moments(*moments))
        self._note_errors(content.range[0, end:])
        scaler = self._model_scaler()
        mean, scale = scaler.mean, scaler.scale
        if not self.known_errors_:
            return mean, scale, None
        return np.append(mean, np.zeros_like(mean)), np.append(scale, scale), None

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None, noise_std: Any = None) -> Self:
        """Trains on these rows, each once, and goes on from there at the next call.

        The scales of inputs and targets, and where the model starts, are those of the first call:
        let it have some thousand rows. Steps are of `batch_size` rows, at a constant
        `learning_rate`; `n_samples_seen_`, the rows of all calls, is the N of the bound.

        Parameters
        ----------
        X : array of shape (rows, inputs) or DataFrame
        y : array of shape (rows,) or (rows, targets)
        sample_weight : array of shape (rows,), optional
            How many times each row counts.
        noise_std : number, or array of shape (rows,) or of the shape of y, optional
            The known error of each row, as for `fit`; at every call or at none.

        Returns
        -------
        self
        """
        return self._partial_fit(X, y, sample_weight, noise_std=noise_std)

    def predict_dist(self, X: Any, noise_std: Any = None) -> Predictive:
        """The predictive distribution of y for each row: a mixture.

        It holds `n_predictive_samples` components for each row; with many millions of rows
        ask for it in blocks, or use `predict`, which keeps only the mean and the deviation.

        Parameters
        ----------
        X : array of shape (rows, inputs) or DataFrame
        noise_std : number, or array of shape (rows,) or of the shape of y, optional
            The error that a measurement of each row has, a standard deviation. Without it, the
            prediction is of a measurement without an error of its own: only the noise that the
            model learned is in it, which after a `fit` with `noise_std` is what the errors of the
            training did not explain.

        Returns
        -------
        Predictive
            With Gaussian noise or Student's t a `GaussianMixture`, of positive numbers a
            `LogNormalMixture`, of counts a `CountMixture`. Several targets are a second axis of all
            that it gives.

        Examples
        --------
        >>> from sklearn.datasets import load_diabetes
        >>> from dvip import DVIPRegressor
        >>> X, y = load_diabetes(return_X_y=True)
        >>> model = DVIPRegressor(n_layers=1, max_iter=100).fit(X, y)
        >>> lower, upper = model.predict_dist(X[:3]).interval(0.9)
        >>> lower.shape
        (3,)
        """
        inputs = self._scaled(X)
        errors = self._errors_at(noise_std, len(inputs))
        return self._located(self._distribution(inputs, errors), inputs)

    def _located(self, distribution: Predictive, inputs: np.ndarray) -> Predictive:
        """The distribution with what is known of where its rows are; nothing by default."""
        del inputs
        return distribution

    def predict(self, X: Any, return_std: bool = False, noise_std: Any = None) -> Any:
        """The predictive mean of y and, if asked for, its standard deviation.

        Parameters
        ----------
        X : array of shape (rows, inputs) or DataFrame
        return_std : bool, default False
        noise_std : number, or array of shape (rows,) or of the shape of y, optional
            The error that a measurement of each row has, as for `predict_dist`.

        Returns
        -------
        mean : array of shape (rows,) or (rows, targets)
        std : array of the same shape
            Only with `return_std`.
        """
        inputs = self._scaled(X)
        errors = self._errors_at(noise_std, len(inputs))
        means, stds = [], []
        for distribution in self._pieces(inputs, errors):  # of which nothing else is kept
            means.append(distribution.mean)
            if return_std:
                stds.append(distribution.std)
        mean = np.concatenate(means)
        return (mean, np.concatenate(stds)) if return_std else mean

    def sample_functions(self, n: int, random_state: Any = None) -> SampledFunctions:
        """n whole functions from the posterior, without the noise of the data.

        Parameters
        ----------
        n : int
        random_state : int, RandomState or None
            The same number gives the same functions.

        Returns
        -------
        SampledFunctions
            f(X) -> (n, rows) or (n, rows, targets), any number of times: it is the same functions
            each time. `f.gradient(X)` are their derivatives.
        """
        return SampledFunctions(self, self._draw(n, random_state))

    def _draw_values(self, n: int, seed: int) -> Draws:
        scaler = self.target_scaler_
        likelihood = members_of(self.model_)[0].likelihood

        def on_the_users_scale(values: np.ndarray) -> np.ndarray:
            return likelihood.function_values(values, scaler.mean, scaler.scale)

        return Mapped(self._draw_latent(n, seed), on_the_users_scale)

    def _distribution(
        self, inputs: np.ndarray, errors: np.ndarray | None = None, num_samples: int | None = None
    ) -> Predictive:
        """What is predicted for scaled inputs, calibrated."""
        models = members_of(self.model_)
        return self._calibrated(self._predicted(inputs, models, num_samples, errors))

    def _pieces(self, inputs: np.ndarray, errors: np.ndarray | None) -> Iterator[Predictive]:
        """What is predicted, for some rows after others."""
        models, done = members_of(self.model_), 0
        for piece in self._moments(inputs, models):
            rows = slice(done, done + len(piece[0][0]))
            done = rows.stop
            of_rows = None if errors is None else errors[rows]
            yield self._calibrated(self._predictive(piece, models, of_rows))

    def _moments(
        self, inputs: np.ndarray, models: Models, num_samples: int | None = None
    ) -> Iterator[list[Moments]]:
        """Of each model, means and variances of f, rows x units x samples, in pieces."""
        with precision(self.precision):
            seeds = [derived_seed(self.seed_, index) for index in range(len(models))]
            noises = sample_noises(models, num_samples or self.n_predictive_samples, seeds)
            for piece in moments(models, inputs, noises):
                yield [(np.moveaxis(mean, 2, 0), np.moveaxis(var, 2, 0)) for mean, var in piece]

    def _errors_at(self, noise_std: Any, num_rows: int) -> np.ndarray | None:
        """Known errors of rows to predict, rows x outputs, where there are some."""
        if noise_std is None:
            return None
        self._check_takes_errors()
        return errors_of_rows(noise_std, (num_rows, *self.target_shape_))

    def _predicted(
        self,
        inputs: np.ndarray,
        models: Models,
        num_samples: int | None = None,
        errors: np.ndarray | None = None,
    ) -> Predictive:
        """What these models predict for scaled inputs, before it is calibrated."""
        joined: list[Moments] = []
        done = 0
        for piece in self._moments(inputs, models, num_samples):
            if not joined:  # arrays for all rows, rather than one for each piece first
                joined = [_room_for(len(inputs), *pair) for pair in piece]
            for whole, part in zip(joined, piece, strict=True):
                for all_rows, rows in zip(whole, part, strict=True):
                    all_rows[done : done + len(rows)] = rows
            done += len(piece[0][0])
        return self._predictive(joined, models, errors)

    def _predictive(
        self, moments: list[Moments], models: Models, errors: np.ndarray | None = None
    ) -> Predictive:
        scaler = self.target_scaler_
        known = {} if errors is None else {"errors": errors}  # likelihoods need not take them
        distribution = Predictive.mixture(
            [
                model.predictive(mean, variance, scaler.mean, scaler.scale, **known)
                for model, (mean, variance) in zip(models, moments, strict=True)
            ]
        )
        return distribution if self.target_shape_ else distribution.target(0)

    def _calibrated(self, distribution: Predictive) -> Predictive:
        if not hasattr(self, "calibration_"):
            return distribution
        calibration = self.calibration_
        return distribution.rescaled(
            calibration.scale, calibration.tail_weight, calibration.tail_scale
        )

    def _left_out(self, rows: Any, models: Models, num_samples: int | None = None) -> LeftOut:
        """What these models predict for rows that they left out, and what was observed."""
        scaler = self.target_scaler_
        likelihood = self._regression()
        z, errors = np.split(rows.targets, [self._num_outputs], axis=1)
        y = likelihood.inverse(z * scaler.scale + scaler.mean if likelihood.standardised else z)
        known = errors * scaler.scale if self.known_errors_ else None
        prediction = self._predicted(rows.inputs, models, num_samples, known)
        return LeftOut(prediction, y.reshape(len(y), *self.target_shape_), rows.weights)

    def _score_of(self, model: DeepModel, rows: Any) -> float:
        return best_log_score(self._left_out(rows, [model], SAMPLES_OF_SCORE))

    def _fitted_calibration(self, data: Data) -> Calibration:
        return fit_scale(self._left_outs(data), len(members_of(self.model_)))

    def _left_outs(self, data: Data) -> list[LeftOut]:
        """Left-out rows with what was predicted for them, stretch by stretch."""
        models, left_out = members_of(self.model_), []
        samples = -(-self.n_predictive_samples // len(models))
        for without, rows in self._left_out_rows(data):
            judged = [models[index] for index in without]
            others = [model for index, model in enumerate(models) if index not in without]
            part = self._left_out(rows, judged, samples * len(judged))
            of_others = [self._predicted(rows.inputs, [model], samples) for model in others]
            part = part._replace(num_judged=len(judged), others=of_others)
            left_out.append(part)
        return left_out

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def _room_for(num_rows: int, mean: np.ndarray, variance: np.ndarray) -> Moments:
    """Empty arrays for the moments of all rows, of which these are some."""
    shape = (*mean.shape[1:], num_rows)
    first, second = (np.empty(shape, part.dtype) for part in (mean, variance))
    return np.moveaxis(first, -1, 0), np.moveaxis(second, -1, 0)
