"""Stochastic-gradient HMC of a deep GP's values at inducing points, with parameters on the way.

Havasi et al. 2018. U(v, θ) = -log p(y, v | θ), a sum over rows, is estimated from batches; v are
the whitened values of all layers, θ all that is trained otherwise. A step of the chain is

    p ← (1 - γ) p - ε² M⁻¹ ∇U + N(0, 2 γ ε² M⁻¹ - (1 - B/N) ε⁴),   v ← v + p,

where M² are running means of squared gradients (Springenberg et al. 2016), and the last term takes
off the noise that gradients of B of N rows bring. Parameters move between the steps by Adam, each
time for one of the latest values of v at random (moving-window Monte Carlo EM); then they stay, and
values are noted at equal distances. All that is random in a piece of steps comes from the seed and
the piece, so that a chain can go on from where a checkpoint left it.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, PRNGKeyArray

from dvip.batches import Batch
from dvip.network import SampleNoise
from dvip.objectives import DeepModel, bound
from dvip.parameters import Fixed, combine, split_trainable
from dvip.persistence import CheckpointError, arrays_of_tree, tree_from_arrays
from dvip.runtime import random_key
from dvip.training.checkpoints import Checkpoint, CheckpointFolder, HeldBackSignals
from dvip.training.diagnostics import Diagnostics, diagnose
from dvip.training.samplers import compiled
from dvip.training.trainer import STOPPING_SIGNALS, Data

__all__ = ["ChainResult", "ChainSettings", "StochasticChain", "sample_values"]

# ε and γ.
STEP_SIZE, FRICTION = 0.01, 0.05
# Values of v that parameters are trained by.
WINDOW = 100
# Of all steps, the share before the first sample; steps of a piece.
SHARE_OF_TUNING, STEPS_AT_ONCE = 2 / 3, 100
# Rows whose predictions are looked at.
MAX_PROBES = 50

Vector = Float[Array, " values"]


@dataclass(frozen=True)
class ChainSettings:
    """How to sample; steps are rounded up to whole pieces."""

    num_steps: int
    batch_size: int
    learning_rate: float
    num_samples: int
    seed: int
    step_size: float = STEP_SIZE

    @property
    def num_pieces(self) -> int:
        """Of them, at least one is for samples."""
        return max(2, -(-self.num_steps // STEPS_AT_ONCE))

    @property
    def steps_at_once(self) -> int:
        """Steps of a piece."""
        return -(-self.num_steps // self.num_pieces)

    @property
    def pieces_of_tuning(self) -> int:
        """Pieces before the first sample."""
        return min(self.num_pieces - 1, max(1, round(SHARE_OF_TUNING * self.num_pieces)))


class ChainState(NamedTuple):
    """All that changes from step to step."""

    position: Vector
    momentum: Vector
    # Running means of gradients and of their squares, and the length of their memory.
    gradient: Vector
    square: Vector
    memory: Vector
    parameters: Float[Array, " parameters"]
    optimiser: Any
    window: Float[Array, "window values"]
    step: Int[Array, ""]


class ChainResult(NamedTuple):
    """The model with samples in its layers, and how they came about."""

    model: DeepModel
    diagnostics: Diagnostics
    history: Float[np.ndarray, " pieces"]


def with_values(model: DeepModel, values: Float[Array, "samples values"]) -> DeepModel:
    """The model whose layers have these samples, each a vector of all layers' values."""
    layers: list[Any] = [stage.layer for stage in model.network.stages]
    shapes = [layer.samples.value.shape[1:] for layer in layers]
    ends = np.cumsum([units * inducing for units, inducing in shapes])[:-1]
    parts = [
        Fixed(part.reshape(-1, *shape))
        for part, shape in zip(jnp.split(values, ends, axis=1), shapes, strict=True)
    ]
    return eqx.tree_at(lambda tree: [s.layer.samples for s in tree.network.stages], model, parts)


def _num_values(model: DeepModel) -> int:
    layers: list[Any] = [stage.layer for stage in model.network.stages]
    return sum(layer.samples.value[0].size for layer in layers)


def _adam() -> Any:
    import optax  # a prediction need not wait for it

    return optax.scale_by_adam()


@compiled
def _start(model: DeepModel) -> ChainState:
    parameters, _ = ravel_pytree(split_trainable(model)[0])
    zeros = jnp.zeros(_num_values(model), parameters.dtype)
    ones = jnp.ones_like(zeros)
    window, step = jnp.zeros((WINDOW, zeros.size), zeros.dtype), jnp.zeros((), jnp.int32)
    adam = _adam().init(parameters)
    return ChainState(zeros, zeros, zeros, ones, ones, parameters, adam, window, step)


