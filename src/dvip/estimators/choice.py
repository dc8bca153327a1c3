"""The default that chooses: candidates are trained on folds and stacked by left-out rows.

A candidate is a setting of the estimator's own parameters, which a user could give as well. Each is
trained as a *part*, a copy of the estimator with that setting, on rows that are scaled already;
what it predicts for rows that it left out says how it is calibrated and what it weighs. Nothing
depends on time unless `max_seconds` is given: the same seed gives the same model.
"""

import abc
import copy
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from dvip.batches import ArrayData, Batch
from dvip.calibration import Calibration, Judgement, described_choice
from dvip.estimators.base import MAX_SEED, DeepEstimator
from dvip.estimators.ensembles import MIN_LEFT_OUT, seconds_left
from dvip.neighbourhood import Neighbourhood
from dvip.processes.bnn import BayesianNeuralNetwork
from dvip.training import (
    CheckpointFolder,
    Data,
    TrainingDiverged,
    is_first_process,
    progress_bar,
)

__all__ = ["INFERENCES", "Candidate", "ChoosingEstimator"]

INFERENCES = ("auto", "vi", "exact")

# Parameters that are chosen where they are not given.
CHOSEN = (
    "n_layers",
    "n_prior_samples",
    "prior",
    "alpha",
    "max_iter",
    "n_training_samples",
    "n_members",
    "validation_fraction",
    "calibrate",
)
# Folds of tables of up to MANY_ROWS rows. Of larger ones, each of fewer members leaves out a part.
NUM_FOLDS, NUM_MEMBERS, LEFT_OUT_SHARE = 5, 2, 0.1
MANY_ROWS = 5_000
# Below these numbers of rows, networks learn nothing that a Gaussian process does not, and an
# unconstrained prior over-fits.
FEW_ROWS, SOME_ROWS = 60, 400
# Inputs of streams of few rows that are read into memory.
MAX_INPUTS_IN_MEMORY = 2_000
# Rows that a Gaussian process sees at most, and inputs.
MAX_ROWS_OF_GP, MAX_INPUTS_OF_GP = 20_000, 500
# A part of less weight is left out.
LEAST_WEIGHT = 0.02

# Of these, those that say how rows are divided.
DIVIDING = {"n_members", "validation_fraction", "calibrate"}

# What a fit leaves behind.
FITTED = ("parts_", "choice_", "calibration_", "model_", "neighbourhood_")

DEEP = {"inference": "vi", "n_layers": 2, "alpha": 1.0, "n_training_samples": 3}


class Candidate(NamedTuple):
    """A setting of the parameters, under a name."""

    name: str
    settings: Mapping[str, Any]


