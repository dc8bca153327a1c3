"""The training loop: many Adam steps inside one compiled scan, then the next piece of the data.

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
from jaxtyping import Array, Float

from dvip.batches import ALL, Batch, Part, read_ahead
from dvip.objectives import DeepModel
from dvip.parameters import combine, split_trainable
from dvip.persistence import CheckpointError, arrays_of_tree, tree_from_arrays
from dvip.runtime import random_key
from dvip.training.checkpoints import Checkpoint, CheckpointFolder, HeldBackSignals
from dvip.training.placement import ALONE, Placement, placement
from dvip.training.step import Piece, Progress, State, compiled_advance, compiled_noise, start

__all__ = [
    "OptimiserState",
    "TrainingDiverged",
    "TrainingResult",
    "TrainingSettings",
    "train",
    "train_on_batches",
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


def cosine_decay(learning_rate: float, max_iter: int, steps: np.ndarray) -> np.ndarray:
    """From `learning_rate` to zero along half a cosine; zero from `max_iter` on."""
    progress = np.minimum(steps / max_iter, 1.0)
    return 0.5 * learning_rate * (1 + np.cos(np.pi * progress))


def linear_warm_up(share: float, max_iter: int, steps: np.ndarray) -> np.ndarray:
    """A weight that rises linearly from 0 to 1 over that share of the steps."""
    return np.ones(len(steps)) if share == 0 else np.minimum(steps / (share * max_iter), 1.0)


def _steps_at_once(
    model: DeepModel, data: Data, batch_size: int, settings: TrainingSettings
) -> int:
    """How many steps a compiled call makes at most."""
    numbers_of_a_row = data.num_columns + settings.num_samples * sum(model.network.inner_widths)
    steps = MAX_NUMBERS_AT_ONCE // (batch_size * numbers_of_a_row)
    return max(1, min(MAX_STEPS_AT_ONCE, steps))


def _begin(
    place: Placement,
    state: State,
    fixed: DeepModel,
    checkpoints: CheckpointFolder | None,
    training: Mapping[str, Any],
) -> tuple[State, DeepModel, list[float]]:
    """The state, the fixed part of the model and the bounds so far: new ones or a checkpoint's."""
    bounds = np.zeros(0)
    if checkpoints is not None:
        checkpoints.check(training)
        if checkpoints.resumed is not None:
            state, fixed, bounds = _restored(checkpoints.resumed, state, fixed)
    # Only the first process reads checkpoints; the others first need to know how long they are.
    num_bounds = int(place.of_first_process(np.int32(len(bounds))))
    bounds = np.resize(bounds, num_bounds).astype(state.last_finite.dtype)
    state, fixed, bounds = place.of_first_process((state, fixed, bounds))
    return *place.everywhere((state, fixed)), np.asarray(bounds).tolist()


