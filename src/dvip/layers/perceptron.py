"""Small deterministic networks, one for each unit of a layer: samplers and classifiers."""

import math
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from dvip.products import product

__all__ = ["Perceptrons"]


class Perceptrons(eqx.Module):
    """H fully connected networks of the same widths, with leaky rectifiers between their layers."""

    weights: tuple[Float[Array, "units _ _"], ...]
    biases: tuple[Float[Array, "units _ 1"], ...]

    @classmethod
    def create(
        cls, num_units: int, widths: Sequence[int], *, last_scale: float = 1.0, key: PRNGKeyArray
    ) -> "Perceptrons":
        """Random weights that keep the variance from layer to layer; no biases.

        With inputs of variance 1 the outputs have a variance of about `last_scale` squared.
        """
        shapes = list(zip(widths[1:], widths[:-1], strict=True))
        keys = jax.random.split(key, len(shapes))
        gains = [math.sqrt(2.0)] * (len(shapes) - 1) + [last_scale]
        weights = tuple(
            gain / math.sqrt(columns) * jax.random.normal(key, (num_units, rows, columns))
            for gain, key, (rows, columns) in zip(gains, keys, shapes, strict=True)
        )
        return cls(weights, tuple(jnp.zeros((num_units, rows, 1)) for rows, _ in shapes))

    def __call__(
        self, values: Float[Array, "units inputs batch"]
    ) -> Float[Array, "units out batch"]:
        """Each unit's network at its inputs."""
        for index, (weights, biases) in enumerate(zip(self.weights, self.biases, strict=True)):
            values = product(weights, values) + biases
            if index < len(self.weights) - 1:
                values = jax.nn.leaky_relu(values)
        return values
