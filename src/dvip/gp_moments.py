"""What a Gaussian process predicts: means and variances, and noise of which only a middle is known.

The logarithm of the noise's variance has a spread of its own around its middle: a few levels of it,
with probabilities, stand for all, and a prediction is the mixture over them, which has heavy tails.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import logsumexp

from dvip.sum_kernel import LEAST_NOISE

__all__ = ["SPREADS", "GPMoments", "best_level_and_spread"]

# Where the level of the noise and the spread of its logarithm are looked for; the values that stand
# for a standard normal variable, and their probabilities.
LEVELS, SPREADS = np.exp(np.linspace(-2, 2, 25)), (0.0, 0.3, 0.6, 0.9, 1.2)
NODES, SHARES = np.polynomial.hermite_e.hermegauss(5)
SHARES = SHARES / SHARES.sum()


class GPMoments(NamedTuple):
    """Mean of each target, variance of f and of the noise in its middle, of each row."""

    mean: Float[np.ndarray, "rows outputs"]
    variance: Float[np.ndarray, " rows"]
    middle: Float[np.ndarray, " rows"]
    spread: float = 0.0

    @classmethod
    def of_all(cls, parts: Sequence["GPMoments"]) -> "GPMoments":
        """Of the rows of all of them."""
        mean, variance, middle = (
            np.concatenate(part) for part in list(zip(*parts, strict=True))[:3]
        )
        return cls(mean, variance, middle, parts[0].spread)

    @property
    def weights(self) -> Float[np.ndarray, " levels"]:
        """Probabilities of the levels of the noise."""
        return SHARES if self.spread else np.ones(1)

    @property
    def noise(self) -> Float[np.ndarray, "rows levels"]:
        """Variances of the noise; its mean over the levels is that of the middle."""
        factors = np.exp(self.spread * NODES) if self.spread else np.ones(1)
        return self.middle[:, None] * (factors / (factors @ self.weights)) + LEAST_NOISE

    def log_density(self, targets: np.ndarray) -> Float[np.ndarray, "rows outputs"]:
        """Of these targets."""
        total = (self.variance[:, None] + self.noise)[:, None]
        squares = np.square(targets - self.mean)[..., None]
        logs = -0.5 * (squares / total + np.log(2 * np.pi * total))
        return logsumexp(logs, b=self.weights, axis=-1)


def best_level_and_spread(
    moments: GPMoments, noise: Float[np.ndarray, " rows"], targets: np.ndarray
) -> tuple[float, float]:
    """The factor of this noise, and the spread of its logarithm, that targets favour."""

    def score(pair: tuple[float, float]) -> float:
        level, spread = pair
        return float(
            moments._replace(middle=level * noise, spread=spread).log_density(targets).sum()
        )

    return max(((float(level), spread) for level in LEVELS for spread in SPREADS), key=score)
