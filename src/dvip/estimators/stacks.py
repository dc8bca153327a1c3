"""A regressor and a classifier that may be mixtures of several of their kind, as one model."""

import copy
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Any, ClassVar

import numpy as np

from dvip.batches import Batch
from dvip.calibration import (
    Calibration,
    LeftOut,
    LeftOutClasses,
    as_the_ensemble,
    best_log_score,
    fit_scale,
    fit_temperature,
    stacking_weights,
    tempered,
)
from dvip.closed_form import ClosedFormGP, fit_closed_form, fit_constant
from dvip.distributions import CountMixture, GaussianMixture, Predictive
from dvip.estimators.candidates import (
    CONSTANT,
    SAMPLED_GP,
    Candidate,
    candidates_of_prior,
    classification_candidates,
    regression_candidates,
)
from dvip.estimators.choice import MAX_INPUTS_OF_GP, ChoosingEstimator
from dvip.estimators.classification import DeepClassifier
from dvip.estimators.ensembles import MIN_LEFT_OUT
from dvip.estimators.regression import DeepRegressor
from dvip.function_draws import Draws, Scaled, Shifted
from dvip.gp_moments import GPMoments
from dvip.likelihoods.gaussian import Gaussian
from dvip.neighbourhood import OF_NETWORKS, OF_PROCESSES, Doubt
from dvip.sampled_gp import SampledGP, fit_sampled
from dvip.sum_kernel import ANY_FUNCTION, GPData, KernelPrior
from dvip.training import Data

__all__ = ["ChoosingClassifier", "ChoosingRegressor"]


# Components of rows whose distributions are in memory at once, where only their moments are asked
# for.
COMPONENTS_AT_ONCE = 2**18

# Rows with which half of the logarithm of a scale below 1 is believed.
ROWS_FOR_HALF = 300


def _doubt_of(part: Any) -> Doubt:
    return OF_PROCESSES if part.inference == "exact" else OF_NETWORKS


def _doubted(part: Any, distribution: Predictive, beyond: np.ndarray) -> Predictive:
    """What a part predicts for rows so far beyond the usual distance from the training rows."""
    if not beyond.any():
        return distribution
    doubt = _doubt_of(part)
    widened = [distribution.widened(factor * beyond) for factor in (doubt.always, doubt.rarely)]
    return Predictive.mixture(widened, [1 - doubt.probability, doubt.probability])


def _cautious(calibration: Calibration, left_out: Sequence[LeftOut]) -> Calibration:
    """The calibration, of which few rows may not make intervals much narrower."""
    number = sum(len(part.y) for part in left_out)
    trust = number / (number + ROWS_FOR_HALF) if calibration.scale < 1 else 1.0
    return calibration._replace(scale=calibration.scale**trust)


def _scores_of(left_out: Sequence[LeftOut], calibration: Calibration | None) -> dict[str, float]:
    """How good the mixture is on rows that its members left out."""
    rows: list[np.ndarray] = []
    for mixture, y, *_ in left_out:
        if calibration is not None:
            scale, weight, tail = calibration.scale, calibration.tail_weight, calibration.tail_scale
            mixture = mixture.rescaled(scale, weight, tail)
        columns = (
            -mixture.log_prob(y),
            np.square(mixture.mean - y),
            np.abs(mixture.cdf(y) - 0.5) <= 0.45,
        )
        rows.append(np.stack([column.reshape(len(y), -1).mean(axis=1) for column in columns]))
    weights = np.concatenate([part.weights for part in left_out])
    nll, squares, inside = np.average(np.concatenate(rows, axis=1), axis=1, weights=weights)
    scores = {"nll": float(nll), "rmse": float(np.sqrt(squares))}
    # Intervals of counts hold more than they promise.
    counts = isinstance(left_out[0].prediction, CountMixture)
    return scores if counts else {**scores, "coverage_90": float(inside)}


