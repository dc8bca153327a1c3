"""Periodic functions as a process: a Gaussian process on the circle.

A column x becomes the point (cos 2πx/p, sin 2πx/p), and a Gaussian process of these points (all
columns together) is periodic in every column. With the RBF kernel its covariance is
a² exp(-2 Σ sin²(π (x - y) / p) / l²).
"""

import dataclasses
import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from dvip.parameters import Fixed
from dvip.processes.gp import GaussianProcess, cos_sin
from dvip.processes.process import DataUnits, ImplicitProcess

__all__ = ["Periodic"]


class Periodic(ImplicitProcess):
    """Functions that repeat themselves: seasons.

    `period` is in the unit of the column; it is kept as it is, or with `learned=True` where the
    training starts. Without it a period is learned from one standard deviation of the column on,
    for each column; give at least its order of magnitude, as no gradient leads from one period to
    another far away. `lengthscale` is where that on the circle, of radius 1, starts: 1 is smooth,
    less has more wiggles within a period. Functions have `num_frequencies` waves on the circle.
    """

    period: Any = eqx.field(static=True, default=None)
    learned: bool = eqx.field(static=True, default=False)
    lengthscale: Any = eqx.field(static=True, default=1.0)
    num_frequencies: int = eqx.field(static=True, default=64)
    process: GaussianProcess | None = None
    log_period: Float[Array, " inputs"] | None = None
    # Of the columns: their unit in terms of what the process sees.
    scale: Fixed | None = None

    def __check_init__(self) -> None:
        period = self.period
        if period is not None and (isinstance(period, bool | str) or not 0 < period < math.inf):
            raise ValueError(
                f"period={period!r}: give a positive number in the unit of the column, or None."
            )
        if isinstance(self.lengthscale, bool | str) or not 0 < self.lengthscale < math.inf:
            raise ValueError(f"lengthscale={self.lengthscale!r}: give a positive number.")
        if self.num_frequencies < 1:
            raise ValueError(f"num_frequencies={self.num_frequencies}: give at least 1.")

    @property
    def bound_to_data(self) -> bool:
        """A given period is in a column's unit."""
        return self.period is not None

    def for_data(self, units: DataUnits) -> "Periodic":
        """Told the units of the columns."""
        return dataclasses.replace(self, scale=Fixed(jnp.asarray(units.scale, float)))

    def initialise(self, num_inputs: int, key: PRNGKeyArray) -> "Periodic":
        """The period that was given, or of one standard deviation."""
        inner = GaussianProcess(
            num_frequencies=self.num_frequencies, lengthscale=float(self.lengthscale)
        )
        is_trained = self.learned or self.period is None
        scale = self.scale or Fixed(jnp.ones(num_inputs))
        start = jnp.log(scale.value) if self.period is None else jnp.log(self.period)
        return dataclasses.replace(
            self,
            process=inner.initialise(2 * num_inputs, key),
            log_period=jnp.broadcast_to(start, num_inputs) if is_trained else None,
            scale=scale,
        )

    def draw_noise(self, key: PRNGKeyArray, num_samples: int) -> PyTree[Array]:
        """That of the Gaussian process."""
        if self.process is None:
            raise ValueError("Call initialise(num_inputs, key) before drawing noise.")
        return self.process.draw_noise(key, num_samples)

    def _circle(self, inputs: Float[Array, "inputs batch"]) -> Float[Array, "coordinates batch"]:
        """Where the inputs are on their circles."""
        assert self.scale is not None  # there is noise, so it was initialised
        if self.log_period is not None:
            turns = self.scale.value * jnp.exp(-self.log_period)
        else:
            assert self.period is not None
            turns = self.scale.value / np.asarray(self.period, self.scale.value.dtype)
        return jnp.concatenate(cos_sin(turns[:, None] * inputs))

    def __call__(
        self, noise: PyTree[Array], inputs: Float[Array, "inputs batch"]
    ) -> Float[Array, "samples batch"]:
        """The functions of points on the circle."""
        assert self.process is not None  # there is noise, so there are parameters
        return self.process(noise, self._circle(inputs))

    def combined(
        self,
        noise: PyTree[Array],
        weights: Float[Array, "units samples"],
        inputs: Float[Array, "inputs batch"],
    ) -> Float[Array, "units batch"]:
        """Combinations of them."""
        assert self.process is not None  # as above
        return self.process.combined(noise, weights, self._circle(inputs))
