"""Prior functions as features: the mean m* of S functions, and φ, their centred values over √S."""

import jax.numpy as jnp
from jaxtyping import Array, Float

__all__ = ["mean_and_features"]


def mean_and_features(
    prior_samples: Float[Array, "*outputs samples batch"],
) -> tuple[Float[Array, "outputs batch"], Float[Array, "outputs samples batch"]]:
    """m*(x) and φ(x), with φ(x)ᵀφ(x') the covariance of the samples; `outputs` is at least 1."""
    num_samples, batch = prior_samples.shape[-2:]
    prior_samples = prior_samples.reshape(-1, num_samples, batch)
    prior_mean = jnp.mean(prior_samples, axis=1)
    return prior_mean, (prior_samples - prior_mean[:, None]) / jnp.sqrt(num_samples)
