"""The protocol of a predictive distribution: a mixture of components for each row.

Equation 9 of the paper with the noise of the data added, on the scale of the user's targets.
"""

import abc
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from jaxtyping import Float
from scipy.special import logsumexp
from sklearn.utils import check_random_state

__all__ = ["Components", "Predictive", "Rows", "VarianceParts"]

# Components that a method computes with at once.
MAX_COMPONENTS = 2_000_000
# Quantiles of a CRPS that is not in closed form.
NUM_QUANTILES = 200

Rows = Float[np.ndarray, "rows *targets"]
Components = Float[np.ndarray, "rows *targets components"]


class VarianceParts(NamedTuple):
    """A predictive variance and where it comes from; `noise + function` is the whole."""

    noise: np.ndarray
    function: np.ndarray


class Predictive(abc.ABC):
    """A mixture of R components for each row, or for each row and target.

    The components are equally probable, or have `weights` that are the same in all rows. A family
    of components says how they are distributed, in the methods whose names begin with `_component`:
    each gives an array with a last axis for the components.
    """

    # Probabilities of the components; none if they are equal.
    weights: Float[np.ndarray, " components"] | None = None
    # How far each row is from the training rows, where the model knows it: 1 is as far as these are
    # from each other.
    distance: Float[np.ndarray, " rows"] | None = None

    @property
    @abc.abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Rows, targets if there is an axis for them, and components."""

    @property
    @abc.abstractmethod
    def mean(self) -> Rows:
        """The mean of y."""

    @abc.abstractmethod
    def variance_parts(self) -> VarianceParts:
        """The variance of y as noise of the data and uncertainty of the function.

        Returns
        -------
        VarianceParts
            `noise` is what would remain if the function were known, `function` the rest; each has
            the shape of `mean`, and their sum is the variance.
        """

    @abc.abstractmethod
    def target(self, index: int) -> Self:
        """The distribution of one of several targets alone, without an axis for targets.

        Parameters
        ----------
        index : int
            Which of the targets, counted from 0.

        Returns
        -------
        Predictive
        """

    @abc.abstractmethod
    def _rows(self, rows: slice) -> Self:
        """The distribution of some of the rows."""

    @staticmethod
    def mixture(
        parts: Sequence["Predictive"], weights: Sequence[float] | None = None
    ) -> "Predictive":
        """One distribution of the predictions of several models for the same rows.

        Parameters
        ----------
        parts : sequence of Predictive
            Of one family. Each counts the same, however many components it has, unless there are
            weights.
        weights : sequence of float, optional
            The probability of each of them.

        Returns
        -------
        Predictive
            With the components of all of them.
        """
        return parts[0]._joined(parts, weights) if len(parts) > 1 else parts[0]

    def _joined(self, parts: Sequence[Any], weights: Sequence[float] | None) -> Self:
        """The mixture of several distributions of this family, of which this is the first."""
        del parts, weights
        raise NotImplementedError(f"{type(self).__name__} has no _joined, to mix several models.")

    def at_distance(self, distance: Float[np.ndarray, " rows"]) -> Self:
        """The same distribution, with the distance of each row from the training rows."""
        noted = copy(self)
        object.__setattr__(noted, "distance", distance)
        return noted

    def widened(self, std: Float[np.ndarray, "rows *targets"]) -> Self:
        """The distribution with a further Gaussian uncertainty of the function.

        Parameters
        ----------
        std : array of the shape of `mean`
            Its standard deviation; of a `LogNormalMixture`, that of log y.

        Returns
        -------
        Predictive
            A family that cannot be widened stays as it is.
        """
        del std
        return self

    # Whether `rescaled` is possible.
    can_be_rescaled: ClassVar[bool] = False

    def on_its_scale(self, y: Any) -> tuple["Predictive", np.ndarray]:
        """The distribution whose deviations `rescaled` multiplies, and y on its scale."""
        return self, np.asarray(y, dtype=float)

    def rescaled(self, scale: float, tail_weight: float = 0.0, tail_scale: float = 1.0) -> Self:
        """A wider or narrower distribution with the same mean, and with a tail: calibration.

        Parameters
        ----------
        scale : float
            All deviations of y from its mean are multiplied by it.
        tail_weight : float, default 0.0
            The probability of one further component, a Gaussian around the mean.
        tail_scale : float, default 1.0
            Its standard deviation, in standard deviations of the distribution without it.

        Returns
        -------
        Predictive
            Of a `LogNormalMixture`, the distribution of log y is rescaled. A `CountMixture` cannot
            be: counts are whole numbers.
        """
        del scale, tail_weight, tail_scale
        raise NotImplementedError(f"The scale of a {type(self).__name__} cannot be changed.")

    @abc.abstractmethod
    def _component_log_density(self, y: Components) -> Components: ...

    @abc.abstractmethod
    def _component_cdf(self, y: Components) -> Components: ...

    @abc.abstractmethod
    def _component_quantile(self, p: float) -> Components: ...

    @abc.abstractmethod
    def _component_sample(
        self, chosen: Callable[[np.ndarray], np.ndarray], random: np.random.RandomState
    ) -> np.ndarray:
        """Draws of the components that `chosen` picks from an array of components."""

    def __repr__(self) -> str:
        targets = "".join(f"{number:,} targets, " for number in self.shape[1:-1])
        return (
            f"{type(self).__name__}({self.shape[0]:,} rows, {targets}{self.shape[-1]:,} components)"
        )

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: int | slice | Sequence[Any] | np.ndarray) -> Self:
        """The distribution of some rows: `dist[3:5]`, `dist[mask]`, `dist[[4, 2]]`.

        A single number gives a distribution of one row.
        """
        index: Any = rows
        if isinstance(rows, tuple):
            raise IndexError("A distribution is indexed by rows: target(i) gives one target.")
        if not isinstance(rows, slice):
            given = np.asarray(rows)
            index = np.atleast_1d(given if given.size else given.astype(int))
            if given.dtype.kind not in "biu" and given.size:
                raise IndexError(f"{rows!r} are no rows: use numbers, a slice or a mask.")
        chosen = self._rows(index)
        return chosen if self.distance is None else chosen.at_distance(self.distance[index])

    def _in_parts(self, function: Callable[..., np.ndarray], *arrays: np.ndarray) -> np.ndarray:
        """`function` of the distribution and of these arrays, of some rows at a time."""
        num_rows, *others = self.shape
        size = max(1, MAX_COMPONENTS // int(np.prod(others)))
        if num_rows <= size:
            return function(self, *arrays)
        parts = [slice(start, start + size) for start in range(0, num_rows, size)]
        return np.concatenate(
            [function(self._rows(rows), *(array[rows] for array in arrays)) for rows in parts]
        )

    def _average(self, components: np.ndarray, **options: Any) -> np.ndarray:
        """The mean over the components, which are the last axis."""
        if self.weights is None:
            return np.mean(components, axis=-1, **options)
        return np.matmul(components, self.weights)

    @property
    def variance(self) -> Rows:
        """The variance of y, the sum of its parts."""
        return self._in_parts(lambda part: np.add(*part.variance_parts()))

    @property
    def std(self) -> Rows:
        """The standard deviation of y."""
        return np.sqrt(self.variance)

    @property
    def median(self) -> Rows:
        """The value that y is below as often as above."""
        return self._quantile(0.5)

    def _aligned(self, y: Any) -> Components:
        """`y` as an array with a component axis; a single value stands for every row."""
        y = np.asarray(y, dtype=float)
        shape = self.shape[:-1]
        if y.shape == (*shape, 1) and len(shape) == 1:
            y = y[:, 0]
        try:
            return np.broadcast_to(y, shape)[..., None]
        except ValueError:
            raise ValueError(f"y has shape {y.shape}, the prediction has {shape}.") from None

    def log_prob(self, y: Float[np.ndarray, "..."]) -> Float[np.ndarray, " rows"]:
        """log p(y) of each row; several targets are judged jointly.

        Parameters
        ----------
        y : array of the shape of `mean`, or a number
            What was observed.

        Returns
        -------
        array of shape (rows,)
        """

        def log_prob(part: Predictive, y: np.ndarray) -> np.ndarray:
            log_density = part._component_log_density(y)
            if log_density.ndim == 3:
                log_density = log_density.sum(axis=1)
            if part.weights is not None:
                return logsumexp(log_density, axis=-1, b=part.weights)
            return logsumexp(log_density, axis=-1) - np.log(log_density.shape[-1])

        return self._in_parts(log_prob, self._aligned(y))

    def pdf(self, y: Float[np.ndarray, "..."]) -> Float[np.ndarray, " rows"]:
        """p(y) of each row, the exponential of `log_prob`; of counts, their probability.

        Parameters
        ----------
        y : array of the shape of `mean`, or a number

        Returns
        -------
        array of shape (rows,)
        """
        return np.exp(self.log_prob(y))

    def cdf(self, y: Float[np.ndarray, "..."]) -> Rows:
        """P(Y ≤ y) for each row and target.

        Parameters
        ----------
        y : array of the shape of `mean`, or a number

        Returns
        -------
        array of the shape of `mean`
        """

        def cdf(part: Predictive, y: np.ndarray) -> np.ndarray:
            return part._average(part._component_cdf(y))

        return self._in_parts(cdf, self._aligned(y))

    def quantile(self, p: float | Sequence[float] | np.ndarray) -> Float[np.ndarray, "..."]:
        """The value that y stays below with probability p, for each row and target.

        Parameters
        ----------
        p : float, or a sequence of them
            Strictly between 0 and 1.

        Returns
        -------
        array of the shape of `mean`
            Of several probabilities there is a result for each, along a first axis.

        Examples
        --------
        >>> import numpy as np
        >>> from dvip import GaussianMixture
        >>> normal = GaussianMixture(np.zeros((1, 1)), np.zeros((1, 1)), np.ones(()))
        >>> normal.quantile([0.5, 0.975]).round(2)
        array([[0.  ],
               [1.96]])
        """
        levels = _probabilities(p)
        if levels.ndim == 0:
            return self._quantile(float(levels))
        return np.stack([self._quantile(float(level)) for level in levels])

    def _quantile(self, p: float) -> Rows:
        return self._in_parts(lambda part: part._quantile_at_once(p))

    def _quantile_at_once(self, p: float) -> Rows:
        quantiles = self._component_quantile(p)

        def excess_and_density(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            density = np.exp(self._component_log_density(y[..., None]))
            cdf = self._component_cdf(y[..., None])
            return self._average(cdf) - p, self._average(density)

        # The mixture's quantile lies between those of its components.
        return _increasing_root(excess_and_density, quantiles.min(axis=-1), quantiles.max(axis=-1))

    def interval(self, p: float | Sequence[float] | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The central interval that holds y with probability p.

        Parameters
        ----------
        p : float, or a sequence of them
            Strictly between 0 and 1.

        Returns
        -------
        lower, upper : arrays of the shape of `mean`
            Of several probabilities there is an interval for each, along a first axis.

        Examples
        --------
        >>> import numpy as np
        >>> from dvip import GaussianMixture
        >>> normal = GaussianMixture(np.zeros((1, 1)), np.zeros((1, 1)), np.ones(()))
        >>> lower, upper = normal.interval(0.9)
        >>> float(upper[0].round(2))
        1.64
        """
        levels = _probabilities(p)
        return self.quantile((1 - levels) / 2), self.quantile((1 + levels) / 2)

    def crps(self, y: Float[np.ndarray, "..."]) -> Rows:
        """The continuous ranked probability score E|Y - y| - E|Y - Y'| / 2; lower is better.

        It is twice the mean of the pinball losses of all quantiles. A family that has it in closed
        form has a method of its own.

        Parameters
        ----------
        y : array of the shape of `mean`, or a number
            What was observed.

        Returns
        -------
        array of the shape of `mean`
        """
        y = self._aligned(y)[..., 0]
        score = np.zeros(y.shape)
        for p in (np.arange(NUM_QUANTILES) + 0.5) / NUM_QUANTILES:
            excess = y - self._quantile(p)
            score += np.maximum(p * excess, (p - 1) * excess)
        return 2 * score / NUM_QUANTILES

    def sample(
        self, n: int, random_state: int | np.random.RandomState | None = None
    ) -> Float[np.ndarray, "n rows *targets"]:
        """n draws of y for each row; targets of a row come from the same component.

        Parameters
        ----------
        n : int
        random_state : int, RandomState or None
            The same number gives the same draws.

        Returns
        -------
        array of shape (n, rows) or (n, rows, targets)
        """
        if not (isinstance(n, int | np.integer) and n >= 0):
            raise ValueError(f"n={n!r} must be a whole number of draws.")
        random = check_random_state(random_state)
        if self.weights is None:
            index = random.randint(self.shape[-1], size=(n, self.shape[0]))
        else:
            index = random.choice(self.shape[-1], size=(n, self.shape[0]), p=self.weights)
        index = index.reshape(n, self.shape[0], *(1,) * (len(self.shape) - 1))

        def chosen(components: np.ndarray) -> np.ndarray:
            return np.take_along_axis(components[None], index, axis=-1)[..., 0]

        return self._component_sample(chosen, random)


def _probabilities(p: Any) -> np.ndarray:
    """One number or several; an error unless each is between 0 and 1."""
    levels = np.asarray(p)
    if levels.ndim > 1 or levels.size == 0:
        raise ValueError(f"p={p!r} must be a probability or a sequence of them.")
    if levels.dtype.kind not in "iuf" or not ((levels > 0) & (levels < 1)).all():
        raise ValueError(f"p={p!r} must be numbers strictly between 0 and 1.")
    return levels.astype(float)


def _increasing_root(
    value_and_slope: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]],
    lower: np.ndarray,
    upper: np.ndarray,
) -> np.ndarray:
    """Roots of increasing functions, elementwise: Newton's method, bisection where it leaves."""
    tolerance = 1e-12 * (np.abs(lower) + np.abs(upper) + (upper - lower))
    root = 0.5 * (lower + upper)
    for _ in range(100):
        value, slope = value_and_slope(root)
        lower, upper = np.where(value < 0, root, lower), np.where(value < 0, upper, root)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            newton = root - value / slope
        inside = (newton >= lower) & (newton <= upper)
        following = np.where(inside, newton, 0.5 * (lower + upper))
        done = np.abs(following - root) <= tolerance
        root = following
        if done.all():
            break
    return root
