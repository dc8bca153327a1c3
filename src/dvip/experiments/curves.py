"""Predictions along the one input of a dataset, and functions of the learned prior, to be drawn."""

import copy
from typing import Any

import jax
import numpy as np

from dvip.data import Split
from dvip.layers.posterior import WhitenedGaussian

__all__ = ["curve", "with_prior"]

GRID_POINTS = 400
NUM_DRAWS = 8
# Of the range of the inputs, on both sides.
MARGIN = 0.05


def curve(estimator: Any, split: Split) -> dict[str, list]:
    """The predictive distribution on a grid, draws from the prior, and the points themselves."""
    inputs = np.concatenate([split.inputs, split.test_inputs])[:, 0]
    margin = MARGIN * np.ptp(inputs)
    grid = np.linspace(inputs.min() - margin, inputs.max() + margin, GRID_POINTS)
    distribution = estimator.predict_dist(grid[:, None])
    lower, upper = distribution.interval(0.95)
    draws = with_prior(estimator).sample_functions(NUM_DRAWS, random_state=0)(grid[:, None])
    return {
        name: np.round(np.asarray(values, float), 5).tolist()
        for name, values in {
            "grid": grid,
            "mean": distribution.mean,
            "lower": lower,
            "upper": upper,
            "prior_draws": draws,
            "x": split.inputs[:, 0],
            "y": split.targets,
            "test_x": split.test_inputs[:, 0],
            "test_y": split.test_targets,
        }.items()
    }


def with_prior(estimator: Any) -> Any:
    """The fitted estimator with every layer's posterior put back to its (learned) prior."""

    def at_prior(node: Any) -> Any:
        if not isinstance(node, WhitenedGaussian):
            return node
        units, _, coefficients = node.q.shape
        return WhitenedGaussian.create(units, coefficients, scale=1.0)

    prior = copy.copy(estimator)
    prior.model_ = jax.tree.map(
        at_prior, estimator.model_, is_leaf=lambda node: isinstance(node, WhitenedGaussian)
    )
    return prior
