"""Gauss-Hermite quadrature: expectations under one-dimensional Gaussians."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

__all__ = ["NUM_POINTS", "gaussian_expectation", "log_gaussian_expectation"]

# 20 points integrate the smooth integrands here to single precision.
NUM_POINTS = 20


def _points_and_weights() -> tuple[np.ndarray, np.ndarray]:
    points, weights = np.polynomial.hermite_e.hermegauss(NUM_POINTS)
    return points, weights / np.sqrt(2 * np.pi)


def _nodes(
    mean: Float[Array, "*shape"], variance: Float[Array, "*shape"]
) -> tuple[Float[Array, "points *shape"], Float[np.ndarray, " points"]]:
    points, weights = _points_and_weights()
    column = jnp.asarray(points, mean.dtype).reshape(-1, *(1,) * mean.ndim)
    return mean + jnp.sqrt(variance) * column, weights


def gaussian_expectation(
    function: Callable[[Array], Array],
    mean: Float[Array, "*shape"],
    variance: Float[Array, "*shape"],
) -> Float[Array, "*shape"]:
    """E[function(f)] for f ~ N(mean, variance); `function` gets the points as a leading axis."""
    nodes, weights = _nodes(mean, variance)
    return jnp.tensordot(jnp.asarray(weights, mean.dtype), function(nodes), axes=1)


def log_gaussian_expectation(
    log_function: Callable[[Array], Array],
    mean: Float[Array, "*shape"],
    variance: Float[Array, "*shape"],
) -> Float[Array, "*shape"]:
    """log E[exp(log_function(f))] for f ~ N(mean, variance), without underflow."""
    nodes, weights = _nodes(mean, variance)
    log_weights = jnp.asarray(np.log(weights), mean.dtype).reshape(-1, *(1,) * mean.ndim)
    return logsumexp(log_function(nodes) + log_weights, axis=0)