@compiled
def _advance(
    model: DeepModel,
    state: ChainState,
    batches: Batch,
    rates: Float[Array, " steps"],
    key: PRNGKeyArray,
    num_data: Float[Array, ""],
    settings: ChainSettings,
    tunes: bool,
) -> tuple[ChainState, tuple[Float[Array, "steps values"], Float[Array, " steps"]]]:
    """A step for each batch; while it tunes, parameters and M move, too."""
    trained, fixed = split_trainable(model)
    unravel, adam = ravel_pytree(trained)[1], _adam()
    batch_size, squared = batches.inputs.shape[1], settings.step_size**2

    def energy(position: Vector, parameters: Array, batch: Batch, key: PRNGKeyArray) -> Array:
        complete = with_values(combine(unravel(parameters), fixed), position[None])
        noise = complete.network.draw_sample_noise(key, settings.num_samples, batch_size)
        return -bound(complete, batch, noise, key, num_data=num_data)

    def step(state: ChainState, xs: tuple[Batch, Array]) -> tuple[ChainState, tuple]:
        batch, rate = xs
        own = jax.random.fold_in(key, state.step)
        first, second, third, fourth = jax.random.split(own, 4)
        value, slope = jax.value_and_grad(energy)(state.position, state.parameters, batch, first)
        if tunes:
            weight = 1 / (state.memory + 1)
            gradient = state.gradient + weight * (slope - state.gradient)
            square = state.square + weight * (jnp.square(slope) - state.square)
            memory = 1 + state.memory * (1 - jnp.square(gradient) / (square + 1e-16))
            state = state._replace(gradient=gradient, square=square, memory=memory)
        inverse = 1 / jnp.sqrt(state.square + 1e-16)
        of_batches = (1 - batch_size / num_data) * squared**2
        variance = jnp.maximum(2 * FRICTION * squared * inverse - of_batches, 0)
        noise = jnp.sqrt(variance) * jax.random.normal(second, inverse.shape)
        momentum = (1 - FRICTION) * state.momentum - squared * inverse * slope + noise
        position = state.position + momentum
        if tunes:
            window = state.window.at[state.step % WINDOW].set(position)
            index = jax.random.randint(third, (), 0, jnp.minimum(state.step + 1, WINDOW))
            slope = jax.grad(energy, 1)(window[index], state.parameters, batch, fourth)
            move, optimiser = adam.update(slope / num_data, state.optimiser)
            parameters = state.parameters - rate * move
            state = state._replace(parameters=parameters, optimiser=optimiser, window=window)
        state = state._replace(position=position, momentum=momentum, step=state.step + 1)
        return state, (position, -value)

    return jax.lax.scan(step, state, (batches, rates))


