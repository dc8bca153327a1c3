"""Sums, products and unions of processes: what is known of a signal, put together.

Every operand draws noise of its own. A sum's or product's functions are made of one function of
each operand; of the functions of a union, some are the first operand's, the next the second's.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from dvip.processes.process import DataUnits, ImplicitProcess

__all__ = ["PriorProduct", "PriorSum", "PriorUnion"]

Noise = tuple[PyTree[Array], ...]

# A combination of few functions of a sum cannot have any trend with any season.
WANTED = 200


class _Composed(ImplicitProcess):
    """Several processes of the same inputs."""

    processes: tuple[ImplicitProcess, ...]

    def __check_init__(self) -> None:
        if not self.processes or not all(isinstance(p, ImplicitProcess) for p in self.processes):
            raise ValueError(f"{type(self).__name__}: give a tuple of ImplicitProcess objects.")

    @property
    def structured(self) -> bool:  # type: ignore[override]
        """Whether one of them reads images or sequences."""
        return any(process.structured for process in self.processes)

    @property
    def shared_by_units(self) -> bool:  # type: ignore[override]
        """Whether all of them would be."""
        return all(process.shared_by_units for process in self.processes)

    @property
    def bound_to_data(self) -> bool:
        """Whether one of them is."""
        return any(process.bound_to_data for process in self.processes)

    @property
    def wanted_functions(self) -> int | None:
        """Enough for combinations of all their kinds."""
        return max(WANTED, *(process.wanted_functions or 0 for process in self.processes))

    @property
    def num_channels(self) -> int | None:
        """Those of the first that has some."""
        found = (process.num_channels for process in self.processes)
        return next((number for number in found if number is not None), None)

    def for_inputs_of_shape(self, shape: tuple[int, ...]) -> "_Composed":
        """Each is told."""
        return replace(self, processes=tuple(p.for_inputs_of_shape(shape) for p in self.processes))

    def for_data(self, units: DataUnits) -> "_Composed":
        """Each is told."""
        return replace(self, processes=tuple(p.for_data(units) for p in self.processes))

    def initialise(self, num_inputs: int, key: PRNGKeyArray) -> "_Composed":
        """Each with parameters of its own."""
        pairs = zip(self.processes, jax.random.split(key, len(self.processes)), strict=True)
        return replace(
            self, processes=tuple(process.initialise(num_inputs, key) for process, key in pairs)
        )

    def draw_noise(self, key: PRNGKeyArray, num_samples: int) -> Noise:
        """That of each."""
        pairs = zip(self.processes, jax.random.split(key, len(self.processes)), strict=True)
        return tuple(process.draw_noise(key, num_samples) for process, key in pairs)

    def _values(
        self, noise: Noise, inputs: Float[Array, "inputs batch"]
    ) -> list[Float[Array, "*outputs samples batch"]]:
        return [process(own, inputs) for process, own in zip(self.processes, noise, strict=True)]

    def regularisation(self) -> Float[Array, ""]:
        """Their sum."""
        return sum((process.regularisation() for process in self.processes), jnp.zeros(()))


class PriorSum(_Composed):
    """f = f_1 + f_2 + ..., such as a trend and a season."""

    def __call__(
        self, noise: Noise, inputs: Float[Array, "inputs batch"]
    ) -> Float[Array, "*outputs samples batch"]:
        """The functions of all, added up."""
        first, *others = self._values(noise, inputs)
        return sum(others, first)

    def combined(
        self,
        noise: Noise,
        weights: Float[Array, "units samples"],
        inputs: Float[Array, "inputs batch"],
    ) -> Float[Array, "units batch"]:
        """The sum of combinations."""
        pairs = zip(self.processes, noise, strict=True)
        parts = [process.combined(own, weights, inputs) for process, own in pairs]
        return sum(parts[1:], parts[0])

    def terms(
        self, noise: Noise, inputs: Float[Array, "inputs batch"]
    ) -> dict[str, Float[Array, "*outputs samples batch"]]:
        """The terms of each."""
        found: dict[str, Array] = {}
        for process, own in zip(self.processes, noise, strict=True):
            for name, values in process.terms(own, inputs).items():
                same = sum(1 for other in found if other.split(" #")[0] == name)
                found[f"{name} #{same + 1}" if same else name] = values
        return found


class PriorProduct(_Composed):
    """f = f_1 f_2 ..., such as a season whose height changes."""

    def __call__(
        self, noise: Noise, inputs: Float[Array, "inputs batch"]
    ) -> Float[Array, "*outputs samples batch"]:
        """The functions of all, multiplied."""
        first, *others = self._values(noise, inputs)
        for values in others:
            first = first * values
        return first

    @property
    def label(self) -> str:
        """What is multiplied."""
        return " * ".join(process.label for process in self.processes)


class PriorUnion(_Composed):
    """Equal shares of the functions come from each of the processes."""

    def _counts(self, num_samples: int) -> list[int]:
        number = len(self.processes)
        return [(num_samples + index) // number for index in reversed(range(number))]

    def draw_noise(self, key: PRNGKeyArray, num_samples: int) -> Noise:
        """That of each for its share; of a share without functions, none."""
        keys = jax.random.split(key, len(self.processes))
        triples = zip(self.processes, keys, self._counts(num_samples), strict=True)
        return tuple(
            process.draw_noise(key, count) if count else None for process, key, count in triples
        )

    def __call__(
        self, noise: Noise, inputs: Float[Array, "inputs batch"]
    ) -> Float[Array, "*outputs samples batch"]:
        """Those of the first, then those of the next."""
        pairs = zip(self.processes, noise, strict=True)
        parts = [process(own, inputs) for process, own in pairs if own is not None]
        return jnp.concatenate(parts, axis=-2)

    @property
    def label(self) -> str:
        """What is united."""
        return " | ".join(process.label for process in self.processes)
