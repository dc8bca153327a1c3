"""The variational implicit process layer: a Bayesian linear model on S prior samples.

f_h(x) = φ(x)ᵀ a_h + m*(x) with a_h ~ N(0, I) a priori and q(a_h) = N(m_h, S_h) a posteriori;
m* is the mean of S functions drawn from an implicit process and φ their centred values over √S.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
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
    # (m_h, L_h)ᵀ with L_h the lower-triangular factor of S_h: the mean, then the rows of L_hᵀ with
    # the logarithms of its diagonal. What would be below that diagonal is not used.
    q: Float[Array, "units rows samples"]
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
            q=jnp.tile(_start_of_q(num_prior_samples, q_scale), (num_units, 1, 1)),
            fresh_noise=fresh_noise,
        )

    @property
    def _q_rows(self) -> Float[Array, "units rows samples"]:
        """(m_h, L_h)ᵀ itself."""
        rows, columns = np.indices(self.q.shape[1:])
        upper = jnp.where(rows > columns + 1, 0.0, self.q)
        return jnp.where(rows == columns + 1, jnp.exp(self.q), upper)

    @property
    def q_mean(self) -> Float[Array, "units samples"]:
        """m of q(a) = N(m, S)."""
        return self.q[:, 0]

    @property
    def q_factor(self) -> Float[Array, "units samples samples"]:
        """The lower-triangular factor L of S = L Lᵀ, with a positive diagonal."""
        return jnp.swapaxes(self._q_rows[:, 1:], -1, -2)

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
        """φᵀ m_h + m* and φᵀ S_h φ = ‖L_hᵀ φ‖².

        As φ and m* are linear in the prior samples, both come from one product: the rows of
        (m_h, L_h)ᵀ are centred and scaled in place of the (many more) samples.
        """
        prior_samples = self.process(self.noise.value, inputs)
        rows = jnp.matmul(self._q_rows, _centring(self.q.shape[2]).astype(self.q.dtype))
        rows = rows.at[:, 0].add(1 / self.q.shape[2])  # adds m*
        projected = product(rows, prior_samples)
        return projected[:, 0], jnp.sum(jnp.square(projected[:, 1:]), axis=1)

    def kl(self) -> Float[Array, ""]:
        """Σ_h KL(N(m_h, L_h L_hᵀ) | N(0, I))."""
        log_diagonal = jnp.diagonal(self.q[:, 1:], axis1=1, axis2=2)
        return 0.5 * (jnp.sum(jnp.square(self._q_rows)) - log_diagonal.size) - jnp.sum(log_diagonal)

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


def _start_of_q(num_samples: int, scale: float) -> Float[np.ndarray, "rows samples"]:
    """N(0, scale² I) as `VIPLayer.q` holds it."""
    return np.eye(num_samples + 1, num_samples, -1) * math.log(scale)


def _centring(num_samples: int) -> Float[np.ndarray, "samples samples"]:
    """The matrix that makes features of prior samples: subtracts their mean, divides by √S."""
    return (np.eye(num_samples) - 1 / num_samples) / math.sqrt(num_samples)