class StochasticChain:
    """A chain under way: its state, and what it has noted."""

    def __init__(self, model: DeepModel, data: Data, settings: ChainSettings):
        self.model, self.data, self.settings = model, data, settings
        self.state = _start(model)
        self.pieces_of_tuning = settings.pieces_of_tuning
        self.history: list[float] = []
        self.draws = np.zeros((0, _num_values(model)), self.state.position.dtype)
        layer: Any = model.network.stages[0].layer
        self.num_kept = len(layer.samples.value)  # of the model to come
        left = settings.num_pieces - self.pieces_of_tuning
        self.thin = max(1, left * settings.steps_at_once // self.num_kept)

    @property
    def is_done(self) -> bool:
        """Whether all pieces are done."""
        return len(self.history) >= self.settings.num_pieces

    @property
    def steps_done(self) -> int:
        """Steps so far."""
        return len(self.history) * self.settings.steps_at_once

    def advance(self) -> None:
        """The next piece."""
        settings, number = self.settings, self.settings.steps_at_once
        first, tunes = self.steps_done, len(self.history) < self.pieces_of_tuning
        batch_size = min(settings.batch_size, self.data.num_rows)
        batches = self.data.batches(settings.seed, first, number, batch_size)
        passed = (first + np.arange(number)) / (self.pieces_of_tuning * number)
        rates = settings.learning_rate * 0.5 * (1 + np.cos(np.pi * np.minimum(passed, 1)))
        dtype = self.state.position.dtype
        self.state, (positions, values) = _advance(
            self.model,
            self.state,
            Batch(*map(jnp.asarray, batches)),
            jnp.asarray(rates, dtype),
            random_key(settings.seed, len(self.history), impl="rbg"),
            jnp.asarray(self.data.num_rows, dtype),
            settings,
            tunes,
        )
        self.history.append(float(np.mean(values)))
        if not np.isfinite(self.history[-1]):
            raise FloatingPointError(
                f"Sampling stopped before step {first + number:,}: the density is not finite. Use "
                "precision='float64', or look for extreme values in the data."
            )
        if not tunes:
            steps = first - self.pieces_of_tuning * number + 1 + np.arange(number)
            chosen = np.asarray(positions)[steps % self.thin == 0]
            self.draws = np.concatenate([self.draws, chosen])

    def shorten(self) -> None:
        """Ends the tuning, if it is under way: samples are noted from here on, one a step."""
        if len(self.history) < self.pieces_of_tuning:
            self.pieces_of_tuning, self.thin = len(self.history), 1

    def result(self) -> ChainResult:
        """The model with the samples that are kept, of which none lacks."""
        places = (np.arange(self.num_kept) + 0.5) * len(self.draws) / self.num_kept
        kept = jnp.asarray(self.draws[places.astype(int)])
        trained, fixed = split_trainable(self.model)
        parameters = ravel_pytree(trained)[1](self.state.parameters)
        model = with_values(combine(parameters, fixed), kept)
        probes = np.asarray(_predictions(model, jnp.asarray(self._probed().T)))
        nothing = float("nan")
        found = diagnose(probes[None], nothing, nothing, 0.0, self.steps_done)
        return ChainResult(model, found, np.array(self.history))

    def _probed(self) -> Float[np.ndarray, "rows inputs"]:
        number = min(MAX_PROBES, self.data.num_rows)
        return np.asarray(self.data.batches(self.settings.seed, 0, 1, number).inputs[0])

    def checkpoint(self, training: Mapping[str, Any]) -> Checkpoint:
        """All that a continuation needs."""
        arrays = {
            **arrays_of_tree("state", self.state),
            "draws": self.draws,
            "tuning": np.array([self.pieces_of_tuning, self.thin]),
            "bounds": np.array(self.history),
        }
        return Checkpoint(self.steps_done, training, arrays)

    def restore(self, checkpoint: Checkpoint) -> None:
        """As a checkpoint has it."""
        arrays = checkpoint.arrays
        try:
            self.state = tree_from_arrays("state", self.state, arrays)
            self.pieces_of_tuning, self.thin = map(int, arrays["tuning"])
            self.history = arrays["bounds"].tolist()
            if arrays["draws"].shape[1:] != self.draws.shape[1:]:
                raise ValueError("its samples are of other layers.")
            self.draws = arrays["draws"]
        except (KeyError, ValueError) as error:
            raise CheckpointError(
                f"The checkpoint of step {checkpoint.step:,} is of another model: {error}"
            ) from error


@compiled
def _predictions(model: DeepModel, inputs: Array) -> Float[Array, "samples predictions"]:
    """What each sample predicts where nothing else is random."""
    layer: Any = model.network.stages[0].layer
    number = len(layer.samples.value)
    noise = model.network.draw_sample_noise(random_key(0, impl="rbg"), number)
    noise = SampleNoise(jnp.zeros_like(noise.inner), noise.layers)
    mean = model.network.propagate(inputs, noise)[0]
    return jnp.moveaxis(mean, 1, 0).reshape(number, -1)


def sample_values(
    model: DeepModel,
    data: Data,
    settings: ChainSettings,
    on_progress: Callable[[int, float], Any] = lambda steps, value: None,
    checkpoints: CheckpointFolder | None = None,
    identity: Mapping[str, Any] | None = None,
    *,
    max_seconds: float | None = None,
) -> ChainResult:
    """Samples of the values of a model at its start, whose layers are `SampledGPLayer`s.

    With `checkpoints` the chain goes on from the latest; `identity` says which model on which data.
    With `max_seconds` both parts of the chain are shortened. Signals take effect between pieces.
    """
    began, chain = time.monotonic(), StochasticChain(model, data, settings)
    training = {
        **(identity or {}),
        **asdict(settings),
        "sampler": "stochastic-gradient HMC",
        "steps_at_once": settings.steps_at_once,
        "max_iter": settings.num_pieces * settings.steps_at_once,
    }
    if checkpoints is not None:
        checkpoints.check(training)
        if checkpoints.resumed is not None:
            chain.restore(checkpoints.resumed)
    with HeldBackSignals(*STOPPING_SIGNALS) as signals:
        while not chain.is_done:
            passed = time.monotonic() - began
            share = 0.0 if max_seconds is None else passed / max(max_seconds, 1e-6)
            if share >= 1 and len(chain.draws):
                break
            if share > SHARE_OF_TUNING and chain.history:
                chain.shorten()
            chain.advance()
            on_progress(chain.steps_done, chain.history[-1])
            stops = signals.noted is not None
            due = checkpoints is not None and checkpoints.due(chain.steps_done)
            if checkpoints is not None and (stops or due or chain.is_done):
                checkpoints.write(chain.checkpoint(training))
            if stops:
                signals.deliver()
    return chain.result()
