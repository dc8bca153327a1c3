"""The protocol of a likelihood p(y | f): what the objectives and the predictions need of it."""

import abc
from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

__all__ = [
    "NUM_POINTS",
    "Classification",
    "Likelihood",
    "gaussian_expectation",
    "log_gaussian_expectation",
]

# Moments of q(f): one row a unit of the last layer, then any axes (samples, batch).
Moments = Float[Array, "units *shape"]


class Likelihood(eqx.Module):
    """p(y | f). Its methods take the Gaussian moments of f and know nothing of how f was made."""

    @abc.abstractmethod
    def expected_log_prob(
        self, targets: Float[Array, "outputs batch"], mean: Moments, variance: Moments
    ) -> Float[Array, "*shape"]:
        """E[log p(y | f)] for f ~ N(mean, variance): the data term of the ELBO."""

    @abc.abstractmethod
    def log_expected_power(
        self,
        targets: Float[Array, "outputs batch"],
        mean: Moments,
        variance: Moments,
        alpha: float,
    ) -> Float[Array, "*shape"]:
        """log E[p(y | f)^alpha] for f ~ N(mean, variance): the data term of the α-energy."""


class Classification(Likelihood):
    """A likelihood of class numbers 0, 1, ..., given as one row of floating-point targets."""

    @abc.abstractmethod
    def num_latents(self, num_classes: int) -> int:
        """How many units the last layer must have."""

    @abc.abstractmethod
    def class_probabilities(
        self, mean: Moments, variance: Moments
    ) -> Float[Array, "classes *shape"]:
        """p(y = c) for each class c, with f ~ N(mean, variance) integrated out."""


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
