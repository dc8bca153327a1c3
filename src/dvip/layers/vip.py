"""The variational implicit process layer: a Bayesian linear model on S prior samples.

f_h(x) = φ(x)ᵀ a_h + m*(x) with a_h ~ N(0, I) a priori and q(a_h) = N(m_h, S_h) a posteriori;
m* is the mean of S functions drawn from an implicit process and φ their centred values over √S.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from dvip.layers.layer import Layer
from dvip.parameters import Fixed
from dvip.processes import ImplicitProcess

__all__ = ["VIPLayer"]


class VIPLayer(Layer):
    """H units that share a process (its samples have no unit axis) or have one each."""

    process: ImplicitProcess
    noise: Fixed
    q_mean: Float[Array, "units samples"]
    # Strictly lower part and, on the diagonal, logarithms: see q_factor.
    raw_factor: Float[Array, "units samples samples"]
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
        diagonal = jnp.log(q_scale) * jnp.eye(num_prior_samples)
        return cls(
            process=process,
            noise=Fixed(process.draw_noise(noise_key, num_prior_samples)),
            q_mean=jnp.zeros((num_units, num_prior_samples)),
            raw_factor=jnp.tile(diagonal, (num_units, 1, 1)),
            fresh_noise=fresh_noise,
        )

    @property
    def q_factor(self) -> Float[Array, "units samples samples"]:
        """The lower-triangular factor L of S = L Lᵀ, with a positive diagonal."""
        diagonal = jnp.exp(self._log_diagonal())
        return jnp.tril(self.raw_factor, -1) + diagonal[..., None] * jnp.eye(diagonal.shape[-1])

    def _log_diagonal(self) -> Float[Array, "units samples"]:
        return jnp.diagonal(self.raw_factor, axis1=-2, axis2=-1)

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
        mean = jnp.matmul(self.q_mean[:, None], features)[:, 0] + prior_mean
        projected = jnp.matmul(jnp.swapaxes(self.q_factor, -1, -2), features)
        return mean, jnp.sum(jnp.square(projected), axis=1)

    def kl(self) -> Float[Array, ""]:
        """Σ_h KL(N(m_h, L_h L_hᵀ) | N(0, I))."""
        squares = jnp.sum(jnp.square(self.q_mean)) + jnp.sum(jnp.square(self.q_factor))
        return 0.5 * (squares - self.q_mean.size) - jnp.sum(self._log_diagonal())

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
