"""Mixtures of Gaussians, whose CRPS is in closed form."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from jaxtyping import Float
from scipy.special import ndtr, ndtri

from dvip.distributions.predictive import (
    Components,
    Predictive,
    Rows,
    VarianceParts,
)

__all__ = ["GaussianMixture", "concatenated_weights", "mean_over_pairs"]

# Pairs of components that the CRPS is computed with at once.
MAX_PAIRS = 2_000_000


@dataclass(frozen=True, eq=False, repr=False)
class GaussianMixture(Predictive):
    """A mixture of Gaussians for each row, or for each row and target.

    The last axis of `means` and `function_variances` holds the components. The noise is what would
    remain if the function were known: one variance for each target, or one for each row, target and
    component, where an axis may have length 1; it is added to the components' variances.
    """

    can_be_rescaled: ClassVar[bool] = True

    means: Components
    function_variances: Components
    noise_variance: Float[np.ndarray, "..."]
    weights: Float[np.ndarray, " components"] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows, targets if there is an axis for them, and components."""
        return self.means.shape

    @property
    def _noise(self) -> Float[np.ndarray, "..."]:
        """With an axis for the components."""
        noise = np.asarray(self.noise_variance, dtype=float)
        return noise if noise.ndim == self.means.ndim else noise[..., None]

    @property
    def _stds(self) -> Components:
        return np.sqrt(self.function_variances + self._noise)

    @property
    def mean(self) -> Rows:
        """The mean of y."""
        return self._average(self.means, dtype=float)

    def variance_parts(self) -> VarianceParts:
        """The variance of y as noise of the data and uncertainty of the function.

        Law of total variance: the function's part is the mean of the components' variances plus
        the variance of their means.
        """
        within = self._average(self.function_variances, dtype=float)
        if self.weights is None:
            function = within + np.var(self.means, axis=-1, dtype=float)
        else:
            function = within + self._average(np.square(self.means - self.mean[..., None]))
        noise = self._noise
        noise = noise[..., 0] if noise.shape[-1] == 1 else self._average(noise)
        return VarianceParts(np.broadcast_to(noise, function.shape), function)

    def target(self, index: int) -> "GaussianMixture":
        """The distribution of one of several targets alone, without an axis for targets."""
        noise = np.asarray(self.noise_variance)
        if noise.ndim == self.means.ndim:
            noise = np.broadcast_to(noise, self.means.shape)[:, index]
        elif noise.ndim:
            noise = noise[index]
        return GaussianMixture(
            self.means[:, index], self.function_variances[:, index], noise, self.weights
        )

    def _rows(self, rows: slice) -> "GaussianMixture":
        noise = np.asarray(self.noise_variance)
        if noise.ndim == self.means.ndim:
            noise = np.broadcast_to(noise, self.means.shape)[rows]
        return GaussianMixture(self.means[rows], self.function_variances[rows], noise, self.weights)

    def _joined(
        self, parts: Sequence["GaussianMixture"], weights: Sequence[float] | None
    ) -> "GaussianMixture":
        noises = [part._noise for part in parts]
        if all(noise.shape[-1] == 1 and np.array_equal(noise, noises[0]) for noise in noises):
            noise = np.asarray(self.noise_variance)  # the same for all components
        else:
            num_rows = max(
                noise.shape[0] if noise.ndim == self.means.ndim else 1 for noise in noises
            )
            noise = np.concatenate(
                [
                    np.broadcast_to(noise, (num_rows, *part.shape[1:]))
                    for noise, part in zip(noises, parts, strict=True)
                ],
                axis=-1,
            )
        means, variances = (
            np.concatenate([getattr(part, name) for part in parts], axis=-1)
            for name in ("means", "function_variances")
        )
        return GaussianMixture(means, variances, noise, concatenated_weights(parts, weights))

    def rescaled(
        self, scale: float, tail_weight: float = 0.0, tail_scale: float = 1.0
    ) -> "GaussianMixture":
        """The same with all deviations from the mean multiplied, and with a tail."""
        mean = self.mean[..., None]
        means = mean + scale * (self.means - mean)
        variances = scale**2 * self.function_variances
        noise = scale**2 * np.asarray(self.noise_variance, dtype=float)
        rescaled = GaussianMixture(means, variances, noise, self.weights)
        if tail_weight == 0:
            return rescaled
        tail = np.square(tail_scale * rescaled.std)[..., None]
        number = self.shape[-1]
        weights = np.full(number, 1 / number) if self.weights is None else self.weights
        return GaussianMixture(
            np.concatenate([means, mean], axis=-1),
            np.concatenate([variances, np.zeros_like(mean)], axis=-1),
            np.concatenate([np.broadcast_to(rescaled._noise, self.shape), tail], axis=-1),
            np.append((1 - tail_weight) * weights, tail_weight),
        )

    def widened(self, std: Rows) -> "GaussianMixture":
        """With a further Gaussian uncertainty of the function, of this standard deviation."""
        return replace(self, function_variances=self.function_variances + np.square(std)[..., None])

    def _component_log_density(self, y: Components) -> Components:
        stds = self._stds
        standardised = (y - self.means) / stds
        return -0.5 * np.square(standardised) - np.log(stds) - 0.5 * np.log(2 * np.pi)

    def _component_cdf(self, y: Components) -> Components:
        return ndtr((y - self.means) / self._stds)

    def _component_quantile(self, p: float) -> Components:
        return self.means + ndtri(p) * self._stds

    def _component_sample(
        self, chosen: Callable[[np.ndarray], np.ndarray], random: np.random.RandomState
    ) -> np.ndarray:
        noise = np.broadcast_to(self._noise, self.means.shape)
        means, variances = chosen(self.means), chosen(self.function_variances) + chosen(noise)
        return means + np.sqrt(variances) * random.standard_normal(means.shape)

    def crps(self, y: Float[np.ndarray, "..."]) -> Rows:
        """The continuous ranked probability score E|Y - y| - E|Y - Y'| / 2, in closed form."""
        return self.mean_absolute_error(y) - 0.5 * self.mean_difference()

    def mean_absolute_error(self, y: Float[np.ndarray, "..."]) -> Rows:
        """E|Y - y| of what was observed."""

        def error(part: GaussianMixture, y: Components) -> np.ndarray:
            return part._average(_mean_absolute(y - part.means, part._stds))

        return self._in_parts(error, self._aligned(y))

    def mean_difference(self) -> Rows:
        """E|Y - Y'| of two draws."""
        return self._in_parts(GaussianMixture._mean_difference)

    def _mean_difference(self) -> Rows:
        num_components = self.means.shape[-1]
        means = self.means.reshape(-1, num_components)
        stds = self._stds.reshape(-1, num_components)

        def of_pairs(first: np.ndarray, second: np.ndarray, rows: slice) -> np.ndarray:
            differences = means[rows, first] - means[rows, second]
            return _mean_absolute(differences, np.hypot(stds[rows, first], stds[rows, second]))

        own = _mean_absolute(np.zeros_like(means), np.sqrt(2) * stds)
        return mean_over_pairs(own, of_pairs, self.weights).reshape(self.means.shape[:-1])


