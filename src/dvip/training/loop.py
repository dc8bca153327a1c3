"""The training loop: many Adam steps inside one compiled scan, then the next piece of the data.

The compiled program sees batches, never the data set, so that its shape does not depend on the
number of rows: cross-validation folds share one compilation.
"""

import signal
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from dvip.compilation import small_program_options
from dvip.keys import random_key
from dvip.network import SampleNoise
from dvip.objectives import Batch, DeepModel, bound
from dvip.parameters import combine, split_trainable
from dvip.persistence import CheckpointError, arrays_of_tree, tree_from_arrays
from dvip.training.checkpoints import Checkpoint, CheckpointFolder
from dvip.training.interruption import HeldBackSignals
from dvip.training.reading_ahead import read_ahead

__all__ = ["TrainingDiverged", "TrainingResult", "TrainingSettings", "train"]

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


@runtime_checkable
class Data(Protocol):
    """Where batches come from."""

    @property
    def num_rows(self) -> int:
        """How many rows there are."""

    @property
    def num_columns(self) -> int:
        """How many numbers a row has, inputs, targets and weight together."""

    def batches(self, seed: int, step: int, num_steps: int, batch_size: int) -> Batch:
        """The batches of `num_steps` steps from `step` on."""


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


class State(NamedTuple):
    """All that changes from step to step. `step` stands still once a bound was not finite."""

    parameters: DeepModel
    # Those of the last finite bound, as one vector: a step may lead where there is none.
    last_finite: Float[Array, " parameters"]
    optimiser: Any
    step: Int[Array, ""]
    finite: Bool[Array, ""]


class Piece(NamedTuple):
    """What a compiled call needs besides the state: the fixed part of the model and the data."""

    fixed: DeepModel
    batches: Batch
    learning_rates: Float[Array, " steps"]
    key: PRNGKeyArray
    num_data: Float[Array, ""]


def cosine_decay(learning_rate: float, max_iter: int, steps: np.ndarray) -> np.ndarray:
    """From `learning_rate` to zero along half a cosine; zero from `max_iter` on."""
    progress = np.minimum(steps / max_iter, 1.0)
    return 0.5 * learning_rate * (1 + np.cos(np.pi * progress))


@eqx.filter_jit
def _start(parameters: DeepModel) -> State:
    """Before the first step. Its arrays are the loop's own: the caller's model stays as it is."""
    flat, unravel = ravel_pytree(parameters)
    optimiser = optax.scale_by_adam().init(flat)
    return State(unravel(flat), flat, optimiser, jnp.zeros((), jnp.int32), jnp.array(True))


def _advance(
    piece: Piece, state: State, alpha: float, num_samples: int
) -> tuple[State, Float[Array, " steps"]]:
    """One step for each batch of the piece. All parameters are one vector for the optimiser."""
    adam = optax.scale_by_adam()
    parameters, unravel = ravel_pytree(state.parameters)
    # Drawn for all steps at once: the generator has a cost a call that is as large as a layer's.
    network = combine(state.parameters, piece.fixed).network
    num_steps, num_rows = piece.batches.inputs.shape[:2]
    noises = network.draw_sample_noise(
        jax.random.fold_in(piece.key, state.step), num_steps * num_samples, num_rows
    ).split(num_steps)

    def loss(
        parameters: Float[Array, " parameters"],
        batch: Batch,
        noise: SampleNoise,
        key: PRNGKeyArray,
    ) -> Array:
        model = combine(unravel(parameters), piece.fixed)
        value = bound(model, batch, noise, key, num_data=piece.num_data, alpha=alpha)
        return -value / piece.num_data

    def step(carry: tuple, xs: tuple[Batch, SampleNoise, Array]) -> tuple[tuple, Array]:
        parameters, last_finite, optimiser, count, finite = carry
        batch, noise, learning_rate = xs
        key = jax.random.fold_in(piece.key, count)
        value, gradient = jax.value_and_grad(loss)(parameters, batch, noise, key)
        updates, new_optimiser = adam.update(gradient, optimiser)
        finite = finite & jnp.isfinite(value + jnp.sum(gradient))
        new = (parameters - learning_rate * updates, parameters, new_optimiser, count + 1)
        old = (parameters, last_finite, optimiser, count)
        kept = jax.tree.map(lambda new, old: jnp.where(finite, new, old), new, old)
        return (*kept, finite), -value * piece.num_data

    carry = (parameters, *state[1:])
    carry, bounds = jax.lax.scan(step, carry, (piece.batches, noises, piece.learning_rates))
    return State(unravel(carry[0]), *carry[1:]), bounds


