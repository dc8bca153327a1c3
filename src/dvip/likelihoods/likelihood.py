"""The protocol of a likelihood p(y | f): what the objectives and the predictions need of it."""

import abc

import equinox as eqx
from jaxtyping import Array, Float

__all__ = ["Classification", "Likelihood"]

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
