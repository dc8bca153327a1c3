"""Whether chains have sampled what they were to sample: numbers that people know, and advice."""

from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

__all__ = ["Diagnostics", "diagnose", "split_r_hat"]

# Chains that agree have an R̂ below this, and samples enough are worth so many independent ones.
MAX_R_HAT, MIN_EFFECTIVE = 1.1, 50.0
# Of the steps, so many may fail.
MAX_FAILED = 0.01

Predictions = Float[np.ndarray, "chains draws predictions"]


class Diagnostics(NamedTuple):
    """How well chains have mixed, by their predictions for some rows of the training.

    `r_hat` is the rank-normalised split R̂: 1 where chains agree. `effective_samples` is how many
    independent samples all of them are worth (bulk ESS). Both are those of the median prediction;
    `worst_r_hat` and `least_effective_samples` are those of the worst. `energy_error` is the
    variance of the energy's errors, for each number that is sampled (MCLMC), and `acceptance` the
    mean acceptance (NUTS); the other is not a number. `failed` is the share of steps that were
    not made, or of trajectories that diverged.
    """

    r_hat: float
    effective_samples: float
    worst_r_hat: float
    least_effective_samples: float
    energy_error: float
    acceptance: float
    failed: float
    num_chains: int
    num_steps: int

    def advice(self) -> str | None:
        """What to do, in words, if the samples are not to be trusted."""
        if self.failed > MAX_FAILED:
            return (
                f"{self.failed:.0%} of the sampler's steps failed: use precision='float64', or "
                "look for extreme values in the data."
            )
        if not self.r_hat <= MAX_R_HAT:
            return (
                f"The chains do not agree (R̂ {self.r_hat:.2f}, at best 1): give more steps, "
                f"max_iter={2 * self.num_steps}, or a simpler model with fewer layers, units or "
                "prior samples."
            )
        if not self.effective_samples >= MIN_EFFECTIVE:
            return (
                f"The samples are worth only {self.effective_samples:.0f} independent ones: give "
                f"more steps, such as max_iter={3 * self.num_steps}."
            )
        return None


def diagnose(
    predictions: Predictions,
    energy_error: float,
    acceptance: float,
    failed: float,
    num_steps: int,
) -> Diagnostics:
    """What the predictions of all chains say."""
    r_hats, sizes = map(np.asarray, _r_hats_and_sizes(predictions))
    known = np.isfinite(r_hats) & np.isfinite(sizes)
    r_hats, sizes = (x[known] if known.any() else np.full(1, np.nan) for x in (r_hats, sizes))
    return Diagnostics(
        float(np.median(r_hats)),
        float(np.median(sizes)),
        float(r_hats.max()),
        float(sizes.min()),
        energy_error,
        acceptance,
        failed,
        len(predictions),
        num_steps,
    )


@jax.jit
def _r_hats_and_sizes(predictions: Any) -> tuple[Any, Any]:
    from blackjax.diagnostics import ess_bulk, rhat

    return rhat(predictions), ess_bulk(predictions)


def split_r_hat(predictions: Predictions) -> float:
    """The median split R̂ without ranks: quick, for a look on the way."""
    half = predictions.shape[1] // 2
    if half < 2:
        return float("nan")
    halves = np.concatenate([predictions[:, :half], predictions[:, half : 2 * half]])
    within = np.maximum(halves.var(axis=1, ddof=1).mean(axis=0), 1e-30)
    between = halves.mean(axis=1).var(axis=0, ddof=1)
    return float(np.median(np.sqrt((half - 1) / half + between / within)))
