"""What is sampled, as a density of one vector, and the compiled programs that move through it.

The vector is whitened: a priori all its entries are standard normal. Coefficients are what they
are; a parameter of a prior or of the likelihood is where it starts plus a multiple of its entry.
BlackJAX makes the steps. It is imported where they are compiled: a prediction need not wait for it.
"""

import math
from collections.abc import Callable
from functools import cache, wraps
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from dvip.batches import Batch
from dvip.objectives import DeepModel, log_joint
from dvip.parameters import combine, split_trainable
from dvip.runtime import small_program_options

__all__ = [
    "DRAWS_AT_ONCE",
    "MCLMC",
    "NUTS",
    "Place",
    "Posterior",
    "Sampler",
    "Tuning",
    "ascend",
    "compiled",
]

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """The function as a program, compiled for what JAX computes on when it is first called."""

    @cache
    def program() -> Any:
        options = small_program_options(jax.default_backend())
        # (The annotations of filter_jit lack the options of jax.jit.)
        jit: Any = eqx.filter_jit
        return jit(function, compiler_options=options)

    @wraps(function)
    def call(*arguments: Any) -> Any:
        return program()(*arguments)

    return call  # type: ignore[return-value]


# How far parameters are from where they start, a priori.
SPREAD_OF_PRIOR, SPREAD_OF_LIKELIHOOD = 1.0, 3.0

# Adam's, on the way from a random place to where the density is not small.
RATE_OF_ASCENT = 0.03

Vector = Float[Array, " parameters"]


class Posterior(eqx.Module):
    """The density of coefficients and parameters given all rows."""

    # A model whose layers are known, as its sampled arrays at the start and everything else.
    start: DeepModel
    fixed: DeepModel
    rows: Batch
    # Of parameters around their start, a priori: of the prior's, and of the likelihood's.
    spreads: tuple[float, float] = eqx.field(static=True)

    @classmethod
    def of(
        cls,
        model: DeepModel,
        rows: Batch,
        *,
        only_coefficients: bool = False,
        spreads: tuple[float, float] = (SPREAD_OF_PRIOR, SPREAD_OF_LIKELIHOOD),
    ) -> "Posterior":
        """That of a model at its start; its parameters may be taken as they are."""
        model = model.known()
        if only_coefficients:
            chosen = jax.tree.map(lambda _: False, model)
            chosen = eqx.tree_at(_coefficients, chosen, replace_fn=lambda _: True)
            start, fixed = eqx.partition(model, chosen)
        else:
            start, fixed = split_trainable(model)
        return cls(start, fixed, Batch(*map(jnp.asarray, rows)), spreads)

    @property
    def size(self) -> int:
        """How many numbers are sampled."""
        return sum(leaf.size for leaf in jax.tree.leaves(self.start))

    def parameters(self, position: Vector) -> DeepModel:
        """The sampled arrays of the model at a place."""
        flat, unravel = ravel_pytree(self.start)
        return unravel(flat + self._spreads() * position)

    def _spreads(self) -> Vector:
        def filled(tree: Any, value: float) -> Any:
            return jax.tree.map(lambda leaf: jnp.full_like(leaf, value), tree)

        spreads = DeepModel(
            filled(self.start.network, self.spreads[0]),
            filled(self.start.likelihood, self.spreads[1]),
        )
        spreads = eqx.tree_at(_coefficients, spreads, replace_fn=jnp.ones_like)
        return ravel_pytree(spreads)[0]

    def log_density(self, position: Vector) -> Float[Array, ""]:
        """log p(y, a, θ) but for a constant."""
        model = combine(self.parameters(position), self.fixed)
        # The prior of the coefficients is part of the joint density; here it is that of all.
        coefficients = sum((layer.kl() for layer in model.network.known_layers), jnp.zeros(()))
        return log_joint(model, self.rows) + coefficients - 0.5 * jnp.sum(jnp.square(position))

    def values(
        self, positions: Float[Array, "draws parameters"], inputs: Float[Array, "rows inputs"]
    ) -> Float[Array, "draws predictions"]:
        """What the last layer's units are in each of some samples: its predictions."""

        def of_sample(position: Vector) -> Array:
            model = combine(self.parameters(position), self.fixed)
            return model.network.known_values(inputs.T).ravel()

        return jax.lax.map(of_sample, positions)


def _coefficients(model: DeepModel) -> list[Any]:
    return [layer.coefficients for layer in model.network.known_layers]


class Place(NamedTuple):
    """A vector with its log-density, and the gradient of it."""

    position: Vector
    log_density: Float[Array, ""]
    gradient: Vector


