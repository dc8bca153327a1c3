"""The protocol of a kernel: the first two moments of a prior over functions, and its draws."""

import abc
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

__all__ = ["Covariances", "Kernel"]


class Covariances(NamedTuple):
    """Moments of the prior at inducing points z and at inputs x.

    `outputs` is 1 where all units of a layer share them.
    """

    inducing: Float[Array, "outputs inducing inducing"]
    cross: Float[Array, "outputs inducing batch"]
    variances: Float[Array, "outputs batch"]
    mean: Float[Array, "outputs #batch"]


class Kernel(eqx.Module):
    """A prior over functions that is known through its mean and covariances."""

    @abc.abstractmethod
    def __call__(
        self, inducing: Float[Array, "inputs inducing"], inputs: Float[Array, "inputs batch"]
    ) -> Covariances:
        """k(z, z'), k(z, x), k(x, x) and the mean m(x)."""

    @abc.abstractmethod
    def draw_function(self, key: PRNGKeyArray, num_units: int) -> PyTree[Array]:
        """All that is random in one draw of a function f - m for each unit."""

    @abc.abstractmethod
    def evaluate(
        self, function: PyTree[Array], inputs: Float[Array, "inputs batch"]
    ) -> Float[Array, "units batch"]:
        """The functions that `draw_function` drew, at these inputs."""

    def regularisation(self) -> Float[Array, ""]:
        """What the objective loses for the parameters of the kernel; nothing by default."""
        return jnp.zeros(())

    def redraw_noise(self, key: PRNGKeyArray) -> "Kernel":
        """The kernel at the next training step; one without noise of its own is unchanged."""
        del key
        return self