@cache
def _compiled_advance() -> Callable:
    """`_advance`, compiled for the machine that JAX computes on; the state is donated."""
    options = small_program_options(jax.default_backend())
    # (The annotations of filter_jit lack the options of jax.jit.)
    return eqx.filter_jit(  # type: ignore[call-overload]
        _advance, donate="all-except-first", compiler_options=options
    )


def _steps_at_once(
    model: DeepModel, data: Data, batch_size: int, settings: TrainingSettings
) -> int:
    """How many steps a compiled call makes at most."""
    numbers_of_a_row = data.num_columns + settings.num_samples * sum(model.network.inner_widths)
    steps = MAX_NUMBERS_AT_ONCE // (batch_size * numbers_of_a_row)
    return max(1, min(MAX_STEPS_AT_ONCE, steps))


def _restored(
    checkpoint: Checkpoint, state: State, fixed: DeepModel, num_steps: int
) -> tuple[State, DeepModel, list[float]]:
    """The state, the fixed part of the model and the bounds of a checkpoint."""
    try:
        state = tree_from_arrays("state", state, checkpoint.arrays)
        fixed = tree_from_arrays("fixed", fixed, checkpoint.arrays)
        bounds = checkpoint.arrays["bounds"].tolist()
        if int(state.step) != num_steps * len(bounds):
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
    state, advance = _start(parameters), _compiled_advance()
    dtype = state.last_finite.dtype
    batch_size = min(settings.batch_size, data.num_rows)
    num_pieces = -(-settings.max_iter // _steps_at_once(model, data, batch_size, settings))
    # Equal pieces, so one compilation; what the last has too many, at most num_pieces - 1 steps,
    # has a learning rate of zero.
    num_steps = -(-settings.max_iter // num_pieces)
    key = random_key(settings.seed, impl="rbg")
    history: list[float] = []
    training = {**(identity or {}), **asdict(settings), "steps_at_once": num_steps}
    if checkpoints is not None:
        checkpoints.check(training)
        if checkpoints.resumed is not None:
            state, fixed, history = _restored(checkpoints.resumed, state, fixed, num_steps)
            on_progress(checkpoints.resumed.step, history[-1])

    def result(parameters: DeepModel) -> TrainingResult:
        return TrainingResult(combine(parameters, fixed), np.array(history), num_steps)

    def record(bounds: Float[Array, " steps"], steps: int) -> None:
        """Waits for a piece; called when the next is already under way."""
        history.append(float(np.mean(np.asarray(bounds))))
        on_progress(min(steps, settings.max_iter), history[-1])

    def checkpoint(steps: int) -> Checkpoint:
        arrays = {**arrays_of_tree("state", state), **arrays_of_tree("fixed", fixed)}
        arrays["bounds"] = np.array(history)
        return Checkpoint(min(steps, settings.max_iter), training, arrays)

    def read(first: int) -> Batch:
        return data.batches(settings.seed, first, num_steps, batch_size)

    pending: tuple[Array, int] | None = None
    firsts = range(len(history) * num_steps, num_pieces * num_steps, num_steps)
    with (
        HeldBackSignals(*STOPPING_SIGNALS if checkpoints is not None else ()) as signals,
        closing(read_ahead(read, firsts)) as pieces,
    ):
        for first, batches in zip(firsts, pieces, strict=True):
            steps = np.arange(first, first + num_steps)
            rates = cosine_decay(settings.learning_rate, settings.max_iter, steps)
            piece = Piece(
                fixed,
                batches,
                jax.device_put(rates.astype(dtype)),
                key,
                jax.device_put(np.asarray(data.num_rows, dtype)),
            )
            state, bounds = advance(piece, state, settings.alpha, settings.num_samples)
            if pending is not None:
                record(*pending)
                if not np.isfinite(history[-1]):
                    break
            pending = (bounds, first + num_steps)
            ends = first == firsts[-1]
            if checkpoints is not None and (
                ends or signals.noted is not None or checkpoints.due(first + num_steps)
            ):
                record(*pending)
                pending = None
                if not np.isfinite(history[-1]):
                    break
                checkpoints.write(checkpoint(first + num_steps))
                signals.deliver()
        else:
            if pending is not None:
                record(*pending)
    if not bool(state.finite):
        unravel = ravel_pytree(parameters)[1]
        raise TrainingDiverged(int(state.step), result(unravel(state.last_finite)))
    return result(state.parameters)
