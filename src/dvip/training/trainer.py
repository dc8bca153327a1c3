"""The training: many Adam steps inside one compiled scan, then the next piece of the data.

The compiled program sees batches, never the data set, so that its shape does not depend on the
number of rows: cross-validation folds share one compilation.
"""

import signal
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from dvip.batches import ALL, Batch, Part, read_ahead
from dvip.objectives import DeepModel
from dvip.parameters import combine, split_trainable
from dvip.persistence import CheckpointError, arrays_of_tree, tree_from_arrays
from dvip.runtime import random_key
from dvip.training.checkpoints import Checkpoint, CheckpointFolder, HeldBackSignals
from dvip.training.placement import ALONE, Placement, placement
from dvip.training.schedule import FIRST_SCORE, STEPS_BETWEEN, Clock, Schedule, Validation
from dvip.training.step import Piece, Progress, compiled_advance, compiled_noise, start

__all__ = [
    "Data",
    "Optimiser",
    "Trainer",
    "TrainingDiverged",
    "TrainingResult",
    "TrainingSettings",
    "train",
    "train_once",
]

# Steps between two looks at the host: long enough that dispatch is negligible, short enough for a
# live progress bar and a prompt answer to Ctrl-C; fewer where their data and noise would be more
# than so many numbers.
MAX_STEPS_AT_ONCE = 200
MAX_NUMBERS_AT_ONCE = 2**23
# With left-out rows, the parameters after so many steps each are averaged, the last with this
# weight: over some 500 steps.
STEPS_OF_MEAN, WEIGHT_OF_LAST = 50, 0.1

# Those that are held back until a checkpoint is written.
STOPPING_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True)
class TrainingSettings:
    """How to train: the numbers that a user may choose."""

    max_iter: int
    batch_size: int
    learning_rate: float
    alpha: float
    num_samples: int
    seed: int
    # The share of the steps over which the weight of the KL rises to 1.
    kl_warm_up: float = 0.0

    def of_member(self, seed: int, batch_size: int) -> "TrainingSettings":
        """The same with a seed of its own, and with batches that all members can have."""
        return replace(self, seed=seed, batch_size=batch_size)

    def kl_weights(self, steps: np.ndarray, end: int) -> np.ndarray:
        """Rising linearly from 0 to 1 over the warm-up of a training that ends there."""
        if self.kl_warm_up == 0:
            return np.ones(len(steps))
        return np.minimum(steps / (self.kl_warm_up * end), 1.0)


@runtime_checkable
class Data(Protocol):
    """Where batches come from."""

    @property
    def num_rows(self) -> int:
        """How many rows there are."""

    @property
    def num_columns(self) -> int:
        """How many numbers a row has, inputs, targets and weight together."""

    def batches(
        self, seed: int, step: int, num_steps: int, batch_size: int, part: Part = ALL
    ) -> Batch:
        """The batches of `num_steps` steps from `step` on, or one process's part of each."""

    def fingerprint(self) -> str:
        """Other rows have another one; checkpoints are of one fingerprint."""


@dataclass(frozen=True)
class TrainingResult:
    """The trained model, and the bound's mean over each piece of `steps_per_bound` steps."""

    model: DeepModel
    bounds: Float[np.ndarray, " pieces"]
    steps_per_bound: int
    # Steps that were made.
    num_steps: int
    # Steps and scores of left-out rows, if there were any; the model is that of the best.
    scores: Float[np.ndarray, "scores 2"]


class TrainingDiverged(RuntimeError):
    """The bound or its gradient stopped being finite. `result` holds the last finite model."""

    def __init__(self, step: int, result: TrainingResult):
        super().__init__(
            f"Training stopped at step {step}: the bound is not finite. Try a smaller "
            "learning_rate, precision='float64', or look for extreme values in the data. "
            "The parameters of the last finite step are kept."
        )
        self.step = step
        self.result = result


class Optimiser(NamedTuple):
    """What the next steps need besides the model: Adam's moments, and the steps so far."""

    adam: Any
    step: Any


