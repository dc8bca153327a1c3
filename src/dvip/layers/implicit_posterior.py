"""Distributions that are easy to sample from, and no more: networks fed with noise.

v = C z + g(z), where g is a network and z are Gaussian variables with learned moments. It starts
near a Gaussian with independent values, whatever g is: without the linear part, the values that a
random network makes of noise lie near a surface of few dimensions, infinitely far from any prior.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from dvip.layers.perceptron import Perceptrons
from dvip.products import product

__all__ = ["ImplicitPosterior"]

HIDDEN_WIDTHS = (50, 50)
MIN_NOISE_VARIABLES = 100
# The size of g(z) beside C z at the start.
NETWORK_SHARE = 0.1


class ImplicitPosterior(eqx.Module):
    """H implicit distributions of M values."""

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
        widths = (num_noise, *HIDDEN_WIDTHS, num_values)
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
