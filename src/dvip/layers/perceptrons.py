"""Fully connected networks, several of the same widths side by side."""

import math
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from dvip.linear_algebra import product
from dvip.processes.bnn import ACTIVATIONS

__all__ = ["Perceptrons"]

LEAKY_RECTIFIER = "leaky-relu"
# The gain that keeps the variance behind a rectifier; other functions take sums of variance 1.
RECTIFIERS = (LEAKY_RECTIFIER, "relu")


def _activation(name: str) -> Callable[[Array], Array]:
    return jax.nn.leaky_relu if name == LEAKY_RECTIFIER else ACTIVATIONS[name]


class Perceptrons(eqx.Module):
    """H networks of the same widths: one for each unit, sample or member."""

    weights: tuple[Float[Array, "networks _ _"], ...]
    biases: tuple[Float[Array, "networks _ 1"], ...]
    activation: str = eqx.field(static=True, default=LEAKY_RECTIFIER)

    @classmethod
    def create(
        cls,
        num_networks: int,
        widths: Sequence[int],
        *,
        activation: str = LEAKY_RECTIFIER,
        bias_scale: float = 0.0,
        last_scale: float = 1.0,
        key: PRNGKeyArray,
    ) -> "Perceptrons":
        """Random weights that keep the variance from layer to layer.

        `widths` begin with that of the inputs and end with that of the outputs. With inputs of
        variance 1 and without biases the outputs have a variance of about `last_scale` squared.
        Functions of few inputs need biases of hidden units: all kinks are at zero without.
        """
        shapes = list(zip(widths[1:], widths[:-1], strict=True))
        keys = jax.random.split(key, len(shapes))
        gain = math.sqrt(2.0) if activation in RECTIFIERS else 1.0
        gains = [gain] * (len(shapes) - 1) + [last_scale]
        weights = tuple(
            gain / math.sqrt(columns) * jax.random.normal(key, (num_networks, rows, columns))
            for gain, key, (rows, columns) in zip(gains, keys, shapes, strict=True)
        )
        biases = [jnp.zeros((num_networks, rows, 1)) for rows, _ in shapes]
        if bias_scale > 0:
            for index, key in enumerate(keys[:-1]):
                white = jax.random.normal(jax.random.fold_in(key, 1), biases[index].shape)
                biases[index] = bias_scale * white
        return cls(weights, tuple(biases), activation)

    def __call__(
        self, values: Float[Array, "*networks inputs batch"]
    ) -> Float[Array, "networks out batch"]:
        """Each network at inputs of its own, or all at the same, without an axis for networks."""
        activation = _activation(self.activation)
        for index, (weights, biases) in enumerate(zip(self.weights, self.biases, strict=True)):
            values = product(weights, values) + biases
            if index < len(self.weights) - 1:
                values = activation(values)
        return values
