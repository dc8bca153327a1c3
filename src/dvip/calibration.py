"""Calibration: predictions corrected by how rows that were left out came out."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize, minimize_scalar

from dvip.distributions import Predictive

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
    """The prediction for rows that were left out, and what was observed."""

    prediction: Predictive
    y: np.ndarray
    weights: np.ndarray


# Probabilities below this count as this.
SMALLEST = 1e-300

# The tail is this many times as wide as the distribution.
TAIL_SCALE = 4.0
# How far the logarithm of a factor is from 0, and how large the tail is, before rows are seen.
SPREAD_OF_LOG, USUAL_TAIL = 0.5, 0.02


def fit_scale(left_out: Sequence[LeftOut]) -> Calibration:
    """The scale and the tail that left-out rows would have had the best scores with."""
    total = sum(float(part.weights.sum()) for part in left_out)

    def loss(parameters: np.ndarray) -> float:
        log_scale, log_odds = parameters
        scale, tail_weight = np.exp(log_scale), 1 / (1 + np.exp(-log_odds))
        prior = 0.5 * (log_scale / SPREAD_OF_LOG) ** 2 - np.log1p(-tail_weight) / USUAL_TAIL
        score = 0.0
        for prediction, y, weights in left_out:
            log_prob = prediction.rescaled(scale, tail_weight, TAIL_SCALE).log_prob(y)
            score += float(np.sum(weights * log_prob))
        return (prior - score) / total

    best = minimize(loss, [0.0, np.log(USUAL_TAIL)], method="Nelder-Mead", tol=1e-3).x
    return Calibration(float(np.exp(best[0])), float(1 / (1 + np.exp(-best[1]))), TAIL_SCALE)


# Where the best calibration of a model under training is looked for.
SCALES, TAILS = np.geomspace(0.5, 4.0, 13), (0.0, 0.03)
TEMPERATURES = np.geomspace(0.4, 2.5, 13)


def best_log_score(left_out: LeftOut) -> float:
    """The mean log-density of left-out rows, at the best of some scales and tails.

    A model under training becomes too sure of itself long before its mean ceases to improve, which
    a calibration can mend.
    """
    prediction, y, weights = left_out
    candidates = [prediction]
    if prediction.can_be_rescaled:
        candidates = [
            prediction.rescaled(scale, tail, TAIL_SCALE) for scale in SCALES for tail in TAILS
        ]
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
