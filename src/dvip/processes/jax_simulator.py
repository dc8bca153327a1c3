"""Simulators in JAX as processes: their parameters are random, with learned distributions.

A parameter is F⁻¹(Φ(m + s z)) with standard normal z: for m = 0 and s = 1 it has the distribution F
that was given, and m and s are learned. The quantiles of any F are a table, interpolated.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from scipy.stats import norm

from dvip.parameters import Fixed
from dvip.processes.process import DataUnits, ImplicitProcess
from dvip.processes.simulator import Distribution, as_distributions, checked_function

__all__ = ["JaxSimulatorPrior"]

# Of the table of quantiles: how far it goes in standard deviations, and its steps in one.
FARTHEST, STEPS = 6, 128

WANTED = 100


def quantile_table(distribution: Distribution) -> np.ndarray:
    """F⁻¹(Φ(z)) for z at equal distances from -FARTHEST to FARTHEST."""
    z = np.arange(-FARTHEST * STEPS, FARTHEST * STEPS + 1) / STEPS
    frozen = distribution.frozen
    upper = frozen.isf(norm.sf(np.maximum(z, 0)))
    table = np.where(z < 0, frozen.ppf(norm.cdf(np.minimum(z, 0))), upper)
    if not np.isfinite(table).all():
        raise ValueError(f"parameters: {distribution} has quantiles that are no numbers.")
    return table


class JaxSimulatorPrior(ImplicitProcess):
    """A function in JAX with random parameters as the prior, in any layer.

    Parameters
    ----------
    function : callable
        `function(inputs, **parameters)`, written with `jax.numpy`: from inputs of the shape
        (rows, columns), in the first layer in their own units, and a number for each parameter, to
        an array of the shape (rows,), in the unit of the target.
    parameters : dict
        Of each parameter, by name, a frozen distribution of `scipy.stats`: where its distribution
        starts, which is learned.

    A saved model needs the simulator at loading: `load(folder, prior=...)`.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from scipy.stats import norm, uniform
    >>> from dvip import JaxSimulatorPrior
    >>> def wave(inputs, height, length):
    ...     return height * jnp.sin(inputs[:, 0] / length)
    >>> prior = JaxSimulatorPrior(wave, {"height": norm(0, 1), "length": uniform(1, 2)})
    """

    # A file cannot hold the function.
    needs_code: ClassVar[bool] = True

    function: Callable[..., Any] = eqx.field(static=True, converter=checked_function)
    parameters: Any = eqx.field(static=True, converter=as_distributions)
    # Offset and scale of the inputs, and those of the target: from what it sees to the user's
    # units and back. In later layers there are none.
    units: Fixed | None = None
    tables: Fixed | None = None
    shifts: Float[Array, " parameters"] | None = None
    log_spreads: Float[Array, " parameters"] | None = None
    offset: Float[Array, ""] | None = None
    log_scale: Float[Array, ""] | None = None

    def __check_init__(self) -> None:
        if not self.parameters:
            raise ValueError("JaxSimulatorPrior: give the distribution of at least one parameter.")

    @property
    def wanted_functions(self) -> int | None:
        """Runs enough to combine."""
        return WANTED

    def for_data(self, units: DataUnits) -> "JaxSimulatorPrior":
        """Told the units of inputs and target."""
        numbers = (units.offset, units.scale, *(units.target or (0.0, 1.0)))
        arrays = tuple(jnp.asarray(each, float) for each in numbers)
        return dataclasses.replace(self, units=Fixed(arrays))

    def initialise(self, num_inputs: int, key: PRNGKeyArray) -> "JaxSimulatorPrior":
        """Distributions as they were given."""
        del num_inputs, key
        tables = np.stack([quantile_table(each) for _, each in self.parameters])
        zeros = jnp.zeros(len(tables))
        return dataclasses.replace(
            self,
            tables=Fixed(jnp.asarray(tables, float)),
            shifts=zeros,
            log_spreads=zeros,
            offset=jnp.zeros(()),
            log_scale=jnp.zeros(()),
        )

    def draw_noise(self, key: PRNGKeyArray, num_samples: int) -> Float[Array, "samples parameters"]:
        """A standard normal variable for each parameter of each function."""
        return jax.random.normal(key, (num_samples, len(self.parameters)))

    def drawn(
        self, noise: Float[Array, "samples parameters"]
    ) -> Float[Array, "samples parameters"]:
        """The parameters of each function."""
        if self.shifts is None or self.log_spreads is None or self.tables is None:
            raise ValueError("Call initialise(num_inputs, key) before using the process.")
        z = self.shifts + jnp.exp(self.log_spreads) * noise
        place = jnp.clip((z + FARTHEST) * STEPS, 0, 2 * FARTHEST * STEPS - 1e-3)
        below = jnp.floor(place).astype(int)
        columns = np.arange(len(self.parameters))
        low, high = (self.tables.value[columns, index] for index in (below, below + 1))
        return low + (place - below) * (high - low)

    def __call__(
        self, noise: Float[Array, "samples parameters"], inputs: Float[Array, "inputs batch"]
    ) -> Float[Array, "samples batch"]:
        """A run of the simulator for each function."""
        assert self.offset is not None  # there is noise, so there are parameters
        assert self.log_scale is not None
        rows, offset, scale = inputs.T, 0.0, 1.0
        if self.units is not None:
            input_offset, input_scale, offset, scale = self.units.value
            rows = rows * input_scale + input_offset
        names = [name for name, _ in self.parameters]

        def run(values: Float[Array, " parameters"]) -> Array:
            return self.function(rows, **dict(zip(names, values, strict=True)))

        try:
            values = jax.vmap(run)(self.drawn(noise))
        except Exception as error:  # of whatever kind: it is the user's function
            told = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            raise ValueError(
                f"The simulator failed at {rows.shape[0]} rows of {rows.shape[1]} inputs: {told} "
                "(Write it with jax.numpy, or use a SimulatorPrior.)"
            ) from error
        if values.shape != (len(noise), len(rows)):
            raise ValueError(
                f"The simulator gave an array of the shape {values.shape[1:]} for {len(rows)} "
                f"rows: it must be ({len(rows)},), a number for each."
            )
        return self.offset + jnp.exp(self.log_scale) * (values - offset) / scale
