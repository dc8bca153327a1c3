"""The KL between two distributions of which there are samples only, by classifiers.

A classifier that tells samples of one distribution from samples of another as well as can be has
the logarithm of the ratio of their densities as its logit. So KL(q | p) = E_q[T] for the logit T of
one that tells q from p. But where q is far from p that is too easy: a classifier that makes no
mistake knows little of how far they are. The way from p to q is therefore in three parts (adaptive
contrast), of which the longest is in closed form:

    T = log q / r  +  log r / n  +  log n / p,

where n is the standard normal distribution, which p, standardised, is near to, and r is a Gaussian
fitted to q. The first and the last part are the logits of classifiers; both have to tell
standardised samples from standard normal ones.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from dvip.layers.perceptron import Perceptrons
from dvip.products import product

__all__ = ["DensityRatio"]

HIDDEN_WIDTHS = (50, 50)
# The size of the logits at the start.
LOGIT_SCALE = 0.1

Samples = Float[Array, "units values samples"]


class DensityRatio(eqx.Module):
    """T for H pairs of distributions of M values.

    r is the law of the v for which w = D (v + N v - b) is white, with D diagonal and N strictly
    lower triangular: each value is a regression on those before it, with coefficients of order 1
    however narrow q is.
    """

    intercept: Float[Array, "units values 1"]
    log_precision: Float[Array, "units values 1"]
    regression: Float[Array, "units values values"]
    q_classifier: Perceptrons  # log q / r, of w
    p_classifier: Perceptrons  # log p / n, of v

    @classmethod
    def create(
        cls, num_units: int, num_values: int, scale: float, key: PRNGKeyArray
    ) -> "DensityRatio":
        """For a q of about that scale around zero."""
        zeros = jnp.zeros((num_units, num_values, 1))
        widths = (num_values, *HIDDEN_WIDTHS, 1)
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

    def standardised(self, from_q: Samples) -> Samples:
        """w, which is white if r is q."""
        predicted = self.intercept - product(jnp.tril(self.regression, -1), from_q)
        return jnp.exp(self.log_precision) * (from_q - predicted)

    def kl(self, from_q: Samples) -> Float[Array, ""]:
        """E_q[T], summed over the units."""
        white = self.standardised(from_q)
        gaussians = 0.5 * (jnp.square(from_q) - jnp.square(white)) + self.log_precision
        logits = self.q_classifier(white) - self.p_classifier(from_q)
        return jnp.sum(jnp.mean(jnp.sum(gaussians, axis=1) + logits[:, 0], axis=-1))

    def loss(self, from_q: Samples, from_p: Samples, normal: Samples) -> Float[Array, ""]:
        """Minus the log-likelihood of r, which trains r, and the classifiers' cross-entropies."""
        white = self.standardised(from_q)
        misfit = jnp.sum(0.5 * jnp.square(white) - self.log_precision, axis=1)
        constant = jax.lax.stop_gradient(white)
        entropies = _cross_entropy(self.q_classifier, constant, normal) + _cross_entropy(
            self.p_classifier, from_p, normal
        )
        return jnp.sum(jnp.mean(misfit + entropies, axis=-1))


def _cross_entropy(
    classifier: Perceptrons, samples: Samples, normal: Samples
) -> Float[Array, "units samples"]:
    missed = jax.nn.softplus(-classifier(samples))
    mistaken = jax.nn.softplus(classifier(normal))
    return (missed + mistaken)[:, 0]
