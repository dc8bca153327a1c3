"""Generators: networks of inputs and latent variables, as distributions over functions.

That of a posterior q has values with a little noise,

    f(x_m) | z ~ N(g(x_m, z), σ²), independently,   g(x, z) = c_0(x, z) + c(x, z)ᵀ z / √d,

where (c_0, c) are the outputs of a network of x and z ~ N(m, diag s²). The density of values f at
points has no closed form. For any density t(z | f),

    E_q[log q(f)] ≤ E_q[log q(f | z) + log q(z) - log t(z | f)],

with equality where t is q(z | f); that minus E_q[log p(f)] is an upper bound of KL(q(f) | p(f)). t
is what q(z | f) would be if g were linear in z, with its slope at m: a Gaussian in closed form that
depends on f and the points alone, as it must. For g that are linear in z it is exact.

That of a prior p is linear in z ~ N(0, I): (c_0, c) are outputs of a network of x alone, and values
have a density in closed form. (A lower bound of it, for a generator as that of the posterior, is
too loose to learn from: of a Gaussian process, variances came out sixteen times too large.)
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from dvip.layers import Perceptrons
from dvip.linear_algebra import inverse_factor
from dvip.neighbours.fitted_gp import NOISE, log_gaussian
from dvip.processes.bnn import ACTIVATIONS

__all__ = ["Generator", "GeneratorPosterior", "LinearGenerator", "grid_kl"]

# σ² at the start, unless another is given.
INITIAL_NOISE = 0.1
# How much z matters inside the networks at the start: g is nearly linear in z, bounds are tight.
NONLINEARITY = 0.1

Points = Float[Array, "inputs points"]
Latents = Float[Array, "samples latents"]
Values = Float[Array, "samples points"]
Densities = Float[Array, " samples"]
LogDensity = Callable[[Points, Values], Densities]


class Generator(eqx.Module):
    """g(x, z) and σ² of one random function, or with a first axis of several."""

    network: Perceptrons
    log_noise: Float[Array, "*units"]

    @classmethod
    def create(
        cls,
        num_units: int,
        widths: Sequence[int],
        activation: str,
        key: PRNGKeyArray,
        noise: float = INITIAL_NOISE,
    ) -> "Generator":
        """Random functions of the inputs, `widths[0]`, and of latents, one less than outputs."""
        widths = (widths[0] + widths[-1] - 1, *widths[1:])
        network = Perceptrons.create(num_units, widths, activation=activation, key=key)
        num_latents = widths[-1] - 1
        first = network.weights[0].at[..., -num_latents:].multiply(NONLINEARITY)
        network = eqx.tree_at(lambda network: network.weights[0], network, first)
        return cls(network, jnp.full(num_units, np.log(noise)))

    def one(self, inputs: Points, latent: Float[Array, " latents"]) -> Float[Array, " points"]:
        """g(x, z) of one z."""
        (first, *others), (bias, *biases) = self.network.weights, self.network.biases
        # As Perceptrons do it, but what z brings to the first layer is the same for all inputs, and
        # there are derivatives in both directions, which `product` has not.
        num_inputs = len(inputs)
        from_latent = jnp.matmul(first[:, num_inputs:], latent)[:, None] + bias
        values = jnp.matmul(first[:, :num_inputs], inputs) + from_latent
        for weights, biases_of_layer in zip(others, biases, strict=True):
            values = ACTIVATIONS[self.network.activation](values)
            values = jnp.matmul(weights, values) + biases_of_layer
        return values[0] + latent @ values[1:] / np.sqrt(len(latent))

    def __call__(self, inputs: Points, latents: Latents) -> Values:
        """g(x, z) of several z."""
        return jax.vmap(self.one, (None, 0))(inputs, latents)


def _log_normal(difference: Array, log_scale: Array) -> Densities:
    """log N(difference; 0, scale²), summed over the last axis."""
    squares = jnp.square(difference * jnp.exp(-log_scale))
    return -0.5 * jnp.sum(squares + 2 * log_scale + np.log(2 * np.pi), axis=-1)


class Conditional(NamedTuple):
    """Gaussians over z, one for each sample, that share the precision P."""

    mean: Latents
    precision: Float[Array, "latents latents"]
    whitening: Float[Array, "latents latents"]  # L⁻¹, where P = L Lᵀ

    @classmethod
    def of(cls, posterior: "GeneratorPosterior", inputs: Points, values: Values) -> "Conditional":
        """z given f, for a generator that is made linear around m, and z ~ N(m, s²) before."""
        generator, mean = posterior.generator, posterior.mean
        expected = generator.one(inputs, mean)
        slopes = jax.jacfwd(generator.one, 1)(inputs, mean)
        scaled = slopes * jnp.exp(-generator.log_noise)
        precision = scaled.T @ slopes + jnp.diag(jnp.exp(-2 * posterior.log_scale))
        whitening, jitter = inverse_factor(precision)
        added = jitter * jnp.mean(jnp.diagonal(precision))
        precision = precision + added * jnp.eye(len(mean), dtype=mean.dtype)
        # z - m has the mean P⁻¹ Jᵀ (f - g) / σ².
        moved = (values - expected) @ scaled @ whitening.T @ whitening
        return cls(mean + moved, precision, whitening)

    def log_density(self, latents: Latents) -> Densities:
        """Of one z a sample. ‖Lᵀ(z - mean)‖ is ‖L⁻¹ P (z - mean)‖."""
        white = (latents - self.mean) @ self.precision @ self.whitening.T
        log_scales = jnp.log(jnp.diagonal(self.whitening))
        return _log_normal(white, jnp.zeros(())) - jnp.sum(log_scales)


class LinearGenerator(eqx.Module):
    """c_0(x) + c(x)ᵀ z / √d for z ~ N(0, I), and noise: a Gaussian process of rank d."""

    network: Perceptrons  # one
    log_noise: Float[Array, ""]

    @classmethod
    def create(cls, widths: Sequence[int], activation: str, key: PRNGKeyArray) -> "LinearGenerator":
        """At a random start; of latents there are one less than outputs."""
        network = Perceptrons.create(1, widths, activation=activation, key=key)
        return cls(network, jnp.asarray(np.log(INITIAL_NOISE)))

    def moments(
        self, points: Points
    ) -> tuple[Float[Array, " points"], Float[Array, "points points"]]:
        """The mean and the covariance of the values; there is noise of γ² at least."""
        outputs = self.network(points)[0]
        mean, slopes = outputs[0], outputs[1:]
        noise = NOISE**2 + jnp.exp(self.log_noise)
        diagonal = noise * jnp.eye(points.shape[1], dtype=points.dtype)
        return mean, slopes.T @ slopes / len(slopes) + diagonal

    def log_density(self, points: Points, values: Values) -> Densities:
        """log p of the values, in closed form."""
        mean, covariance = self.moments(points)
        return log_gaussian(values - mean, covariance)


class GeneratorPosterior(eqx.Module):
    """A generator with a Gaussian over its z."""

    generator: Generator
    mean: Float[Array, "*units latents"]
    log_scale: Float[Array, "*units latents"]

    def latents(self, white: Float[Array, "*samples latents"]) -> Array:
        """z from noise."""
        return self.mean + jnp.exp(self.log_scale) * white


def grid_kl(
    posterior: GeneratorPosterior,
    log_prior: LogDensity,
    inputs: Points,
    num_samples: int,
    key: PRNGKeyArray,
) -> Float[Array, ""]:
    """An estimate of an upper bound of KL(q(f) | p(f)) at these points, of one unit."""
    latent_key, noise_key = jax.random.split(key)
    generator = posterior.generator
    latents = posterior.latents(jax.random.normal(latent_key, (num_samples, len(posterior.mean))))
    clean = generator(inputs, latents)
    noise = jnp.exp(0.5 * generator.log_noise) * jax.random.normal(noise_key, clean.shape)
    values = clean + noise
    joint = _log_normal(noise, 0.5 * generator.log_noise)
    joint = joint + _log_normal(latents - posterior.mean, posterior.log_scale)
    guess = Conditional.of(posterior, inputs, values)
    return jnp.mean(joint - guess.log_density(latents) - log_prior(inputs, values))
