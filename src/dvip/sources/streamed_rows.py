"""The order of rows that lie in a file: endless epochs, each row once in each, in another order.

A file is read in pages of neighbouring rows. An epoch visits the pages in a random order; so many
pages at a time make a buffer, and the rows of a buffer come in a random order. All of it is a
function of the seed and the position alone, so that a run can continue anywhere.
"""

import hashlib
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from dvip.batches import ALL, Batch, Part, stretch_of
from dvip.sources.records import RowsContent

__all__ = ["Paging", "ShuffledPages", "StreamedRows"]

# A page is the least that a disk reads well, and there are not more than so many: their order is
# kept in memory.
PAGE_BYTES, MAX_PAGES = 2**12, 2**20
# A buffer holds so many pages; fewer, if they are large. In a sorted file the rows of a page are
# alike, so that the means of neighbouring batches have a correlation of batch size / pages.
BUFFER_PAGES, BUFFER_BYTES, MIN_BUFFER_PAGES = 2**12, 2**25, 64
# Buffers and epochs that are remembered: the next rows may begin where the last rows ended.
REMEMBERED = 2


@dataclass(frozen=True)
class Paging:
    """Rows in pages: all pages but the last have `page_rows` rows."""

    num_rows: int
    page_rows: int
    buffer_pages: int

    @classmethod
    def of(cls, num_rows: int, row_bytes: int) -> "Paging":
        """Pages and buffers for that many rows of that size."""
        page_rows = max(1, PAGE_BYTES // row_bytes, -(-num_rows // MAX_PAGES))
        buffer_pages = min(BUFFER_PAGES, BUFFER_BYTES // (page_rows * row_bytes))
        return cls(num_rows, page_rows, max(MIN_BUFFER_PAGES, buffer_pages))

    @property
    def num_pages(self) -> int:
        """How many pages there are."""
        return -(-self.num_rows // self.page_rows)

    def rows_of(self, page: int) -> tuple[int, int]:
        """The first row of a page, and how many it has."""
        first = page * self.page_rows
        return first, min(self.page_rows, self.num_rows - first)


@dataclass(frozen=True)
class Epoch:
    """The pages of an epoch in their order, and the positions where its buffers end."""

    pages: Int[np.ndarray, " pages"]
    ends: Int[np.ndarray, " buffers"]


class ShuffledPages:
    """The rows of some pages in shuffled order.

    `read` gives the rows of pages, one page after the other.
    """

    def __init__(
        self,
        paging: Paging,
        pages: Int[np.ndarray, " pages"],
        read: Callable[[Int[np.ndarray, " pages"]], np.ndarray],
    ):
        self.paging, self.pages, self.read = paging, pages, read
        self.num_rows = int(self._sizes(pages).sum())
        self._epoch = lru_cache(REMEMBERED)(self._make_epoch)
        self._buffer = lru_cache(REMEMBERED)(self._make_buffer)

    def rows(self, seed: int, start: int, count: int) -> Iterator[np.ndarray]:
        """Positions start, ..., start + count - 1 of the endless sequence, in pieces."""
        while count > 0:
            number, offset = divmod(start, self.num_rows)
            ends = self._epoch(seed, number).ends
            buffer = int(np.searchsorted(ends, offset, side="right"))
            skip = offset - (int(ends[buffer - 1]) if buffer else 0)
            piece = self._buffer(seed, number, buffer)[skip : skip + count]
            yield piece
            start, count = start + len(piece), count - len(piece)

    def _sizes(self, pages: Int[np.ndarray, " pages"]) -> Int[np.ndarray, " pages"]:
        paging = self.paging
        return np.minimum(paging.page_rows, paging.num_rows - pages * paging.page_rows)

    def _make_epoch(self, seed: int, number: int) -> Epoch:
        pages = np.random.default_rng((seed, number)).permutation(self.pages)
        starts = np.arange(0, len(pages), self.paging.buffer_pages)
        return Epoch(pages, np.cumsum(np.add.reduceat(self._sizes(pages), starts)))

    def _make_buffer(self, seed: int, number: int, buffer: int) -> np.ndarray:
        size = self.paging.buffer_pages
        pages = self._epoch(seed, number).pages[buffer * size : (buffer + 1) * size]
        # Read in the order of the file: the disk has less to seek, and the shuffle hides it.
        rows = self.read(np.sort(pages))
        # (A seed that ends in zero is the same as one without it, hence + 1.)
        return rows[np.random.default_rng((seed, number, buffer + 1)).permutation(len(rows))]


class StreamedRows:
    """Rows that are read as they are needed: z = (value - mean) / scale, within ± `limit`.

    `mean` and `scale` are those of inputs and targets together, in the units of the source. With
    `classes`, the target is the place of the label among them. The file stays open: it may be
    deleted meanwhile.
    """

    def __init__(
        self,
        path: Path,
        content: RowsContent,
        mean: Float[np.ndarray, " columns"],
        scale: Float[np.ndarray, " columns"],
        limit: float,
        classes: np.ndarray | None = None,
    ):
        self.path, self.content = path, content
        self.mean, self.scale, self.limit, self.classes = mean, scale, limit, classes
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115 (closed by `close`)
        self._reading = Lock()  # trainings side by side share the file
        self._paging = Paging.of(content.num_rows, content.row_bytes)
        # Those of its pages that this is about; all, unless it is a stretch.
        self._pages = np.arange(self._paging.num_pages)
        self._orders: dict[Part, ShuffledPages] = {}
        # The class of each label, by the number that the label has in the file.
        labels: Any = content.labels
        places = None if classes is None else np.searchsorted(classes, labels)
        self._codes = None if places is None else places.astype(content.dtype)
        self._factor = (content.unit / scale).astype(content.dtype)
        self._offset = ((content.shift - mean) / scale).astype(content.dtype)

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def stretch(
        self, seed: int, begin: float, end: float, strata: np.ndarray | None = None
    ) -> "StreamedRows":
        """The rows of a stretch of a circle of length 1 on which all pages lie in random order."""
        assert strata is None  # nothing is known of the rows of a page
        order = np.random.default_rng((seed, self.num_rows)).permutation(self._paging.num_pages)
        chosen = copy(self)
        chosen._pages, chosen._orders = np.sort(order[stretch_of(len(order), begin, end)]), {}
        return chosen

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        if not len(self._pages):
            return 0
        _, last = self._paging.rows_of(int(self._pages[-1]))
        return (len(self._pages) - 1) * self._paging.page_rows + last

    @property
    def num_columns(self) -> int:
        """How many numbers a row has, inputs, targets and weight together."""
        return self.content.num_columns

    def fingerprint(self) -> str:
        """Other rows have another one, also in another order or on another scale."""
        content = self.content
        labels = None if content.labels is None else content.labels.tolist()
        known = [content.checksum, self.num_rows, content.dtype, labels]
        numbers = [content.statistics.mean, content.statistics.squares, self.mean, self.scale]
        digest = hashlib.sha256(str(known).encode())
        for array in numbers:
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def batches(
        self, seed: int, step: int, num_steps: int, batch_size: int, part: Part = ALL
    ) -> Batch:
        """The batches of `num_steps` steps from `step` on: every array has a leading step axis.

        Of several parts, each has pages of its own, which no other process reads.
        """
        size = batch_size // part.number
        rows = self.rows(seed, step * size, num_steps * size, part)
        shape = (num_steps, size)
        return Batch(
            rows.inputs.reshape(*shape, -1),
            rows.targets.reshape(*shape, -1),
            rows.weights.reshape(shape),
        )

    def rows(self, seed: int, start: int, count: int, part: Part = ALL) -> Batch:
        """Positions start, ..., start + count - 1 of the endless sequence of shuffled epochs."""
        records: Any = np.concatenate(list(self._order(part).rows(seed, start, count)))
        values: Any = records[:, :-1] * self._factor + self._offset
        values = np.clip(values, -self.limit, self.limit)
        inputs: Any = values[:, : self.content.num_inputs]
        targets: Any = values[:, self.content.num_inputs :]
        if self._codes is not None:
            targets = self._codes[records[:, -2].astype(int)][:, None]
        return Batch(inputs, targets, records[:, -1])

    def _order(self, part: Part) -> ShuffledPages:
        """The order of the pages of a part: every n-th page of n parts."""
        if part not in self._orders:
            pages = self._pages[part.index :: part.number]
            if not len(pages):
                raise ValueError(
                    f"{self.num_rows:,} rows are too few to be shared by {part.number} processes "
                    "that stream: use fewer processes, or read the table into memory."
                )
            self._orders[part] = ShuffledPages(self._paging, pages, self._read_pages)
        return self._orders[part]

    def _read_pages(self, pages: Int[np.ndarray, " pages"]) -> np.ndarray:
        """The records of these pages, by reading: pages of a mapping would count as memory."""
        paging, content = self._paging, self.content
        extents = [paging.rows_of(int(page)) for page in pages]
        records = np.empty((sum(rows for _, rows in extents), content.num_columns), content.dtype)
        end = 0
        for first, rows in extents:
            target = records[end : end + rows].data.cast("B")
            with self._reading:
                self._file.seek(first * content.row_bytes)
                length = self._file.readinto(target)
            if length != len(target):
                raise OSError(f"{self.path} became shorter while it was read: start again.")
            end += rows
        return records