def _restored(
    checkpoint: Checkpoint, state: State, fixed: DeepModel
) -> tuple[State, DeepModel, np.ndarray]:
    """The state, the fixed part of the model and the bounds of a checkpoint."""
    try:
        state = tree_from_arrays("state", state, checkpoint.arrays)
        fixed = tree_from_arrays("fixed", fixed, checkpoint.arrays)
        bounds = checkpoint.arrays["bounds"]
        if int(state.step) != checkpoint.training["steps_at_once"] * len(bounds):
            raise ValueError(f"{len(bounds)} bounds, {int(state.step)} steps.")
    except (KeyError, ValueError) as error:
        raise CheckpointError(
            f"The checkpoint of step {checkpoint.step:,} is of another model: {error}"
        ) from error
    return state, fixed, bounds


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
    parameters, fixed = split_trainable(model)
    place = placement()
    batch_size = min(settings.batch_size, data.num_rows)
    place.check_batch_size(batch_size)
    num_pieces = -(-settings.max_iter // _steps_at_once(model, data, batch_size, settings))
    # Equal pieces, so one compilation; what the last has too many, at most num_pieces - 1 steps,
    # has a learning rate of zero.
    num_steps = -(-settings.max_iter // num_pieces)
    training = {**(identity or {}), **asdict(settings), "steps_at_once": num_steps}
    state, fixed, history = _begin(place, start(parameters), fixed, checkpoints, training)
    advance, dtype = compiled_advance(place), state.last_finite.dtype
    draw_noise = compiled_noise(place)
    noise_shape = (num_steps, settings.num_samples, batch_size // place.num_parts)
    key = place.everywhere(random_key(settings.seed, impl="rbg"))
    num_data = place.everywhere(np.asarray(data.num_rows, dtype))
    if history:
        on_progress(min(len(history) * num_steps, settings.max_iter), history[-1])

    def result(parameters: DeepModel) -> TrainingResult:
        model = place.here(combine(parameters, fixed))
        return TrainingResult(model, np.array(history), num_steps)

    def record(progress: Progress, steps: int) -> None:
        """Waits for a piece; called when the next is already under way."""
        history.append(float(np.mean(np.asarray(progress.bounds))))
        on_progress(min(steps, settings.max_iter), history[-1])

    def checkpoint(steps: int) -> Checkpoint:
        arrays = {**arrays_of_tree("state", state), **arrays_of_tree("fixed", fixed)}
        arrays["bounds"] = np.array(history)
        return Checkpoint(min(steps, settings.max_iter), training, arrays)

    def read(first: int) -> Batch:
        return data.batches(settings.seed, first, num_steps, batch_size, place.part)

    pending: tuple[Progress, int] | None = None
    told: Array | None = None
    firsts = range(len(history) * num_steps, num_pieces * num_steps, num_steps)
    with (
        place.noticing_lost_processes(),
        # Between two pieces nothing is under way: an exit amid a piece may crash.
        HeldBackSignals(*STOPPING_SIGNALS) as signals,
        closing(read_ahead(read, firsts)) as pieces,
    ):
        for first, batches in zip(firsts, pieces, strict=True):
            steps = np.arange(first, first + num_steps)
            rates = cosine_decay(settings.learning_rate, settings.max_iter, steps)
            kl_weights = linear_warm_up(settings.kl_warm_up, settings.max_iter, steps)
            model_now = combine(state.parameters, fixed)
            piece = Piece(
                fixed,
                place.batches(batches),
                draw_noise(model_now, key, place.everywhere(np.int32(first)), noise_shape),
                place.everywhere(rates.astype(dtype)),
                place.everywhere(kl_weights.astype(dtype)),
                key,
                num_data,
                place.stop_flags(signals.noted is not None),
            )
            state, progress = advance(piece, state, settings.alpha)
            if pending is not None:
                record(*pending)
            if history and not np.isfinite(history[-1]):
                break
            # Several processes stop where all know of it: what one wants is told a piece later.
            stops = place.stops(told, signals.noted is not None)
            told = progress.stop
            pending = (progress, first + num_steps)
            ends = first == firsts[-1]
            if stops or (checkpoints is not None and (ends or checkpoints.due(first + num_steps))):
                record(*pending)
                pending = None
                # Not a number: all processes end in the next turn.
                if checkpoints is not None and np.isfinite(history[-1]):
                    checkpoints.write(checkpoint(first + num_steps))
                if stops:
                    signals.deliver()
                    place.stopped()
        else:
            if pending is not None:
                record(*pending)
    if not bool(state.finite):
        unravel = ravel_pytree(parameters)[1]
        raise TrainingDiverged(int(state.step), result(unravel(state.last_finite)))
    return result(state.parameters)


class OptimiserState(NamedTuple):
    """What the next steps need besides the model: Adam's moments, and the steps so far."""

    adam: Any
    step: Any


def train_on_batches(
    model: DeepModel,
    optimiser: OptimiserState | None,
    batches: Batch,
    num_data: int,
    settings: TrainingSettings,
) -> tuple[TrainingResult, OptimiserState]:
    """One step on each batch, which stands for `num_data` rows.

    Batches have a leading step axis. Of the settings, `max_iter` and `batch_size` do not matter.
    """
    parameters, fixed = split_trainable(model)
    state, advance, draw_noise = start(parameters), compiled_advance(ALONE), compiled_noise(ALONE)
    noise_shape = (1, settings.num_samples, batches.inputs.shape[1])
    if optimiser is not None:
        # Copies: the compiled step takes over what it is given.
        adam, step = jax.tree.map(jnp.copy, optimiser)
        state = state._replace(optimiser=adam, step=step)
    dtype = state.last_finite.dtype
    key = random_key(settings.seed, impl="rbg")
    history = []
    # A call a step: the program is then the same however many batches there are.
    for number in range(len(batches.inputs)):
        batch = Batch(*(array[number : number + 1] for array in batches))
        rate = jax.device_put(np.full(1, settings.learning_rate, dtype))
        one, number = (jax.device_put(np.asarray(n, dtype)) for n in ([1.0], num_data))
        noise = draw_noise(model, key, state.step, noise_shape)
        piece = Piece(fixed, batch, noise, rate, one, key, number, None)
        state, progress = advance(piece, state, settings.alpha)
        history.append(progress.bounds)
    values = np.concatenate([np.asarray(bounds) for bounds in history])
    if not bool(state.finite):
        last = ravel_pytree(parameters)[1](state.last_finite)
        raise TrainingDiverged(int(state.step), TrainingResult(combine(last, fixed), values, 1))
    result = TrainingResult(combine(state.parameters, fixed), values, 1)
    return result, OptimiserState(state.optimiser, state.step)
