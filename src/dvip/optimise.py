"""Bayesian optimisation: which row to try next, from functions of a model's posterior.

The improvement of a row x over the rows that were seen is, in each function f of the posterior,
best(f) - f(x), with best(f) the least value of f at these rows. The next row is the one whose
expected improvement is largest, E[max(best(f) - f(x), 0)], where improvements are taken for
Gaussian with the mean and the variance that they have over the functions: the logarithm is then
smooth, and has a slope everywhere. For several rows at a time, each counts as seen for the next.
"""

import json
import numbers
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from scipy.optimize import minimize
from scipy.special import erfcx, log_ndtr, ndtr
from scipy.stats import qmc
from sklearn.base import clone
from threadpoolctl import threadpool_limits

from dvip.estimators.implicit_processes import DVIPRegressor
from dvip.files import expanded, replace_file
from dvip.search_space import ROUNDING, Category, Integer, Points, Real, Space
from dvip.sum_kernel import SEARCHED_FUNCTION, KernelPrior

__all__ = ["Best", "Category", "Integer", "Optimisation", "Real"]

# Functions that improvements are averaged over.
NUM_FUNCTIONS = 128
# Points that are looked at before the best of them climb: in the whole cube, and around each of the
# best rows, at each of these distances.
NUM_SPREAD, NUM_AROUND, NUM_BEST, DISTANCES = 512, 50, 5, (0.02, 0.1)
# Of these so many climb, so many steps, from starts that are this far from each other.
NUM_CLIMBS, MAX_STEPS, LEAST_APART = 4, 40, 0.02
# Sweeps over other categories and next whole numbers.
MAX_SWEEPS = 10
# The kernel is fitted anew when the rows are more by this share; between, they are taken in.
SHARE_OF_NEW = 0.1
# Below this an improvement does not vary.
SMALLEST = 1e-9
FORMAT = 1


class _Surrogate(DVIPRegressor):
    """A Gaussian process in closed form for functions in a box, with little noise and no trend.

    Where few values are known, and all are alike, noise would explain them as well, and where there
    may be a trend, least is known in the corners: a search would go from corner to corner.
    """

    _kernel_prior: ClassVar[KernelPrior] = SEARCHED_FUNCTION


class Best(NamedTuple):
    """The best row that was observed, a dictionary or an array, and its value."""

    row: Any
    value: float


