"""The recurrent network as an implicit process over sequences: a GRU with Gaussian weights."""

from dataclasses import replace
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from dvip.linear_algebra import product
from dvip.processes.gaussian_weights import Dense, DenseNoise, draw_dense_noise
from dvip.processes.process import ImplicitProcess

__all__ = ["Recurrent"]


class Recurrent(ImplicitProcess):
    """A gated recurrent unit (GRU) run over a sequence, and a dense layer on its last state.

    With x_t the sequence at time t, h the state, σ the logistic function and ∘ the product of
    entries:

        z = σ(W_z x_t + b_z + U_z h + d_z)        how much of the state is kept
        r = σ(W_r x_t + b_r + U_r h + d_r)        how much of it the candidate sees
        c = tanh(W_c x_t + b_c + r ∘ (U_c h + d_c))
        h ← z ∘ h + (1 - z) ∘ c

    `hidden` is the length of h. All weights and biases are Gaussian. *Constrained* (the default),
    those of the inputs (W, b), of the state (U, d) and of the dense layer each share a mean and a
    scale; *unconstrained*, each has its own. `sequence_shape` is (length, channels); by default
    that of the data, and flat data are sequences of one channel.
    """

    structured: ClassVar[bool] = True

    hidden: int = eqx.field(static=True, default=10)
    constrained: bool = eqx.field(static=True, default=True)
    sequence_shape: tuple[int, ...] | None = eqx.field(static=True, default=None)
    layers: tuple[Dense, ...] = ()

    def __check_init__(self) -> None:
        if self.hidden < 1:
            raise ValueError(f"hidden={self.hidden!r} must be at least 1.")
        shape = self.sequence_shape
        if shape is not None and (len(shape) != 2 or min(shape) < 1):
            raise ValueError(f"sequence_shape={shape!r} must be (length, channels).")

    @property
    def num_channels(self) -> int | None:
        """Of the sequences, once their shape is known."""
        return None if self.sequence_shape is None else self.sequence_shape[1]

    def for_inputs_of_shape(self, shape: tuple[int, ...]) -> "Recurrent":
        """Sequences of (length, channels), or flat."""
        if len(shape) == 1:
            found = self.sequence_shape or (shape[0], 1)
            if found[0] * found[1] != shape[0]:
                raise ValueError(
                    f"The inputs have {shape[0]} columns, but sequence_shape={found} has "
                    f"{found[0] * found[1]} numbers."
                )
        elif len(shape) == 2:
            found = (shape[0], shape[1])
        else:
            raise ValueError(
                f"Inputs of shape {shape} are not sequences: expected (rows, length, channels)."
            )
        if self.sequence_shape not in (None, found):
            raise ValueError(
                f"The inputs are sequences of (length, channels) = {found}, expected "
                f"{self.sequence_shape}."
            )
        return replace(self, sequence_shape=found)

    def _shapes(self) -> list[tuple[int, int]]:
        """Of the weights for the inputs, for the state, and of the dense layer."""
        if self.sequence_shape is None:
            raise ValueError("Call initialise(num_inputs, key) before drawing noise.")
        gates = 3 * self.hidden
        return [(gates, self.sequence_shape[1]), (gates, self.hidden), (1, self.hidden)]

    def initialise(self, num_inputs: int, key: PRNGKeyArray) -> "Recurrent":
        """All means 0, all biases of variance 1, all weights of variance 1 / inputs."""
        del key
        process = self.for_inputs_of_shape((num_inputs,))

        def dense(rows: int, columns: int) -> Dense:
            weights, biases = ((), ()) if self.constrained else ((rows, columns), (rows, 1))
            return Dense.centred(weights, biases, columns)

        return replace(process, layers=tuple(dense(*shape) for shape in process._shapes()))

    def draw_noise(self, key: PRNGKeyArray, num_samples: int) -> tuple[DenseNoise, ...]:
        """Standard normal noise for every weight and bias of `num_samples` networks."""
        return draw_dense_noise(key, num_samples, self._shapes())

    def __call__(
        self, noise: tuple[DenseNoise, ...], inputs: Float[Array, "inputs batch"]
    ) -> Float[Array, "samples batch"]:
        """All networks at all sequences, each flattened with its channels last."""
        assert self.sequence_shape is not None
        of_inputs, of_state, output = (
            (layer.weights(weight_noise), layer.biases(bias_noise))
            for layer, (weight_noise, bias_noise) in zip(self.layers, noise, strict=True)
        )

        def step(state: Array, column: Array) -> tuple[Array, None]:
            from_inputs = product(of_inputs[0], column) + of_inputs[1]
            from_state = product(of_state[0], state) + of_state[1]
            both = from_inputs[:, : 2 * self.hidden] + from_state[:, : 2 * self.hidden]
            kept, seen = jnp.split(jax.nn.sigmoid(both), 2, axis=1)
            candidate = jnp.tanh(
                from_inputs[:, 2 * self.hidden :] + seen * from_state[:, 2 * self.hidden :]
            )
            return kept * state + (1 - kept) * candidate, None

        batch = inputs.shape[1]
        start = jnp.zeros((of_inputs[0].shape[0], self.hidden, batch), inputs.dtype)
        state, _ = jax.lax.scan(step, start, inputs.reshape(*self.sequence_shape, batch))
        return (product(output[0], state) + output[1])[:, 0]
