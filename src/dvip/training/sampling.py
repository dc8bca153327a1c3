"""Sampling of a posterior: several chains side by side, each in pieces of compiled steps.

A chain begins at a random place, goes uphill for a while, is tuned, and then draws. All that is
random in a piece comes from the seed, the chain and the piece, so that a chain can go on from
where a checkpoint left it. Chains know nothing of each other.
"""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from threading import Event, Lock
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from dvip.batches import ArrayData, Batch
from dvip.objectives import DeepModel
from dvip.persistence import CheckpointError, arrays_of_tree, tree_from_arrays
from dvip.runtime import precision, random_key
from dvip.sampled import SampledModel, spread
from dvip.training.checkpoints import Checkpoint, CheckpointFolder, HeldBackSignals
from dvip.training.diagnostics import Diagnostics, diagnose, split_r_hat
from dvip.training.members import side_by_side
from dvip.training.samplers import (
    DRAWS_AT_ONCE,
    MCLMC,
    NUTS,
    Place,
    Posterior,
    Sampler,
    ascend,
    compiled,
)
from dvip.training.trainer import STOPPING_SIGNALS

__all__ = ["Chain", "SamplingResult", "SamplingSettings", "sample_posterior", "total_steps"]

# Draws of a chain, from which diagnostics are computed, and samples of all chains that are kept.
NUM_DRAWS, NUM_KEPT = 200, 200
# Pieces of a stretch of the tuning.
PIECES_OF_STRETCH = 4
# How far from its prior mean a chain begins, and the steps that it goes uphill.
FIRST_SPREAD, STEPS_UPHILL = 0.3, 200
# Rows whose predictions are looked at.
MAX_PROBES = 50
# In one layer, up to so many numbers are sampled by NUTS; a trajectory of it counts as so many
# steps. (60 rows, 10 prior samples, one seed; effective samples of the worst prediction for a
# second of a core: with one layer NUTS has 60 and MCLMC 16, with two NUTS has 3 and MCLMC 6.)
MAX_FOR_NUTS, STEPS_OF_TRAJECTORY = 50, 10
# Of a limited time, the share that may be spent before the first draw.
SHARE_OF_TUNING = 0.4


