"""A Gaussian process layer by random features: a Bayesian linear model on waves.

Cutajar et al. 2017: with F frequencies ω_f, drawn once, learned length-scales l and amplitude σ,

    φ(x) = σ F^{-½} (cos ω_f·(x / l), sin ω_f·(x / l))_f,   f_h(x) = φ(x)ᵀ a_h,

a_h ~ N(0, I) a priori makes f_h a Gaussian process whose kernel approximates the RBF kernel:
φ(x)ᵀφ(x') = σ² / F Σ_f cos ω_f·((x - x') / l), and its mean over standard normal ω is the kernel
(Rahimi and Recht 2007). A posteriori q(a_h) = N(m_h, S_h), so

    q(f_h(x)) = N(φᵀ m_h,  φᵀ S_h φ).

No matrix is factorised. But functions have 2 F degrees of freedom and no more: with many rows and
few frequencies, the model is too sure of itself far from the data.
"""

import math

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from dvip.layers.layer import GaussianLayer, WhitenedGaussian
from dvip.linear_algebra import product
from dvip.parameters import Fixed
from dvip.processes.gp import cos_sin, draw_frequencies

__all__ = ["RandomFeaturesLayer"]

# Up to so many inputs quasi-random frequencies lie most evenly, then orthogonal ones.
MAX_FOR_QMC = 15


class RandomFeaturesLayer(GaussianLayer):
    """H units with common length-scales, variance and frequencies."""

    log_variance: Float[Array, ""]
    log_lengthscales: Float[Array, " inputs"]
    frequencies: Fixed  # frequencies x inputs, of length-scales of one
    posterior: WhitenedGaussian

    @classmethod
    def create(
        cls,
        num_inputs: int,
        num_units: int,
        num_frequencies: int,
        *,
        variance: float,
        lengthscale: float,
        q_scale: float,
        key: PRNGKeyArray,
    ) -> "RandomFeaturesLayer":
        """A layer at its starting point, q(a) = N(0, q_scale² I)."""
        construction = "qmc" if num_inputs <= MAX_FOR_QMC else "orthogonal"
        return cls(
            jnp.full((), math.log(variance)),
            jnp.full(num_inputs, math.log(lengthscale)),
            Fixed(draw_frequencies(key, num_frequencies, num_inputs, "rbf", construction)),
            WhitenedGaussian.create(num_units, 2 * num_frequencies, q_scale),
        )

    def features(
        self, inputs: Float[Array, "inputs batch"]
    ) -> tuple[Float[Array, "1 1"], Float[Array, "1 coefficients batch"]]:
        """The prior mean, which is zero, and φ(x)."""
        frequencies = self.frequencies.value
        turns = product(frequencies * jnp.exp(-self.log_lengthscales) / (2 * jnp.pi), inputs)
        scale = jnp.exp(0.5 * self.log_variance) / math.sqrt(len(frequencies))
        return jnp.zeros((1, 1)), scale * jnp.concatenate(cos_sin(turns))[None]

    def marginals(
        self, inputs: Float[Array, "inputs batch"]
    ) -> tuple[Float[Array, "units batch"], Float[Array, "units batch"]]:
        """φᵀ m_h and φᵀ S_h φ."""
        return self.posterior.moments(self.features(inputs)[1])

    def kl(self) -> Float[Array, ""]:
        """Σ_h KL(N(m_h, S_h) | N(0, I))."""
        return self.posterior.kl()

    def draw_function(self, key: PRNGKeyArray) -> PyTree[Array]:
        """Coefficients a_h ~ q(a_h) for each unit."""
        return self.posterior.draw(key)

    def evaluate(
        self, function: PyTree[Array], inputs: Float[Array, "inputs batch"]
    ) -> Float[Array, "units batch"]:
        """φ(x)ᵀ a_h."""
        return product(function, self.features(inputs)[1][0])
