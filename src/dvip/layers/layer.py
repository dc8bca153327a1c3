"""The protocol of a layer: H units, each a random function with an approximate posterior.

Layers with a Gaussian posterior have a shorter protocol, and one class for that posterior.
"""

import abc
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from dvip.linear_algebra import product

__all__ = ["GaussianLayer", "Layer", "WhitenedGaussian"]


class Layer(eqx.Module):
    """H units over a common input. It knows nothing of likelihoods or of other layers.

    The posterior of a unit is a mixture of Gaussians: given some noise of the layer's own, which
    each of the samples sent through a network has once for all inputs, it is Gaussian. A posterior
    that is one Gaussian needs no such noise: that is a `GaussianLayer`.
    """

    @abc.abstractmethod
    def draw_sample_noise(self, key: PRNGKeyArray, num_samples: int) -> PyTree[Array]:
        """The layer's noise in each of the samples sent through it; without leaves if it has none.

        In every leaf the last axis is that of the samples.
        """

    @abc.abstractmethod
    def conditionals(
        self, inputs: Float[Array, "inputs samples_or_1 batch"], sample_noise: PyTree[Array]
    ) -> tuple[Float[Array, "units samples batch"], Float[Array, "units samples batch"]]:
        """Mean and variance of q(f_h(x) | noise) for each unit h, sample and input x of the sample.

        Inputs that are the same in all samples have one for all; so has the result of a layer
        without noise then.
        """

    @abc.abstractmethod
    def kl_estimate(
        self, key: PRNGKeyArray, inputs: Float[Array, "inputs batch"] | None = None
    ) -> Float[Array, ""]:
        """KL(q | p) of the posterior from the prior, summed over the units, or an estimate.

        One that is estimated from the functions' values at some points may take the `inputs` of
        the training step among them; only the first layer of a network is given these.
        """

    @abc.abstractmethod
    def draw_function(self, key: PRNGKeyArray) -> PyTree[Array]:
        """All that is random in one draw of the layer's H functions from q."""

    def draw_with_others(self, key: PRNGKeyArray, shared_key: PRNGKeyArray) -> PyTree[Array]:
        """As `draw_function`, in a network: its layers, if they depend on each other a posteriori,
        have a key in common."""
        del shared_key
        return self.draw_function(key)

    @abc.abstractmethod
    def evaluate(
        self, function: PyTree[Array], inputs: Float[Array, "inputs batch"]
    ) -> Float[Array, "units batch"]:
        """The functions that `draw_function` drew, at these inputs."""

    def prior_regularisation(self) -> Float[Array, ""]:
        """What the objective loses for the parameters of the prior; nothing by default."""
        return jnp.zeros(())

    def auxiliary_loss(self, key: PRNGKeyArray) -> Float[Array, ""]:
        """What trains the layer's `Auxiliary` parameters, in the same steps; nothing by default."""
        del key
        return jnp.zeros(())

    def redraw_noise(self, key: PRNGKeyArray) -> "Layer":
        """The layer at the next training step; one whose prior noise is fixed is unchanged."""
        del key
        return self


class GaussianLayer(Layer):
    """A layer whose posterior is Gaussian, with its marginals and its KL in closed form."""

    @abc.abstractmethod
    def marginals(
        self, inputs: Float[Array, "inputs batch"]
    ) -> tuple[Float[Array, "units batch"], Float[Array, "units batch"]]:
        """Mean and variance of q(f_h(x_n)) for each unit h and input n."""

    @abc.abstractmethod
    def kl(self) -> Float[Array, ""]:
        """KL(q | p) of the posterior from the prior, summed over the units."""

    def draw_sample_noise(self, key: PRNGKeyArray, num_samples: int) -> PyTree[Array]:
        """None."""
        del key, num_samples

    def conditionals(
        self, inputs: Float[Array, "inputs samples batch"], sample_noise: PyTree[Array]
    ) -> tuple[Float[Array, "units samples batch"], Float[Array, "units samples batch"]]:
        """The marginals: the inputs of all samples are one wide batch."""
        del sample_noise
        mean, variance = self.marginals(inputs.reshape(inputs.shape[0], -1))
        shape = (mean.shape[0], *inputs.shape[1:])
        return mean.reshape(shape), variance.reshape(shape)

    def kl_estimate(
        self, key: PRNGKeyArray, inputs: Float[Array, "inputs batch"] | None = None
    ) -> Float[Array, ""]:
        """The KL, exactly."""
        del key, inputs
        return self.kl()


