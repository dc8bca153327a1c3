"""The protocol of an implicit process f(x) = g_θ(x, z): what a prior over functions must offer."""

import abc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from dvip.linear_algebra import product
from dvip.registry import PRIORS, PRIORS_OF_PARTS

__all__ = ["DataUnits", "ImplicitProcess", "PerGroup", "PerUnit", "mean_and_features"]


@dataclass(frozen=True, eq=False)
class DataUnits:
    """What the first layer's process is told of the data, which it sees scaled.

    An input is `offset + scale * z` in the user's unit, with z what the process sees.
    """

    shape: tuple[int, ...]
    names: tuple[str, ...]
    offset: Float[np.ndarray, " inputs"]
    scale: Float[np.ndarray, " inputs"]
    # Offset and scale of the target, where there is one and the model's unit is its.
    target: tuple[float, float] | None = None
    # Which inputs of the data these are.
    places: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "places", self.places or tuple(range(len(self.names))))

    def only(self, indices: Sequence[int]) -> "DataUnits":
        """These inputs alone."""
        chosen = list(indices)
        return DataUnits(
            (len(chosen),),
            tuple(self.names[index] for index in chosen),
            self.offset[chosen],
            self.scale[chosen],
            self.target,
            tuple(self.places[index] for index in chosen),
        )

    def indices_of(self, columns: Sequence[str | int]) -> tuple[int, ...]:
        """Where these columns are, by name or number; categories are several inputs."""
        found: list[int] = []
        for column in columns:
            if isinstance(column, int):
                matching = [column] if 0 <= column < len(self.names) else []
            else:
                ends = ("", " is missing")
                matching = [
                    index
                    for index, name in enumerate(self.names)
                    if name in {column + end for end in ends} or name.startswith(f"{column} = ")
                ]
            if not matching:
                some = ", ".join(map(repr, self.names[:10])) + (", ..." * (len(self.names) > 10))
                raise ValueError(
                    f"on={column!r}: there is no such column. The inputs are {some}; a number "
                    f"from 0 to {len(self.names) - 1} will do as well."
                )
            found += matching
        return tuple(dict.fromkeys(found))


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

    def for_data(self, units: DataUnits) -> "ImplicitProcess":
        """This process as that of the first layer, told the units of what it sees scaled.

        A ValueError where it cannot read such data.
        """
        return self.for_inputs_of_shape(units.shape)

    @property
    def bound_to_data(self) -> bool:
        """Whether it means the user's columns or units, which only the first layer sees."""
        return False

    @property
    def wanted_functions(self) -> int | None:
        """How many functions a layer should have where nobody says so; None leaves it to others."""
        return None

    @property
    def label(self) -> str:
        """What to call it in a text."""
        for registry in (PRIORS, PRIORS_OF_PARTS):
            for name, cls in zip(registry, registry.classes, strict=True):
                if cls == type(self).__name__:
                    return name
        return type(self).__name__

    def __add__(self, other: "ImplicitProcess") -> "ImplicitProcess":
        """The sum of a function of each."""
        return self._with(other, "sum")

    def __mul__(self, other: "ImplicitProcess") -> "ImplicitProcess":
        """The product of a function of each."""
        return self._with(other, "product")

    def __or__(self, other: "ImplicitProcess") -> "ImplicitProcess":
        """The union: some functions of each."""
        return self._with(other, "union")

    def _with(self, other: "ImplicitProcess", how: str) -> "ImplicitProcess":
        if not isinstance(other, ImplicitProcess):
            return NotImplemented
        cls = PRIORS_OF_PARTS[how]
        # a + b + c is one sum of three.
        parts = [getattr(p, "processes", ()) if type(p) is cls else (p,) for p in (self, other)]
        return cls((*parts[0], *parts[1]))

    def on(self, columns: Any) -> "ImplicitProcess":
        """This process as one of some columns of the data only.

        Parameters
        ----------
        columns : str, int, or a sequence of them
            Their names, or their numbers from 0.

        Returns
        -------
        ImplicitProcess
        """
        return PRIORS_OF_PARTS["on"](self, columns)

    def warped(self) -> "ImplicitProcess":
        """This process with inputs that pass through a learned increasing function each.

        Returns
        -------
        ImplicitProcess
        """
        return PRIORS_OF_PARTS["warped"](self)

    def terms(
        self, noise: PyTree[Array], inputs: Float[Array, "inputs batch"]
    ) -> dict[str, Float[Array, "*outputs samples batch"]]:
        """Functions that add up to those of the process, by name; of most, there is one term."""
        return {self.label: self(noise, inputs)}

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
