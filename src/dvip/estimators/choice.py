"""The default that chooses: candidates are trained on folds and stacked by left-out rows.

A candidate is a setting of the estimator's own parameters, which a user could give as well. Each is
trained as a *part*, a copy of the estimator with that setting, on rows that are scaled already;
what it predicts for rows that it left out says how it is calibrated and what it weighs. Nothing
depends on time unless `max_seconds` is given: the same seed gives the same model.
"""

import abc
import copy
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from dvip.batches import ArrayData, Batch
from dvip.calibration import Calibration, Judgement, described_choice
from dvip.estimators.base import MAX_SEED, DeepEstimator
from dvip.estimators.callbacks import OF_CALLBACKS
from dvip.estimators.candidates import CONSTANT, GP, MANY_ROWS, SAMPLED_GP, Candidate
from dvip.estimators.descriptions import encode_parameters
from dvip.estimators.ensembles import MAX_CALIBRATED, MIN_LEFT_OUT, seconds_left
from dvip.function_draws import Draws, Together
from dvip.neighbourhood import Neighbourhood
from dvip.runtime import precision
from dvip.training import (
    CheckpointFolder,
    Data,
    Member,
    TrainingDiverged,
    is_first_process,
    placement,
    train_members,
)

__all__ = ["ChoosingEstimator"]

# Parameters that are chosen where they are not given.
CHOSEN = (
    "n_layers",
    "n_prior_samples",
    "prior",
    "alpha",
    "max_iter",
    "learning_rate",
    "n_training_samples",
    "n_members",
    "validation_fraction",
    "calibrate",
)
# Folds of tables of up to MANY_ROWS rows. Of larger ones, each of three members leaves out a part.
NUM_FOLDS, NUM_MEMBERS, LEFT_OUT_SHARE = 5, 3, 0.1
# Columns of streams of few rows that are read into memory.
MAX_COLUMNS_IN_MEMORY = 2_000
# Rows that a Gaussian process sees at most, and inputs.
MAX_ROWS_OF_GP, MAX_INPUTS_OF_GP = 20_000, 500
# A part of less weight is left out.
LEAST_WEIGHT = 0.02

# Of these, those that say how rows are divided.
DIVIDING = {"n_members", "validation_fraction", "calibrate"}

# What a fit leaves behind.
FITTED = (
    "parts_",
    "choice_",
    "_left_out_scores",
    "calibration_",
    "model_",
    "neighbourhood_",
)


