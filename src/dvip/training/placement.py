"""Where a training runs: on one device, or on those of all processes of `jax.distributed`.

Several devices share the rows of every batch. Each has all parameters and computes the gradient
for its rows; the average over the devices is the gradient of the whole batch.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

from dvip.batches import ALL, Batch, Part

__all__ = [
    "ALONE",
    "PARTS",
    "LostProcess",
    "Placement",
    "StoppedElsewhere",
    "Together",
    "is_first_process",
    "placement",
]

Tree = TypeVar("Tree")

# The name of the axis along which devices share a batch.
PARTS = "parts"


class LostProcess(ConnectionError):
    """Another process of the training failed, or does not answer."""

    def __init__(self, reason: str):
        super().__init__(
            "Another process of this training failed or does not answer. Start all of them again "
            f"and resume from the last checkpoint. ({reason})"
        )


class StoppedElsewhere(ConnectionError):
    """Another process of the training was told to stop."""

    def __init__(self) -> None:
        super().__init__("The training stopped, as another of its processes was told to.")


class Placement:
    """A training in one process, on its first device."""

    num_parts = 1
    # What this process reads of every batch.
    part = ALL

    def check_batch_size(self, batch_size: int) -> None:
        """Raises an error if a batch of that many rows cannot be shared."""

    def batches(self, batches: Batch) -> Batch:
        """This process's part of some batches, for the compiled program."""
        return batches

    def everywhere(self, tree: Any) -> Any:
        """These arrays, which are the same in all processes, for the compiled program."""
        return jax.tree.map(jax.device_put, tree)

    def of_first_process(self, tree: Any) -> Any:
        """The arrays that the first process has, in every process."""
        return tree

    def here(self, tree: Tree) -> Tree:
        """A result of the compiled program as arrays of this process alone."""
        return tree

    def stop_flags(self, wanted: bool) -> Array | None:
        """For the compiled program: whether this process wants to stop."""
        return None

    def stops(self, told: Array | None, wanted: bool) -> bool:
        """Whether to stop, from what the compiled program told and what this process wants."""
        return wanted

    def stopped(self) -> None:
        """Called where a training was to stop and its signal, if this process had one, did not."""

    @contextmanager
    def noticing_lost_processes(self) -> Iterator[None]:
        """Within it, a failure of another process is a `LostProcess`."""
        yield


class Together(Placement):
    """A training on all devices of all processes."""

    def __init__(self) -> None:
        devices = sorted(jax.devices(), key=lambda device: (device.process_index, device.id))
        self.mesh = Mesh(np.array(devices), (PARTS,))
        self.num_parts = len(devices)
        # This process's devices.
        own = [i for i, device in enumerate(devices) if device.process_index == jax.process_index()]
        self._first, self._end = own[0], own[-1] + 1
        # All processes have the same number of devices.
        self.part = Part(jax.process_index(), jax.process_count())

    def _put(self, array: Any, *axes: str | None) -> Array:
        sharding = NamedSharding(self.mesh, PartitionSpec(*axes))
        return jax.make_array_from_process_local_data(sharding, np.asarray(array))

    def check_batch_size(self, batch_size: int) -> None:
        """Raises an error unless all devices can have the same number of rows."""
        if batch_size % self.num_parts:
            raise ValueError(
                f"A batch of {batch_size} rows cannot be shared by {self.num_parts} devices: "
                f"choose a batch_size that is a multiple of {self.num_parts}, and no larger than "
                "the number of rows."
            )

    def batches(self, batches: Batch) -> Batch:
        """The rows of this process, for the devices that it has."""
        return jax.tree.map(lambda array: self._put(array, None, PARTS), batches)

    def everywhere(self, tree: Any) -> Any:
        """A copy on every device."""

        def put(leaf: Any) -> Array:
            if not jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
                return self._put(leaf)
            words = self._put(jax.random.key_data(leaf))
            return jax.random.wrap_key_data(words, impl=jax.random.key_impl(leaf))

        return jax.tree.map(put, tree)

    def of_first_process(self, tree: Any) -> Any:
        """What the first process has; all processes must call it."""
        with self.noticing_lost_processes():
            return multihost_utils.broadcast_one_to_all(tree)

    def here(self, tree: Tree) -> Tree:
        """The copy of this process's first device."""
        return jax.tree.map(lambda array: jax.device_put(np.asarray(array)), tree)

    def stop_flags(self, wanted: bool) -> Array | None:
        """One for each device of this process."""
        return self._put(np.full(self._end - self._first, wanted), PARTS)

    def stops(self, told: Array | None, wanted: bool) -> bool:
        """What all processes were told at the same step."""
        return told is not None and bool(told)

    def stopped(self) -> None:
        """Another process had the signal."""
        raise StoppedElsewhere

    @contextmanager
    def noticing_lost_processes(self) -> Iterator[None]:
        """The others fail or fall silent; what this one computes with them then fails."""
        try:
            yield
        except jax.errors.JaxRuntimeError as error:
            raise LostProcess(str(error).splitlines()[0][:200]) from error


ALONE = Placement()


@cache
def _together() -> Together:
    return Together()


def placement() -> Placement:
    """All devices of all processes where `jax.distributed` is initialised; else one device."""
    return _together() if jax.distributed.is_initialized() else ALONE


def is_first_process() -> bool:
    """Whether this process is the one that writes and tells."""
    return not jax.distributed.is_initialized() or jax.process_index() == 0
