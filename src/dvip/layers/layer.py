"""The protocol of a layer: H units, each a random function with an approximate posterior."""

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

__all__ = ["Layer"]


class Layer(eqx.Module):
    """H units over a common input. It knows nothing of likelihoods or of other layers."""

    @abc.abstractmethod
    def marginals(
        self, inputs: Float[Array, "inputs batch"]
    ) -> tuple[Float[Array, "units batch"], Float[Array, "units batch"]]:
        """Mean and variance of q(f_h(x_n)) for each unit h and input n."""

    @abc.abstractmethod
    def kl(self) -> Float[Array, ""]:
        """KL(q | p) of the posterior from the prior, summed over the units."""

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

    def redraw_noise(self, key: PRNGKeyArray) -> "Layer":
        """The layer at the next training step; one whose prior noise is fixed is unchanged."""
        del key
        return self