@dataclass(frozen=True)
class SamplingSettings:
    """How to sample: steps of each chain once it is tuned, chains, and a seed."""

    num_steps: int
    num_chains: int
    seed: int
    # "mclmc", "nuts", or "auto": what is better for so many parameters.
    sampler: str = "auto"

    def chosen_sampler(self, posterior: Posterior) -> Sampler:
        """By its name, or by the number of parameters."""
        few = posterior.size <= MAX_FOR_NUTS and len(posterior.fixed.network.stages) == 1
        return {"mclmc": MCLMC, "nuts": NUTS, "auto": NUTS if few else MCLMC}[self.sampler]()

    def steps_between(self, sampler: Sampler) -> int:
        """From one draw to the next."""
        steps = -(-self.num_steps // NUM_DRAWS)
        return max(1, steps // STEPS_OF_TRAJECTORY) if isinstance(sampler, NUTS) else steps

    @property
    def num_pieces(self) -> int:
        """Of draws."""
        return -(-min(NUM_DRAWS, self.num_steps) // DRAWS_AT_ONCE)


@dataclass(frozen=True)
class SamplingResult:
    """The samples that are kept, and how they came about."""

    model: SampledModel
    diagnostics: Diagnostics
    # The mean log-density of each piece of each chain; not a number where a chain has no more.
    history: Float[np.ndarray, "chains pieces"]


class Chain:
    """A chain under way: its state, and what it has drawn."""

    def __init__(self, posterior: Posterior, settings: SamplingSettings, index: int):
        self.posterior, self.settings, self.index = posterior, settings, index
        self.sampler = settings.chosen_sampler(posterior)
        self.thin = settings.steps_between(self.sampler)
        self.state: Any = None
        # Stretches that are done: the way uphill, then those of the tuning.
        self.stage = 0
        self.history: list[float] = []
        size = posterior.size
        self.draws = np.zeros((0, size), posterior.rows.inputs.dtype)
        self.probes = np.zeros((0, 0))
        # Of each piece of draws: mean error, its square's mean, and the share of failed steps.
        self.errors = np.zeros((0, 3))

    @property
    def steps_at_once(self) -> int:
        """Steps of a piece."""
        return self.thin * DRAWS_AT_ONCE

    @property
    def _tunings(self) -> tuple[Callable[..., Any], ...]:
        return self.sampler.tunings()

    @property
    def pieces_before(self) -> int:
        """What comes before the first draw, as pieces."""
        return 1 + len(self._tunings) * PIECES_OF_STRETCH

    @property
    def max_iter(self) -> int:
        """Steps in all."""
        return (self.pieces_before + self.settings.num_pieces) * self.steps_at_once

    @property
    def steps_done(self) -> int:
        """Of these."""
        return len(self.history) * self.steps_at_once

    @property
    def is_done(self) -> bool:
        """Whether there is nothing more to draw."""
        return len(self.errors) >= self.settings.num_pieces

    @property
    def num_programs(self) -> int:
        """For the way uphill, each stretch of the tuning, and draws."""
        return 2 + len(self._tunings)

    @property
    def programs_used(self) -> int:
        """How many of them, one after another, were used."""
        return self.stage + (len(self.errors) > 0)

    def _key(self) -> Any:
        # Of the generator that compiles fastest.
        return random_key(self.settings.seed, self.index, len(self.history), impl="rbg")

    def advance(self, *, hurry: bool = False) -> None:
        """The next stretch or piece; in a hurry, the tuning goes on to its last."""
        if self.stage == 0:
            self._begin()
        elif self.stage <= len(self._tunings):
            if hurry and self.stage > 1:
                self.stage = len(self._tunings)
            self._tune()
        else:
            self._draw()

    def _begin(self) -> None:
        size, dtype = self.posterior.size, self.draws.dtype
        position = FIRST_SPREAD * jax.random.normal(self._key(), (size,), dtype)
        place = ascend(self.posterior, position, STEPS_UPHILL)
        self.state = self.sampler.start(place, self._key())
        self._note(float(place.log_density), 1)
        if not np.isfinite(self.history[-1]):
            raise FloatingPointError(
                "The density of the posterior is not finite where a chain begins: use "
                "precision='float64', or look for extreme values in the data."
            )

    def _tune(self) -> None:
        tune = self._tunings[self.stage - 1]
        num_steps = PIECES_OF_STRETCH * self.steps_at_once
        self.state = tune(self.posterior, self.state, self._key(), num_steps)
        self._note(float(self.state[0].logdensity), PIECES_OF_STRETCH)

    def _note(self, log_density: float, num_pieces: int) -> None:
        self.stage += 1
        self.history += [log_density] * num_pieces

    def _draw(self) -> None:
        self.state, draws = self.sampler.draw(
            self.posterior, self.state, self._key(), DRAWS_AT_ONCE, self.thin
        )
        failed, errors = np.asarray(draws.failed), np.asarray(draws.errors, dtype=float)
        made = errors[~failed] if not failed.all() else np.zeros(1)
        row = [made.mean(), np.square(made).mean(), failed.mean()]
        self.errors = np.vstack([self.errors, row])
        self.draws = np.concatenate([self.draws, np.asarray(draws.positions)])
        self.history.append(float(np.mean(draws.log_densities)))
        self._predict(np.asarray(draws.positions))

    def _predict(self, positions: np.ndarray) -> None:
        inputs = self.posterior.rows.inputs
        chosen = inputs[jnp.asarray(spread(MAX_PROBES, len(inputs)))]
        new = np.asarray(_values(self.posterior, positions, chosen))
        self.probes = np.concatenate([self.probes.reshape(-1, new.shape[1]), new])

    def checkpoint(self, training: Mapping[str, Any]) -> Checkpoint:
        """All that a continuation needs."""
        arrays = {
            **arrays_of_tree("state", self.state),
            "draws": self.draws,
            "errors": self.errors,
            "stage": np.array(self.stage),
            "bounds": np.array(self.history),
        }
        return Checkpoint(self.steps_done, training, arrays)

    def restore(self, checkpoint: Checkpoint) -> None:
        """As a checkpoint has it."""
        arrays = checkpoint.arrays
        position = jnp.zeros(self.posterior.size, self.draws.dtype)
        place = Place(position, position[0], position)
        skeleton = self.sampler.start(place, self._key())
        try:
            self.state = tree_from_arrays("state", skeleton, arrays)
            self.draws, self.errors = arrays["draws"], arrays["errors"]
            self.history, self.stage = arrays["bounds"].tolist(), int(arrays["stage"])
            shapes = (len(self.errors) * DRAWS_AT_ONCE, self.posterior.size)
            if self.draws.shape != shapes or self.errors.shape[1:] != (3,):
                raise ValueError(f"draws of the shape {self.draws.shape}.")
        except (KeyError, ValueError) as error:
            raise CheckpointError(
                f"The checkpoint of step {checkpoint.step:,} is of another model: {error}"
            ) from error
        for first in range(0, len(self.draws), DRAWS_AT_ONCE):
            self._predict(self.draws[first : first + DRAWS_AT_ONCE])

    def run(
        self,
        on_progress: Callable[["Chain"], None],
        wait: Callable[[int], Any],
        checkpoints: CheckpointFolder | None,
        identity: Mapping[str, Any],
        deadline: float | None,
        signals: Any,
    ) -> None:
        """To the end, or until there is no time left. Signals take effect between two pieces.

        `wait` is called with the number of each program before it is used.
        """
        training = {
            **identity,
            **asdict(self.settings),
            "chain": self.index,
            "steps_at_once": self.steps_at_once,
            "max_iter": self.max_iter,
        }
        if checkpoints is not None:
            checkpoints.check(training)
            if checkpoints.resumed is not None:
                self.restore(checkpoints.resumed)
        began = time.monotonic()
        with signals or HeldBackSignals(*STOPPING_SIGNALS) as signals:
            while not self.is_done:
                now = time.monotonic()
                share = 0.0 if deadline is None else (now - began) / max(1e-6, deadline - began)
                if share >= 1 and len(self.errors) > 0:
                    break
                wait(min(self.stage, self.num_programs - 1))
                self.advance(hurry=share > SHARE_OF_TUNING)
                on_progress(self)
                stops = signals.noted is not None
                due = checkpoints is not None and checkpoints.due(self.steps_done)
                if checkpoints is not None and (stops or due or self.is_done):
                    checkpoints.write(self.checkpoint(training))
                if stops:
                    signals.deliver()


@compiled
def _values(posterior: Posterior, positions: Any, inputs: Any) -> Any:
    return posterior.values(jnp.asarray(positions), inputs)


def sample_posterior(
    model: DeepModel,
    data: ArrayData,
    settings: SamplingSettings,
    on_progress: Callable[[int, str], Any] = lambda steps, state: None,
    checkpoints: CheckpointFolder | None = None,
    identity: Mapping[str, Any] | None = None,
    *,
    max_seconds: float | None = None,
    only_coefficients: bool = False,
) -> SamplingResult:
    """Samples of the posterior of a model at its start, given all rows.

    `on_progress` hears the steps of all chains and how well they agree. With `checkpoints` the
    chains go on from their latest; `identity` says which model on which data. With `max_seconds`
    chains are shortened. With `only_coefficients` the parameters of priors and likelihood stay as
    they are.
    """
    deadline = None if max_seconds is None else time.monotonic() + max_seconds
    rows: Any = (data.inputs, data.targets, data.weights)
    posterior = Posterior.of(model, Batch(*rows), only_coefficients=only_coefficients)
    if max_seconds is not None:
        settings = _in_time(settings, posterior, max_seconds, checkpoints)
    chains = [Chain(posterior, settings, index) for index in range(settings.num_chains)]
    steps, lock = [0] * len(chains), Lock()
    compiled = [Event() for _ in range(chains[0].num_programs)]

    def report(chain: Chain) -> None:
        with lock:
            steps[chain.index] = chain.steps_done
            on_progress(sum(steps), _state(chains))
        if chain is chains[0]:
            release(chain.programs_used)

    def release(number: int = len(compiled)) -> None:
        for event in compiled[:number]:
            event.set()

    def run(index: int, signals: Any = None) -> None:
        folder = None if checkpoints is None else checkpoints.of_member(index)
        # The first compiles for all.
        wait = (lambda program: compiled[program].wait()) if index else (lambda program: True)
        with precision(data.inputs.dtype):  # threads do not inherit it
            chains[index].run(report, wait, folder, identity or {}, deadline, signals)
        report(chains[index])

    num_threads = len(chains) if jax.default_backend() == "cpu" else 1
    side_by_side(run, len(chains), num_threads, at_the_end=release)
    return _result(posterior, chains)


def _in_time(
    settings: SamplingSettings,
    posterior: Posterior,
    max_seconds: float,
    checkpoints: CheckpointFolder | None,
) -> SamplingSettings:
    """Fewer steps where there is no time for all: pieces and stretches are in proportion to them.

    Chains that go on have the steps that they had.
    """
    before = None if checkpoints is None else checkpoints.of_member(0).resumed
    if before is not None:
        steps = before.training.get("num_steps", settings.num_steps)
        return replace(settings, num_steps=min(settings.num_steps, int(steps)))
    position = jnp.zeros(posterior.size, posterior.rows.inputs.dtype)
    jax.block_until_ready(ascend(posterior, position, STEPS_UPHILL))  # compiled
    began = time.monotonic()
    jax.block_until_ready(ascend(posterior, position, STEPS_UPHILL))
    gradient = (time.monotonic() - began) / STEPS_UPHILL
    rounds = max(1.0, settings.num_chains / (os.cpu_count() or 1))
    # Two gradients a step, and about as many steps for the tuning.
    possible = max_seconds / (4 * gradient * rounds)
    return replace(settings, num_steps=max(1, min(settings.num_steps, int(possible))))


def total_steps(model: DeepModel, settings: SamplingSettings) -> int:
    """Of all chains, with those before the first draw: what a progress bar goes to."""
    nothing = Batch(jnp.zeros((0, 0)), jnp.zeros((0, 0)), jnp.zeros(0))
    return settings.num_chains * Chain(Posterior.of(model, nothing), settings, 0).max_iter


def _state(chains: list[Chain]) -> str:
    """How well chains agree so far, in words."""
    number = min(len(chain.probes) for chain in chains)
    if number < DRAWS_AT_ONCE:
        return "tuning"
    r_hat = split_r_hat(np.stack([chain.probes[:number] for chain in chains]))
    return f"{number * len(chains)} draws, R̂ {r_hat:.2f}"


def _result(posterior: Posterior, chains: list[Chain]) -> SamplingResult:
    number = min(len(chain.draws) for chain in chains)
    kept = spread(-(-NUM_KEPT // len(chains)), number)
    positions = np.concatenate([chain.draws[:number][kept] for chain in chains])
    model: SampledModel = SampledModel(_parameters(posterior, positions), posterior.fixed)
    mean, square, failed = np.mean(np.concatenate([chain.errors for chain in chains]), axis=0)
    exact = isinstance(chains[0].sampler, NUTS)
    diagnostics = diagnose(
        np.stack([chain.probes[:number] for chain in chains]),
        float("nan") if exact else float((square - mean**2) / posterior.size),
        float(mean) if exact else float("nan"),
        float(failed),
        number * chains[0].thin,
    )
    longest = max(len(chain.history) for chain in chains)
    history = np.full((len(chains), longest), np.nan)
    for row, chain in zip(history, chains, strict=True):
        row[: len(chain.history)] = chain.history
    return SamplingResult(model, diagnostics, history)


@compiled
def _parameters(posterior: Posterior, positions: Any) -> DeepModel:
    return jax.lax.map(posterior.parameters, jnp.asarray(positions))
