"""The training: many Adam steps inside one compiled scan, then the next piece of the data.

The compiled program sees batches, never the data set, so that its shape does not depend on the
number of rows: cross-validation folds share one compilation.
"""

import signal
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Float

from dvip.batches import ALL, Batch, Part, read_ahead
from dvip.objectives import DeepModel
from dvip.parameters import combine, split_trainable
from dvip.persistence import CheckpointError, arrays_of_tree, tree_from_arrays
from dvip.runtime import random_key
from dvip.training.checkpoints import Checkpoint, CheckpointFolder, HeldBackSignals
from dvip.training.placement import ALONE, Placement, placement
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

    def learning_rates(self, steps: np.ndarray) -> np.ndarray:
        """From `learning_rate` to zero along half a cosine; zero from `max_iter` on."""
        progress = np.minimum(steps / self.max_iter, 1.0)
        return 0.5 * self.learning_rate * (1 + np.cos(np.pi * progress))

    def kl_weights(self, steps: np.ndarray) -> np.ndarray:
        """Rising linearly from 0 to 1 over the warm-up."""
        if self.kl_warm_up == 0:
            return np.ones(len(steps))
        return np.minimum(steps / (self.kl_warm_up * self.max_iter), 1.0)


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
    ):
        place.check_batch_size(batch_size)
        self.settings, self.place, self.num_steps = settings, place, num_steps
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
        return progress

    def record(self, progress: Progress) -> None:
        """Waits for a piece and notes its mean bound; called when the next is under way."""
        self.bounds.append(float(np.mean(np.asarray(progress.bounds))))

    @property
    def steps_done(self) -> int:
        """The steps whose bounds are known; what the last piece has too many does not count."""
        return min(len(self.bounds) * self.num_steps, self.settings.max_iter)

    @property
    def stays_finite(self) -> bool:
        """Whether the last bound that is known is a number."""
        return not self.bounds or bool(np.isfinite(self.bounds[-1]))

    def result(self) -> TrainingResult:
        """What was trained; an error that holds the last finite model if the bound is not."""
        if bool(self.state.finite):
            return self._result_with(self.state.parameters)
        last_finite = self._result_with(self._unravel(self.state.last_finite))
        raise TrainingDiverged(int(self.state.step), last_finite)

    def _result_with(self, parameters: DeepModel) -> TrainingResult:
        model = self.place.here(combine(parameters, self.fixed))
        return TrainingResult(model, np.array(self.bounds), self.num_steps)

    def checkpoint(self, training: Mapping[str, Any]) -> Checkpoint:
        """All that a continuation needs, once the bounds of all pieces are recorded."""
        arrays = {**arrays_of_tree("state", self.state), **arrays_of_tree("fixed", self.fixed)}
        arrays["bounds"] = np.array(self.bounds)
        return Checkpoint(self.steps_done, training, arrays)

    def begin(self, checkpoints: CheckpointFolder | None, training: Mapping[str, Any]) -> None:
        """Takes up the newest checkpoint, if there is one, in all processes."""
        bounds = np.zeros(0)
        if checkpoints is not None:
            checkpoints.check(training)
            if checkpoints.resumed is not None:
                bounds = self._restore(checkpoints.resumed)
        # Only the first process reads checkpoints; the others first need to know how long they are.
        num_bounds = int(self.place.of_first_process(np.int32(len(bounds))))
        bounds = np.resize(bounds, num_bounds).astype(self.state.last_finite.dtype)
        state, fixed, bounds = self.place.of_first_process((self.state, self.fixed, bounds))
        self.state, self.fixed = self.place.everywhere((state, fixed))
        self.bounds = np.asarray(bounds).tolist()

    def _restore(self, checkpoint: Checkpoint) -> np.ndarray:
        try:
            self.state = tree_from_arrays("state", self.state, checkpoint.arrays)
            self.fixed = tree_from_arrays("fixed", self.fixed, checkpoint.arrays)
            bounds = checkpoint.arrays["bounds"]
            if int(self.state.step) != checkpoint.training["steps_at_once"] * len(bounds):
                raise ValueError(f"{len(bounds)} bounds, {int(self.state.step)} steps.")
        except (KeyError, ValueError) as error:
            raise CheckpointError(
                f"The checkpoint of step {checkpoint.step:,} is of another model: {error}"
            ) from error
        return bounds


def _steps_at_once(
    model: DeepModel, data: Data, batch_size: int, settings: TrainingSettings
) -> int:
    """How many steps a compiled call makes.

    Equal pieces, so one compilation; what the last has too many, less than a step for each piece,
    has a learning rate of zero.
    """
    numbers_of_a_row = data.num_columns + settings.num_samples * sum(model.network.inner_widths)
    most = MAX_NUMBERS_AT_ONCE // (batch_size * numbers_of_a_row)
    num_pieces = -(-settings.max_iter // max(1, min(MAX_STEPS_AT_ONCE, most)))
    return -(-settings.max_iter // num_pieces)


def train(
    model: DeepModel,
    data: Data,
    settings: TrainingSettings,
    on_progress: Callable[[int, float], None] = lambda steps, bound: None,
    checkpoints: CheckpointFolder | None = None,
    identity: Mapping[str, Any] | None = None,
) -> TrainingResult:
    """Maximises the bound. `on_progress` hears the steps done and the latest bound.

    With `checkpoints` it goes on from the latest of them, and Ctrl-C and SIGTERM take effect once
    one more is written. `identity` says which model on which data: only checkpoints of the same
    identity, settings and shapes are used.
    """
    place = placement()
    batch_size = min(settings.batch_size, data.num_rows)
    num_steps = _steps_at_once(model, data, batch_size, settings)
    trainer = Trainer(model, settings, batch_size, num_steps, place)
    training = {**(identity or {}), **asdict(settings), "steps_at_once": num_steps}
    trainer.begin(checkpoints, training)

    def record(progress: Progress | None) -> None:
        if progress is not None:
            trainer.record(progress)
        if trainer.bounds:
            on_progress(trainer.steps_done, trainer.bounds[-1])

    def read(first: int) -> Batch:
        return data.batches(settings.seed, first, num_steps, batch_size, place.part)

    record(None)
    pending, told = None, None
    firsts = range(len(trainer.bounds) * num_steps, settings.max_iter, num_steps)
    with (
        place.noticing_lost_processes(),
        # Between two pieces nothing is under way: an exit amid a piece may crash.
        HeldBackSignals(*STOPPING_SIGNALS) as signals,
        closing(read_ahead(read, firsts)) as pieces,
    ):
        for first, batches in zip(firsts, pieces, strict=True):
            steps = np.arange(first, first + num_steps)
            schedule = (settings.learning_rates(steps), settings.kl_weights(steps))
            wanted = signals.noted is not None
            progress = trainer.advance(batches, np.int32(first), data.num_rows, *schedule, wanted)
            if pending is not None:
                record(pending)
            if not trainer.stays_finite:
                break
            # Several processes stop where all know of it: what one wants is told a piece later.
            stops = place.stops(told, signals.noted is not None)
            pending, told = progress, progress.stop
            ends = first == firsts[-1]
            if stops or (checkpoints is not None and (ends or checkpoints.due(first + num_steps))):
                record(pending)
                # Not a number: all processes end in the next turn.
                if checkpoints is not None and trainer.stays_finite:
                    checkpoints.write(trainer.checkpoint(training))
                pending = None
                if stops:
                    signals.deliver()
                    place.stopped()
        else:
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