class Trainer:
    """A training under way: the state of the compiled loop, and the bounds so far.

    A piece of it is `num_steps` steps on batches of `batch_size` rows, in one compiled call.
    """

    def __init__(
        self,
        model: DeepModel,
        settings: TrainingSettings,
        batch_size: int,
        num_steps: int,
        place: Placement = ALONE,
        validation: Validation | None = None,
    ):
        place.check_batch_size(batch_size)
        self.settings, self.place, self.num_steps = settings, place, num_steps
        self.schedule = Schedule.of(
            settings.learning_rate, settings.max_iter, waits=validation is not None
        )
        self.validation = validation
        parameters, self.fixed = split_trainable(model)
        self.state = start(parameters)
        self.bounds: list[float] = []
        self._unravel = ravel_pytree(parameters)[1]
        self._advance, self._draw_noise = compiled_advance(place), compiled_noise(place)
        self._noise_shape = (num_steps, settings.num_samples, batch_size // place.num_parts)
        self._key = place.everywhere(random_key(settings.seed, impl="rbg"))

    def advance(
        self,
        batches: Batch,
        first_step: Any,
        num_data: int,
        learning_rates: np.ndarray,
        kl_weights: np.ndarray,
        wants_to_stop: bool = False,
    ) -> Progress:
        """Starts the steps of a piece, each on its batch, which stands for `num_data` rows."""
        place, dtype = self.place, self.state.last_finite.dtype
        model = combine(self.state.parameters, self.fixed)
        piece = Piece(
            self.fixed,
            place.batches(batches),
            self._draw_noise(model, self._key, place.everywhere(first_step), self._noise_shape),
            place.everywhere(learning_rates.astype(dtype)),
            place.everywhere(kl_weights.astype(dtype)),
            self._key,
            place.everywhere(np.asarray(num_data, dtype)),
            place.stop_flags(wants_to_stop),
        )
        self.state, progress = self._advance(piece, self.state, self.settings.alpha)
        if self.validation is not None:
            self._note_mean(int(first_step) // self.num_steps)
        return progress

    def _note_mean(self, num_before: int) -> None:
        """The running mean of the parameters, with those of a piece that follows so many."""
        assert self.validation is not None
        parameters, before = self.state.parameters, self.validation.mean
        weight = max(WEIGHT_OF_LAST, 1 / (1 + num_before))
        start = np.zeros(self.state.last_finite.shape) if before is None else before
        self.validation.mean = _running_mean(start, parameters, weight)

    def record(self, progress: Progress) -> None:
        """Waits for a piece and notes its mean bound; called when the next is under way."""
        self.bounds.append(float(np.mean(np.asarray(progress.bounds))))

    @property
    def steps_done(self) -> int:
        """The steps whose bounds are known; what the last piece has too many does not count."""
        return min(len(self.bounds) * self.num_steps, self.settings.max_iter)

    def to_be_judged(self, step: int) -> bool:
        """Whether the left-out rows are to be scored after this step."""
        if self.validation is None:
            return False
        between = max(1, STEPS_BETWEEN // self.num_steps) * self.num_steps
        regular = step % between == 0 and step >= FIRST_SCORE
        return regular or step >= self.schedule.end

    def judge(self, step: int) -> None:
        """Scores the left-out rows, and decides whether the training is to come to its end."""
        validation = self.validation
        assert validation is not None  # or nothing is to be judged
        mean = jnp.asarray(self.place.here(validation.mean))
        model = combine(self._unravel(mean), self.place.here(self.fixed))
        score = float(self.place.of_first_process(np.float64(validation.score(model))))
        validation.note(min(step, self.settings.max_iter), score, np.asarray(mean))
        if validation.is_hopeless(self.settings.max_iter):
            self.schedule.end = min(step, self.schedule.end)
        elif validation.has_come_to_rest(self.schedule.dropped):
            self.schedule.drop(step)

    @property
    def stays_finite(self) -> bool:
        """Whether the last bound that is known is a number."""
        return not self.bounds or bool(np.isfinite(self.bounds[-1]))

    def result(self) -> TrainingResult:
        """What was trained: the best by the left-out rows, or the last.

        An error that holds the last finite model if there is none that was judged, and the bound is
        not finite.
        """
        if self.validation is not None and np.isfinite(self.validation.best_score):
            return self._result_with(self._unravel(jnp.asarray(self.validation.best)))
        if bool(self.state.finite):
            return self._result_with(self.state.parameters)
        last_finite = self._result_with(self._unravel(self.state.last_finite))
        step = int(self.state.step)
        raise TrainingDiverged(step, replace(last_finite, num_steps=step))

    def _result_with(self, parameters: DeepModel) -> TrainingResult:
        return TrainingResult(
            self.place.here(combine(parameters, self.fixed)),
            np.array(self.bounds),
            self.num_steps,
            self.steps_done,
            self.validation.arrays()["scores"] if self.validation else np.zeros((0, 2)),
        )

    def checkpoint(self, training: Mapping[str, Any]) -> Checkpoint:
        """All that a continuation needs, once the bounds of all pieces are recorded."""
        arrays = {**arrays_of_tree("state", self.state), **arrays_of_tree("fixed", self.fixed)}
        arrays["bounds"] = np.array(self.bounds)
        arrays["schedule"] = self.schedule.numbers
        if self.validation is not None:
            arrays |= self.validation.arrays()
        return Checkpoint(self.steps_done, training, arrays)

    def begin(self, checkpoints: CheckpointFolder | None, training: Mapping[str, Any]) -> None:
        """Takes up the newest checkpoint, if there is one, in all processes."""
        if checkpoints is not None:
            checkpoints.check(training)
            if checkpoints.resumed is not None:
                self._restore(checkpoints.resumed)
        # Only the first process reads checkpoints; the others first need to know how long they are.
        num_bounds = int(self.place.of_first_process(np.int32(len(self.bounds))))
        bounds = np.resize(np.array(self.bounds), num_bounds).astype(self.state.last_finite.dtype)
        state, fixed, bounds, schedule = self.place.of_first_process(
            (self.state, self.fixed, bounds, self.schedule.numbers)
        )
        self.state, self.fixed = self.place.everywhere((state, fixed))
        self.bounds = np.asarray(bounds).tolist()
        self.schedule.restore(np.asarray(schedule))
        if self.validation is not None:
            self.validation.share(self.place, self.state.last_finite)

    def _restore(self, checkpoint: Checkpoint) -> None:
        arrays = checkpoint.arrays
        try:
            self.state = tree_from_arrays("state", self.state, arrays)
            self.fixed = tree_from_arrays("fixed", self.fixed, arrays)
            self.bounds = arrays["bounds"].tolist()
            if int(self.state.step) != checkpoint.training["steps_at_once"] * len(self.bounds):
                raise ValueError(f"{len(self.bounds)} bounds, {int(self.state.step)} steps.")
            if "schedule" in arrays:  # version 0.1.0 had the same for all
                self.schedule.restore(arrays["schedule"])
            if self.validation is not None:
                self.validation.restore(arrays, self.state.last_finite.shape)
        except (KeyError, ValueError) as error:
            raise CheckpointError(
                f"The checkpoint of step {checkpoint.step:,} is of another model: {error}"
            ) from error


@jax.jit
def _running_mean(before: Array, parameters: DeepModel, weight: Array) -> Array:
    """The mean of parameters so far, as one vector, with those of the last piece."""
    last = ravel_pytree(parameters)[0]
    return (before + weight * (last - before)).astype(last.dtype)


def _steps_at_once(
    model: DeepModel, data: Data, batch_size: int, settings: TrainingSettings, limit: int
) -> int:
    """How many steps a compiled call makes.

    Equal pieces, so one compilation; what the last has too many, less than a step for each piece,
    has a learning rate of zero.
    """
    numbers_of_a_row = data.num_columns + settings.num_samples * sum(model.network.inner_widths)
    most = MAX_NUMBERS_AT_ONCE // (batch_size * numbers_of_a_row)
    num_pieces = -(-settings.max_iter // max(1, min(limit, most)))
    return -(-settings.max_iter // num_pieces)


def train(
    model: DeepModel,
    data: Data,
    settings: TrainingSettings,
    on_progress: Callable[[int, float], None] = lambda steps, bound: None,
    checkpoints: CheckpointFolder | None = None,
    identity: Mapping[str, Any] | None = None,
    *,
    validation: Validation | None = None,
    clock: Clock | None = None,
    signals: Any = None,
) -> TrainingResult:
    """Maximises the bound. `on_progress` hears the steps done and the latest bound.

    With `checkpoints` it goes on from the latest of them, and Ctrl-C and SIGTERM take effect once
    one more is written. `identity` says which model on which data: only checkpoints of the same
    identity, settings and shapes are used. With a `validation`, the model is the best by its
    left-out rows; with a `clock`, the training is shortened to the time that there is. `signals`
    tell whether to stop: those of the process, unless others are given.
    """
    place = placement()
    batch_size = min(settings.batch_size, data.num_rows)
    limit = MAX_STEPS_AT_ONCE if validation is None else STEPS_OF_MEAN
    num_steps = _steps_at_once(model, data, batch_size, settings, limit)
    trainer = Trainer(model, settings, batch_size, num_steps, place, validation)
    training = {**(identity or {}), **asdict(settings), "steps_at_once": num_steps}
    trainer.begin(checkpoints, training)
    schedule = trainer.schedule

    def record(progress: Progress | None) -> None:
        if progress is not None:
            trainer.record(progress)
            if clock is not None:
                clock.piece_done()
        if trainer.bounds:
            on_progress(trainer.steps_done, trainer.bounds[-1])

    def read(first: int) -> Batch:
        return data.batches(settings.seed, first, num_steps, batch_size, place.part)

    def shorten(step: int) -> None:
        """Within the time that there is, as the first process measures it."""
        if clock is not None:
            schedule.shorten(step, num_steps, clock.pieces_left() - (pending is not None))
            schedule.restore(np.asarray(place.of_first_process(schedule.numbers)))

    record(None)
    pending, told = None, None
    firsts = range(len(trainer.bounds) * num_steps, schedule.end, num_steps)
    with (
        place.noticing_lost_processes(),
        # Between two pieces nothing is under way: an exit amid a piece may crash.
        signals or HeldBackSignals(*STOPPING_SIGNALS) as signals,
        closing(read_ahead(read, firsts)) as pieces,
    ):
        for first, batches in zip(firsts, pieces, strict=True):
            shorten(first)
            if first >= schedule.end:
                break
            steps, end = np.arange(first, first + num_steps), first + num_steps
            rates = (schedule.learning_rates(steps), settings.kl_weights(steps, schedule.end))
            wanted = signals.noted is not None
            progress = trainer.advance(batches, np.int32(first), data.num_rows, *rates, wanted)
            if pending is not None:
                record(pending)
            if not trainer.stays_finite:
                pending = None
                break
            # Several processes stop where all know of it: what one wants is told a piece later.
            stops = place.stops(told, signals.noted is not None)
            pending, told = progress, progress.stop
            judged = trainer.to_be_judged(end)
            kept = checkpoints is not None and (end >= schedule.end or checkpoints.due(end))
            if stops or judged or kept:
                record(pending)
                pending = None
                # Not a number: all processes end in the next turn.
                if judged and trainer.stays_finite:
                    trainer.judge(end)
                    kept = kept or (checkpoints is not None and end >= schedule.end)
                if checkpoints is not None and (kept or stops) and trainer.stays_finite:
                    checkpoints.write(trainer.checkpoint(training))
                if stops:
                    signals.deliver()
                    place.stopped()
        if pending is not None:
            record(pending)
    return trainer.result()


def train_once(
    model: DeepModel,
    optimiser: Optimiser | None,
    batches: Batch,
    num_data: int,
    settings: TrainingSettings,
) -> tuple[TrainingResult, Optimiser]:
    """One step on each batch, which stands for `num_data` rows, at a constant learning rate.

    Batches have a leading step axis. Of the settings, `max_iter` and `batch_size` do not matter.
    """
    # A call a step: the program is then the same however many batches there are.
    trainer = Trainer(model, settings, batches.inputs.shape[1], num_steps=1)
    if optimiser is not None:
        # Copies: the compiled step takes over what it is given.
        adam, step = jax.tree.map(jnp.copy, optimiser)
        trainer.state = trainer.state._replace(optimiser=adam, step=step)
    rate, weight = np.full(1, settings.learning_rate), np.ones(1)
    done = [
        trainer.advance(
            Batch(*(array[number : number + 1] for array in batches)),
            trainer.state.step,
            num_data,
            rate,
            weight,
        )
        for number in range(len(batches.inputs))
    ]
    for progress in done:
        trainer.record(progress)
    return trainer.result(), Optimiser(trainer.state.optimiser, trainer.state.step)