class ChoosingEstimator(DeepEstimator):
    """An estimator that chooses its parameters, and may be a mixture of several of its kind."""

    inference: str
    prior: Any
    parts_: tuple["ChoosingEstimator", ...]
    choice_: tuple[Judgement, ...]
    # How good the mixture is on rows that were left out; not saved with the model.
    _left_out_scores: dict[str, float]
    neighbourhood_: Neighbourhood
    # Of a part in closed form: which of them it is.
    _closed_form: str = GP

    _inferences: ClassVar[tuple[str, ...]] = ("auto", "vi", "mcmc", "exact")
    # Of a part: the mean log-density of left-out rows.
    _score: float

    def check_parameters(self) -> None:
        """Raises an error, which says what to do, unless the parameters make sense."""
        super().check_parameters()
        if self.inference == "exact":
            self._check_closed_form()

    def _check_closed_form(self) -> None:
        """Raises an error, which says what to do, unless the posterior has a closed form."""
        raise ValueError(
            "inference='exact' is for regressions with Gaussian noise: use 'auto' or 'vi'."
        )

    def _fit_closed_form(self, data: Data, score: Future) -> None:
        """Fits the model whose posterior has a closed form.

        `score` gets, as soon as it is known, about what left-out rows will say of it.
        """
        raise NotImplementedError  # `_check_closed_form` says what to do

    @abc.abstractmethod
    def _stacked(self, parts: Sequence[Any], data: Data) -> tuple[np.ndarray, Calibration | None]:
        """The weights of parts by what they predicted for left-out rows, and a calibration."""

    @abc.abstractmethod
    def _candidates(self, num_rows: int, num_inputs: int) -> list[Candidate]:
        """What is tried on a table of that size."""

    def _describes_functions(self) -> bool:
        """Whether a prior was given that says much of the functions: one layer may be enough."""
        process = self._input_process() if self.prior is not None else None
        return process is not None and process.wanted_functions is not None

    def _division(self, num_rows: int) -> dict[str, Any]:
        """Which rows are left out by whom."""
        if num_rows < MANY_ROWS:
            return {
                "n_members": max(2, min(NUM_FOLDS, num_rows // MIN_LEFT_OUT)),
                "calibrate": True,
            }
        share = min(LEFT_OUT_SHARE, MAX_CALIBRATED / NUM_MEMBERS / num_rows)
        return {"n_members": NUM_MEMBERS, "validation_fraction": share, "calibrate": True}

    def _parts_of(self, data: Data, num_inputs: int) -> list[tuple[str, "ChoosingEstimator"]]:
        """A part for each candidate, with what the user gave; each once."""
        given = {name: getattr(self, name) for name in CHOSEN if getattr(self, name) is not None}
        if not (isinstance(self.likelihood, str) and self.likelihood == "auto"):
            given["likelihood"] = self.likelihood
        if self._describes_functions():
            given.setdefault("n_prior_samples", self._num_prior_samples)
        shared: dict[str, Any] = self._division(data.num_rows)
        parts: list[tuple[str, ChoosingEstimator]] = []
        if not self._can_be_calibrated():
            shared["calibrate"] = False
        for name, settings in self._candidates(data.num_rows, num_inputs):
            part = copy.copy(self)
            for attribute in (*FITTED, *OF_CALLBACKS):
                part.__dict__.pop(attribute, None)
            part.__dict__.update({**shared, **settings, **given, "verbose": False})
            if part._left_out_share() is None:  # rows are left out nevertheless, to be judged by
                members = part._num_members
                part.validation_fraction = LEFT_OUT_SHARE if members == 1 else 1 / members
            if not (part.inference == "exact" or given.keys() & DIVIDING or part._divides(data)):
                undivided = {"n_members": None, "calibrate": False, "validation_fraction": None}
                part.__dict__.update(undivided)
            part._closed_form = name if name in (SAMPLED_GP, CONSTANT) else GP
            if not any(_same(part, other) for _, other in parts):
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
            self._fit_closed_form(_at_hand(data, self.seed_), Future())
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
        """Trains the candidates, side by side, and keeps those that weigh something."""
        data = _at_hand(data, self.seed_)
        proper = self._proper(inputs)
        named = self._parts_of(data, proper.shape[1])
        exact = [part for _, part in named if part.inference == "exact"]
        deep = {name: part for name, part in named if part.inference != "exact"}
        with ThreadPoolExecutor(1) as background:
            scores: list[Future] = [Future() for _ in exact]
            closed = [
                background.submit(part._fit_closed_form, data, score)
                for part, score in zip(exact, scores, strict=True)
            ]
            rival = None
            if exact and placement().num_parts == 1:  # all processes must decide alike
                closed[0].add_done_callback(partial(_settle, scores[0]))
                rival = scores[0].result
            diverged = self._train_parts(deep, data, inputs, checkpoints, rival)
            for future in closed:
                future.result()
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
            slopes = self._slopes(parts, proper.shape[1])
            self.neighbourhood_ = Neighbourhood.of(proper, slopes, self.seed_)

    def _train_parts(
        self,
        parts: Mapping[str, "ChoosingEstimator"],
        data: Data,
        inputs: np.ndarray,
        checkpoints: CheckpointFolder | None,
        rival: Callable[[], float] | None,
    ) -> dict[str, TrainingDiverged]:
        """Trains the members of all parts as if they were those of one ensemble.

        Those that have no hope of their rival's score end early. Where one diverges, each part is
        trained by itself, and those that fail are told.
        """
        members = self._members_of(parts, data, inputs, checkpoints)
        for member in (member for of_part in members.values() for member in of_part):
            if member.validation is not None:
                member.validation.rival = rival
        total = sum(member.settings.max_iter for of_part in members.values() for member in of_part)
        with self._progress(max(1, total)) as report:
            try:
                self._train_together(parts, members, report)
            except TrainingDiverged as error:
                if len(parts) == 1:
                    return dict.fromkeys(parts, error)
            else:
                return {}
        diverged: dict[str, TrainingDiverged] = {}
        for name, part in parts.items():
            diverged |= self._train_parts({name: part}, data, inputs, None, rival)
        return diverged

    def _members_of(
        self,
        parts: Mapping[str, "ChoosingEstimator"],
        data: Data,
        inputs: np.ndarray,
        checkpoints: CheckpointFolder | None,
    ) -> dict[str, list[Member]]:
        """What there is to train for each part."""
        members = {}
        with precision(self.precision):
            for index, (name, part) in enumerate(parts.items()):
                part.n_samples_seen_, part._optimiser = data.num_rows, None
                folder = None if checkpoints is None else checkpoints.of_part(index)
                settings = part._settings(int(part.max_iter or 0))  # candidates have them
                members[name] = part._members(data, inputs, settings, folder)
        return members

    def _train_together(
        self,
        parts: Mapping[str, "ChoosingEstimator"],
        members: Mapping[str, list[Member]],
        report: Callable[[int, float], Any],
    ) -> None:
        every = [member for of_part in members.values() for member in of_part]
        left = seconds_left(self.max_seconds, self._started)
        stoppable = self._is_followed
        results = iter(
            train_members(every, self.precision, report, left, stoppable=stoppable) if every else []
        )
        for name, part in parts.items():
            part._keep(list(islice(results, len(members[name]))))

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
        inputs = self._proper(self._scaled(X))
        if not hasattr(self, "neighbourhood_"):
            raise ValueError(
                "Distances are known after a fit with inference='auto' to rows of numbers."
            )
        return self.neighbourhood_.relative(inputs)

    def _keep_parts(self, named: Sequence[tuple[str, "ChoosingEstimator"]], data: Data) -> None:
        parts = [part for _, part in named]
        if not all(part._is_judged for part in parts):  # so few rows that none was left out
            weights, calibration = np.eye(1, len(parts))[0], None
            for part in parts:
                part._score = float("nan")
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

    def _draw_values(self, n: int, seed: int) -> Draws:
        if not hasattr(self, "parts_"):
            return super()._draw_values(n, seed)  # type: ignore[safe-super]  # of a task
        random = np.random.RandomState(seed)
        chosen = random.choice(len(self.parts_), size=n, p=self._weights)
        seeds = random.randint(MAX_SEED, size=len(self.parts_))
        draws = [
            (
                chosen == index,
                self._draw_part(part, int((chosen == index).sum()), int(seeds[index])),
            )
            for index, part in enumerate(self.parts_)
            if (chosen == index).any()
        ]
        return Together(n, draws)

    def _draw_part(self, part: Any, n: int, seed: int) -> Draws:
        """n functions of a part."""
        return part._draw_values(n, seed)

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


def _settle(score: Future, fit: Future) -> None:
    """Nobody waits for the score of a fit that failed, or that left out no rows."""
    if score.done():
        return
    if fit.exception() is None:
        score.set_result(-np.inf)
    else:
        score.set_exception(fit.exception())


def _same(first: "ChoosingEstimator", second: "ChoosingEstimator") -> bool:
    """Whether two parts differ in the learning rate at most, as the user gave all else."""

    def described(part: ChoosingEstimator) -> dict[str, Any]:
        return {**encode_parameters(part), "learning_rate": None}

    return first._closed_form == second._closed_form and described(first) == described(second)


def _at_hand(data: Any, seed: int) -> Data:
    """A stream of few rows in memory: its folds consist of whole pages, which are too few."""
    few = data.num_rows < MANY_ROWS and data.num_columns <= MAX_COLUMNS_IN_MEMORY
    if isinstance(data, ArrayData) or not few:
        return data
    inputs, targets, weights = map(np.asarray, data.rows(seed, 0, data.num_rows))
    return ArrayData(inputs, targets, weights)