class WhitenedGaussian(eqx.Module):
    """The posterior of a layer's units: a Gaussian over whitened coefficients.

    q(a_h) = N(m_h, S_h) with S_h = L_h L_hᵀ for each unit h, a priori N(0, I). A unit is linear in
    its coefficients, f_h(x) = φ(x)ᵀ a_h + what does not depend on them.
    """

    # (m_h, L_h)ᵀ with L_h lower triangular: the mean, then the rows of L_hᵀ with the logarithms of
    # its diagonal. What would be below that diagonal is not used.
    q: Float[Array, "units rows coefficients"]

    @classmethod
    def create(cls, num_units: int, num_coefficients: int, scale: float) -> "WhitenedGaussian":
        """N(0, scale² I) for every unit."""
        start = np.eye(num_coefficients + 1, num_coefficients, -1) * math.log(scale)
        return cls(jnp.asarray(np.tile(start, (num_units, 1, 1)), float))

    @classmethod
    def of_moments(
        cls,
        mean: Float[np.ndarray, "units coefficients"],
        factor: Float[np.ndarray, "units coefficients coefficients"],
        dtype: np.dtype,
    ) -> "WhitenedGaussian":
        """N(mean_h, factor_h factor_hᵀ) for each unit; the factors have a positive diagonal."""
        rows = np.concatenate([mean[:, None], np.swapaxes(factor, 1, 2)], axis=1)
        diagonal = np.arange(mean.shape[1])
        rows[:, diagonal + 1, diagonal] = np.log(rows[:, diagonal + 1, diagonal])
        return cls(jax.device_put(rows.astype(dtype)))

    @property
    def rows(self) -> Float[Array, "units rows coefficients"]:
        """(m_h, L_h)ᵀ itself."""
        rows, columns = np.indices(self.q.shape[1:])
        upper = jnp.where(rows > columns + 1, 0.0, self.q)
        return jnp.where(rows == columns + 1, jnp.exp(self.q), upper)

    @property
    def mean(self) -> Float[Array, "units coefficients"]:
        """The means m_h."""
        return self.q[:, 0]

    @property
    def factor(self) -> Float[Array, "units coefficients coefficients"]:
        """The lower-triangular factors L_h, with a positive diagonal."""
        return jnp.swapaxes(self.rows[:, 1:], -1, -2)

    def moments(
        self, features: Float[Array, "outputs coefficients batch"]
    ) -> tuple[Float[Array, "units batch"], Float[Array, "units batch"]]:
        """φᵀ m_h and φᵀ S_h φ = ‖L_hᵀ φ‖², from one product.

        `outputs` is 1 where the units share φ.
        """
        projected = product(self.rows, features[0] if len(features) == 1 else features)
        return projected[:, 0], jnp.sum(jnp.square(projected[:, 1:]), axis=1)

    def kl(self) -> Float[Array, ""]:
        """Σ_h KL(N(m_h, L_h L_hᵀ) | N(0, I))."""
        rows, columns = np.indices(self.q.shape[1:])
        log_diagonal = jnp.where(rows == columns + 1, self.q, 0.0)
        return jnp.sum(0.5 * jnp.square(self.rows) - log_diagonal) - 0.5 * self.mean.size

    def draw(self, key: PRNGKeyArray) -> Float[Array, "units coefficients"]:
        """Coefficients a_h ~ q(a_h) for each unit."""
        white = jax.random.normal(key, self.mean.shape)
        return self.mean + jnp.matmul(self.factor, white[..., None])[..., 0]
