"""Gaussian weights and biases of a network layer, and the noise that they are made of."""

import math
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

__all__ = ["Dense", "DenseNoise", "GaussianEntries", "draw_dense_noise"]

# The noise of one network layer, samples x outputs x inputs: its weights, and its biases.
DenseNoise = tuple[Float[Array, "samples _ _"], Float[Array, "samples _ 1"]]


class GaussianEntries(eqx.Module):
    """Independent Gaussian entries mean + scale * noise."""

    mean: Float[Array, "..."]
    log_scale: Float[Array, "..."]

    @classmethod
    def centred(cls, shape: tuple[int, ...], variance: float) -> "GaussianEntries":
        """Zero-mean entries with one mean and one scale for each element of `shape`."""
        return cls(jnp.zeros(shape), jnp.full(shape, 0.5 * math.log(variance)))

    def __call__(self, noise: Float[Array, "samples outputs inputs"]) -> Array:
        """The entries that this noise stands for."""
        return jnp.exp(self.log_scale) * noise + self.mean


class Dense(eqx.Module):
    """The distribution of one network layer's weights and biases."""

    weights: GaussianEntries
    biases: GaussianEntries

    @classmethod
    def centred(cls, weights: tuple[int, ...], biases: tuple[int, ...], fan_in: int) -> "Dense":
        """Means 0; weights of variance 1 / inputs and biases of variance 1."""
        return cls(
            GaussianEntries.centred(weights, 1 / fan_in), GaussianEntries.centred(biases, 1.0)
        )


def draw_dense_noise(
    key: PRNGKeyArray, num_samples: int, shapes: Sequence[tuple[int, int]]
) -> tuple[DenseNoise, ...]:
    """Standard normal noise for network layers with weights of these shapes, and their biases."""
    # One draw, cut into pieces: a generator for each piece would take longer to compile.
    sizes = [size for rows, columns in shapes for size in (rows * columns, rows)]
    white = jax.random.normal(key, (num_samples, sum(sizes)))
    pieces = iter(jnp.split(white, np.cumsum(sizes)[:-1], axis=1))
    return tuple(
        (
            next(pieces).reshape(num_samples, rows, columns),
            next(pieces).reshape(num_samples, rows, 1),
        )
        for rows, columns in shapes
    )