class Optimisation:
    """A search for the row with the least, or largest, value of a function that costs much.

    Ask with `suggest`, measure, tell with `observe`. The record of it can be saved at any time, and
    the same record and seed give the same suggestions.

    Parameters
    ----------
    space : dict, or sequence of bounds
        For each name (low, high), `Real(low, high, log=True)`, `Integer(low, high)`, or a list of
        texts or `Category(values)`; rows are then DataFrames. Or bounds alone: rows are arrays.
    maximise : bool, default False
        Whether large values are good.
    model : regressor of dvip, optional
        What the functions are drawn from, not fitted. By default a Gaussian process in closed form
        as `DVIPRegressor(inference="exact")` is, which expects little noise and no trend.
    seed : int, default 0
    num_starting : int, optional
        Rows, spread evenly, before a model chooses; by default two more than twice the dimensions.

    Examples
    --------
    >>> from dvip.optimise import Optimisation
    >>> search = Optimisation({"x": (-2.0, 3.0)}, num_starting=4)
    >>> for _ in range(10):
    ...     rows = search.suggest()
    ...     search = search.observe(rows, (rows["x"] - 1) ** 2)
    >>> abs(search.best.row["x"] - 1) < 0.05
    True
    """

    def __init__(
        self,
        space: Any,
        *,
        maximise: bool = False,
        model: Any = None,
        seed: int = 0,
        num_starting: int | None = None,
    ):
        self.space, self.maximise = Space(space), bool(maximise)
        self.model = _Surrogate(inference="exact", calibrate=False, precision="float64")
        if model is not None:
            if getattr(model, "task", None) != "regression":
                raise ValueError(f"model={model!r} draws no functions: give a regressor of dvip.")
            self.model = model
        default = 2 * len(self.space.dimensions) + 2
        for name, value in (("seed", seed), ("num_starting", num_starting)):
            if value is not None and not (isinstance(value, numbers.Integral) and value >= 0):
                raise ValueError(f"{name}={value!r} must be a whole number of at least 0.")
        self.seed = int(seed)
        self.num_starting = default if num_starting is None else int(num_starting)
        self._points, self._values = np.empty((0, self.space.width)), np.empty(0)
        self._pending, self._num_suggested = np.empty((0, self.space.width)), 0
        self._fitted: tuple[tuple[int, float], Any] | None = None

    @property
    def X(self) -> Any:
        """All rows that were observed, as `suggest` gives them."""
        return self.space.decoded(self._points)

    @property
    def y(self) -> np.ndarray:
        """Their values; NaN where there is none."""
        return self._values.copy()

    @property
    def best(self) -> Best:
        """The best so far; a ValueError before a value was observed."""
        if not np.isfinite(self._values).any():
            raise ValueError("No value was observed yet: use suggest and observe first.")
        place = int(np.nanargmax(self._values if self.maximise else -self._values))
        rows = self.space.decoded(self._points[place : place + 1])
        row = rows.iloc[0].to_dict() if self.space.named else rows[0]
        return Best(row, float(self._values[place]))

    def observe(self, X: Any, y: Any) -> Self:
        """Tells what was measured.

        Parameters
        ----------
        X : DataFrame, sequence of dicts, or array of shape (rows, dimensions)
            Rows of the space, suggested or not.
        y : array of shape (rows,)
            Their values; NaN for a measurement that failed, which counts as the worst value.

        Returns
        -------
        self
        """
        points = self.space.encoded(X)
        try:
            values = np.asarray(y, dtype=float)
        except (TypeError, ValueError):
            raise ValueError("y must hold numbers, NaN for a measurement that failed.") from None
        if values.shape != (len(points),):
            raise ValueError(f"y has the shape {values.shape} for {len(points)} rows: one each.")
        if np.isinf(values).any():
            raise ValueError("y has infinite values: tell failed measurements as NaN.")
        self._points = np.concatenate([self._points, points])
        self._values = np.append(self._values, values)
        told = np.abs(self._pending[:, None] - points).max(axis=2, initial=0) < ROUNDING
        self._pending = self._pending[~told.any(axis=1)]
        return self

    def suggest(self, k: int = 1) -> Any:
        """The rows to measure next.

        Rows that were suggested and not observed yet count as seen.

        Parameters
        ----------
        k : int, default 1
            How many, to be measured side by side.

        Returns
        -------
        DataFrame, or array of shape (k, dimensions)
        """
        if not (isinstance(k, numbers.Integral) and k >= 1):
            raise ValueError(f"k={k!r} must be a whole number of at least 1.")
        missing = self.num_starting - len(self._points) - len(self._pending)
        number = int(k) if np.isfinite(self._values).sum() < 2 else int(np.clip(missing, 0, k))
        points = self._spread(number) if number else self._points[:0]
        if number < k:
            with threadpool_limits(1, user_api="blas"), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of rows far from the others: that is the point
                points = np.concatenate([points, self._most_promising(int(k) - number, points)])
        self._pending = np.concatenate([self._pending, points])
        self._num_suggested += int(k)
        return self.space.decoded(points)

    def _spread(self, number: int) -> Points:
        """The next of a sequence of points that fills the cube evenly."""
        sobol = qmc.Sobol(self.space.width, seed=np.random.default_rng(self.seed))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of numbers that are no powers of two
            points = sobol.random(self._num_suggested + number)[self._num_suggested :]
        return self.space.snapped(points)

    def _losses(self) -> np.ndarray:
        """What is to be small, of each row; a measurement that failed counts as the worst."""
        losses = -self._values if self.maximise else self._values
        return np.where(np.isnan(losses), np.nanmax(losses), losses)

    def _model_of_all(self) -> Any:
        """A model of all rows. It depends on the record alone, not on when it was asked for."""
        points, losses = self._points, self._losses()
        number = len(points) - len(points) % max(1, int(SHARE_OF_NEW * len(points)))
        seen = number, float(losses.max())
        if self._fitted is None or self._fitted[0] != seen:
            self._fitted = seen, clone(self.model).fit(points[:number], losses[:number])
        model = self._fitted[1]
        if number == len(points):
            return model
        try:
            return model.condition_on(points[number:], losses[number:])
        except ValueError:  # it has no closed form
            return clone(self.model).fit(points, losses)

    def _most_promising(self, number: int, others: Points) -> Points:
        random = np.random.default_rng((self.seed, len(self._points), self._num_suggested))
        model = self._model_of_all()
        functions = model.sample_functions(NUM_FUNCTIONS, random_state=int(random.integers(2**31)))
        best_rows = self._points[np.argsort(self._losses())[:NUM_BEST]]
        least = functions(np.concatenate([self._points, self._pending, others])).min(axis=1)
        chosen: list[np.ndarray] = []
        for _ in range(number):
            point = self._climbed(_Improvement(functions, least), best_rows, random)
            chosen.append(point)
            least = np.minimum(least, functions(point[None])[:, 0])
        return np.stack(chosen)

    def _climbed(
        self, improvement: "_Improvement", best_rows: Points, random: np.random.Generator
    ) -> np.ndarray:
        """A point whose expected improvement is large: the best of several climbs."""
        width, free = self.space.width, self.space.free()
        spread = qmc.Sobol(width, seed=random).random(NUM_SPREAD)
        around = [
            row + distance * random.standard_normal((NUM_AROUND, width)) * free
            for row in best_rows
            for distance in DISTANCES
        ]
        starts = self.space.snapped(np.clip(np.concatenate([spread, *around]), 0, 1))
        ends = []
        for start in _apart(starts[np.argsort(-improvement(starts))]):
            ends.append(self._climb(improvement, start, free))
        values = improvement(np.stack(ends))
        return ends[int(np.argmax(values))]

    def _climb(
        self, improvement: "_Improvement", start: np.ndarray, free: np.ndarray
    ) -> np.ndarray:
        """From a point along the slope, then to the best of its neighbours while there is one."""
        bounds = [(0.0, 1.0) if moves else (x, x) for x, moves in zip(start, free, strict=True)]
        found = minimize(
            improvement.loss,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            options={"maxiter": MAX_STEPS},
        )
        point = self.space.snapped(found.x[None])[0]
        for _ in range(MAX_SWEEPS):
            nearby = np.concatenate([point[None], self.space.neighbours(point)])
            best = int(np.argmax(improvement(nearby))) if len(nearby) > 1 else 0
            if best == 0:
                break
            point = nearby[best]
        return point

    def save(self, path: str | Path) -> None:
        """Writes the record as JSON, in one step; the model is not in it.

        Parameters
        ----------
        path : str or Path
        """
        content = {
            "format": FORMAT,
            "space": self.space.to_json(),
            "maximise": self.maximise,
            "seed": self.seed,
            "num_starting": self.num_starting,
            "num_suggested": self._num_suggested,
            "pending": self._pending.tolist(),
            "points": self._points.tolist(),
            "values": [None if np.isnan(value) else value for value in self._values.tolist()],
        }
        replace_file(expanded(path), (json.dumps(content, indent=1) + "\n").encode())

    @classmethod
    def load(cls, path: str | Path, model: Any = None) -> Self:
        """An optimisation that goes on from a record.

        Parameters
        ----------
        path : str or Path
            What `save` wrote.
        model : regressor of dvip, optional
            As it was given at the start.

        Returns
        -------
        Optimisation
        """
        try:
            content = json.loads(expanded(path).read_text())
            return cls._of_record(content, model)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"{path} is no record of an optimisation: {error}") from error

    @classmethod
    def _of_record(cls, content: Mapping[str, Any], model: Any) -> Self:
        if content["format"] != FORMAT:
            raise ValueError(f"its format is {content['format']!r}, this version reads {FORMAT}.")
        settings = {name: content[name] for name in ("maximise", "seed", "num_starting")}
        # (A list of dimensions, in place of the space that `Space` makes of it.)
        space = Space.from_json(content["space"])
        given = space.dimensions if space.named else list(space.dimensions.values())
        search = cls(given, model=model, **settings)
        points, pending = (
            np.array(content[name], dtype=float).reshape(-1, space.width)
            for name in ("points", "pending")
        )
        values = np.array([np.nan if v is None else v for v in content["values"]], dtype=float)
        whole = np.concatenate([points, pending])
        if len(values) != len(points) or not ((whole >= 0) & (whole <= 1)).all():
            raise ValueError("its rows and values do not fit together.")
        search._points, search._values, search._pending = points, values, pending
        search._num_suggested = int(content["num_suggested"])
        return search


