"""The protocol of an implicit process f(x) = g_θ(x, z): what a prior over functions must offer."""

import abc
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from dvip.linear_algebra import product

__all__ = ["ImplicitProcess", "PerGroup", "PerUnit", "mean_and_features"]


class ImplicitProcess(eqx.Module):
    """A distribution over functions that is easy to sample from (Definition 1 of the paper).

    A process is a frozen dataclass. Its static fields are options that a user chooses; its array
    fields are the parameters θ, absent until `initialise` has been told the width of the inputs.
    Noise z is drawn separately, so that the same functions can be evaluated anywhere.
    """

    # Whether it reads images or sequences rather than columns of a table. Only the first layer's
    # process can: what leaves a layer has no shape. Nothing is propagated around such a layer.
    structured: ClassVar[bool] = False
    # Whether the units of a layer share their functions where nobody says otherwise.
    shared_by_units: ClassVar[bool] = True

    def for_inputs_of_shape(self, shape: tuple[int, ...]) -> "ImplicitProcess":
        """This process, told the shape of one input; a ValueError where it cannot read that."""
        del shape
        return self

    @property
    def num_channels(self) -> int | None:
        """The length of an input's last axis, over which alone structured inputs are scaled."""
        return None

    def one_for_each_unit(self, num_units: int) -> "ImplicitProcess":
        """This process with functions of its own for each unit of a layer."""
        return PerUnit(self, num_units)

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

    def combined(
        self,
        noise: PyTree[Array],
        weights: Float[Array, "units samples"],
        inputs: Float[Array, "inputs batch"],
    ) -> Float[Array, "units batch"]:
        """Σ_s w_hs f_s(x_n): for each unit h, a combination of its functions.

        A process that can do so without all of its functions saves time.
        """
        functions = self(noise, inputs)
        if functions.ndim == 2:
            return product(weights, functions)
        return product(weights[:, None], functions)[:, 0]

    def regularisation(self) -> Float[Array, ""]:
        """What the objective loses for the parameters θ that it has; nothing, unless a process
        says otherwise."""
        return jnp.zeros(())


class PerUnit(ImplicitProcess):
    """Independent copies of a process, stacked: g_θ^l_h of the paper with θ not shared over h."""

    process: ImplicitProcess
    num_units: int = eqx.field(static=True)

    def initialise(self, num_inputs: int, key: PRNGKeyArray) -> "PerUnit":
        """Copies with parameters of their own."""
        keys = jax.random.split(key, self.num_units)
        stacked = eqx.filter_vmap(lambda key: self.process.initialise(num_inputs, key))(keys)
        return PerUnit(stacked, self.num_units)

    def draw_noise(self, key: PRNGKeyArray, num_samples: int) -> PyTree[Array]:
        """Noise of its own for each unit."""
        keys = jax.random.split(key, self.num_units)
        draw = eqx.filter_vmap(lambda process, key: process.draw_noise(key, num_samples))
        return draw(self.process, keys)

    def __call__(
        self, noise: PyTree[Array], inputs: Float[Array, "inputs batch"]
    ) -> Float[Array, "units samples batch"]:
        """The functions of every unit."""
        evaluate = eqx.filter_vmap(lambda process, noise: process(noise, inputs))
        return evaluate(self.process, noise)

    def combined(
        self,
        noise: PyTree[Array],
        weights: Float[Array, "units samples"],
        inputs: Float[Array, "inputs batch"],
    ) -> Float[Array, "units batch"]:
        """Each copy combines its functions for its own units."""
        combine = eqx.filter_vmap(
            lambda process, noise, weights: process.combined(noise, weights, inputs)
        )
        of_copies = weights.reshape(self.num_units, -1, weights.shape[-1])
        return combine(self.process, noise, of_copies).reshape(len(weights), -1)

    def regularisation(self) -> Float[Array, ""]:
        """The sum over the units."""
        return jnp.sum(eqx.filter_vmap(lambda process: process.regularisation())(self.process))


class PerGroup(PerUnit):
    """A copy of a process for each of several equal groups of units, who share its functions."""

    num_members: int = eqx.field(static=True)

    def __init__(self, process: ImplicitProcess, num_groups: int, num_units: int):
        self.process, self.num_units = process, num_groups
        self.num_members = num_units // num_groups

    def initialise(self, num_inputs: int, key: PRNGKeyArray) -> "PerGroup":
        """Copies with parameters of their own."""
        process = super().initialise(num_inputs, key).process
        return PerGroup(process, self.num_units, self.num_units * self.num_members)

    def __call__(
        self, noise: PyTree[Array], inputs: Float[Array, "inputs batch"]
    ) -> Float[Array, "units samples batch"]:
        """The functions of every unit: groups one after another."""
        return jnp.repeat(super().__call__(noise, inputs), self.num_members, axis=0)


def mean_and_features(
    prior_samples: Float[Array, "*outputs samples batch"],
) -> tuple[Float[Array, "outputs batch"], Float[Array, "outputs samples batch"]]:
    """m*(x) and φ(x), with φ(x)ᵀφ(x') the covariance of the samples; `outputs` is at least 1."""
    num_samples, batch = prior_samples.shape[-2:]
    prior_samples = prior_samples.reshape(-1, num_samples, batch)
    prior_mean = jnp.mean(prior_samples, axis=1)
    return prior_mean, (prior_samples - prior_mean[:, None]) / jnp.sqrt(num_samples)
