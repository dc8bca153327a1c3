"""Calibration: predictions corrected by how rows that were left out came out."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize, minimize_scalar

from dvip.distributions import Predictive

__all__ = ["Calibration", "LeftOut", "fit_scale", "fit_temperature"]


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


def tempered(probabilities: np.ndarray, temperature: float) -> np.ndarray:
    """Probabilities whose logarithms are divided by a temperature."""
    logs = np.log(np.maximum(probabilities, np.finfo(float).tiny)) / temperature
    powers = np.exp(logs - logs.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def fit_temperature(left_out: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> Calibration:
    """The temperature that the classes of left-out rows would have been likeliest with."""
    probabilities, classes, weights = map(np.concatenate, zip(*left_out, strict=True))
    rows = np.arange(len(classes))

    def loss(log_temperature: float) -> float:
        chosen = tempered(probabilities, np.exp(log_temperature))[rows, classes]
        prior = 0.5 * (log_temperature / SPREAD_OF_LOG) ** 2
        return prior - float(np.sum(weights * np.log(np.maximum(chosen, 1e-300))))

    best = minimize_scalar(loss, bounds=(-3.0, 3.0), method="bounded")
    return Calibration(temperature=float(np.exp(best.x)))
