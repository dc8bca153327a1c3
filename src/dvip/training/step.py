"""The compiled part of training: many Adam steps on the bound in one scan.

All parameters are one vector for the optimiser. On several devices the program runs on each with
its rows of every batch, and the bounds and gradients are averaged once a step. The noise of all
these steps is drawn before them, by a program of its own.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jax.sharding import PartitionSpec
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from dvip.batches import Batch
from dvip.network import SampleNoise
from dvip.objectives import DeepModel, training_loss
from dvip.parameters import combine
from dvip.runtime import small_program_options
from dvip.training.placement import PARTS, Placement, Together

__all__ = ["Piece", "Progress", "State", "compiled_advance", "compiled_noise", "start"]

# Up to so many numbers, parts send each other all they have and average them themselves: one
# message each way, where a sum takes several one after another.
MAX_GATHERED = 2**20

# A gradient of more than so many times its usual size, which Adam knows after some steps, is shrunk
# to it. Some of these threw a convolutional model of MNIST off for good; on the tables that we
# looked at, none is larger than five times the usual.
MAX_GRADIENT, STEPS_UNTIL_USUAL = 10.0, 100
ADAM_DECAY, ADAM_EPSILON = 0.999, 1e-8

# The least number of rows whose noise is drawn together.
MIN_NOISE_GROUP = 250


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
    noise: SampleNoise
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


def _adam() -> Any:
    """The optimiser. Its library is imported here: a prediction need not wait for it."""
    import optax

    return optax.scale_by_adam(b2=ADAM_DECAY, eps=ADAM_EPSILON)


@eqx.filter_jit
def start(parameters: DeepModel) -> State:
    """Before the first step. Its arrays are the loop's own: the caller's model stays as it is."""
    flat, unravel = ravel_pytree(parameters)
    optimiser = _adam().init(flat)
    return State(unravel(flat), flat, optimiser, jnp.zeros((), jnp.int32), jnp.array(True))


def _advance(
    piece: Piece, state: State, alpha: float, num_parts: int = 1
) -> tuple[State, Progress]:
    """One step for each batch of the piece.

    With several parts, it is called for each of them with its rows, and bounds and gradients are
    averaged: the scaled sum over all rows is the mean of the scaled sums over equal parts.
    """
    adam = _adam()
    parameters, unravel = ravel_pytree(state.parameters)

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
            both = _mean_over_parts(jnp.concatenate([value[None], gradient]), num_parts)
            value, gradient = both[0], both[1:]
        updates, new_optimiser = adam.update(_shrunk(gradient, optimiser), optimiser)
        finite = finite & jnp.isfinite(value + jnp.sum(gradient))
        new = (parameters - learning_rate * updates, parameters, new_optimiser, count + 1)
        old = (parameters, last_finite, optimiser, count)
        kept = jax.tree.map(lambda new, old: jnp.where(finite, new, old), new, old)
        return (*kept, finite), value

    carry = (parameters, *state[1:])
    xs = (piece.batches, piece.noise, piece.learning_rates, piece.kl_weights)
    carry, bounds = jax.lax.scan(step, carry, xs)
    stop = None if piece.stop is None else jax.lax.pmax(jnp.any(piece.stop), PARTS)
    return State(unravel(carry[0]), *carry[1:]), Progress(bounds, stop)


def _shrunk(gradient: Float[Array, " parameters"], optimiser: Any) -> Float[Array, " parameters"]:
    """The gradient, made smaller if it is much larger than those before it."""
    count = jnp.maximum(optimiser.count, 1).astype(gradient.dtype)
    usual = optimiser.nu / (1 - ADAM_DECAY**count)  # the mean square of each parameter's gradients
    size = jnp.sqrt(jnp.mean(jnp.square(gradient) / (usual + ADAM_EPSILON**2)))
    known = optimiser.count >= STEPS_UNTIL_USUAL
    return gradient * jnp.where(known, jnp.minimum(1, MAX_GRADIENT / size), 1)


def _mean_over_parts(numbers: Float[Array, " numbers"], num_parts: int) -> Array:
    """The average of what all parts have, the same in each to the last bit."""
    if numbers.size * num_parts > MAX_GATHERED:
        return jax.lax.pmean(numbers, PARTS)
    return jnp.mean(jax.lax.all_gather(numbers, PARTS), axis=0)


def _noise(
    model: DeepModel,
    key: PRNGKeyArray,
    first: Int[Array, ""],
    shape: tuple[int, int, int],
    num_parts: int = 1,
) -> SampleNoise:
    """The noise of so many steps from `first` on, of so many samples and rows of a part.

    A row's noise is the same however many parts there are.
    """
    num_steps, num_samples, num_rows = shape
    key = jax.random.fold_in(key, first)
    num_groups = _num_noise_groups(num_rows * num_parts)
    noise = model.network.draw_sample_noise(
        key, num_steps * num_samples, num_rows * num_parts // num_groups
    )
    part = jax.lax.axis_index(PARTS) if num_parts > 1 else 0
    if num_groups > 1:
        # A part with whole groups draws these alone.
        own = num_groups // num_parts if num_groups % num_parts == 0 else num_groups
        first_group = part * own if own < num_groups else 0
        keys = [jax.random.fold_in(key, first_group + index) for index in range(own)]
        groups = [jax.random.normal(key, noise.inner.shape) for key in keys]
        noise = noise._replace(inner=jnp.concatenate(groups, axis=2))
    if noise.inner.shape[2] > num_rows:
        inner = jax.lax.dynamic_slice_in_dim(noise.inner, part * num_rows, num_rows, axis=2)
        noise = noise._replace(inner=inner)
    return noise.split(num_steps)


def _num_noise_groups(batch_size: int) -> int:
    """Into how many groups of equal size a batch is split for its noise."""
    most = max(1, batch_size // MIN_NOISE_GROUP)
    return next(number for number in range(most, 0, -1) if batch_size % number == 0)


@cache
def compiled_noise(place: Placement) -> Callable:
    """`_noise`, compiled for the devices that JAX computes on.

    Not a part of the steps' program, whose compiler options make these long loops slow.
    """

    def on_all_devices(
        model: DeepModel, key: PRNGKeyArray, first: Int[Array, ""], shape: tuple[int, int, int]
    ) -> SampleNoise:
        assert isinstance(place, Together)
        same, rows = PartitionSpec(), PartitionSpec(None, None, None, PARTS)
        function = partial(_noise, shape=shape, num_parts=place.num_parts)
        return jax.shard_map(
            function,
            mesh=place.mesh,
            in_specs=same,
            out_specs=SampleNoise(rows, same),  # type: ignore[arg-type]
            check_vma=False,
        )(model, key, first)

    return eqx.filter_jit(on_all_devices if isinstance(place, Together) else _noise)


@cache
def compiled_advance(place: Placement) -> Callable:
    """`_advance`, compiled for the devices that JAX computes on; the state is donated."""
    options = small_program_options(jax.default_backend())

    def on_all_devices(piece: Piece, state: State, alpha: float) -> tuple[State, Progress]:
        assert isinstance(place, Together)
        same, parts = PartitionSpec(), PartitionSpec(PARTS)
        rows = SampleNoise(PartitionSpec(None, None, None, PARTS), same)  # type: ignore[arg-type]
        specs = Piece(same, PartitionSpec(None, PARTS), rows, same, same, same, same, parts)  # type: ignore[arg-type]
        function = partial(_advance, alpha=alpha, num_parts=place.num_parts)
        return jax.shard_map(
            function, mesh=place.mesh, in_specs=(specs, same), out_specs=same, check_vma=False
        )(piece, state)

    function = on_all_devices if isinstance(place, Together) else _advance
    # (The annotations of filter_jit lack the options of jax.jit.)
    return eqx.filter_jit(  # type: ignore[call-overload]
        function, donate="all-except-first", compiler_options=options
    )
