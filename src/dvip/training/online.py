"""Adam steps on batches that a caller brings, one at a time, at a constant learning rate."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from dvip.keys import random_key
from dvip.objectives import Batch, DeepModel
from dvip.parameters import combine, split_trainable
from dvip.training.loop import TrainingDiverged, TrainingResult, TrainingSettings
from dvip.training.placement import ALONE
from dvip.training.step import Piece, compiled_advance, compiled_noise, start

__all__ = ["OptimiserState", "train_on_batches"]


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