def _apart(points: Points) -> Points:
    """The first points that are not too near to each other."""
    chosen = [points[0]]
    for point in points[1:]:
        if len(chosen) == NUM_CLIMBS:
            break
        if min(np.abs(point - other).max() for other in chosen) > LEAST_APART:
            chosen.append(point)
    return np.stack(chosen)


class _Improvement:
    """The logarithm of the expected improvement of points over the least value of each function.

    With mean m and standard deviation s over the functions it is log s + log h(m / s), where
    h(z) = φ(z) + z Φ(z).
    """

    def __init__(self, functions: Callable[[Points], np.ndarray], least: np.ndarray):
        self.functions: Any = functions
        self.least = least

    def __call__(self, points: Points) -> np.ndarray:
        gains = self.least[:, None] - self.functions(points)
        std = gains.std(axis=0) + SMALLEST
        return np.log(std) + _log_h(gains.mean(axis=0) / std)

    def loss(self, point: np.ndarray) -> tuple[float, np.ndarray]:
        """Minus this at a point, and the derivative."""
        gains = self.least - self.functions(point[None])[:, 0]
        slopes = -self.functions.gradient(point[None])[:, 0]
        mean, slope = gains.mean(), slopes.mean(axis=0)
        centred = gains - mean
        std = np.sqrt(np.mean(np.square(centred))) + SMALLEST
        std_slope = np.mean(centred[:, None] * (slopes - slope), axis=0) / std
        z = np.array([mean / std])
        log_h = _log_h(z)
        by_z = np.exp(log_ndtr(z) - log_h)[0]  # h' = Φ
        gradient = std_slope / std + by_z * (slope - z[0] * std_slope) / std
        return -float(np.log(std) + log_h[0]), -gradient


def _log_h(z: np.ndarray) -> np.ndarray:
    """log(φ(z) + z Φ(z)), also where both almost cancel.

    h = φ (1 + z Φ/φ) with Φ/φ = √(π/2) erfcx(-z/√2); far to the left 1 + z Φ/φ is 1/z².
    """
    log_density = -0.5 * np.square(z) - 0.5 * np.log(2 * np.pi)
    left = np.minimum(z, -1.0)
    remainder = 1 + left * np.sqrt(np.pi / 2) * erfcx(-left / np.sqrt(2))
    remainder = np.where(left < -1e3, 1 / np.square(left), remainder)
    right = np.maximum(z, -1.0)
    density = np.exp(-0.5 * np.square(right)) / np.sqrt(2 * np.pi)
    direct = density + right * ndtr(right)
    return np.where(z < -1, log_density + np.log(remainder), np.log(direct))
