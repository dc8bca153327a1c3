"""The protocol of an implicit process f(x) = g_θ(x, z): what a prior over functions must offer."""

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

__all__ = ["ImplicitProcess"]


class ImplicitProcess(eqx.Module):
    """A distribution over functions that is easy to sample from (Definition 1 of the paper).

    A process is a frozen dataclass. Its static fields are options that a user chooses; its array
    fields are the parameters θ, absent until `initialise` has been told the width of the inputs.
    Noise z is drawn separately, so that the same functions can be evaluated anywhere.
    """

    @abc.abstractmethod
    def initialise(self, num_inputs: int, key: PRNGKeyArray) -> "ImplicitProcess":
        """This process with parameters θ for inputs of that width."""

    @abc.abstractmethod
    def draw_noise(self, key: PRNGKeyArray, num_samples: int) -> PyTree[Array]:
        """The noise z of `num_samples` functions."""

    @abc.abstractmethod
    def __call__(
        self, noise: PyTree[Array], inputs: Float[Array, "inputs batch"]
    ) -> Float[Array, "*outputs samples batch"]:
        """Values f_s(x_n) = g_θ(x_n, z_s), one row a function, one column an input.

        A leading axis, if there is one, holds a function of its own for each unit of the layer.
        """

    def regularisation(self) -> Float[Array, ""]:
        """What the objective loses for the parameters θ that it has; nothing, unless a process
        says otherwise."""
        return jnp.zeros(())