@compiled
def ascend(posterior: Posterior, position: Vector, num_steps: int) -> Place:
    """Where Adam comes to on its way uphill; what is not finite is not gone to."""
    import optax

    adam = optax.adam(RATE_OF_ASCENT)
    # The last step is of length zero: density and gradient are those of where it ends.
    moves = jnp.arange(num_steps + 1) < num_steps

    def step(carry: tuple[Place, Any], moves: Array) -> tuple[tuple[Place, Any], None]:
        position, state = carry[0].position, carry[1]
        value, gradient = jax.value_and_grad(posterior.log_density)(position)
        finite = moves & jnp.all(jnp.isfinite(gradient))
        change, state = adam.update(jnp.where(finite, -gradient, 0), state)
        return (Place(jnp.where(moves, position + change, position), value, gradient), state), None

    start = Place(position, jnp.zeros_like(position[0]), jnp.zeros_like(position))
    (place, _), _ = jax.lax.scan(step, (start, adam.init(position)), moves)
    return place


class Tuning(NamedTuple):
    """What a sampler is tuned by: the length after which a direction is forgotten, and steps."""

    length: Float[Array, ""]
    step_size: Float[Array, ""]
    # The variances of the entries, for which steps make up.
    variances: Vector


class Draws(NamedTuple):
    """Places at equal distances, their log-densities, and what went wrong between them."""

    positions: Float[Array, "draws parameters"]
    log_densities: Float[Array, " draws"]
    # Of each step: its error of the energy, or the acceptance of a trajectory; whether it failed.
    errors: Float[Array, "draws steps"]
    failed: Bool[Array, "draws steps"]


# A sampler's state and its tuning.
State = tuple[Any, Tuning]


class Sampler(eqx.Module):
    """A way to move through a density: where it starts, how it is tuned, how it draws."""

    def start(self, place: Place, key: PRNGKeyArray) -> State:
        """Before the first step."""
        raise NotImplementedError

    def tunings(self) -> tuple[Callable[..., State], ...]:
        """The stretches of its tuning, one after another; each takes what `draw` takes."""
        raise NotImplementedError

    def draw(
        self,
        posterior: Posterior,
        state: State,
        key: PRNGKeyArray,
        num_draws: int,
        num_steps: int,
    ) -> tuple[State, Draws]:
        """Places, each so many steps from the one before."""
        raise NotImplementedError


# The variance of the energy's errors, for each entry of the vector, that steps are tuned to. Once
# that is done, steps whose error is beyond this many times as much, as a square, are not made.
ENERGY_VARIANCE, MAX_RATIO = 1e-4, 1e5
# Of the first step, as a share of the root of the vector's length.
FIRST_STEP = 0.05
# Stretches in which step size and variances are tuned; the first share of each is for the step.
NUM_STRETCHES, SHARE_OF_STEP = 3, 0.25
# Calls of the program that draws, of so many draws each, after which steps are corrected; by this
# factor at least.
PIECES_TO_CORRECT, DRAWS_AT_ONCE = 4, 10
LEAST_FACTOR = 0.3


