"""The KL between two distributions of which there are samples only, by a classifier.

A classifier that tells samples of q (1) from samples of p (0) as well as can be has the logit
T = log q - log p, so that KL(q | p) = E_q[T].
"""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

__all__ = ["kl_from_samples"]

Classifier = TypeVar("Classifier", bound=Callable[[Array], Array])
Samples = Float[Array, "units values samples"]


def classification_loss(
    classifier: Classifier, from_q: Samples, from_p: Samples
) -> Float[Array, ""]:
    """The cross-entropy of the classifier's answers, a mean over samples, summed over the units."""
    missed = jax.nn.softplus(-classifier(from_q))
    mistaken = jax.nn.softplus(classifier(from_p))
    return jnp.sum(jnp.mean(missed, axis=-1) + jnp.mean(mistaken, axis=-1))


def kl_from_samples(classifier: Classifier, from_q: Samples, from_p: Samples) -> Float[Array, ""]:
    """E_q[T], summed over the units. Its gradient, descended, also trains the classifier.

    The value is that of the estimate. The gradient of the classifier is that of its own loss, and
    of nothing else: the estimate sees a classifier that does not change, and the loss samples that
    do not. So one step of one optimiser improves both; Adam takes steps of the same size whatever
    the units of a loss.
    """
    constant = jax.lax.stop_gradient
    estimate = jnp.sum(jnp.mean(constant(classifier)(from_q), axis=-1))
    loss = classification_loss(classifier, constant(from_q), constant(from_p))
    return estimate + loss - constant(loss)
