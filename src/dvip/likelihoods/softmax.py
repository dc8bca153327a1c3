"""The softmax likelihood for several classes: p(y = c | f) = exp f_c / Σ_j exp f_j."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from dvip.likelihoods.likelihood import (
    Classification,
    Moments,
    gaussian_expectation,
    log_gaussian_expectation,
)

__all__ = ["Softmax"]

# Mean and variance of Gaussian variables.
Normal = Sequence[Float[Array, "*shape"]]


class Softmax(Classification):
    """A class whose unit is larger than another's by 1 is e times as probable.

    With a = log Σ_{j ≠ y} exp f_j - f_y, log p(y | f) is log σ(-a): one integral over a, which is
    taken as Gaussian. This is exact for two classes. For more, the error of the mean of a is 0.01
    where the variances of f are 1, 0.03 where they are 4, and 0.15 where they are 20, for up to
    1,000 classes; that of the probabilities of classes is a few thousandths to a hundredth.
    """

    def num_latents(self, num_classes: int) -> int:
        """One unit for each class."""
        return num_classes

    def expected_log_prob(
        self, targets: Float[Array, "1 batch"], mean: Moments, variance: Moments
    ) -> Float[Array, "*shape"]:
        """E[log σ(-a)]."""
        return gaussian_expectation(jax.nn.log_sigmoid, *_lead(targets[0], mean, variance))

    def log_prob(self, targets: Float[Array, "1 batch"], values: Moments) -> Float[Array, "*shape"]:
        """f_y - log Σ_j exp f_j."""
        classes = jnp.arange(len(values)).reshape(-1, *(1,) * (values.ndim - 1))
        logs = jax.nn.log_softmax(values, axis=0)
        return jnp.sum(jnp.where(classes == targets[0], logs, 0), axis=0)

    def log_expected_power(
        self,
        targets: Float[Array, "1 batch"],
        mean: Moments,
        variance: Moments,
        alpha: float,
    ) -> Float[Array, "*shape"]:
        """log E[σ(-a)^α]."""
        lead = _lead(targets[0], mean, variance)
        return log_gaussian_expectation(lambda f: alpha * jax.nn.log_sigmoid(f), *lead)

    def class_probabilities(
        self, mean: Moments, variance: Moments
    ) -> Float[Array, "classes *shape"]:
        """E[σ(-a)] of each class, normalised, as a is not quite Gaussian."""
        up_to, backwards = _sums(mean, variance), _sums(mean[::-1], variance[::-1])
        # All others are after the first class, before the last, and on both sides of the rest.
        before = [moment[:-1] for moment in up_to]
        after = [moment[-2::-1] for moment in backwards]
        inner = _log_sum([moment[:-1] for moment in before], [moment[1:] for moment in after])
        parts = zip(after, inner, before, strict=True)
        others = [jnp.concatenate([a[:1], i, b[-1:]]) for a, i, b in parts]
        probabilities = gaussian_expectation(jax.nn.sigmoid, mean - others[0], variance + others[1])
        return probabilities / jnp.sum(probabilities, axis=0)


def _lead(index: Array, mean: Moments, variance: Moments) -> Normal:
    """-a: f_index less the log-sum-exp of the others. `index` has a class for each column."""
    places = jnp.arange(len(mean) - 1).reshape(-1, *(1,) * (mean.ndim - 1))
    chosen = jnp.arange(len(mean)).reshape(-1, *(1,) * (mean.ndim - 1)) == index
    own_mean, own_variance = (
        jnp.sum(jnp.where(chosen, moment, 0), axis=0) for moment in (mean, variance)
    )
    others = (jnp.where(places < index, moment[:-1], moment[1:]) for moment in (mean, variance))
    others_mean, others_variance = (sums[-1] for sums in _sums(*others))
    return [own_mean - others_mean, own_variance + others_variance]


def _sums(mean: Moments, variance: Moments) -> list[Moments]:
    """Means and variances of the log-sum-exp of the first unit, of the first two, and so on.

    One after the other: pairs of pairs would be faster, but each unit is Gaussian while sums are
    not quite, and the errors of a tree are ten times as large.
    """

    def add(total: Normal, unit: Normal) -> tuple[Normal, Normal]:
        total = _log_sum(total, unit)
        return total, total

    first, rest = [mean[0], variance[0]], [mean[1:], variance[1:]]
    _, sums = jax.lax.scan(jax.checkpoint(add), first, rest)
    return [jnp.concatenate([one[None], more]) for one, more in zip(first, sums, strict=True)]


def _log_sum(first: Normal, second: Normal) -> Normal:
    """Mean and variance of log(e^f + e^g) = g + log(1 + e^(f - g)) for independent f and g.

    Given f - g, g is Gaussian with a mean that is linear in it: one integral over f - g.
    """
    (mean, variance), (other_mean, other_variance) = first, second
    total = jnp.maximum(variance + other_variance, 1e-10)
    share = other_variance / total
    centre = mean - other_mean

    def value(difference: Array) -> Array:
        return jax.nn.softplus(difference) - share * (difference - centre)

    added = gaussian_expectation(value, centre, total)
    spread = gaussian_expectation(lambda d: jnp.square(value(d) - added), centre, total)
    return [other_mean + added, spread + share * variance]
