"""Posteriors that are easy to sample from, and no more; their KL from a prior, by classifiers.

A classifier that tells samples of one distribution from samples of another as well as can be has
the logarithm of the ratio of their densities as its logit. So KL(q | p) = E_q[T] for the logit T of
one that tells q from p. But where q is far from p that is too easy: a classifier that makes no
mistake knows little of how far they are. The way from p to q is therefore in three parts (adaptive
contrast), of which the longest is in closed form:

    T = log q / r  +  log r / n  +  log n / p,

where n is the standard normal distribution, which p, standardised, is near to, and r is the
Gaussian with the moments of q. The first and the last part are the logits of classifiers; both have
to tell standardised samples from normal ones. Where p is the standard normal distribution itself,
the last part is zero.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from scipy.special import digamma

from dvip.layers.perceptrons import Perceptrons
from dvip.linear_algebra import inverse_factors, product

__all__ = ["DensityRatio", "ImplicitPosterior"]


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
    p_classifier: Perceptrons | None  # log p / n, unless p is n

    @classmethod
    def create(
        cls,
        num_units: int,
        num_values: int,
        scale: float,
        key: PRNGKeyArray,
        *,
        normal_prior: bool = False,
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
            p_classifier=None if normal_prior else p_classifier,
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
        logits = self.q_classifier(white)
        if self.p_classifier is not None:
            logits = logits - self.p_classifier(from_q)
        return jnp.sum(gaussian + jnp.mean(logits[:, 0], axis=-1))

    def loss(self, from_q: Samples, from_p: Samples | None, normal: Samples) -> Float[Array, ""]:
        """What trains w to be white, minus its log-likelihood, and the cross-entropies.

        The normal samples are whitened as those of q are, so that only a q that is not Gaussian can
        be told from them.
        """
        nearly_white = self.nearly_white(from_q)
        misfit = jnp.sum(0.5 * jnp.square(nearly_white) - self.log_precision, axis=1)
        white, _ = whitened(jax.lax.stop_gradient(nearly_white))
        entropies = _cross_entropy(self.q_classifier, white, whitened(normal)[0])
        if self.p_classifier is not None and from_p is not None:
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
    classifier: Perceptrons, samples: Samples, normal: Samples
) -> Float[Array, "units samples"]:
    missed = jax.nn.softplus(-classifier(samples))
    mistaken = jax.nn.softplus(classifier(normal))
    return (missed + mistaken)[:, 0]
