"""Levels of what is random in a prediction besides the samples: a few values stand for all.

Noise that is Gaussian given a random scale is a mixture of Gaussians; a count is Poisson given a
random rate. Each sample that was sent through the network stands with one value of the scale or
rate for a component, or with several where there are few samples. The values are those of strata:
the components share out the probabilities from 0 to 1, in an order of its own for each variable.
All rows have the same strata, so that a prediction does not depend on what else is asked for.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy.special import gammainc, gammaincinv, ndtri

__all__ = ["Strata", "make_strata"]

# With fewer samples than this, each stands for several components.
MIN_COMPONENTS = 100
# Further components for the far tail of a variable, each so much less probable than the one before.
NUM_TAIL, TAIL_FACTOR = 8, 4.0


@dataclass(frozen=True)
class Strata:
    """Components: the sample that each belongs to, and their probabilities.

    `tails` says which variable a component is in the far tail of; -1 where it is in none.
    """

    samples: Int[np.ndarray, " components"]
    probabilities: Float[np.ndarray, " components"]
    tails: Int[np.ndarray, " components"]

    @property
    def weights(self) -> Float[np.ndarray, " components"] | None:
        """Those of a `Predictive`."""
        return None if (self.tails < 0).all() else self.probabilities

    def of_components(
        self, samples: Float[np.ndarray, "rows units samples"]
    ) -> Float[np.ndarray, "rows units components"]:
        """What the components have from their samples."""
        return samples[..., self.samples]

    def of_parameters(self, parameters: Any) -> Float[np.ndarray, "outputs components_or_1"]:
        """What the components have as parameters: one for each target, or for it and a sample."""
        values = np.asarray(parameters, dtype=float)
        return values[:, None] if values.ndim == 1 else values[:, self.samples]

    def _edges(self, variable: int) -> tuple[np.ndarray, np.ndarray]:
        """The probabilities that each component's stratum lies between."""
        number = len(self.samples)
        # Irrational steps fill the unit interval evenly, whatever the stretch of components.
        place = (np.arange(1, number + 1) * np.sqrt(_prime(variable))) % 1.0
        own = self.tails == variable
        place[own] = -1.0 - np.arange(own.sum())  # the least probable ones first
        order = np.argsort(place, kind="stable")
        upper = np.empty(number)
        upper[order] = np.cumsum(self.probabilities[order])
        return np.clip(upper - self.probabilities, 0, 1), np.clip(upper, 0, 1)

    def normal(self, variable: int) -> Float[np.ndarray, " components"]:
        """Means of a standard normal variable in the strata."""

        def density(p: np.ndarray) -> np.ndarray:
            return np.exp(-0.5 * np.square(ndtri(p))) / np.sqrt(2 * np.pi)

        lower, upper = self._edges(variable)
        return (density(lower) - density(upper)) / self.probabilities

    def inverse_gamma(
        self, variable: int, freedom: float | Float[np.ndarray, " _"]
    ) -> Float[np.ndarray, " components"]:
        """Means of 1 / λ in the strata of λ ~ Gamma(ν / 2, ν / 2): their mean is ν / (ν - 2)."""
        shape = freedom / 2
        below = [gammainc(shape - 1, gammaincinv(shape, p)) for p in self._edges(variable)]
        return (below[1] - below[0]) / self.probabilities * shape / (shape - 1)


def make_strata(num_samples: int, num_tails: int = 0) -> Strata:
    """Strata for so many samples; the first `num_tails` variables have a far tail."""
    copies = -(-MIN_COMPONENTS // num_samples)
    number = num_samples * copies
    tail = TAIL_FACTOR ** -np.arange(1.0, NUM_TAIL + 1) / max(number, 4 * num_tails)
    tails = np.repeat(np.arange(num_tails), NUM_TAIL)
    rest = (1 - num_tails * tail.sum()) / number
    return Strata(
        np.concatenate(
            [np.repeat(np.arange(num_samples), copies), np.arange(len(tails)) % num_samples]
        ),
        np.concatenate([np.full(number, rest), np.tile(tail, num_tails)]),
        np.concatenate([np.full(number, -1), tails]),
    )


def _prime(index: int) -> int:
    """The prime number of that index: 2, 3, 5, ..."""
    primes: list[int] = []
    candidate = 2
    while len(primes) <= index:
        if all(candidate % prime for prime in primes):
            primes.append(candidate)
        candidate += 1
    return primes[index]
