"""The protocol of a layer: H units, each a random function with an approximate posterior."""

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

__all__ = ["GaussianLayer", "Layer"]


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
    def kl_estimate(self, key: PRNGKeyArray) -> Float[Array, ""]:
        """KL(q | p) of the posterior from the prior, summed over the units, or an estimate."""

    @abc.abstractmethod
    def draw_function(self, key: PRNGKeyArray) -> PyTree[Array]:
        """All that is random in one draw of the layer's H functions from q."""

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

    def kl_estimate(self, key: PRNGKeyArray) -> Float[Array, ""]:
        """The KL, exactly."""
        del key
        return self.kl()