class ChoosingEstimator(DeepEstimator):
    """An estimator whose parameters are chosen, and which may be a mixture of several of them."""

    inference: str
    parts_: tuple["ChoosingEstimator", ...]
    choice_: tuple[Judgement, ...]
    neighbourhood_: Neighbourhood
    # Of a part: the mean log-density of left-out rows.
    _score: float

    def check_parameters(self) -> None:
        """Raises an error, which says what to do, unless the parameters make sense."""
        if self.inference not in INFERENCES:
            raise ValueError(
                f"inference={self.inference!r} is not known: use one of {', '.join(INFERENCES)}."
            )
        super().check_parameters()
        if self.inference == "exact":
            self._check_closed_form()

    def _check_closed_form(self) -> None:
        """Raises an error, which says what to do, unless the posterior has a closed form."""
        raise ValueError(
            "inference='exact' is for regressions with Gaussian noise: use 'auto' or 'vi'."
        )

    def _closed_form_fits(self, num_inputs: int) -> bool:
        """Whether a Gaussian process in closed form may be a candidate."""
        del num_inputs
        return False

    def _fit_closed_form(self, data: Data) -> None:
        """Fits the model whose posterior has a closed form."""
        raise NotImplementedError  # `_check_closed_form` says what to do

    @abc.abstractmethod
    def _stacked(self, parts: Sequence[Any], data: Data) -> tuple[np.ndarray, Calibration | None]:
        """The weights of parts by what they predicted for left-out rows, and a calibration."""

    def _candidates(self, num_rows: int, num_inputs: int) -> list[Candidate]:
        """What is tried on a table of that size."""
        candidates = []
        if self._closed_form_fits(num_inputs):
            candidates.append(Candidate("gp", {"inference": "exact"}))
        if num_rows < FEW_ROWS and candidates:
            return candidates
        if num_rows < SOME_ROWS:
            prior, steps = BayesianNeuralNetwork(), 2_500
        elif num_rows < MANY_ROWS:
            prior, steps = BayesianNeuralNetwork(constrained=False), 3_000
        else:
            prior, steps = BayesianNeuralNetwork(hidden=(20, 20), constrained=False), 12_000
        candidates.append(Candidate("bnn", {**DEEP, "prior": prior, "max_iter": steps}))
        return candidates

    def _division(self, num_rows: int) -> dict[str, Any]:
        """Which rows are left out by whom."""
        if num_rows < MANY_ROWS:
            return {
                "n_members": max(2, min(NUM_FOLDS, num_rows // MIN_LEFT_OUT)),
                "calibrate": True,
            }
        share = {"validation_fraction": LEFT_OUT_SHARE}
        return {"n_members": NUM_MEMBERS, "calibrate": True, **share}

    def _parts_of(self, data: Data, num_inputs: int) -> list[tuple[str, "ChoosingEstimator"]]:
        """A part for each candidate, with what the user gave."""
        given = {name: getattr(self, name) for name in CHOSEN if getattr(self, name) is not None}
        shared, parts = self._division(data.num_rows), []
        if not self._can_be_calibrated():
            shared["calibrate"] = False
        for name, settings in self._candidates(data.num_rows, num_inputs):
            part = copy.copy(self)
            for attribute in FITTED:
                part.__dict__.pop(attribute, None)
            part.__dict__.update({**shared, **settings, **given, "verbose": False})
            if part._left_out_share() is None:  # rows are left out nevertheless, to be judged by
                members = part._num_members
                part.validation_fraction = LEFT_OUT_SHARE if members == 1 else 1 / members
            if not (part.inference == "exact" or given.keys() & DIVIDING or part._divides(data)):
                undivided = {"n_members": None, "calibrate": False, "validation_fraction": None}
                part.__dict__.update(undivided)
            parts.append((name, part))
        return parts

    def _can_be_calibrated(self) -> bool:
        return True

    def _divides(self, data: Data) -> bool:
        """Whether rows in memory are enough, and of enough classes, for all members."""
        if not isinstance(data, ArrayData):
            return True
        try:
            for index in range(self._num_members):
                self._divided(data, index)
        except ValueError:
            return False
        return True

    @property
    def _is_judged(self) -> bool:
        """Of a part: whether it left out rows."""
        return self._left_out_share() is not None

    def _train_on(
        self, data: Data, inputs: np.ndarray, checkpoints: CheckpointFolder | None = None
    ) -> None:
        for name in FITTED:
            self.__dict__.pop(name, None)
        if self.inference == "exact":
            self._fit_closed_form(data)
        elif self.inference == "auto":
            self._choose(data, inputs, checkpoints)
        else:
            super()._train_on(data, inputs, checkpoints)

    def _partial_fit(self, *arguments: Any, **options: Any) -> Self:
        if hasattr(self, "parts_") or self.inference == "exact":
            raise ValueError(
                "partial_fit goes on with one model that variational inference trained: fit all "
                "rows again, or use inference='vi'."
            )
        return super()._partial_fit(*arguments, **options)

    def _choose(self, data: Data, inputs: np.ndarray, checkpoints: CheckpointFolder | None) -> None:
        """Trains the candidates and keeps those that weigh something."""
        if data.num_rows < MANY_ROWS and inputs.shape[1] <= MAX_INPUTS_IN_MEMORY:
            data = _in_memory(data, self.seed_)
        named = self._parts_of(data, inputs.shape[1])
        parts = [part for _, part in named]
        total = sum((part.max_iter or 0) * part._num_members for part in parts)
        done, diverged = 0, {}
        shown = self.verbose and is_first_process()
        with progress_bar(max(1, total), shown=shown) as report:
            for index, part in enumerate(parts):
                left = seconds_left(self.max_seconds, self._started)
                part._started = time.monotonic()
                part.max_seconds = None if left is None else left / (len(parts) - index)
                part.n_samples_seen_, part._optimiser = data.num_rows, None
                if part.inference == "exact":
                    part._fit_closed_form(data)
                    continue
                folder = None if checkpoints is None else checkpoints.of_part(index)
                steps = int(part.max_iter or 0)  # candidates have them
                try:
                    part._train_members(data, inputs, folder, steps, _after(done, report))
                except TrainingDiverged as error:
                    diverged[named[index][0]] = error
                done += steps * part._num_members
        named = [(name, part) for name, part in named if name not in diverged]
        for name, stopped in diverged.items():
            if not named:
                raise stopped
            warnings.warn(
                f"The candidate {name!r} diverged and is left out: {stopped}",
                ConvergenceWarning,
                stacklevel=5,
            )
        parts = [part for _, part in named]
        self._keep_parts(named, data)
        if len(self.input_shape_) == 1:
            slopes = self._slopes(parts, inputs.shape[1])
            self.neighbourhood_ = Neighbourhood.of(inputs, slopes, self.seed_)

    def _slopes(self, parts: Sequence[Any], num_inputs: int) -> np.ndarray:
        """How much a target of variance 1 may change along each of the inputs."""
        del parts
        return np.full(num_inputs, 1 / np.sqrt(num_inputs))

    def distance(self, X: Any) -> np.ndarray:
        """How far each row is from the training rows.

        Inputs count by how much the target changes along them.

        Parameters
        ----------
        X : array of shape (rows, inputs) or DataFrame

        Returns
        -------
        array of shape (rows,)
            1 is the distance between neighbouring training rows.
        """
        inputs = self._scaled(X)
        if not hasattr(self, "neighbourhood_"):
            raise ValueError(
                "Distances are known after a fit with inference='auto' to rows of numbers."
            )
        return self.neighbourhood_.relative(inputs)

    def _keep_parts(self, named: Sequence[tuple[str, "ChoosingEstimator"]], data: Data) -> None:
        parts = [part for _, part in named]
        if len(parts) == 1 and not parts[0]._is_judged:
            parts[0]._score, weights, calibration = float("nan"), np.ones(1), None
        else:
            weights, calibration = self._stacked(parts, data)
        kept = weights >= min(LEAST_WEIGHT, weights.max())
        weights = np.where(kept, weights, 0.0)
        weights /= weights.sum()
        self.choice_ = tuple(
            Judgement(name, part._score, float(weight))
            for (name, part), weight in zip(named, weights, strict=True)
        )
        self.parts_ = tuple(part for part, keep in zip(parts, kept, strict=True) if keep)
        for part in parts:
            part.__dict__.pop("_judged", None)
        if calibration is not None:
            self.calibration_ = calibration
        self.n_samples_seen_ = data.num_rows
        self.n_iter_ = max(part.n_iter_ for part in parts)
        if self.verbose and is_first_process():
            print(f"Chosen by rows left out: {described_choice(self.choice_)}.", file=sys.stderr)

    @property
    def _weights(self) -> list[float]:
        """Of the parts that are kept."""
        return [judgement.weight for judgement in self.choice_ if judgement.weight > 0]

    def _draw_values(self, n: int, seed: int) -> Callable[[np.ndarray], np.ndarray]:
        if not hasattr(self, "parts_"):
            return super()._draw_values(n, seed)  # type: ignore[safe-super]  # of a task
        random = np.random.RandomState(seed)
        chosen = random.choice(len(self.parts_), size=n, p=self._weights)
        seeds = random.randint(MAX_SEED, size=len(self.parts_))
        draws = [
            (chosen == index, part._draw_values(int((chosen == index).sum()), int(seeds[index])))
            for index, part in enumerate(self.parts_)
            if (chosen == index).any()
        ]

        def values(inputs: np.ndarray) -> np.ndarray:
            parts = [(which, draw(inputs)) for which, draw in draws]
            joined = np.empty((n, *parts[0][1].shape[1:]))
            for which, of_part in parts:
                joined[which] = of_part
            return joined

        return values

    def _fold_rows(self, data: Any) -> tuple[list[Batch], Batch]:
        """Rows that are left out, as the members of other parts leave them out, and the rest."""
        folds, others, room = [], [], MAX_ROWS_OF_GP
        for without, rows in self._stretches(data):
            judged = self._num_judged(without, rows, data)
            if judged:
                folds.append(rows.rows(self.seed_, 0, judged))
                room -= judged
            others.append((rows, judged))
        if not folds:  # so few that no member leaves out one
            return [], data.rows(self.seed_, 0, min(data.num_rows, MAX_ROWS_OF_GP))
        share = room / max(1, sum(rows.num_rows - judged for rows, judged in others))
        rest = [
            rows.rows(self.seed_, judged, count)
            for rows, judged in others
            if (count := int(min(1.0, share) * (rows.num_rows - judged)))
        ]
        empty = Batch(*(part[:0] for part in folds[0]))
        whole: Any = map(np.concatenate, zip(empty, *rest, strict=True))
        return folds, Batch(*whole)


def _in_memory(data: Any, seed: int) -> ArrayData:
    """All rows; folds of a stream consist of whole pages, of which few rows are too few."""
    if isinstance(data, ArrayData):
        return data
    inputs, targets, weights = map(np.asarray, data.rows(seed, 0, data.num_rows))
    return ArrayData(inputs, targets, weights)


def _after(done: int, report: Callable[[int, float], None]) -> Callable[[int, float], None]:
    """What tells of steps after so many that were done before."""
    return lambda steps, bound: report(done + steps, bound)
