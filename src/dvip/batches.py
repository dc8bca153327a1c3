"""Batches of rows, and the order in which rows come: endless epochs, each a new permutation.

The order is a function of the seed and the position alone, so that a run can continue anywhere.
"""

import hashlib
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, TypeVar

import numpy as np
from jaxtyping import Array, Float, Int

__all__ = [
    "ALL",
    "ArrayData",
    "Batch",
    "Part",
    "padded_batches",
    "read_ahead",
    "shuffled_rows",
    "stretch_of",
]


class Batch(NamedTuple):
    """Rows of the data, with the weight of each."""

    inputs: Float[Array, "batch inputs"]
    targets: Float[Array, "batch outputs"]
    weights: Float[Array, " batch"]


@dataclass(frozen=True)
class Part:
    """One of several equal parts of every batch or table: that of one of several processes."""

    index: int
    number: int


ALL = Part(0, 1)


def epoch_order(num_rows: int, seed: int, epoch: int) -> Int[np.ndarray, " rows"]:
    """All rows in the order of an epoch."""
    return np.random.default_rng((seed, epoch)).permutation(num_rows)


def shuffled_rows(
    num_rows: int,
    seed: int,
    start: int,
    count: int,
    order: Callable[[int, int, int], np.ndarray] = epoch_order,
) -> Int[np.ndarray, " count"]:
    """Positions start, ..., start + count - 1 of the endless sequence of shuffled epochs."""
    first, last = start // num_rows, (start + count - 1) // num_rows
    epochs = [order(num_rows, seed, epoch) for epoch in range(first, last + 1)]
    offset = start - first * num_rows
    if len(epochs) == 1:
        return epochs[0][offset : offset + count]
    return np.concatenate(epochs)[offset : offset + count]


def stretch_of(number: int, begin: float, end: float) -> Int[np.ndarray, " chosen"]:
    """Which of so many things on a circle of length 1 lie from `begin` to before `end`."""
    first, last = (round(place * number) for place in (begin, end))
    return np.arange(first, last) % number


def _places_within(strata: np.ndarray) -> Float[np.ndarray, " rows"]:
    """Of each row, the share of its stratum that comes before it."""
    places = np.empty(len(strata))
    for stratum in np.unique(strata):
        rows = np.flatnonzero(strata == stratum)
        places[rows] = (np.arange(len(rows)) + 0.5) / len(rows)
    return places


@dataclass(frozen=True)
class ArrayData:
    """Rows that are in memory, scaled and in the precision of the model."""

    inputs: Float[np.ndarray, "rows inputs"]
    targets: Float[np.ndarray, "rows outputs"]
    weights: Float[np.ndarray, " rows"]
    # Remembers the current epoch: the order of many rows takes longer than their steps.
    order: Callable[[int, int, int], np.ndarray] = field(
        default_factory=lambda: lru_cache(2)(epoch_order), repr=False, compare=False
    )

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return len(self.inputs)

    @property
    def num_columns(self) -> int:
        """How many numbers a row has, inputs, targets and weight together."""
        return self.inputs.shape[1] + self.targets.shape[1] + 1

    def fingerprint(self) -> str:
        """Other rows have another one, also in another order."""
        digest = hashlib.sha256()
        for array in (self.inputs, self.targets, self.weights):
            digest.update(f"{array.dtype}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def stretch(
        self, seed: int, begin: float, end: float, strata: np.ndarray | None = None
    ) -> "ArrayData":
        """The rows of a stretch of a circle on which all rows lie in random order.

        Its length is 1; positions beyond it count from its start again, so that what one stretch
        leaves out is another. Rows of the same stratum, such as a class, are spread evenly.
        """
        order = np.random.default_rng((seed, self.num_rows)).permutation(self.num_rows)
        if strata is not None:
            order = order[np.argsort(_places_within(strata[order]), kind="stable")]
        rows = order[stretch_of(self.num_rows, begin, end)]
        return ArrayData(self.inputs[rows], self.targets[rows], self.weights[rows])

    def rows(self, seed: int, start: int, count: int) -> Batch:
        """Positions start, ..., start + count - 1 of the endless sequence of shuffled epochs."""
        rows = shuffled_rows(self.num_rows, seed, start, count, self.order)
        return Batch(self.inputs[rows], self.targets[rows], self.weights[rows])

    def batches(
        self, seed: int, step: int, num_steps: int, batch_size: int, part: Part = ALL
    ) -> Batch:
        """The batches of `num_steps` steps from `step` on: every array has a leading step axis."""
        start, count = step * batch_size, num_steps * batch_size
        rows = shuffled_rows(self.num_rows, seed, start, count, self.order)
        rows = rows.reshape(num_steps, part.number, -1)[:, part.index]
        return Batch(self.inputs[rows], self.targets[rows], self.weights[rows])


def padded_batches(rows: Batch, batch_size: int, seed: tuple[int, int]) -> Batch:
    """The rows in random order, each once, in batches with a leading step axis.

    All have `batch_size` rows, whatever the number of rows, for one compilation: what is missing is
    made up by rows of weight zero, and the weights of the others make up for that.
    """
    num_rows = len(rows.inputs)
    order = np.random.default_rng(seed).permutation(num_rows)
    parts = np.array_split(order, -(-num_rows // batch_size))
    chosen = np.array([np.resize(part, batch_size) for part in parts])
    counted = np.array([np.arange(batch_size) < len(part) for part in parts])
    share = np.array([batch_size / len(part) for part in parts])[:, None]
    weights = rows.weights[chosen] * (counted * share).astype(rows.weights.dtype)
    return Batch(rows.inputs[chosen], rows.targets[chosen], weights)


Piece = TypeVar("Piece")
Result = TypeVar("Result")

# Pieces that wait, besides the one that is used.
PIECES_AHEAD = 2


def read_ahead(
    read: Callable[[Piece], Result], pieces: Iterable[Piece]
) -> Generator[Result, None, None]:
    """`read` of each piece, in order, up to `PIECES_AHEAD` before they are asked for.

    What `read` raises is raised here, when its piece is asked for. The thread ends when the
    generator does: close it (`contextlib.closing`) if not all of it is used.
    """
    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(1, thread_name_prefix="dvip-read-ahead") as thread:
        try:
            for piece in pieces:
                waiting.append(thread.submit(read, piece))
                if len(waiting) > PIECES_AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
