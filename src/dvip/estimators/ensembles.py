"""From data to members: which rows each is trained on, and which it leaves out.

All rows lie on a circle in random order. Each member leaves out a stretch of it, and these begin at
equal distances: with as many members as stretches fill the circle, they are the folds of a
cross-validation. A single model is the only member.
"""

import abc
import numbers
import time
import warnings
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from dvip.batches import ArrayData
from dvip.calibration import Calibration
from dvip.estimators.builder import ModelBuilder, check_count
from dvip.estimators.resumption import training_identity
from dvip.objectives import DeepModel, Ensemble
from dvip.runtime import derived_seed
from dvip.sampled import SampledModel
from dvip.training import (
    CheckpointFolder,
    Data,
    Member,
    TrainingResult,
    TrainingSettings,
    Validation,
)

__all__ = ["EnsembleBuilder", "seconds_left"]

# What a single model leaves out to be calibrated by, if nobody says how much.
CALIBRATION_SHARE = 0.1
# The least number of rows that a member may leave out.
MIN_LEFT_OUT = 2
# Rows that a calibration looks at, and a score while training, at most.
MAX_CALIBRATED, MAX_SCORED = 5_000, 1_000

# Scores that improve by more than this in the last third of a training have not come to rest.
STILL_IMPROVING = 0.03


