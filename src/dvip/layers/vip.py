"""The variational implicit process layer: a Bayesian linear model on S prior samples.

f_h(x) = φ(x)ᵀ a_h + m*(x) with a_h ~ N(0, I) a priori and q(a_h) = N(m_h, S_h) a posteriori;
m* is the mean of S functions drawn from an implicit process and φ their centred values over √S.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from dvip.layers.layer import GaussianLayer
from dvip.parameters import Fixed
from dvip.processes import ImplicitProcess
from dvip.products import product

__all__ = ["VIPLayer"]


class VIPLayer(GaussianLayer):
    """H units that share a process (its samples have no unit axis) or have one each."""

    process: ImplicitProcess
    noise: Fixed
    q_mean: Float[Array, "units samples"]
    # The factor L of S_h = L Lᵀ: the logarithm of its diagonal, and its lower part, kept transposed
    # because the features are multiplied by Lᵀ. The rest of the array is not used.
    q_log_diagonal: Float[Array, "units samples"]
    q_off_diagonal: Float[Array, "units samples samples"]
    fresh_noise: bool = eqx.field(static=True)

    @classmethod
    @eqx.filter_jit  # one compilation instead of one an operation, shared by layers of equal shape
    def create(
        cls,
        process: ImplicitProcess,
        num_inputs: int,
        num_units: int,
        num_prior_samples: int,
        *,
        q_scale: float,
        fresh_noise: bool = False,
        key: PRNGKeyArray,
    ) -> "VIPLayer":
        """A layer at its starting point, q(a) = N(0, q_scale² I)."""
        process_key, noise_key = jax.random.split(key)
        process = process.initialise(num_inputs, process_key)
        return cls(
            process=process,
            noise=Fixed(process.draw_noise(noise_key, num_prior_samples)),
            q_mean=jnp.zeros((num_units, num_prior_samples)),
            q_log_diagonal=jnp.full((num_units, num_prior_samples), math.log(q_scale)),
            q_off_diagonal=jnp.zeros((num_units, num_prior_samples, num_prior_samples)),
            fresh_noise=fresh_noise,
        )

    @property
    def _transposed_factor(self) -> Float[Array, "units samples samples"]:
        """Lᵀ, upper triangular with a positive diagonal."""
        diagonal = jnp.exp(self.q_log_diagonal)[..., None] * jnp.eye(self.q_mean.shape[1])
        return jnp.triu(self.q_off_diagonal, 1) + diagonal

    @property
    def q_factor(self) -> Float[Array, "units samples samples"]:
        """The lower-triangular factor L of S = L Lᵀ, with a positive diagonal."""
        return jnp.swapaxes(self._transposed_factor, -1, -2)

    def features(
        self, inputs: Float[Array, "inputs batch"]
    ) -> tuple[Float[Array, "outputs batch"], Float[Array, "outputs samples batch"]]:
        """The prior mean m*(x) and the features φ(x); `outputs` is 1 for a shared process."""
        prior_samples = self.process(self.noise.value, inputs)
        num_samples, batch = prior_samples.shape[-2:]
        prior_samples = prior_samples.reshape(-1, num_samples, batch)
        prior_mean = jnp.mean(prior_samples, axis=1)
        return prior_mean, (prior_samples - prior_mean[:, None]) / jnp.sqrt(num_samples)

    def marginals(
        self, inputs: Float[Array, "inputs batch"]
    ) -> tuple[Float[Array, "units batch"], Float[Array, "units batch"]]:
        """φᵀ m_h + m* and φᵀ S_h φ = ‖L_hᵀ φ‖²."""
        prior_mean, features = self.features(inputs)
        if len(features) == 1:  # a shared process: the same features for every unit
            features = features[0]
            mean = product(self.q_mean, features)
        else:
            mean = product(self.q_mean[:, None], features)[:, 0]
        projected = product(self._transposed_factor, features)
        return mean + prior_mean, jnp.sum(jnp.square(projected), axis=1)

    def kl(self) -> Float[Array, ""]:
        """Σ_h KL(N(m_h, L_h L_hᵀ) | N(0, I))."""
        squares = jnp.sum(jnp.square(self.q_mean)) + jnp.sum(jnp.square(self._transposed_factor))
        return 0.5 * (squares - self.q_mean.size) - jnp.sum(self.q_log_diagonal)

    def draw_function(self, key: PRNGKeyArray) -> PyTree[Array]:
        """Coefficients a_h ~ q(a_h) for each unit."""
        white = jax.random.normal(key, self.q_mean.shape)
        return self.q_mean + jnp.matmul(self.q_factor, white[..., None])[..., 0]

    def evaluate(
        self, function: PyTree[Array], inputs: Float[Array, "inputs batch"]
    ) -> Float[Array, "units batch"]:
        """φ(x)ᵀ a_h + m*(x)."""
        prior_mean, features = self.features(inputs)
        return jnp.matmul(function[:, None], features)[:, 0] + prior_mean

    def redraw_noise(self, key: PRNGKeyArray) -> "VIPLayer":
        """New prior functions, where the prior noise is not fixed for the training."""
        if not self.fresh_noise:
            return self
        num_samples = self.q_mean.shape[1]
        noise = Fixed(self.process.draw_noise(key, num_samples))
        return eqx.tree_at(lambda layer: layer.noise, self, noise)
