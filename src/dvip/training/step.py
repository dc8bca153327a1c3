"""The compiled part of training: many Adam steps on the bound in one scan.

All parameters are one vector for the optimiser. On several devices the program runs on each with
its rows of every batch, and the bounds and gradients are averaged once a step.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jax.sharding import PartitionSpec
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from dvip.compilation import small_program_options
from dvip.network import SampleNoise
from dvip.objectives import Batch, DeepModel, training_loss
from dvip.parameters import combine
from dvip.training.placement import PARTS, Placement, Together

__all__ = ["Piece", "Progress", "State", "compiled_advance", "start"]


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
    kl_weights: Float[Array, " steps"]
    key: PRNGKeyArray
    num_data: Float[Array, ""]
    # Of several processes, whether each wants to stop.
    stop: Bool[Array, " parts"] | None


class Progress(NamedTuple):
    """What a compiled call tells besides the state."""

    bounds: Float[Array, " steps"]
    # Of several processes, whether any wants to stop.
    stop: Bool[Array, ""] | None


@eqx.filter_jit
def start(parameters: DeepModel) -> State:
    """Before the first step. Its arrays are the loop's own: the caller's model stays as it is."""
    flat, unravel = ravel_pytree(parameters)
    optimiser = optax.scale_by_adam().init(flat)
    return State(unravel(flat), flat, optimiser, jnp.zeros((), jnp.int32), jnp.array(True))


def _advance(
    piece: Piece, state: State, alpha: float, num_samples: int, num_parts: int = 1
) -> tuple[State, Progress]:
    """One step for each batch of the piece. All parameters are one vector for the optimiser.

    With several parts, it is called for each of them with its rows, and bounds and gradients are
    averaged: the scaled sum over all rows is the mean of the scaled sums over equal parts.
    """
    adam = optax.scale_by_adam()
    parameters, unravel = ravel_pytree(state.parameters)
    noises = _sample_noises(piece, state, num_samples, num_parts)

    def loss(
        parameters: Float[Array, " parameters"],
        batch: Batch,
        noise: SampleNoise,
        key: PRNGKeyArray,
        kl_weight: Float[Array, ""],
    ) -> tuple[Array, Array]:
        model = combine(unravel(parameters), piece.fixed)
        return training_loss(
            model, batch, noise, key, num_data=piece.num_data, alpha=alpha, kl_weight=kl_weight
        )

    def step(carry: tuple, xs: tuple[Batch, SampleNoise, Array, Array]) -> tuple[tuple, Array]:
        parameters, last_finite, optimiser, count, finite = carry
        batch, noise, learning_rate, kl_weight = xs
        key = jax.random.fold_in(piece.key, count)
        (_, value), gradient = jax.value_and_grad(loss, has_aux=True)(
            parameters, batch, noise, key, kl_weight
        )
        if num_parts > 1:  # one exchange for both
            both = jax.lax.pmean(jnp.concatenate([value[None], gradient]), PARTS)
            value, gradient = both[0], both[1:]
        updates, new_optimiser = adam.update(gradient, optimiser)
        finite = finite & jnp.isfinite(value + jnp.sum(gradient))
        new = (parameters - learning_rate * updates, parameters, new_optimiser, count + 1)
        old = (parameters, last_finite, optimiser, count)
        kept = jax.tree.map(lambda new, old: jnp.where(finite, new, old), new, old)
        return (*kept, finite), value

    carry = (parameters, *state[1:])
    xs = (piece.batches, noises, piece.learning_rates, piece.kl_weights)
    carry, bounds = jax.lax.scan(step, carry, xs)
    stop = None if piece.stop is None else jax.lax.pmax(jnp.any(piece.stop), PARTS)
    return State(unravel(carry[0]), *carry[1:]), Progress(bounds, stop)


def _sample_noises(piece: Piece, state: State, num_samples: int, num_parts: int) -> SampleNoise:
    """The noise of every step of a piece: that of all rows, of which a part takes its own."""
    # Drawn for all steps at once: the generator has a cost a call that is as large as a layer's.
    network = combine(state.parameters, piece.fixed).network
    num_steps, num_rows = piece.batches.inputs.shape[:2]
    noise = network.draw_sample_noise(
        jax.random.fold_in(piece.key, state.step), num_steps * num_samples, num_rows * num_parts
    )
    if num_parts > 1:
        start = jax.lax.axis_index(PARTS) * num_rows
        own = jax.lax.dynamic_slice_in_dim(noise.inner, start, num_rows, axis=2)
        noise = noise._replace(inner=own)
    return noise.split(num_steps)


@cache
def compiled_advance(place: Placement) -> Callable:
    """`_advance`, compiled for the devices that JAX computes on; the state is donated."""
    options = small_program_options(jax.default_backend())

    def on_all_devices(
        piece: Piece, state: State, alpha: float, num_samples: int
    ) -> tuple[State, Progress]:
        assert isinstance(place, Together)
        same, parts = PartitionSpec(), PartitionSpec(PARTS)
        specs = Piece(same, PartitionSpec(None, PARTS), same, same, same, same, parts)  # type: ignore
        function = partial(
            _advance, alpha=alpha, num_samples=num_samples, num_parts=place.num_parts
        )
        return jax.shard_map(
            function, mesh=place.mesh, in_specs=(specs, same), out_specs=same, check_vma=False
        )(piece, state)

    function = on_all_devices if isinstance(place, Together) else _advance
    # (The annotations of filter_jit lack the options of jax.jit.)
    return eqx.filter_jit(  # type: ignore[call-overload]
        function, donate="all-except-first", compiler_options=options
    )