class EnsembleBuilder(ModelBuilder):
    """The part of an estimator that divides rows among members, and judges what became of them."""

    # A kind of model that does not take them has these.
    n_members: int | None = None
    calibrate: bool | None = False
    max_seconds: float | None = None
    validation_fraction: float | None = None

    # Fitted attributes.
    model_: DeepModel | Ensemble | SampledModel
    calibration_: Calibration
    validation_scores_: np.ndarray

    def check_parameters(self) -> None:
        """Raises an error, which says what to do, unless the parameters make sense."""
        super().check_parameters()
        if self.n_members is not None:
            check_count("n_members", self.n_members)
        if not isinstance(self.calibrate, bool | np.bool_ | None):
            raise ValueError(f"calibrate={self.calibrate!r} must be True or False.")
        fraction, seconds = self.validation_fraction, self.max_seconds
        if fraction is not None and not (isinstance(fraction, numbers.Real) and 0 < fraction < 1):
            raise ValueError(
                f"validation_fraction={fraction!r} must be a number between 0 and 1, such as 0.2, "
                "or None."
            )
        if seconds is not None and not (
            isinstance(seconds, numbers.Real) and 0 < float(seconds) < np.inf
        ):
            raise ValueError(f"max_seconds={seconds!r} must be a positive number, or None.")

    @property
    def _calibrates(self) -> bool:
        return bool(self.calibrate)

    @property
    def _num_members(self) -> int:
        return int(self.n_members or 1)

    def _left_out_share(self) -> Fraction | None:
        """What each member leaves out of the rows, if anything."""
        if self.validation_fraction is not None:
            return Fraction(float(self.validation_fraction)).limit_denominator(10_000)
        if not self._calibrates:
            return None
        if self._num_members == 1:
            return Fraction(CALIBRATION_SHARE).limit_denominator(100)
        return Fraction(1, self._num_members)

    def _strata(self, data: Data) -> np.ndarray | None:
        """What is to be spread evenly over the stretches; nothing, unless a task says otherwise."""
        del data
        return None

    def _stretch(self, data: Any, begin: Fraction, end: Fraction) -> Any:
        return data.stretch(self.seed_, begin, end, self._strata(data))

    def _members(
        self,
        data: Data,
        inputs: np.ndarray,
        settings: TrainingSettings,
        checkpoints: CheckpointFolder | None,
    ) -> list[Member]:
        """What there is to train; models start from these inputs."""
        identity = {} if checkpoints is None else training_identity(self, data.fingerprint())
        if self.n_members is None and self._left_out_share() is None:
            model = self.build_model(inputs)
            return [Member(model, data, settings, checkpoints=checkpoints, identity=identity)]
        seeds = [derived_seed(self.seed_, index) for index in range(self._num_members)]
        divided = [self._divided(data, index) for index in range(self._num_members)]
        # One size for all: the members share a compilation.
        batch_size = min(settings.batch_size, *(part.num_rows for part, _ in divided))
        folders: list[CheckpointFolder | None] = [checkpoints]
        if self.n_members is not None:
            indices = range(self._num_members)
            folders = [None if checkpoints is None else checkpoints.of_member(i) for i in indices]
        return [
            Member(
                self.build_model(inputs, seed),
                training,
                settings.of_member(seed, batch_size),
                validation,
                folder,
                {**identity, "member": index, "left_out": str(self._left_out_share())},
            )
            for index, (seed, (training, validation), folder) in enumerate(
                zip(seeds, divided, folders, strict=True)
            )
        ]

    def _divided(self, data: Data, index: int) -> tuple[Data, Validation | None]:
        """The rows that a member is trained on, and those that it is judged by."""
        share = self._left_out_share()
        if share is None:
            return data, None
        begin = Fraction(index, self._num_members)
        training = self._stretch(data, begin + share, begin + 1)
        left_out = self._stretch(data, begin, begin + share)
        if left_out.num_rows < MIN_LEFT_OUT or training.num_rows < MIN_LEFT_OUT:
            raise ValueError(
                f"{data.num_rows:,} rows are too few to leave out {float(share):.0%} of them for "
                f"{'the model' if self._num_members == 1 else 'each member'}: use fewer members, "
                "another validation_fraction, or neither it nor calibrate."
                + ("" if isinstance(data, ArrayData) else " (Or read them into memory.)")
            )
        self._check_divided(training)
        rows = left_out.rows(self.seed_, 0, min(left_out.num_rows, MAX_SCORED))
        return training, Validation(lambda model: self._score_of(model, rows))

    @abc.abstractmethod
    def _score_of(self, model: DeepModel, rows: Any) -> float:
        """How well a model predicts left-out rows, at its best calibration."""

    def _check_divided(self, training: Any) -> None:
        """Raises an error if a member cannot be trained on these rows alone."""

    def _stretches(self, data: Any) -> Iterator[tuple[tuple[int, ...], Any]]:
        """All rows, in stretches that the same members left out, with these members."""
        share = self._left_out_share()
        assert share is not None  # or nothing is left out
        begins = [Fraction(index, self._num_members) for index in range(self._num_members)]
        places = sorted({place % 1 for begin in begins for place in (begin, begin + share)})
        ends = [*places[1:], places[0] + 1]
        for begin, end in zip(places, ends, strict=True):
            middle = (begin + end) / 2
            without = tuple(i for i, start in enumerate(begins) if (middle - start) % 1 < share)
            yield without, self._stretch(data, begin, end)

    def _num_judged(self, without: tuple[int, ...], rows: Any, data: Any) -> int:
        """How many rows of a stretch, which these members left out, are looked at."""
        # Of rows that all left out, nothing could be said but about all of them.
        if not 0 < len(without) < max(2, self._num_members):
            return 0
        share = self._left_out_share()
        assert share is not None  # or nothing is left out
        judged = min(Fraction(1), share * self._num_members)
        return min(
            rows.num_rows, round(MAX_CALIBRATED * rows.num_rows / data.num_rows / judged) + 1
        )

    def _left_out_rows(self, data: Any) -> Iterator[tuple[tuple[int, ...], Any]]:
        """Left-out rows, with the members that left them out."""
        for without, rows in self._stretches(data):
            count = self._num_judged(without, rows, data)
            if count:
                yield without, rows.rows(self.seed_, 0, count)

    def _keep(self, results: list[TrainingResult]) -> None:
        """Notes what was trained."""
        models = tuple(result.model for result in results)
        self.model_ = models[0] if self.n_members is None else Ensemble(models)
        self.n_iter_ = max(result.num_steps for result in results)
        longest = max(len(result.bounds) for result in results)
        bounds = np.full((len(results), longest), np.nan)
        for row, result in zip(bounds, results, strict=True):
            row[: len(result.bounds)] = result.bounds
        self.bound_history_ = results[0].bounds if self.n_members is None else bounds
        scores = [
            np.insert(result.scores, 0, index, axis=1) for index, result in enumerate(results)
        ]
        self.__dict__.pop("validation_scores_", None)
        if self._left_out_share() is not None:
            self.validation_scores_ = np.concatenate(scores)

    def _warn_if_too_short(self, results: list[TrainingResult], max_iter: int) -> None:
        """Tells that the time, or the steps, ended the training before it was complete."""
        steps = max(result.num_steps for result in results)
        if self._left_out_share() is None:
            if steps < max_iter and self.max_seconds is not None:  # not a callback
                warnings.warn(
                    f"max_seconds={self.max_seconds} ended the training after {steps:,} of "
                    f"{max_iter:,} steps.",
                    ConvergenceWarning,
                    stacklevel=5,
                )
            return
        gains = [_gain_at_the_end(result) for result in results]
        if float(np.mean(gains)) > STILL_IMPROVING:
            limit = "max_iter" if steps == max_iter else "max_seconds"
            warnings.warn(
                f"After {steps:,} steps the score of left-out rows still improved: a larger "
                f"{limit} would give a better model.",
                ConvergenceWarning,
                stacklevel=5,
            )


def _gain_at_the_end(result: TrainingResult) -> float:
    """By how much the best score of the last third is better than all before it."""
    late = result.scores[:, 0] > 2 / 3 * result.num_steps
    if late.all() or not late.any():
        return 0.0
    return float(result.scores[late, 1].max() - result.scores[~late, 1].max())


def seconds_left(max_seconds: float | None, started: float) -> float | None:
    """Of the time that a fit may take."""
    return None if max_seconds is None else max(0.0, max_seconds - time.monotonic() + started)
