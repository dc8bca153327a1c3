"""The neural sampler: one network of the input and of a noise vector, f_s(x) = net(x, z_s)."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from dvip.linear_algebra import product
from dvip.processes.bnn import ACTIVATIONS
from dvip.processes.process import ImplicitProcess

__all__ = ["NeuralSampler"]


class NeuralSampler(ImplicitProcess):
    """A network with ordinary learned weights; what is random is part of its input.

    Each function has `num_noise` standard normal variables of its own. All functions share the
    weights, so the prior has many parameters and can become anything, over-fitting included.
    """

    hidden: tuple[int, ...] = eqx.field(static=True, default=(20, 20))
    activation: str = eqx.field(static=True, default="tanh")
    num_noise: int = eqx.field(static=True, default=10)
    input_weights: Float[Array, "hidden inputs"] | None = None
    noise_weights: Float[Array, "hidden noise"] | None = None
    weights: tuple[Float[Array, "_ _"], ...] = ()  # of the network layers behind the first
    biases: tuple[Float[Array, "_ 1"], ...] = ()  # of all network layers

    def __check_init__(self) -> None:
        if self.activation not in ACTIVATIONS:
            known = ", ".join(ACTIVATIONS)
            raise ValueError(f"activation={self.activation!r} is not known; choose from {known}.")
        if not self.hidden or any(width < 1 for width in self.hidden):
            raise ValueError(f"hidden={self.hidden!r}: give at least one width, each at least 1.")
        if self.num_noise < 1:
            raise ValueError(f"num_noise={self.num_noise}: give at least 1.")

    def initialise(self, num_inputs: int, key: PRNGKeyArray) -> "NeuralSampler":
        """Gaussian weights of variance 1 / inputs, all biases 0.

        Input and noise have the same part in the sums of the first network layer. Biases would be
        common to all functions, which are to differ; the noise takes their part.
        """
        keys = iter(jax.random.split(key, 2 + len(self.hidden)))

        def weights(rows: int, columns: int) -> Array:
            return jax.random.normal(next(keys), (rows, columns)) / jnp.sqrt(columns)

        widths = (*self.hidden, 1)
        return NeuralSampler(
            self.hidden,
            self.activation,
            self.num_noise,
            weights(self.hidden[0], num_inputs),
            weights(self.hidden[0], self.num_noise),
            tuple(weights(*shape) for shape in zip(widths[1:], widths[:-1], strict=True)),
            tuple(jnp.zeros((width, 1)) for width in widths),
        )

    def draw_noise(self, key: PRNGKeyArray, num_samples: int) -> Float[Array, "noise samples"]:
        """A column of noise for each function."""
        return jax.random.normal(key, (self.num_noise, num_samples))

    def __call__(
        self, noise: Float[Array, "noise samples"], inputs: Float[Array, "inputs batch"]
    ) -> Float[Array, "samples batch"]:
        """All functions at all inputs: columns are pairs of a function and an input, so that each
        network layer is one wide product."""
        activation = ACTIVATIONS[self.activation]
        for_inputs = product(self.input_weights, inputs) + self.biases[0]
        for_noise = product(self.noise_weights, noise)
        values = activation(for_noise[:, :, None] + for_inputs[:, None, :])
        values = values.reshape(self.hidden[0], -1)
        for index, (weights, biases) in enumerate(zip(self.weights, self.biases[1:], strict=True)):
            values = product(weights, values) + biases
            if index < len(self.weights) - 1:
                values = activation(values)
        return values.reshape(noise.shape[1], inputs.shape[1])
