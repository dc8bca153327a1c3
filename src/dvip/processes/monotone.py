"""Bayesian neural networks that are monotone in chosen columns.

A network whose weights are positive, but for those of the first layer that read other columns, is
increasing in the chosen ones: activations are increasing, and so are sums of increasing functions.
"""

import dataclasses
import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from dvip.processes.bnn import INCREASING, BayesianNeuralNetwork
from dvip.processes.on_columns import checked_columns
from dvip.processes.process import DataUnits

__all__ = ["Monotone"]


# Of the logarithm of a weight that is positive.
SPREAD = 0.5

WANTED = 100


def _columns_or_none(given: object) -> tuple[str | int, ...] | None:
    return None if given is None else checked_columns(given, "increasing or decreasing")


class Monotone(BayesianNeuralNetwork):
    """Bayesian neural networks that increase, or decrease, with some columns.

    `increasing` and `decreasing` are names or numbers of columns; without any, all are increasing.
    The other options are those of `BayesianNeuralNetwork`. The prior functions are monotone, and so
    is their mean. What a layer learns is a combination of them, which data can bend.
    """

    increasing: tuple[str | int, ...] | None = eqx.field(
        static=True, default=None, converter=_columns_or_none
    )
    decreasing: tuple[str | int, ...] | None = eqx.field(
        static=True, default=None, converter=_columns_or_none
    )
    # 1 or -1 for each input, 0 for one that the functions may do anything with.
    signs: tuple[int, ...] | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        super().__check_init__()
        if self.activation not in INCREASING:
            raise ValueError(
                f"activation={self.activation!r} is not increasing: choose from "
                f"{', '.join(INCREASING)}."
            )

    @property
    def bound_to_data(self) -> bool:
        """If it names columns."""
        return not (self.increasing is None and self.decreasing is None)

    @property
    def wanted_functions(self) -> int | None:
        """More than of other networks: functions that are all alike in a column combine to less."""
        return WANTED

    def for_data(self, units: DataUnits) -> "Monotone":
        """Finds the columns."""
        if not self.bound_to_data:
            return self
        signs = np.zeros(len(units.names), int)
        up = units.indices_of(self.increasing or ())
        down = units.indices_of(self.decreasing or ())
        if set(up) & set(down):
            raise ValueError(
                f"increasing={self.increasing!r} and decreasing={self.decreasing!r} have a column "
                "in common."
            )
        signs[list(up)], signs[list(down)] = 1, -1
        return dataclasses.replace(self, signs=tuple(signs.tolist()))

    def initialise(self, num_inputs: int, key: PRNGKeyArray) -> "Monotone":
        """As other networks; but sums of positive weights are kept of the order of 1."""
        process = self
        if self.signs is None and self.bound_to_data:  # numbers need no names
            names = tuple(f"column {number}" for number in range(num_inputs))
            ones = np.ones(num_inputs)
            process = self.for_data(DataUnits((num_inputs,), names, 0 * ones, ones))
        elif self.signs is None:
            process = dataclasses.replace(self, signs=(1,) * num_inputs)
        network = BayesianNeuralNetwork.initialise(process, num_inputs, key)
        shapes = network._shapes()
        lower = np.array([0.0] * 2 + [-0.5 * math.log(columns) for _, columns in shapes[2:]])
        if not self.constrained:
            lower = np.repeat(lower, network._sizes())
        assert isinstance(network, Monotone)
        assert network.log_scale is not None
        log_scale = network.log_scale + jnp.asarray(lower, network.log_scale.dtype)
        return dataclasses.replace(network, log_scale=log_scale)

    def _entries(
        self, noise: Float[Array, "samples parameters"], scale: Array, mean: Array
    ) -> Float[Array, "samples parameters"]:
        """Weights of monotone columns, and all behind, are scale · exp(mean + z / 2) > 0.

        So they vary by half of themselves, and so do slopes: few of a layer's combinations of such
        functions have slopes of the other sign.
        """
        signs = np.concatenate([each.ravel() for each in self._signs_of_entries()])
        free = super()._entries(noise, scale, mean)
        positive = scale * jnp.exp(mean + SPREAD * noise)
        return jnp.where(signs == 0, free, signs.astype(free.dtype) * positive)

    def _signs_of_entries(self) -> list[np.ndarray]:
        """1 or -1 for a weight that has a sign, 0 for others and for biases."""
        shapes = self._shapes()
        first = np.broadcast_to(np.array(self.signs), shapes[0])
        others = [np.full(shape, 1 - index % 2) for index, shape in enumerate(shapes)]
        return [first, *others[1:]]
