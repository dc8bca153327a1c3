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

from dvip.layers.layer import GaussianLayer, WhitenedGaussian
from dvip.linear_algebra import product
from dvip.parameters import Fixed
from dvip.processes import ImplicitProcess, mean_and_features

__all__ = ["KnownVIPLayer", "VIPLayer"]


class VIPLayer(GaussianLayer):
    """H units that share a process (its samples have no unit axis) or have one each."""

    process: ImplicitProcess
    noise: Fixed
    posterior: WhitenedGaussian
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
            posterior=WhitenedGaussian.create(num_units, num_prior_samples, q_scale),
            fresh_noise=fresh_noise,
        )

    @property
    def q_mean(self) -> Float[Array, "units samples"]:
        """The means m_h."""
        return self.posterior.mean

    @property
    def q_factor(self) -> Float[Array, "units samples samples"]:
        """The lower-triangular factors L_h of S_h = L_h L_hᵀ, with a positive diagonal."""
        return self.posterior.factor

    def features(
        self, inputs: Float[Array, "inputs batch"]
    ) -> tuple[Float[Array, "outputs batch"], Float[Array, "outputs samples batch"]]:
        """The prior mean m*(x) and the features φ(x); `outputs` is 1 for a shared process."""
        return mean_and_features(self.process(self.noise.value, inputs))

    def marginals(
        self, inputs: Float[Array, "inputs batch"]
    ) -> tuple[Float[Array, "units batch"], Float[Array, "units batch"]]:
        """φᵀ m_h + m* and φᵀ S_h φ = ‖L_hᵀ φ‖².

        As φ and m* are linear in the prior samples, both come from one product: the rows of
        (m_h, L_h)ᵀ are centred and scaled in place of the (many more) samples.
        """
        prior_samples = self.process(self.noise.value, inputs)
        rows, num_samples = self.posterior.rows, prior_samples.shape[-2]
        rows = jnp.matmul(rows, _centring(num_samples).astype(rows.dtype))
        prior_mean = np.eye(num_samples + 1, 1) / num_samples  # m*, added to the first row
        projected = product(rows + prior_mean.astype(rows.dtype), prior_samples)
        return projected[:, 0], jnp.sum(jnp.square(projected[:, 1:]), axis=1)

    def kl(self) -> Float[Array, ""]:
        """Σ_h KL(N(m_h, S_h) | N(0, I))."""
        return self.posterior.kl()

    def prior_regularisation(self) -> Float[Array, ""]:
        """That of the process."""
        return self.process.regularisation()

    def draw_function(self, key: PRNGKeyArray) -> PyTree[Array]:
        """Coefficients a_h ~ q(a_h) for each unit."""
        return self.posterior.draw(key)

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

    def with_coefficients(self, coefficients: Float[Array, "units samples"]) -> "KnownVIPLayer":
        """The layer in whose posterior these are the coefficients for sure."""
        return KnownVIPLayer(self.process, self.noise, coefficients)


class KnownVIPLayer(GaussianLayer):
    """A VIP layer whose coefficients are known: its units are functions, without a variance.

    Samples of a posterior are such layers.
    """

    process: ImplicitProcess
    noise: Fixed
    coefficients: Float[Array, "units samples"]

    def marginals(
        self, inputs: Float[Array, "inputs batch"]
    ) -> tuple[Float[Array, "units batch"], Float[Array, "units batch"]]:
        """φᵀ a_h + m*, and no variance."""
        num_samples = self.coefficients.shape[1]
        centring = _centring(num_samples).astype(self.coefficients.dtype)
        weights = jnp.matmul(self.coefficients, centring) + 1 / num_samples
        values = self.process.combined(self.noise.value, weights, inputs)
        return values, jnp.zeros_like(values)

    def kl(self) -> Float[Array, ""]:
        """-log N(a | 0, I) but for a constant: what a density loses by the coefficients."""
        return 0.5 * jnp.sum(jnp.square(self.coefficients))

    def prior_regularisation(self) -> Float[Array, ""]:
        """That of the process."""
        return self.process.regularisation()

    def draw_function(self, key: PRNGKeyArray) -> PyTree[Array]:
        """Nothing is random."""
        del key
        return ()

    def evaluate(
        self, function: PyTree[Array], inputs: Float[Array, "inputs batch"]
    ) -> Float[Array, "units batch"]:
        """φ(x)ᵀ a_h + m*(x)."""
        del function
        return self.marginals(inputs)[0]


def _centring(num_samples: int) -> Float[np.ndarray, "samples samples"]:
    """The matrix that makes features of prior samples: subtracts their mean, divides by √S."""
    return (np.eye(num_samples) - 1 / num_samples) / math.sqrt(num_samples)
