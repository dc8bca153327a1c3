"""Calibration: predictions corrected by how rows that were left out came out."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar

from dvip.distributions import GaussianMixture, Predictive

__all__ = [
    "Calibration",
    "LeftOut",
    "best_log_likelihood",
    "best_log_score",
    "fit_scale",
    "fit_temperature",
    "tempered",
]


class Calibration(NamedTuple):
    """How predictions are corrected.

    Of a regression, deviations from the mean are multiplied by `scale`, and a wide Gaussian, of
    `tail_scale` times the standard deviation, gets the weight `tail_weight`. Of a classification,
    logarithms of probabilities are divided by `temperature`.
    """

    scale: float = 1.0
    tail_weight: float = 0.0
    tail_scale: float = 1.0
    temperature: float = 1.0


class LeftOut(NamedTuple):
    """The prediction for rows by those members that left them out, and what was observed.

    `others` is what the other members predict, which were trained on these rows.
    """

    prediction: Predictive
    y: np.ndarray
    weights: np.ndarray
    num_judged: int = 1
    others: Predictive | None = None


# Probabilities below this count as this.
SMALLEST = 1e-300

# The tail is this many times as wide as the distribution. Where the best calibration is looked for.
TAIL_SCALE = 4.0
SCALES = np.exp(np.arange(-8, 17) / 16)
TAILS = (0.0, 0.003, 0.01, 0.03, 0.06, 0.1)
# How far the logarithm of a factor is from 0 before rows are seen.
SPREAD_OF_LOG = 0.5
# Of the squared errors of a member, so much remains at least in an ensemble.
LEAST_SHARE = 0.1


def fit_scale(left_out: Sequence[LeftOut], num_members: int) -> Calibration:
    """The scale and the tail that left-out rows would have had the best scores with.

    Judged by the log-density and the CRPS of what the ensemble would have predicted for them.
    """
    total = sum(float(part.weights.sum()) for part in left_out)
    judged = _as_the_ensemble(left_out, num_members)
    spread = sum(float(np.sum(w * _by_row(mixture.std))) for mixture, _, w in judged) / total

    def crps(scale: float) -> float:
        scores = [(mixture.rescaled(scale).crps(y), w) for mixture, y, w in judged]
        return sum(float(np.sum(w * _by_row(score))) for score, w in scores) / spread

    def loss(scale: float, tail: float) -> float:
        scaled = [(mixture.rescaled(scale, tail, TAIL_SCALE), y, w) for mixture, y, w in judged]
        log_score = sum(float(np.sum(w * mixture.log_prob(y))) for mixture, y, w in scaled)
        return 0.5 * (np.log(scale) / SPREAD_OF_LOG) ** 2 - log_score

    of_crps = {scale: crps(scale) for scale in SCALES}
    scale, tail = min(
        ((scale, tail) for scale in SCALES for tail in TAILS),
        key=lambda pair: loss(*pair) + of_crps[pair[0]],
    )
    return Calibration(float(scale), tail, TAIL_SCALE)


def _by_row(values: np.ndarray) -> np.ndarray:
    """The mean over the targets of a row."""
    return values.reshape(len(values), -1).mean(axis=1)


def _as_the_ensemble(
    left_out: Sequence[LeftOut], num_members: int
) -> list[tuple[GaussianMixture, np.ndarray, np.ndarray]]:
    """What an ensemble would have predicted for rows that only some of its members left out.

    With m of K members, and V the variance between members, the error of the mean has
    (1/m - 1/K) V more than that of the ensemble, whose distribution is wider by as much. V is that
    of the differences between the members that left a row out and those that did not.
    """
    parts: list[tuple[Any, np.ndarray]] = [
        part.prediction.on_its_scale(part.y) for part in left_out
    ]
    weights = [part.weights for part in left_out]
    if num_members == 1:
        return [(*pair, w) for pair, w in zip(parts, weights, strict=True)]
    total = sum(float(w.sum()) for w in weights)

    def mean(values: list[np.ndarray]) -> float:
        pairs = zip(values, weights, strict=True)
        return sum(float(np.sum(w * _by_row(each))) for each, w in pairs) / total

    m = np.array([part.num_judged for part in left_out])
    shares = 1 / m + 1 / (num_members - m)
    differences = [
        np.square(mixture.mean - part.others.on_its_scale(part.y)[0].mean) / share
        for (mixture, _), part, share in zip(parts, left_out, shares, strict=True)
        if part.others is not None
    ]
    between, squares = mean(differences), mean([np.square(y - d.mean) for d, y in parts])
    variance = mean([np.square(d.std) for d, _ in parts])
    surpluses = (1 / m - 1 / num_members) * between
    judged = []
    for (mixture, y), w, surplus in zip(parts, weights, surpluses, strict=True):
        kept = max(LEAST_SHARE, 1 - surplus / max(squares, SMALLEST))
        wider = surplus * np.square(mixture.std) / max(variance, SMALLEST)
        variances = mixture.function_variances + wider[..., None]
        y = mixture.mean + np.sqrt(kept) * (y - mixture.mean)
        judged.append((replace(mixture, function_variances=variances), y, w))
    return judged


# Where the best calibration of a model under training is looked for.
SOME_SCALES, SOME_TAILS = np.geomspace(0.5, 4.0, 13), (0.0, 0.03)
TEMPERATURES = np.geomspace(0.4, 2.5, 13)


def best_log_score(left_out: LeftOut) -> float:
    """The mean log-density of left-out rows, at the best of some scales and tails.

    A model under training becomes too sure of itself long before its mean ceases to improve, which
    a calibration can mend.
    """
    prediction, y, weights = left_out[:3]
    candidates = [prediction]
    if prediction.can_be_rescaled:
        pairs = product(SOME_SCALES, SOME_TAILS)
        candidates = [prediction.rescaled(scale, tail, TAIL_SCALE) for scale, tail in pairs]
    return max(float(np.average(each.log_prob(y), weights=weights)) for each in candidates)


def best_log_likelihood(
    probabilities: np.ndarray, classes: np.ndarray, weights: np.ndarray
) -> float:
    """The mean log-probability of left-out rows' classes, at the best of some temperatures."""
    rows = np.arange(len(classes))
    return max(
        float(np.average(np.log(tempered(probabilities, each)[rows, classes]), weights=weights))
        for each in TEMPERATURES
    )


def tempered(probabilities: np.ndarray, temperature: float) -> np.ndarray:
    """Probabilities whose logarithms are divided by a temperature."""
    logs = np.log(np.maximum(probabilities, SMALLEST)) / temperature
    powers = np.exp(logs - logs.max(axis=1, keepdims=True))
    return np.maximum(powers / powers.sum(axis=1, keepdims=True), SMALLEST)


def fit_temperature(left_out: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> Calibration:
    """The temperature that the classes of left-out rows would have been likeliest with."""
    probabilities, classes, weights = map(np.concatenate, zip(*left_out, strict=True))
    rows = np.arange(len(classes))

    def loss(log_temperature: float) -> float:
        chosen = tempered(probabilities, np.exp(log_temperature))[rows, classes]
        prior = 0.5 * (log_temperature / SPREAD_OF_LOG) ** 2
        return prior - float(np.sum(weights * np.log(chosen)))

    best = minimize_scalar(loss, bounds=(-3.0, 3.0), method="bounded")
    return Calibration(temperature=float(np.exp(best.x)))