class MCLMC(Sampler):
    """Microcanonical Langevin dynamics, without a correction: for many parameters.

    Its steps are tuned to errors of the energy that are small enough not to matter.
    """

    def _kernel(self, max_ratio: float = math.inf) -> Any:
        import blackjax

        return blackjax.mclmc.build_kernel(
            desired_energy_var=ENERGY_VARIANCE, desired_energy_var_max_ratio=max_ratio
        )

    @compiled
    def start(self, place: Place, key: PRNGKeyArray) -> State:
        """A random direction, and steps of a guessed size."""
        from blackjax.mcmc.integrators import IntegratorState
        from blackjax.util import generate_unit_vector

        direction = generate_unit_vector(key, place.position)
        root = jnp.sqrt(jnp.asarray(place.position.size, place.position.dtype))
        tuning = Tuning(root, FIRST_STEP * root, jnp.ones_like(place.position))
        return IntegratorState(place.position, direction, *place[1:]), tuning

    def tunings(self) -> tuple[Callable[..., State], ...]:
        """Step size and variances, several times; at last a look at the errors.

        The length is the root of the number of entries: once these are scaled by their variances,
        that is the size of what is sampled.
        """
        return (*(self._tune_steps,) * NUM_STRETCHES, self._correct_steps)

    def _correct_steps(
        self, posterior: Posterior, state: State, key: PRNGKeyArray, num_steps: int
    ) -> State:
        """Shortens steps until the errors of a stretch are what they are to be.

        The tuning follows a running mean, which says little of rare errors that are large. Their
        variance grows as the sixth power of the step.
        """
        thin = max(1, num_steps // (PIECES_TO_CORRECT * DRAWS_AT_ONCE))
        errors, failed = [], []
        for number in range(PIECES_TO_CORRECT):
            piece = jax.random.fold_in(key, number)
            state, draws = self.draw(posterior, state, piece, DRAWS_AT_ONCE, thin)
            errors.append(draws.errors)
            failed.append(draws.failed)
        variance = jnp.var(jnp.stack(errors)) / posterior.size
        variance += jnp.mean(jnp.stack(failed)) * MAX_RATIO * ENERGY_VARIANCE
        factor = jnp.clip((ENERGY_VARIANCE / variance) ** (1 / 6), LEAST_FACTOR, 1.0)
        return state[0], state[1]._replace(step_size=state[1].step_size * factor)

    @compiled
    def _tune_steps(
        self, posterior: Posterior, state: State, key: PRNGKeyArray, num_steps: int
    ) -> State:
        from blackjax.adaptation.mclmc_adaptation import (
            MCLMCAdaptationState,
            make_L_step_size_adaptation,
        )

        tune = make_L_step_size_adaptation(
            self._kernel(),
            posterior.log_density,
            posterior.size,
            frac_tune1=SHARE_OF_STEP,
            frac_tune2=1 - SHARE_OF_STEP,
            diagonal_preconditioning=True,
            desired_energy_var=ENERGY_VARIANCE,
        )
        after, tuned = tune(state[0], MCLMCAdaptationState(*state[1]), num_steps, key)
        return after, Tuning(*map(_as(state[1].step_size), tuned))

    @compiled
    def draw(
        self,
        posterior: Posterior,
        state: State,
        key: PRNGKeyArray,
        num_draws: int,
        num_steps: int,
    ) -> tuple[State, Draws]:
        """Places, each so many steps from the one before."""
        kernel, tuning = self._kernel(MAX_RATIO), state[1]

        def step(state: Any, key: PRNGKeyArray) -> tuple[Any, Any]:
            after, info = kernel(
                key,
                state,
                posterior.log_density,
                tuning.variances,
                tuning.length,
                tuning.step_size,
            )
            # A step that was not made has no error.
            failed = ~info.nonans | (info.energy_change == 0)
            return after, (info.energy_change, failed)

        after, draws = _draws(step, state[0], key, num_draws, num_steps)
        return (after, tuning), draws


class NUTS(Sampler):
    """The No-U-Turn sampler, which is exact: for few parameters."""

    @compiled
    def start(self, place: Place, key: PRNGKeyArray) -> State:
        """A place, and steps of a guessed size."""
        from blackjax.mcmc.hmc import HMCState

        del key
        ones = jnp.ones_like(place.position)
        tuning = Tuning(jnp.zeros_like(ones[0]), jnp.full_like(ones[0], 0.1), ones)
        return HMCState(*place), tuning

    def tunings(self) -> tuple[Callable[..., State], ...]:
        """All of it at once, in windows of its own."""
        return (self._tune,)

    @compiled
    def _tune(self, posterior: Posterior, state: State, key: PRNGKeyArray, num_steps: int) -> State:
        import blackjax

        tune = blackjax.window_adaptation(blackjax.nuts, posterior.log_density)
        (after, found), _ = tune.run(key, state[0].position, num_steps)
        tuning = Tuning(state[1].length, found["step_size"], found["inverse_mass_matrix"])
        return after, Tuning(*map(_as(state[1].step_size), tuning))

    @compiled
    def draw(
        self,
        posterior: Posterior,
        state: State,
        key: PRNGKeyArray,
        num_draws: int,
        num_steps: int,
    ) -> tuple[State, Draws]:
        """Places, each so many trajectories from the one before."""
        import blackjax

        kernel, tuning = blackjax.nuts.build_kernel(), state[1]

        def step(state: Any, key: PRNGKeyArray) -> tuple[Any, Any]:
            after, info = kernel(
                key, state, posterior.log_density, tuning.step_size, tuning.variances
            )
            return after, (info.acceptance_rate, info.is_divergent)

        after, draws = _draws(step, state[0], key, num_draws, num_steps)
        return (after, tuning), draws


def _draws(
    step: Callable[[Any, PRNGKeyArray], tuple[Any, Any]],
    state: Any,
    key: PRNGKeyArray,
    num_draws: int,
    num_steps: int,
) -> tuple[Any, Draws]:
    def draw(state: Any, key: PRNGKeyArray) -> tuple[Any, Draws]:
        state, (errors, failed) = jax.lax.scan(step, state, jax.random.split(key, num_steps))
        return state, Draws(state.position, state.logdensity, errors, failed)

    return jax.lax.scan(draw, state, jax.random.split(key, num_draws))


def _as(like: Array) -> Callable[[Any], Array]:
    """Arrays of the type of this one, whatever a library makes of them."""
    return lambda value: jnp.asarray(value, like.dtype)
