"""The Bayesian neural network as an implicit process: random weights make random functions."""

import math
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from dvip.processes.process import ImplicitProcess
from dvip.products import product

__all__ = [
    "ACTIVATIONS",
    "BayesianNeuralNetwork",
    "Dense",
    "DenseNoise",
    "GaussianEntries",
    "check_activation",
    "draw_dense_noise",
]

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "tanh": jnp.tanh,
    "relu": jax.nn.relu,
    "sigmoid": jax.nn.sigmoid,
    "softplus": jax.nn.softplus,
    "cos": jnp.cos,
}

# The noise of one network layer, samples x outputs x inputs: its weights, and its biases.
DenseNoise = tuple[Float[Array, "samples _ _"], Float[Array, "samples _ 1"]]


class GaussianEntries(eqx.Module):
    """Independent Gaussian entries mean + scale * noise; the mean is zero where it is None."""

    mean: Float[Array, "..."] | None
    log_scale: Float[Array, "..."]

    @classmethod
    def centred(cls, shape: tuple[int, ...], variance: float, zero_mean: bool) -> "GaussianEntries":
        """Zero-mean entries with one mean and one scale for each element of `shape`."""
        log_scale = jnp.full(shape, 0.5 * math.log(variance))
        return cls(None if zero_mean else jnp.zeros(shape), log_scale)

    def __call__(self, noise: Float[Array, "samples outputs inputs"]) -> Array:
        """The entries that this noise stands for."""
        entries = jnp.exp(self.log_scale) * noise
        return entries if self.mean is None else entries + self.mean


class Dense(eqx.Module):
    """The distribution of one network layer's weights and biases."""

    weights: GaussianEntries
    biases: GaussianEntries


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


def check_activation(name: str) -> None:
    """Raises an error if there is no activation of that name."""
    if name not in ACTIVATIONS:
        known = ", ".join(ACTIVATIONS)
        raise ValueError(f"activation={name!r} is not known; choose from {known}.")


class BayesianNeuralNetwork(ImplicitProcess):
    """A fully connected network with Gaussian weights and biases.

    *Constrained* (the default), the weights of a network layer share one mean and one scale, and so
    do its biases; this keeps the learned prior from over-fitting. *Unconstrained*, each weight and
    each bias has its own. `zero_mean` fixes all means at zero.
    """

    hidden: tuple[int, ...] = eqx.field(static=True, default=(10, 10))
    activation: str = eqx.field(static=True, default="tanh")
    constrained: bool = eqx.field(static=True, default=True)
    zero_mean: bool = eqx.field(static=True, default=False)
    num_inputs: int | None = eqx.field(static=True, default=None)
    layers: tuple[Dense, ...] = ()

    def __check_init__(self) -> None:
        check_activation(self.activation)
        if not self.hidden or any(width < 1 for width in self.hidden):
            raise ValueError(f"hidden={self.hidden!r}: give at least one width, each at least 1.")

    def _shapes(self, num_inputs: int) -> list[tuple[int, int]]:
        widths = (num_inputs, *self.hidden, 1)
        return list(zip(widths[1:], widths[:-1], strict=True))

    def initialise(self, num_inputs: int, key: PRNGKeyArray) -> "BayesianNeuralNetwork":
        """All means 0, all biases of variance 1, all weights of variance 1 / inputs.

        The sums inside the network then start with variances of order 1 whatever its widths, and
        the functions smooth.
        """
        del key

        def dense(rows: int, columns: int) -> Dense:
            weights, biases = ((), ()) if self.constrained else ((rows, columns), (rows, 1))
            return Dense(
                GaussianEntries.centred(weights, 1 / columns, self.zero_mean),
                GaussianEntries.centred(biases, 1.0, self.zero_mean),
            )

        return BayesianNeuralNetwork(
            self.hidden,
            self.activation,
            self.constrained,
            self.zero_mean,
            num_inputs,
            tuple(dense(*shape) for shape in self._shapes(num_inputs)),
        )

    def draw_noise(self, key: PRNGKeyArray, num_samples: int) -> tuple[DenseNoise, ...]:
        """Standard normal noise for every weight and bias of `num_samples` networks."""
        if self.num_inputs is None:
            raise ValueError("Call initialise(num_inputs, key) before drawing noise.")
        return draw_dense_noise(key, num_samples, self._shapes(self.num_inputs))

    def __call__(
        self, noise: tuple[DenseNoise, ...], inputs: Float[Array, "inputs batch"]
    ) -> Float[Array, "samples batch"]:
        """All networks at all inputs. The batch is the last axis: the small products of a network
        layer then run along contiguous memory, which is three times faster than the other order."""
        activation = ACTIVATIONS[self.activation]
        values = inputs  # broadcasts over the samples in the first product
        for index, (layer, (weight_noise, bias_noise)) in enumerate(
            zip(self.layers, noise, strict=True)
        ):
            values = product(layer.weights(weight_noise), values) + layer.biases(bias_noise)
            if index < len(self.layers) - 1:
                values = activation(values)
        return values[:, 0]
