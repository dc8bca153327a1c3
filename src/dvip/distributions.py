"""What a regression user gets: the predictive distribution of y, a Gaussian mixture for each row.

Equation 9 of the paper with the noise of the data added, on the scale of the user's targets.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import logsumexp, ndtr, ndtri
from sklearn.utils import check_random_state

__all__ = ["GaussianMixture", "VarianceParts"]

# Pairs of components that the CRPS holds in memory at once.
MAX_PAIRS = 2_000_000


class VarianceParts(NamedTuple):
    """A predictive variance and where it comes from; `noise + function` is the whole."""

    noise: np.ndarray
    function: np.ndarray


@dataclass(frozen=True)
class GaussianMixture:
    """An equally weighted mixture of R Gaussians for each row, or for each row and target.

    The last axis of `means` and `function_variances` holds the components. `noise_variance`
    is added to every component: it is what would remain if the function were known.
    """

    means: Float[np.ndarray, "rows *targets components"]
    function_variances: Float[np.ndarray, "rows *targets components"]
    noise_variance: Float[np.ndarray, "*targets"]

    @property
    def _noise(self) -> Float[np.ndarray, "*targets 1"]:
        return np.asarray(self.noise_variance, dtype=float)[..., None]

    @property
    def _stds(self) -> Float[np.ndarray, "rows *targets components"]:
        return np.sqrt(self.function_variances + self._noise)

    @property
    def mean(self) -> Float[np.ndarray, "rows *targets"]:
        """The mean of y."""
        return np.mean(self.means, axis=-1, dtype=float)

    @property
    def std(self) -> Float[np.ndarray, "rows *targets"]:
        """The standard deviation of y."""
        parts = self.variance_parts()
        return np.sqrt(parts.noise + parts.function)

    def variance_parts(self) -> VarianceParts:
        """The variance of y as noise of the data and uncertainty of the function.

        Law of total variance: the function's part is the mean of the components' variances plus
        the variance of their means.
        """
        within = np.mean(self.function_variances, axis=-1, dtype=float)
        function = within + np.var(self.means, axis=-1, dtype=float)
        return VarianceParts(np.broadcast_to(self.noise_variance, function.shape), function)

    def _aligned(self, y: np.ndarray) -> np.ndarray:
        """`y` as an array with a component axis; a single value stands for every row."""
        y = np.asarray(y, dtype=float)
        shape = self.means.shape[:-1]
        if y.shape == (*shape, 1) and len(shape) == 1:
            y = y[:, 0]
        try:
            return np.broadcast_to(y, shape)[..., None]
        except ValueError:
            raise ValueError(f"y has shape {y.shape}, the prediction has {shape}.") from None

    def log_prob(self, y: Float[np.ndarray, "..."]) -> Float[np.ndarray, " rows"]:
        """log p(y) of each row; several targets are judged jointly."""
        stds = self._stds
        standardised = (self._aligned(y) - self.means) / stds
        log_density = -0.5 * np.square(standardised) - np.log(stds) - 0.5 * np.log(2 * np.pi)
        if log_density.ndim == 3:
            log_density = log_density.sum(axis=1)
        return logsumexp(log_density, axis=-1) - np.log(log_density.shape[-1])

    def cdf(self, y: Float[np.ndarray, "..."]) -> Float[np.ndarray, "rows *targets"]:
        """P(Y ≤ y) for each row and target."""
        return np.mean(ndtr((self._aligned(y) - self.means) / self._stds), axis=-1)

    def quantile(self, p: float | Sequence[float] | np.ndarray) -> Float[np.ndarray, "..."]:
        """The value that y stays below with probability p, for each row and target.

        Of several probabilities, in a sequence, there is a result for each, along the first axis.
        """
        if np.ndim(p) == 0:
            return self._quantile(_probability(p))
        if np.ndim(p) > 1 or np.size(p) == 0:
            raise ValueError(f"p={p!r} must be a probability or a sequence of them.")
        return np.stack([self._quantile(_probability(entry)) for entry in np.asarray(p)])

    def _quantile(self, p: float) -> Float[np.ndarray, "rows *targets"]:
        stds = self._stds
        quantiles = self.means + ndtri(p) * stds

        def excess_and_density(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            standardised = (y[..., None] - self.means) / stds
            density = np.exp(-0.5 * np.square(standardised)) / (np.sqrt(2 * np.pi) * stds)
            return np.mean(ndtr(standardised), axis=-1) - p, np.mean(density, axis=-1)

        # The mixture's quantile lies between those of its components.
        return _increasing_root(excess_and_density, quantiles.min(axis=-1), quantiles.max(axis=-1))

    def interval(self, p: float) -> tuple[np.ndarray, np.ndarray]:
        """The central interval that holds y with probability p: lower and upper ends."""
        p = _probability(p)
        return self._quantile((1 - p) / 2), self._quantile((1 + p) / 2)

    def crps(self, y: Float[np.ndarray, "..."]) -> Float[np.ndarray, "rows *targets"]:
        """The continuous ranked probability score E|Y - y| - E|Y - Y'| / 2, in closed form."""
        num_components = self.means.shape[-1]
        means = self.means.reshape(-1, num_components)
        stds = self._stds.reshape(-1, num_components)
        y = self._aligned(y).reshape(-1, 1)
        # E|Y - Y'| is a mean over pairs of components: each with itself, the others counted twice.
        spread = _mean_absolute(np.zeros_like(means), np.sqrt(2) * stds).sum(axis=1)
        first, second = np.triu_indices(num_components, k=1)
        block = max(1, MAX_PAIRS // num_components**2)
        for start in range(0, len(means), block):
            rows = slice(start, start + block)
            differences = means[rows, first] - means[rows, second]
            scales = np.hypot(stds[rows, first], stds[rows, second])
            spread[rows] += 2 * _mean_absolute(differences, scales).sum(axis=1)
        score = _mean_absolute(y - means, stds).mean(axis=1) - 0.5 * spread / num_components**2
        return score.reshape(self.means.shape[:-1])

    def sample(
        self, n: int, random_state: int | np.random.RandomState | None = None
    ) -> Float[np.ndarray, "n rows *targets"]:
        """n draws of y for each row; targets of a row come from the same component."""
        random = check_random_state(random_state)
        rows, components = self.means.shape[0], self.means.shape[-1]
        chosen = random.randint(components, size=(n, rows))
        index = chosen.reshape(n, rows, *(1,) * (self.means.ndim - 1))
        means, stds = (
            np.take_along_axis(values[None], index, axis=-1)[..., 0]
            for values in (self.means, self._stds)
        )
        return means + stds * random.standard_normal(means.shape)


def _probability(p: Any) -> float:
    """The number; an error unless it is one between 0 and 1."""
    is_number = np.ndim(p) == 0 and np.asarray(p).dtype.kind in "iuf"
    if not (is_number and 0 < p < 1):
        raise ValueError(f"p={p!r} must be one number strictly between 0 and 1.")
    return float(p)


def _mean_absolute(mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    """E|X| for X ~ N(mean, std²)."""
    ratio = mean / std
    density = np.exp(-0.5 * np.square(ratio)) / np.sqrt(2 * np.pi)
    return mean * (2 * ndtr(ratio) - 1) + 2 * std * density


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
