"""Past curves as a process: a table of functions, interpolated between its points."""

import dataclasses
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from dvip.parameters import Fixed
from dvip.processes.process import DataUnits, ImplicitProcess

__all__ = ["CurvePrior"]

# Functions of a layer at most, where nobody says how many.
MOST = 200


def _checked(grid: Any, curves: Any) -> tuple[np.ndarray, np.ndarray]:
    """Grid and curves as numbers, in the order of the grid; an error if they do not fit."""
    try:
        points, values = np.asarray(grid, dtype=float), np.asarray(curves, dtype=float)
    except (TypeError, ValueError) as error:
        raise ValueError(
            "CurvePrior: grid and curves must be numbers, one row of curves for each curve, all on "
            f"the same grid. ({error})"
        ) from None
    if points.ndim != 1 or len(points) < 2:
        raise ValueError(f"CurvePrior: grid has the shape {points.shape}: give 2 points or more.")
    if values.ndim != 2 or values.shape[1] != len(points) or len(values) < 2:
        raise ValueError(
            f"CurvePrior: curves of the shape {values.shape} do not fit a grid of {len(points)} "
            f"points: give at least 2 curves, (curves, {len(points)})."
        )
    if not np.isfinite(points).all():
        raise ValueError("CurvePrior: grid has values that are no numbers: remove them.")
    bad = ~np.isfinite(values)
    if bad.any():
        curve, point = np.argwhere(bad)[0]
        raise ValueError(
            f"CurvePrior: curve {curve} has no number at the grid's {points[point]:g}: fill the "
            "gap, or leave out the curve."
        )
    order = np.argsort(points, kind="stable")
    points, values = points[order], values[:, order]
    if not (np.diff(points) > 0).all():
        twice = points[1:][np.diff(points) <= 0][0]
        raise ValueError(f"CurvePrior: {twice:g} is in the grid twice: leave out one of them.")
    return points, values


class CurvePrior(ImplicitProcess):
    """Measured or simulated curves of one column as the prior functions.

    Parameters
    ----------
    grid : array of shape (points,)
        Where the curves are known, in the unit of the column. Between the points they are
        interpolated; beyond them they stay at their last value.
    curves : array of shape (curves, points)
        Their values, in the unit of the target.
    learned : bool, default False
        Whether offset and scale of all curves together are learned: for curves in another unit, or
        of something that is only alike.

    Notes
    -----
    A layer's functions are the curves, in random order; a model of one layer then learns
    combinations of them. The curves are saved with a model. With several columns, say which one:
    `CurvePrior(grid, curves).on("time")`.

    Examples
    --------
    >>> import numpy as np
    >>> from dvip import CurvePrior
    >>> grid = np.linspace(0, 1, 11)
    >>> prior = CurvePrior(grid, [rate * grid for rate in (0.5, 1.0, 2.0)])
    >>> prior.num_curves
    3
    """

    grid: Fixed
    curves: Fixed
    learned: bool = eqx.field(static=True, default=False)
    # Whether they are in the units of the model.
    scaled: bool = eqx.field(static=True, default=False)
    offset: Float[Array, ""] | None = None
    log_scale: Float[Array, ""] | None = None

    def __init__(
        self,
        grid: Any,
        curves: Any,
        learned: bool = False,
        scaled: bool = False,
        offset: Float[Array, ""] | None = None,
        log_scale: Float[Array, ""] | None = None,
    ):
        if isinstance(grid, Fixed) and isinstance(curves, Fixed):
            self.grid, self.curves = grid, curves
        else:
            self.grid, self.curves = map(Fixed, _checked(grid, curves))
        self.learned, self.scaled = learned, scaled
        self.offset, self.log_scale = offset, log_scale

    @classmethod
    def read(cls, path: str | Path) -> "CurvePrior":
        """The curves of a table.

        Parameters
        ----------
        path : str or Path
            A CSV or Parquet file. Its first column is the grid; every other column is a curve.

        Returns
        -------
        CurvePrior
        """
        import pandas as pd  # which need not wait for other processes

        path = Path(path).expanduser()
        if not path.is_file():
            raise ValueError(f"There is no file {path} with curves.")
        try:
            is_parquet = path.suffix.lower() in (".parquet", ".pq")
            table = pd.read_parquet(path) if is_parquet else pd.read_csv(path)
            numbers = table.to_numpy(dtype=float)
        except Exception as error:  # of whatever kind: the file is a stranger's
            line = " ".join(str(error).split())[:200]
            raise ValueError(
                f"{path} is no table of curves: its first column is the grid, every other column a "
                f"curve, all numbers. ({line})"
            ) from error
        return cls(numbers[:, 0], numbers[:, 1:].T)

    @property
    def num_curves(self) -> int:
        """How many there are."""
        return len(self.curves.value)

    @property
    def bound_to_data(self) -> bool:
        """The grid is in the unit of a column."""
        return True

    @property
    def wanted_functions(self) -> int | None:
        """All curves."""
        return min(self.num_curves, MOST)

    def for_data(self, units: DataUnits) -> "CurvePrior":
        """On the scales of the model."""
        if len(units.names) != 1:
            raise ValueError(
                f"CurvePrior has curves of one column, and there are {len(units.names)} inputs: "
                f"say which, as in CurvePrior(grid, curves).on({units.names[0]!r})."
            )
        grid, curves = self.grid.value, self.curves.value
        offset, scale = units.target or (curves.mean(), curves.std() or 1.0)
        return CurvePrior(
            Fixed(jnp.asarray((grid - units.offset) / units.scale, float)),
            Fixed(jnp.asarray((curves - offset) / scale, float)),
            self.learned,
            scaled=True,
        )

    def initialise(self, num_inputs: int, key: PRNGKeyArray) -> "CurvePrior":
        """The curves as they are; with an offset of 0, and a scale of 1, if these are learned."""
        del key
        process = self
        if not self.scaled:
            names = tuple(f"column {index}" for index in range(num_inputs))
            ones = np.ones(num_inputs)
            process = self.for_data(DataUnits((num_inputs,), names, 0 * ones, ones))
        if not self.learned:
            return process
        return dataclasses.replace(process, offset=jnp.zeros(()), log_scale=jnp.zeros(()))

    def draw_noise(self, key: PRNGKeyArray, num_samples: int) -> Int[Array, " samples"]:
        """Which curve is which function: each once before any is there twice."""
        rounds = -(-num_samples // self.num_curves)
        keys = jax.random.split(key, rounds)
        orders = [jax.random.permutation(each, self.num_curves) for each in keys]
        return jnp.concatenate(orders)[:num_samples]

    def __call__(
        self, noise: Int[Array, " samples"], inputs: Float[Array, "inputs batch"]
    ) -> Float[Array, "samples batch"]:
        """The curves between their points."""
        if not self.scaled:
            raise ValueError("Call initialise(num_inputs, key) before using the process.")
        grid, curves = self.grid.value, self.curves.value
        places = jnp.clip(inputs[0], grid[0], grid[-1])
        after = jnp.clip(jnp.searchsorted(grid, places), 1, len(grid) - 1)
        share = (places - grid[after - 1]) / (grid[after] - grid[after - 1])
        # Points first: what is gathered lies together.
        points = curves.T
        values = points[after - 1] * (1 - share)[:, None] + points[after] * share[:, None]
        chosen = values.T[noise]
        if self.offset is None or self.log_scale is None:
            return chosen
        return self.offset + jnp.exp(self.log_scale) * chosen