def concatenated_weights(
    parts: Sequence[Predictive], weights: Sequence[float] | None
) -> Float[np.ndarray, " components"] | None:
    """The weights of the components of all of them; by default parts are equally probable."""
    numbers = {part.shape[-1] for part in parts}
    if weights is None and len(numbers) == 1 and all(part.weights is None for part in parts):
        return None
    shares = np.full(len(parts), 1 / len(parts)) if weights is None else np.asarray(weights)
    each = [
        np.full(part.shape[-1], 1 / part.shape[-1]) if part.weights is None else part.weights
        for part in parts
    ]
    return np.concatenate([share * own for share, own in zip(shares, each, strict=True)])


def mean_over_pairs(
    own: Float[np.ndarray, "rows components"],
    of_pairs: Callable[[np.ndarray, np.ndarray, slice], Float[np.ndarray, "rows pairs"]],
    weights: Float[np.ndarray, " components"] | None,
) -> Float[np.ndarray, " rows"]:
    """The mean over pairs of components: each with itself, the others counted twice.

    `of_pairs` gives it for pairs of them, by their numbers, in some of the rows.
    """
    num_components = own.shape[1]
    total = own.sum(axis=1) if weights is None else own @ np.square(weights)
    first, second = np.triu_indices(num_components, k=1)
    rows_at_once = max(1, MAX_PAIRS // num_components**2)
    for start in range(0, len(own), rows_at_once):
        rows = slice(start, start + rows_at_once)
        values = of_pairs(first, second, rows)
        if weights is None:
            total[rows] += 2 * values.sum(axis=1)
        else:
            total[rows] += 2 * values @ (weights[first] * weights[second])
    return total / num_components**2 if weights is None else total


def _mean_absolute(mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    """E|X| for X ~ N(mean, std²)."""
    ratio = mean / std
    density = np.exp(-0.5 * np.square(ratio)) / np.sqrt(2 * np.pi)
    return mean * (2 * ndtr(ratio) - 1) + 2 * std * density
