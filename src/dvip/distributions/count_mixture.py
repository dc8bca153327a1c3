"""Mixtures of Poisson or negative binomial distributions: of counts 0, 1, 2, ..."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.special import betainc, gammaln, pdtr, xlog1py, xlogy

from dvip.distributions.gaussian_mixture import concatenated_weights
from dvip.distributions.predictive import (
    Components,
    Predictive,
    Rows,
    VarianceParts,
)

__all__ = ["CountMixture"]

# Counts that the CRPS takes together, as a share of their distance from the median.
BLOCK_GROWTH = 0.1
# What lies farther out adds nothing to it.
NEGLIGIBLE = 1e-8


@dataclass(frozen=True, eq=False, repr=False)
class CountMixture(Predictive):
    """Counts with these rates, their means: Poisson, or negative binomial with a concentration k.

    The last axis of `rates` holds the components; values of the function, so that the noise is what
    is random at a known rate. A negative binomial component has the variance rate + rate² / k;
    there is a k for each target, with as many axes as `rates` has, or none at all for Poisson's.
    """

    rates: Components
    concentration: Float[np.ndarray, "..."] | None = None
    weights: Float[np.ndarray, " components"] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows, targets if there is an axis for them, and components."""
        return self.rates.shape

    @property
    def mean(self) -> Rows:
        """The mean of y."""
        return self._average(self.rates, dtype=float)

    def variance_parts(self) -> VarianceParts:
        """The variance of y as noise of the counts and uncertainty of their rate."""
        noise = self.rates
        if self.concentration is not None:
            noise = noise + np.square(self.rates) / self.concentration
        function = self._average(np.square(self.rates - self.mean[..., None]))
        return VarianceParts(self._average(noise), function)

    def _with(self, cut: Callable[[np.ndarray], np.ndarray]) -> "CountMixture":
        """The distribution of a part of the rows or targets."""
        concentration = self.concentration
        if concentration is not None:
            concentration = cut(np.broadcast_to(concentration, self.shape))
        return CountMixture(cut(self.rates), concentration, self.weights)

    def target(self, index: int) -> "CountMixture":
        """The distribution of one of several targets alone, without an axis for targets."""
        return self._with(lambda array: array[:, index])

    def _rows(self, rows: slice) -> "CountMixture":
        return self._with(lambda array: array[rows])

    def _joined(
        self, parts: Sequence["CountMixture"], weights: Sequence[float] | None
    ) -> "CountMixture":
        concentrations = [
            np.broadcast_to(part.concentration, part.shape)
            for part in parts
            if part.concentration is not None
        ]
        return CountMixture(
            np.concatenate([part.rates for part in parts], axis=-1),
            np.concatenate(concentrations, axis=-1) if concentrations else None,
            concatenated_weights(parts, weights),
        )

    def _component_log_density(self, y: Components) -> Components:
        possible = (y >= 0) & (y == np.floor(y))
        y = np.where(possible, y, 0.0)
        k, rates = self.concentration, self.rates
        if k is None:
            log_mass = xlogy(y, rates) - rates - gammaln(y + 1)
        else:
            log_mass = gammaln(y + k) - gammaln(k) - gammaln(y + 1)
            log_mass = log_mass - xlog1py(k, rates / k) + xlogy(y, rates / (k + rates))
        return np.where(possible, log_mass, -np.inf)

    def _component_cdf(self, y: Components) -> Components:
        whole = np.maximum(np.floor(y), 0.0)
        k, rates = self.concentration, self.rates
        below = pdtr(whole, rates) if k is None else betainc(k, whole + 1, k / (k + rates))
        return np.where(y >= 0, below, 0.0)

    def _component_quantile(self, p: float) -> Components:
        """Not needed: quantiles of the mixture are whole numbers, and searched for."""
        raise NotImplementedError

    def _quantile_at_once(self, p: float) -> Rows:
        """The smallest whole number that y stays at or below with probability p, or more."""

        def reached(y: np.ndarray) -> np.ndarray:
            return self._average(self._component_cdf(y[..., None])) >= p

        lower = np.full(self.shape[:-1], -1.0)
        upper = np.ceil(self.mean + self.std)
        while not (enough := reached(upper)).all():
            lower, upper = np.where(enough, lower, upper), np.where(enough, upper, 2 * upper + 1)
        while (upper - lower > 1).any():
            middle = np.floor(0.5 * (lower + upper))
            enough = reached(middle)
            lower, upper = np.where(enough, lower, middle), np.where(enough, middle, upper)
        return upper

    def _component_sample(
        self, chosen: Callable[[np.ndarray], np.ndarray], random: np.random.RandomState
    ) -> np.ndarray:
        rates = chosen(self.rates)
        if self.concentration is not None:
            k = chosen(np.broadcast_to(self.concentration, self.shape))
            rates = random.gamma(k, rates / k)
        return random.poisson(rates).astype(float)

    def crps(self, y: Float[np.ndarray, "..."]) -> Rows:
        """The ranked probability score E|Y - y| - E|Y - Y'| / 2.

        The first part is in closed form; the second is Σ_n P(Y ≤ n) P(Y > n), where far from the
        median several counts are taken together.
        """
        return self._in_parts(CountMixture._crps, self._aligned(y))

    def _crps(self, y: Components) -> Rows:
        below = y * self._component_cdf(y) - self.rates * self._size_biased_cdf(y)
        distance = self._average(self.rates - y + 2 * below)
        lowest, median, highest = (
            self._quantile_at_once(p) for p in (NEGLIGIBLE, 0.5, 1 - NEGLIGIBLE)
        )
        spread = np.zeros(median.shape)
        for direction, number in ((-1, median - lowest), (1, highest - median)):
            start = 0
            while start < number.max(initial=0):
                width = 2 * int(0.5 * BLOCK_GROWTH * start) + 1  # odd, so that it has a middle
                middle = start + width // 2
                counts = median + middle if direction > 0 else median - 1 - middle
                cdf = self._average(self._component_cdf(counts[..., None]))
                spread += np.clip(number - start, 0, width) * cdf * (1 - cdf)
                start += width
        return distance - spread

    def _size_biased_cdf(self, y: Components) -> Components:
        """E[Y 1{Y ≤ y}] / E[Y] of the components."""
        whole, k = np.floor(y), self.concentration
        counted = np.maximum(whole, 1.0)
        if k is None:
            below = pdtr(counted - 1, self.rates)
        else:
            below = betainc(k + 1, counted, k / (k + self.rates))
        return np.where(whole >= 1, below, 0.0)