class ChoosingRegressor(ChoosingEstimator, DeepRegressor):
    """A regressor that chooses; one of its parts may be a Gaussian process in closed form."""

    _judged: list[LeftOut]
    # Of a Gaussian process in closed form; with another one no rows are left out.
    _kernel_prior: ClassVar[KernelPrior] = ANY_FUNCTION
    model_: Any  # a ClosedFormGP or a SampledGP, too

    def _candidates(self, num_rows: int, num_inputs: int) -> list[Candidate]:
        if self._describes_functions():
            return candidates_of_prior(num_rows)
        closed_form = self._closed_form_fits(num_inputs)
        return regression_candidates(num_rows, self._num_outputs, closed_form=closed_form)

    def _closed_form_fits(self, num_inputs: int) -> bool:
        """Whether Gaussian processes in closed form may be candidates."""
        alone = self.prior is None and self.n_layers in (None, 1) and self.n_inducing is None
        one_error = not self.known_errors_ or self._num_outputs == 1
        return alone and one_error and num_inputs <= MAX_INPUTS_OF_GP and self._is_gaussian()

    def _is_gaussian(self) -> bool:
        return isinstance(self._chosen_likelihood(), Gaussian) and self.likelihood in (
            "auto",
            "gaussian",
        )

    def _can_be_calibrated(self) -> bool:
        return self._regression().can_be_calibrated

    @property
    def _is_judged(self) -> bool:
        return bool(self._judged) if self.inference == "exact" else super()._is_judged

    def _check_closed_form(self) -> None:
        for name, possible in (
            ("n_layers", (None, 1)),
            ("prior", (None,)),
            ("n_inducing", (None,)),
        ):
            if getattr(self, name) not in possible:
                raise ValueError(
                    f"inference='exact' is for one layer with the Gaussian process of its own: "
                    f"leave out {name}, or use inference='vi'."
                )
        if not self._is_gaussian():
            raise ValueError("inference='exact' is for Gaussian noise: leave out likelihood.")

    def _fit_closed_form(self, data: Data, score: Future) -> None:
        folds, rest = self._folds_of(data)
        rows: Any = [np.concatenate(part) for part in zip(*folds, rest, strict=True)]
        rows_of_gp = self._rows_of_gp(Batch(*rows))
        ends = np.cumsum([len(fold.inputs) for fold in folds]).tolist()
        places = [np.arange(*pair) for pair in zip([0, *ends], ends, strict=False)]
        moments: list[Sequence[GPMoments]]

        def tell(constant: list[GPMoments]) -> None:
            pairs = zip(constant, folds, strict=True)
            scores = [best_log_score(self._left_out_as([each], fold)) for each, fold in pairs]
            score.set_result(float(np.mean(scores)) if scores else -np.inf)

        if self._closed_form == SAMPLED_GP:
            self.model_, moments = fit_sampled(rows_of_gp, places, self.seed_)
        else:
            if self._closed_form == CONSTANT:
                fitted = fit_constant(rows_of_gp, places)
            else:
                prior = self._kernel_prior
                fitted = fit_closed_form(rows_of_gp, places, self.seed_, prior, tell)
            self.model_, moments = fitted[0], [(each,) for each in fitted[1]]
        self.n_iter_, self.n_samples_seen_ = 0, data.num_rows
        self.bound_history_ = np.zeros(0)
        self._judged = [
            self._left_out_as(predicted, fold)
            for predicted, fold in zip(moments, folds, strict=True)
        ]
        self.__dict__.pop("calibration_", None)
        if self._calibrates and folds:
            self.calibration_ = _cautious(fit_scale(self._judged, 1), self._judged)

    def _rows_of_gp(self, rows: Batch) -> GPData:
        inputs, targets, weights = (np.asarray(part, dtype=float) for part in rows)
        targets, errors = np.split(targets, [self._num_outputs], axis=1)
        known = np.square(errors[:, 0]) if self.known_errors_ else None
        return GPData(inputs, targets, weights, known)

    def _folds_of(self, data: Any) -> tuple[list[Any], Any]:
        """Rows that are left out in turn, and the rest; few rows are all needed."""
        if data.num_rows < 2 * MIN_LEFT_OUT or self._kernel_prior is not ANY_FUNCTION:
            return [], data.rows(self.seed_, 0, data.num_rows)
        divided = self
        if self._left_out_share() is None:
            divided = copy.copy(self)
            divided.__dict__.update(self._division(data.num_rows))
        return divided._fold_rows(data)

    def _left_out_as(self, moments: Sequence[GPMoments], rows: Any) -> LeftOut:
        z, errors = np.split(np.asarray(rows.targets, float), [self._num_outputs], axis=1)
        scaler = self.target_scaler_
        known = errors * scaler.scale if self.known_errors_ else None
        y = (z * scaler.scale + scaler.mean).reshape(len(z), *self.target_shape_)
        return LeftOut(self._of_moments(moments, known), y, rows.weights)

    def _of_moments(self, moments: Sequence[GPMoments], errors: np.ndarray | None) -> Predictive:
        """The distribution of y, on the user's scale, from the moments of each member."""
        mixture = Predictive.mixture([self._of_member(each, errors) for each in moments])
        return mixture if self.target_shape_ else mixture.target(0)

    def _of_member(self, moments: GPMoments, errors: np.ndarray | None) -> GaussianMixture:
        scaler = self.target_scaler_
        scale = scaler.scale[:, None]
        number = len(moments.weights)
        means = np.repeat((moments.mean * scaler.scale + scaler.mean)[..., None], number, axis=-1)
        variances = np.broadcast_to(moments.variance[:, None, None] * scale**2, means.shape)
        noise = moments.noise[:, None] * scale**2
        if errors is not None:
            noise = noise + np.square(errors)[..., None]
        weights = moments.weights if number > 1 else None
        return GaussianMixture(means, variances, noise, weights)

    @property
    def _in_closed_form(self) -> bool:
        return isinstance(getattr(self, "model_", None), ClosedFormGP | SampledGP)

    def _distribution(
        self, inputs: np.ndarray, errors: np.ndarray | None = None, num_samples: int | None = None
    ) -> Predictive:
        if self._in_closed_form:
            moments = [member.moments(inputs) for member in self.model_.members]
            return self._calibrated(self._of_moments(moments, errors))
        if not hasattr(self, "parts_"):
            return super()._distribution(inputs, errors, num_samples)
        samples = -(-(num_samples or self.n_predictive_samples) // len(self.parts_))
        of_parts = [part._distribution(inputs, errors, samples) for part in self.parts_]
        if hasattr(self, "neighbourhood_"):
            beyond = self.neighbourhood_.beyond(self._proper(inputs))
            beyond = (beyond[:, None] * self.target_scaler_.scale).reshape(-1, *self.target_shape_)
            pairs = zip(self.parts_, of_parts, strict=True)
            of_parts = [_doubted(part, distribution, beyond) for part, distribution in pairs]
        return self._calibrated(Predictive.mixture(of_parts, self._weights))

    def _pieces(self, inputs: np.ndarray, errors: np.ndarray | None) -> Iterator[Predictive]:
        if not (hasattr(self, "parts_") or self._in_closed_form):
            yield from super()._pieces(inputs, errors)
            return
        step = max(1, COMPONENTS_AT_ONCE // (self.n_predictive_samples * self._num_outputs))
        for start in range(0, max(1, len(inputs)), step):
            rows = slice(start, start + step)
            yield self._distribution(inputs[rows], None if errors is None else errors[rows])

    def _located(self, distribution: Predictive, inputs: np.ndarray) -> Predictive:
        if not hasattr(self, "neighbourhood_"):
            return distribution
        return distribution.at_distance(self.neighbourhood_.relative(self._proper(inputs)))

    def _check_takes_in(self) -> None:
        for part in getattr(self, "parts_", [self]):
            if not part._in_closed_form:
                super(ChoosingRegressor, part)._check_takes_in()

    def _take_in(self, rows: Batch) -> None:
        if hasattr(self, "parts_"):
            self.parts_ = tuple(copy.copy(part) for part in self.parts_)
            for part in self.parts_:
                part._take_in(rows)
            if hasattr(self, "neighbourhood_"):
                inputs = np.asarray(rows.inputs)
                self.neighbourhood_ = self.neighbourhood_.with_rows(inputs, self.seed_)
            self.n_samples_seen_ += len(rows.inputs)
        elif self._in_closed_form:
            self.model_ = self.model_.given(self._rows_of_gp(rows))
            self.n_samples_seen_ += len(rows.inputs)
        else:
            super()._take_in(rows)

    def _slopes(self, parts: Sequence[Any], num_inputs: int) -> np.ndarray:
        kernels = [part.model_.members[0].kernel for part in parts if part.inference == "exact"]
        return kernels[0].slopes if kernels else super()._slopes(parts, num_inputs)

    def _draw_values(self, n: int, seed: int) -> Draws:
        if not self._in_closed_form:
            return super()._draw_values(n, seed)
        scaler = self.target_scaler_
        return Scaled(self.model_.draw_functions(n, seed), scaler.mean, scaler.scale)

    def _draw_part(self, part: Any, n: int, seed: int) -> Draws:
        """Each function departs from the others by what is in doubt, to one side."""
        draws = super()._draw_part(part, n, seed)
        if not (hasattr(self, "neighbourhood_") and self._is_gaussian()):
            return draws
        random, doubt = np.random.default_rng(seed), _doubt_of(part)
        sides = random.standard_normal((n, 1, 1)) * self.target_scaler_.scale
        rare = random.uniform(size=(n, 1, 1)) < doubt.probability
        sides *= np.where(rare, doubt.rarely, doubt.always)
        near, proper = self.neighbourhood_, self._proper
        return Shifted(
            draws,
            sides,
            lambda inputs: near.beyond(proper(inputs)),
            lambda inputs: near.slopes_beyond(proper(inputs)),
        )

    def _stacked(
        self, parts: Sequence["ChoosingRegressor"], data: Data
    ) -> tuple[np.ndarray, Calibration | None]:
        judged = [part._judgements(data) for part in parts]
        y = [part[1] for part in judged[0]]
        row_weights = [part[2] for part in judged[0]]
        densities = np.stack(
            [np.concatenate([mixture.log_prob(y) for mixture, y, _ in part]) for part in judged],
            axis=1,
        )
        all_weights = np.concatenate(row_weights)
        for part, column in zip(parts, densities.T, strict=True):
            part._score = float(np.average(column, weights=all_weights))
        weights = stacking_weights(densities, all_weights)
        mixtures = [
            Predictive.mixture([part[index][0] for part in judged], weights.tolist())
            for index in range(len(y))
        ]
        left_out = [LeftOut(*triple) for triple in zip(mixtures, y, row_weights, strict=True)]
        calibration = None
        if self._calibrates_parts(parts):
            calibration = _cautious(fit_scale(left_out, 1), left_out)
        self._left_out_scores = _scores_of(left_out, calibration)
        return weights, calibration

    def _calibrates_parts(self, parts: Sequence["ChoosingRegressor"]) -> bool:
        return len(parts) > 1 and self.calibrate is not False

    def _judgements(self, data: Data) -> list[tuple[Any, np.ndarray, np.ndarray]]:
        """Of a part: what it predicted for left-out rows, calibrated, what was seen, weights."""
        if self.inference == "exact":
            left_out, num_members = self._judged, 1
        else:
            left_out, num_members = self._left_outs(data), self._num_members
        self.__dict__.pop("calibration_", None)
        if not left_out[0].prediction.can_be_rescaled:
            return [(part.prediction, part.y, part.weights) for part in left_out]
        if self._calibrates:
            found = fit_scale(left_out, num_members)
            self.calibration_ = _cautious(found, left_out) if num_members == 1 else found
        return [
            (self._calibrated(mixture), y, weights)
            for mixture, y, weights in as_the_ensemble(left_out, num_members)
        ]


class ChoosingClassifier(ChoosingEstimator, DeepClassifier):
    """A classifier that chooses."""

    def _candidates(self, num_rows: int, num_inputs: int) -> list[Candidate]:
        tried = candidates_of_prior(num_rows) if self._describes_functions() else None
        return classification_candidates(num_rows, num_inputs, len(self.classes_), tried)

    def _probabilities(self, inputs: np.ndarray, num_samples: int | None = None) -> np.ndarray:
        if not hasattr(self, "parts_"):
            return super()._probabilities(inputs, num_samples)
        samples = -(-(num_samples or self.n_predictive_samples) // len(self.parts_))
        of_parts = [part._probabilities(inputs, samples) for part in self.parts_]
        return self._calibrated(np.tensordot(self._weights, np.stack(of_parts), axes=1))

    def _stacked(
        self, parts: Sequence["ChoosingClassifier"], data: Data
    ) -> tuple[np.ndarray, Calibration | None]:
        judged = [part._judgements(data) for part in parts]
        first = judged[0]
        classes = np.concatenate([part.classes for part in first])
        row_weights = np.concatenate([part.weights for part in first])
        probabilities = [np.concatenate([each.probabilities for each in part]) for part in judged]
        rows = np.arange(len(classes))
        logs = np.log(np.stack([each[rows, classes] for each in probabilities], axis=1))
        for part, column in zip(parts, logs.T, strict=True):
            part._score = float(np.average(column, weights=row_weights))
        weights = stacking_weights(logs, row_weights)
        mixed = np.tensordot(weights, np.stack(probabilities), axes=1)
        calibration = None
        if len(parts) > 1 and self.calibrate is not False:
            calibration = fit_temperature([LeftOutClasses(mixed, classes, row_weights)], 1)
            mixed = tempered(mixed, calibration.temperature)
        right, of_label = mixed.argmax(axis=1) == classes, np.log(mixed[rows, classes])
        self._left_out_scores = {
            "accuracy": float(np.average(right, weights=row_weights)),
            "log_likelihood": float(np.average(of_label, weights=row_weights)),
        }
        return weights, calibration

    def _judgements(self, data: Data) -> list[LeftOutClasses]:
        """Of a part: what it predicted for left-out rows, at its temperature."""
        left_out = self._left_outs(data)
        self.__dict__.pop("calibration_", None)
        if not self._calibrates:
            return left_out
        self.calibration_ = fit_temperature(left_out, self._num_members)
        temperature = self.calibration_.temperature
        return [
            part._replace(probabilities=tempered(part.probabilities, temperature))
            for part in left_out
        ]
