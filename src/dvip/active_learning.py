"""Which measurements would tell most, from function draws at candidate rows.

Values of draws at the rows, centred, are the columns a_i of A, so that their covariance is AᵀA.
Measuring row i with noise s_i² takes from it

    AᵀP a_i a_iᵀP A / (a_iᵀ P a_i + s_i²)

with P = I at first, and P changes by as much after each choice: rows that tell the same as those
chosen gain nothing any more. A criterion of Cohn (1996) with the covariances of any posterior.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

__all__ = ["most_telling"]


def most_telling(
    draws: Sequence[Float[np.ndarray, "functions rows"]],
    noises: Sequence[Float[np.ndarray, " rows"]],
    number: int,
) -> tuple[list[int], list[float]]:
    """Rows to measure, the most telling first, and what each reduces the mean variance by.

    There are draws and noise variances for each of several targets, which are measured together.
    Reductions are shares of the mean variance before any choice; a row is chosen once.
    """
    centred = [values - values.mean(axis=0) for values in draws]
    totals = [max(float(np.square(values).sum()), np.finfo(float).tiny) for values in centred]
    # In units of the total variance: several targets count alike, and sums are shares.
    of_targets = [
        (values / np.sqrt(total), noise * (len(values) - 1) / total)
        for values, noise, total in zip(centred, noises, totals, strict=True)
    ]
    states = [np.eye(len(values)) for values in centred]
    chosen: list[int] = []
    reductions: list[float] = []
    for _ in range(number):
        pairs = zip(of_targets, states, strict=True)
        gains = np.mean([_gains(*target, state) for target, state in pairs], axis=0)
        gains[chosen] = -np.inf
        best = int(np.argmax(gains))
        chosen.append(best)
        reductions.append(float(gains[best]))
        for index, (values, noise) in enumerate(of_targets):
            towards = states[index] @ values[:, best]
            states[index] -= np.outer(towards, towards) / (values[:, best] @ towards + noise[best])
    return chosen, reductions


def _gains(
    values: Float[np.ndarray, "functions rows"],
    noise: Float[np.ndarray, " rows"],
    state: Float[np.ndarray, "functions functions"],
) -> Float[np.ndarray, " rows"]:
    """Σ_j Σ_ji² / (Σ_ii + s_i²) of each row i, where Σ = AᵀPA."""
    projected = state @ values
    variances = np.einsum("fr,fr->r", values, projected)
    squares = np.einsum("fr,fr->r", projected, (values @ values.T) @ projected)
    return squares / np.maximum(variances + noise, np.finfo(float).tiny)
