"""The protocol of a likelihood p(y | f), and quadrature over Gaussians for those who need it.

One side of it is for training: expectations of log p(y | f), or of its powers, under the Gaussian
moments of f. The other is for prediction: from these moments to the distribution of y. Whoever
trains, predicts, scores or saves asks the likelihood and knows no special case.
"""

import abc
from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from dvip.distributions import Predictive

__all__ = [
    "Classification",
    "Likelihood",
    "Moments",
    "Regression",
    "gaussian_expectation",
    "log_gaussian_expectation",
]

# Moments of q(f): one row a unit of the last layer, then any axes (samples, batch).
Moments = Float[Array, "units *shape"]


class Likelihood(eqx.Module):
    """p(y | f). Its methods take the Gaussian moments of f and know nothing of how f was made.

    A likelihood is a frozen dataclass. Its static fields are options that a user chooses; its array
    fields are parameters, absent until `initialise` has been told the number of targets.
    """

    # What it is for: "regression" or "classification".
    task: ClassVar[str]
    # Whether log p(y | f) has a derivative for f that leads to where it is larger.
    has_gradient: ClassVar[bool] = True
    # The last layer's units come in so many equal groups, which do not share prior functions.
    num_groups: ClassVar[int] = 1

    def initialise(self, num_outputs: int) -> "Likelihood":
        """This likelihood with its parameters, for so many targets, or classes."""
        del num_outputs
        return self

    @abc.abstractmethod
    def num_latents(self, num_outputs: int) -> int:
        """How many units the last layer must have for so many targets, or classes.

        A ValueError, which says what to do, if the likelihood is not for so many.
        """

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

    def log_prob(self, targets: Float[Array, "outputs batch"], values: Moments) -> Array:
        """log p(y | f) where f has these values: the density that sampled posteriors have."""
        return self.expected_log_prob(targets, values, jnp.zeros_like(values))

    def regularisation(self) -> Float[Array, ""]:
        """What the objective loses for the parameters that it has: minus a log-prior of them."""
        return jnp.zeros(())


class Regression(Likelihood):
    """A likelihood of numbers.

    The model sees z = (transform(y) - offset) / scale, where offset and scale make z standardised,
    and its moments are those of z. `predictive` goes the way back. Where z is not standardised, the
    model sees transform(y) itself, and offset and scale may be those of a link: see `scales`.
    """

    task: ClassVar[str] = "regression"
    # Whether targets are standardised after `transform`.
    standardised: ClassVar[bool] = True
    # Whether the errors of rows may be known. Then they are further rows of the targets, one for
    # each: standard deviations, on the scale of the model. The noise has their squares besides.
    takes_errors: ClassVar[bool] = False
    # Whether `predictive` takes parameters with a last axis more: values for each of the samples.
    # Otherwise the predictions of all samples are mixed, however many components these have.
    takes_samples: ClassVar[bool] = False
    # Whether its predictive distributions can be rescaled, which a calibration does.
    can_be_calibrated: ClassVar[bool] = False
    # Whether it is Gaussian noise, or a mixture of such: then it has `expected_precisions`, and a
    # posterior of coefficients takes in further rows in closed form, in so many rounds.
    conjugate: ClassVar[bool] = False
    num_rounds: ClassVar[int] = 1

    def num_latents(self, num_outputs: int) -> int:
        """One unit for each target."""
        return num_outputs

    def transform(
        self, targets: Float[np.ndarray, "rows outputs"]
    ) -> Float[np.ndarray, "rows outputs"]:
        """The user's targets on the scale that is modelled, before it is standardised.

        A ValueError if some of them are impossible, such as negative ones of a positive quantity.
        """
        return targets

    def inverse(
        self, transformed: Float[np.ndarray, "rows outputs"]
    ) -> Float[np.ndarray, "rows outputs"]:
        """The user's targets, from what `transform` made of them."""
        return transformed

    def scales(
        self, mean: Float[np.ndarray, " outputs"], std: Float[np.ndarray, " outputs"]
    ) -> tuple[Float[np.ndarray, " outputs"], Float[np.ndarray, " outputs"]]:
        """Offset and scale, from the moments of the transformed targets."""
        if self.standardised:
            return mean, std
        return np.zeros_like(mean), np.ones_like(std)

    def linked(
        self, offset: Float[np.ndarray, " outputs"], scale: Float[np.ndarray, " outputs"]
    ) -> "Regression":
        """This likelihood, initialised, told offset and scale; most need not know them."""
        del offset, scale
        return self

    @abc.abstractmethod
    def predictive(
        self,
        mean: Float[np.ndarray, "rows units samples"],
        variance: Float[np.ndarray, "rows units samples"],
        offset: Float[np.ndarray, " outputs"],
        scale: Float[np.ndarray, " outputs"],
        errors: Float[np.ndarray, "rows outputs"] | None = None,
    ) -> Predictive:
        """The distribution of y, on the user's scale, with an axis for the targets.

        Each of the samples sent through the network is a component of it: f ~ N(mean, variance).
        Errors of rows, where they are known, are on the user's scale.
        """

    def expected_precisions(
        self,
        targets: Float[np.ndarray, "targets_and_errors rows"],
        mean: Float[np.ndarray, "units samples rows"],
        variance: Float[np.ndarray, "units samples rows"],
    ) -> Float[np.ndarray, "outputs samples rows"]:
        """E[1 / σ²] of the noise of each target, given y and moments of f on the model's scale."""
        raise NotImplementedError  # of those that are `conjugate`

    def function_values(
        self,
        values: Float[np.ndarray, "functions rows units"],
        offset: Float[np.ndarray, " outputs"],
        scale: Float[np.ndarray, " outputs"],
    ) -> Float[np.ndarray, "functions rows outputs"]:
        """What y would be without noise, on the user's scale, where f has these values."""
        return values * scale + offset


class Classification(Likelihood):
    """A likelihood of class numbers 0, 1, ..., given as one row of floating-point targets."""

    task: ClassVar[str] = "classification"

    @abc.abstractmethod
    def class_probabilities(
        self, mean: Moments, variance: Moments
    ) -> Float[Array, "classes *shape"]:
        """p(y = c) for each class c, with f ~ N(mean, variance) integrated out."""


# 20 points integrate the smooth integrands here to single precision.
NUM_POINTS = 20


def _nodes(
    mean: Float[Array, "*shape"], variance: Float[Array, "*shape"]
) -> tuple[Float[Array, "points *shape"], Float[np.ndarray, " points"]]:
    """Points of Gauss-Hermite quadrature under one-dimensional Gaussians, and their weights."""
    points, weights = np.polynomial.hermite_e.hermegauss(NUM_POINTS)
    column = jnp.asarray(points, mean.dtype).reshape(-1, *(1,) * mean.ndim)
    return mean + jnp.sqrt(variance) * column, weights / np.sqrt(2 * np.pi)


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
