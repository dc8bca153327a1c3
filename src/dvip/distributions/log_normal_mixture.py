"""Mixtures of log-normal distributions: of positive numbers whose logarithms are Gaussian."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float
from scipy.special import ndtr

from dvip.distributions.gaussian_mixture import GaussianMixture, mean_over_pairs
from dvip.distributions.predictive import Components, Predictive, Rows, VarianceParts

__all__ = ["LogNormalMixture"]


@dataclass(frozen=True, eq=False, repr=False)
class LogNormalMixture(Predictive):
    """y > 0 for each row, or for each row and target, where `logs` is the mixture of log y."""

    can_be_rescaled: ClassVar[bool] = True

    logs: GaussianMixture

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows, targets if there is an axis for them, and components."""
        return self.logs.shape

    @property
    def weights(self) -> Float[np.ndarray, " components"] | None:  # type: ignore[override]
        """Probabilities of the components; none if they are equal."""
        return self.logs.weights

    @property
    def _component_means(self) -> Components:
        return np.exp(self.logs.means + 0.5 * (self.logs.function_variances + self.logs._noise))

    @property
    def mean(self) -> Rows:
        """The mean of y."""
        return self._average(self._component_means)

    def variance_parts(self) -> VarianceParts:
        """The variance of y as noise of the data and uncertainty of the function."""
        noise, means = self.logs._noise, self._component_means
        # E[(E[y | f])²]; given f, the variance is this square times exp(noise) - 1.
        squares = np.square(means) * np.exp(self.logs.function_variances)
        of_noise = self._average(squares * np.expm1(noise))
        centre = self.mean[..., None]
        within = np.square(means) * np.expm1(self.logs.function_variances)
        return VarianceParts(of_noise, self._average(within + np.square(means - centre)))

    def target(self, index: int) -> "LogNormalMixture":
        """The distribution of one of several targets alone, without an axis for targets."""
        return LogNormalMixture(self.logs.target(index))

    def _rows(self, rows: slice) -> "LogNormalMixture":
        return LogNormalMixture(self.logs._rows(rows))

    def _joined(
        self, parts: Sequence["LogNormalMixture"], weights: Sequence[float] | None
    ) -> "LogNormalMixture":
        return LogNormalMixture(self.logs._joined([part.logs for part in parts], weights))

    def on_its_scale(self, y: Any) -> tuple[GaussianMixture, np.ndarray]:
        """That of log y."""
        return self.logs, _log(np.asarray(y, dtype=float))

    def rescaled(
        self, scale: float, tail_weight: float = 0.0, tail_scale: float = 1.0
    ) -> "LogNormalMixture":
        """The same with the distribution of log y rescaled."""
        return LogNormalMixture(self.logs.rescaled(scale, tail_weight, tail_scale))

    def widened(self, std: np.ndarray) -> "LogNormalMixture":
        """With a further Gaussian uncertainty of log y, of this standard deviation."""
        return LogNormalMixture(self.logs.widened(std))

    def _component_log_density(self, y: Components) -> Components:
        logs = _log(y)
        with np.errstate(invalid="ignore"):  # of y = 0, which is impossible
            density = self.logs._component_log_density(logs) - logs
        return np.where(y > 0, density, -np.inf)

    def _component_cdf(self, y: Components) -> Components:
        return self.logs._component_cdf(_log(y))

    def _component_quantile(self, p: float) -> Components:
        return np.exp(self.logs._component_quantile(p))

    def _quantile_at_once(self, p: float) -> Rows:
        return np.exp(self.logs._quantile_at_once(p))

    def _component_sample(
        self, chosen: Callable[[np.ndarray], np.ndarray], random: np.random.RandomState
    ) -> np.ndarray:
        return np.exp(self.logs._component_sample(chosen, random))

    def crps(self, y: Float[np.ndarray, "..."]) -> Rows:
        """The continuous ranked probability score E|Y - y| - E|Y - Y'| / 2, in closed form."""
        return self._in_parts(LogNormalMixture._crps, self._aligned(y))

    def _crps(self, y: Components) -> Rows:
        number = self.shape[-1]
        y = y.reshape(-1, 1)
        logs = self.logs.means.reshape(-1, number)
        stds = self.logs._stds.reshape(-1, number)
        means = self._component_means.reshape(-1, number)
        # Where Y is weighted by its size, log Y has the same variance, and a mean that is larger
        # by it.
        z = (_log(y) - logs) / stds
        distance = y * (2 * ndtr(z) - 1) + means * (1 - 2 * ndtr(z - stds))

        def of_pairs(first: np.ndarray, second: np.ndarray, rows: slice) -> np.ndarray:
            scale = np.hypot(stds[rows, first], stds[rows, second])
            difference = (logs[rows, first] - logs[rows, second]) / scale
            upper = difference + np.square(stds[rows, first]) / scale
            lower = -difference + np.square(stds[rows, second]) / scale
            return means[rows, first] * (2 * ndtr(upper) - 1) + means[rows, second] * (
                2 * ndtr(lower) - 1
            )

        own = 2 * means * (2 * ndtr(stds / np.sqrt(2)) - 1)
        spread = mean_over_pairs(own, of_pairs, self.weights)
        return (self._average(distance) - 0.5 * spread).reshape(self.shape[:-1])


def _log(y: np.ndarray) -> np.ndarray:
    """log y; minus infinity of what is not positive."""
    with np.errstate(divide="ignore"):
        return np.log(np.maximum(y, 0))
