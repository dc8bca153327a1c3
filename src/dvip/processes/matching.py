"""A network prior whose functions resemble those of a Gaussian process.

Flam-Shepherd, Requeima and Duvenaud 2017: means and scales of the weights are learned so that
functions of the network are distributed as those of a Gaussian process, of which everybody knows
what its parameters mean. Both are compared by the moments of the values at random points. With C
and m the covariance and the mean over networks, and K the covariance of the process,

    (‖C - K‖² + ‖m‖²) / ‖K‖²,

with Frobenius norms, is descended by Adam, with new points and networks at every step.
"""

import math
from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from dvip.linear_algebra import product
from dvip.processes.gp import GaussianProcess
from dvip.processes.process import mean_and_features
from dvip.runtime import random_key

if TYPE_CHECKING:
    from dvip.processes.bnn import BayesianNeuralNetwork

__all__ = ["covariance_of", "matched"]

NUM_POINTS, NUM_FUNCTIONS = 20, 200
FIRST_RATE = 0.03

Points = Float[Array, "inputs points"]


def covariance_of(process: GaussianProcess, points: Points) -> Float[Array, "points points"]:
    """The covariance of the process between all points, in closed form."""
    assert process.log_lengthscales is not None  # of an initialised process, as the amplitude
    assert process.log_amplitude is not None
    scaled = points * jnp.exp(-process.log_lengthscales)[:, None]
    squares = jnp.sum(jnp.square(scaled[:, :, None] - scaled[:, None]), axis=0)
    variance = jnp.exp(2 * process.log_amplitude)
    distance = jnp.sqrt(squares)
    match process.kernel:
        case "rbf":
            return variance * jnp.exp(-0.5 * squares)
        case "matern12":
            return variance * jnp.exp(-distance)
        case "matern32":
            root = math.sqrt(3) * distance
            return variance * (1 + root) * jnp.exp(-root)
    root = math.sqrt(5) * distance
    return variance * (1 + root + jnp.square(root) / 3) * jnp.exp(-root)


def matched(
    network: "BayesianNeuralNetwork", process: GaussianProcess, *, steps: int, seed: int
) -> "BayesianNeuralNetwork":
    """The initialised network with other means and scales: those that resemble the process most."""
    import optax  # as in `training/step.py`

    if not isinstance(steps, int) or steps < 1:
        raise ValueError(f"steps={steps!r} must be a whole number of at least 1.")
    num_inputs = network.num_inputs
    assert num_inputs is not None  # of an initialised network
    if process.log_lengthscales is None:
        process = process.initialise(num_inputs, random_key(seed))
    lengthscales = process.log_lengthscales
    if lengthscales is None or len(lengthscales) != num_inputs:
        raise ValueError(
            f"The process was initialised for other than {num_inputs} inputs: give one that was "
            "initialised for as many, or not yet."
        )
    adam = optax.adam(optax.cosine_decay_schedule(FIRST_RATE, steps))

    def distance(network: "BayesianNeuralNetwork", key: PRNGKeyArray) -> Float[Array, ""]:
        point_key, noise_key = jax.random.split(key)
        points = jax.random.normal(point_key, (num_inputs, NUM_POINTS))
        values = network(network.draw_noise(noise_key, NUM_FUNCTIONS), points)
        mean, features = mean_and_features(values)
        wanted = covariance_of(process, points)
        difference = product(features[0].T, features[0]) - wanted
        squares = jnp.sum(jnp.square(difference)) + jnp.sum(jnp.square(mean))
        return squares / jnp.sum(jnp.square(wanted))

    def of_groups(network: "BayesianNeuralNetwork") -> list:
        return [part for part in (network.mean, network.log_scale) if part is not None]

    @jax.jit
    def descended(arrays: list[Array], key: PRNGKeyArray) -> list[Array]:
        def loss(arrays: list[Array], key: PRNGKeyArray) -> Float[Array, ""]:
            return distance(eqx.tree_at(of_groups, network, arrays), key)

        def step(carry: tuple, key: PRNGKeyArray) -> tuple[tuple, None]:
            arrays, state = carry
            updates, state = adam.update(jax.grad(loss)(arrays, key), state)
            return (optax.apply_updates(arrays, updates), state), None

        keys = jax.random.split(key, steps)
        return jax.lax.scan(step, (arrays, adam.init(arrays)), keys)[0][0]

    found = descended(of_groups(network), random_key(seed))
    return eqx.tree_at(of_groups, network, found)
