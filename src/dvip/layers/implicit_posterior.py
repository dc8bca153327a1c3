"""Posteriors that are easy to sample from, and no more; their KL from a prior, by classifiers.

A classifier that tells samples of one distribution from samples of another as well as can be has
the logarithm of the ratio of their densities as its logit. So KL(q | p) = E_q[T] for the logit T of
one that tells q from p. But where q is far from p that is too easy: a classifier that makes no
mistake knows little of how far they are. The way from p to q is therefore in three parts (adaptive
contrast), of which the longest is in closed form:

    T = log q / r  +  log r / n  +  log n / p,

where n is the standard normal distribution, which p, standardised, is near to, and r is the
Gaussian with the moments of q. The first and the last part are the logits of classifiers; both have
to tell standardised samples from normal ones.

Where p is the standard normal distribution itself (`BentGaussian`), no part of the way has to be
estimated but what is not Gaussian. Values v = m + L u are those of a Gaussian whose white noise z a
network bends by a bounded g, u = z + g(z), and

    KL(q(v) | n) = KL(N(m, L Lᵀ) | n) + E[T(u)]
                   + E[(m + L z)ᵀ L g + ½ ‖L g‖² - zᵀ g - ½ ‖g‖²],

with T the logit of a classifier that tells u from normal samples, and all else in closed form given
z: for g = 0 it is the KL of the Gaussian.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from scipy.special import digamma

from dvip.layers.layer import WhitenedGaussian
from dvip.layers.perceptrons import Perceptrons
from dvip.linear_algebra import inverse_factors, product

__all__ = ["BentGaussian", "DensityRatio", "ImplicitPosterior", "UnitClassifier"]


SAMPLER_WIDTHS = (50, 50)
MIN_NOISE_VARIABLES = 100
# The size of g(z) beside C z at the start.
NETWORK_SHARE = 0.1


class ImplicitPosterior(eqx.Module):
    """H implicit distributions of M values: networks fed with noise.

    v = C z + g(z), where g is a network and z are Gaussian variables with learned moments. It
    starts near a Gaussian with independent values, whatever g is: without the linear part, the
    values that a random network makes of noise lie near a surface of few dimensions, infinitely
    far from any prior.
    """

    noise_mean: Float[Array, "units noise 1"]
    noise_log_scale: Float[Array, "units noise 1"]
    linear: Float[Array, "units values noise"]
    networks: Perceptrons

    @classmethod
    def create(
        cls, num_units: int, num_values: int, scale: float, key: PRNGKeyArray
    ) -> "ImplicitPosterior":
        """Values of about that scale around zero."""
        num_noise = max(MIN_NOISE_VARIABLES, num_values)
        moments = jnp.zeros((num_units, num_noise, 1))
        linear = jnp.tile(scale * jnp.eye(num_values, num_noise), (num_units, 1, 1))
        widths = (num_noise, *SAMPLER_WIDTHS, num_values)
        networks = Perceptrons.create(num_units, widths, last_scale=NETWORK_SHARE * scale, key=key)
        return cls(moments, moments, linear, networks)

    @property
    def num_units(self) -> int:
        """H."""
        return self.linear.shape[0]

    def draw_noise(
        self, key: PRNGKeyArray, num_samples: int
    ) -> Float[Array, "units noise samples"]:
        """Standard normal noise for that many samples."""
        return jax.random.normal(key, (*self.noise_mean.shape[:2], num_samples))

    def __call__(
        self, white: Float[Array, "units noise samples"]
    ) -> Float[Array, "units values samples"]:
        """The samples that this noise stands for."""
        noise = self.noise_mean + jnp.exp(self.noise_log_scale) * white
        return product(self.linear, noise) + self.networks(noise)


CLASSIFIER_WIDTHS = (50, 50)
# The size of the logits at the start.
LOGIT_SCALE = 0.1

Samples = Float[Array, "units values samples"]


class DensityRatio(eqx.Module):
    """T for H pairs of distributions of M values.

    The moments of q are those of the samples themselves: no fit that lags behind could be
    exploited. Single precision would not do for the covariance of a q that is narrow in some
    directions, so the samples are first made nearly white: w = D (v + N v - b), with a diagonal D
    and a strictly lower triangular N that are trained, each value a regression on those before it.
    """

    intercept: Float[Array, "units values 1"]
    log_precision: Float[Array, "units values 1"]
    regression: Float[Array, "units values values"]
    q_classifier: Perceptrons  # log q / r, of samples made white
    p_classifier: Perceptrons  # log p / n

    @classmethod
    def create(
        cls, num_units: int, num_values: int, scale: float, key: PRNGKeyArray
    ) -> "DensityRatio":
        """For a q of about that scale around zero."""
        zeros = jnp.zeros((num_units, num_values, 1))
        widths = (num_values, *CLASSIFIER_WIDTHS, 1)
        q_classifier, p_classifier = (
            Perceptrons.create(num_units, widths, last_scale=LOGIT_SCALE, key=key)
            for key in jax.random.split(key)
        )
        return cls(
            intercept=zeros,
            log_precision=zeros - jnp.log(scale),
            regression=jnp.zeros((num_units, num_values, num_values)),
            q_classifier=q_classifier,
            p_classifier=p_classifier,
        )

    def nearly_white(self, from_q: Samples) -> Samples:
        """w."""
        predicted = self.intercept - product(jnp.tril(self.regression, -1), from_q)
        return jnp.exp(self.log_precision) * (from_q - predicted)

    def kl(self, from_q: Samples) -> Float[Array, ""]:
        """E_q[T], summed over the units, of more samples than values."""
        white, log_determinant = whitened(self.nearly_white(from_q))
        log_determinant = log_determinant - 2 * jnp.sum(self.log_precision, axis=(1, 2))
        squares = jnp.mean(jnp.sum(jnp.square(from_q), axis=1), axis=-1)
        gaussian = 0.5 * (squares - from_q.shape[1] - log_determinant)
        logits = self.q_classifier(white) - self.p_classifier(from_q)
        return jnp.sum(gaussian + jnp.mean(logits[:, 0], axis=-1))

    def loss(self, from_q: Samples, from_p: Samples, normal: Samples) -> Float[Array, ""]:
        """What trains w to be white, minus its log-likelihood, and the cross-entropies.

        The normal samples are whitened as those of q are, so that only a q that is not Gaussian can
        be told from them.
        """
        nearly_white = self.nearly_white(from_q)
        misfit = jnp.sum(0.5 * jnp.square(nearly_white) - self.log_precision, axis=1)
        white, _ = whitened(jax.lax.stop_gradient(nearly_white))
        entropies = _cross_entropy(self.q_classifier, white, whitened(normal)[0])
        entropies += _cross_entropy(self.p_classifier, from_p, normal)
        return jnp.sum(jnp.mean(misfit + entropies, axis=-1))


def whitened(samples: Samples) -> tuple[Samples, Float[Array, " units"]]:
    """The samples with mean 0 and covariance I, and the logarithm of the determinant of the
    covariance of what they are samples of: without bias if that is Gaussian."""
    num_values, num_samples = samples.shape[1:]
    centred = samples - jnp.mean(samples, axis=-1, keepdims=True)
    covariances = product(centred, jnp.swapaxes(centred, -1, -2)) / (num_samples - 1)
    whitening, _ = inverse_factors(covariances)
    log_diagonals = jnp.log(jnp.diagonal(whitening, axis1=1, axis2=2))
    degrees = np.maximum(num_samples - 1 - np.arange(num_values), 1)
    bias = float(np.sum(digamma(degrees / 2) + np.log(2 / (num_samples - 1))))
    return product(whitening, centred), -2 * jnp.sum(log_diagonals, axis=-1) - bias


def _cross_entropy(
    classifier: "Perceptrons | UnitClassifier", samples: Samples, normal: Samples
) -> Float[Array, "units samples"]:
    """Of the classifier, which takes samples for those and not for normal ones."""
    missed = jax.nn.softplus(-classifier(samples))
    mistaken = jax.nn.softplus(classifier(normal))
    return (missed + mistaken)[:, 0]


# Numbers that stand for a unit in the network that all units of a layer share.
NUM_OF_UNIT = 8
BENDING_WIDTH = 50
# How far a value may be bent: a bend without limits leaves the classifier behind.
MAX_BEND = 0.5


class _SharedNetwork(eqx.Module):
    """One network for all units, which has numbers of the unit among its inputs."""

    network: Perceptrons
    units: Float[Array, "units numbers"]

    @classmethod
    def create(
        cls, num_units: int, widths: tuple[int, ...], scale: float, key: PRNGKeyArray
    ) -> "_SharedNetwork":
        network_key, unit_key = jax.random.split(key)
        widths = (widths[0] + NUM_OF_UNIT, *widths[1:])
        network = Perceptrons.create(1, widths, last_scale=scale, key=network_key)
        return cls(network, jax.random.normal(unit_key, (num_units, NUM_OF_UNIT)))

    def __call__(self, values: Samples) -> Float[Array, "units out samples"]:
        """All samples of all units in one product."""
        num_units, _, num_samples = values.shape
        of_units = jnp.broadcast_to(self.units.T[..., None], (NUM_OF_UNIT, num_units, num_samples))
        rows = jnp.concatenate([jnp.swapaxes(values, 0, 1), of_units])
        made = self.network(rows.reshape(len(rows), -1))[0]
        return jnp.swapaxes(made.reshape(-1, num_units, num_samples), 0, 1)


class UnitClassifier(eqx.Module):
    """T(u), the logit of whether samples of a unit are u and not normal.

    For a Gaussian u with independent values it is a polynomial, which each unit has of its own.
    """

    network: _SharedNetwork
    linear: Float[Array, "units values 1"]
    square: Float[Array, "units values 1"]

    @classmethod
    def create(cls, num_units: int, num_values: int, key: PRNGKeyArray) -> "UnitClassifier":
        """One that does not know yet."""
        widths = (num_values, *CLASSIFIER_WIDTHS, 1)
        network = _SharedNetwork.create(num_units, widths, LOGIT_SCALE, key)
        zeros = jnp.zeros((num_units, num_values, 1))
        return cls(network, zeros, zeros)

    def __call__(self, values: Samples) -> Float[Array, "units 1 samples"]:
        """The logits."""
        polynomial = (self.linear + self.square * values) * values
        return self.network(values) + jnp.sum(polynomial, axis=1, keepdims=True)

    def loss(self, samples: Samples, normal: Samples) -> Float[Array, ""]:
        """The cross-entropy, the mean over the units."""
        return jnp.mean(_cross_entropy(self, samples, normal))


class BentGaussian(eqx.Module):
    """H distributions of M values, v = m + L (z + g(z)) with one network g for all."""

    gaussian: WhitenedGaussian
    bend: _SharedNetwork

    @classmethod
    def create(
        cls, num_units: int, num_values: int, scale: float, key: PRNGKeyArray
    ) -> "BentGaussian":
        """Values of about that scale around zero."""
        widths = (num_values, BENDING_WIDTH, num_values)
        bend = _SharedNetwork.create(num_units, widths, NETWORK_SHARE, key)
        return cls(WhitenedGaussian.create(num_units, num_values, scale), bend)

    def draw_noise(self, key: PRNGKeyArray, num_samples: int) -> Samples:
        """z of that many samples."""
        return jax.random.normal(key, (*self.gaussian.mean.shape, num_samples))

    def bent(self, noise: Samples) -> Samples:
        """g(z)."""
        return MAX_BEND * jnp.tanh(self.bend(noise))

    def white(self, noise: Samples) -> Samples:
        """u."""
        return noise + self.bent(noise)

    def __call__(self, noise: Samples) -> Samples:
        """v."""
        return self.gaussian.mean[..., None] + product(self.gaussian.factor, self.white(noise))

    def kl(self, noise: Samples, classifier: Callable[[Samples], Samples]) -> Float[Array, ""]:
        """From the standard normal distribution, as the classifier sees it; summed over units."""
        bent = self.bent(noise)
        both = product(self.gaussian.factor, jnp.concatenate([noise, bent], axis=-1))
        straight, moved = jnp.split(both, 2, axis=-1)
        straight = straight + self.gaussian.mean[..., None]
        exact = jnp.sum(straight * moved - noise * bent, axis=1)
        exact += 0.5 * jnp.sum(jnp.square(moved) - jnp.square(bent), axis=1)
        logits = classifier(noise + bent)[:, 0]
        return self.gaussian.kl() + jnp.sum(jnp.mean(exact + logits, axis=-1))
