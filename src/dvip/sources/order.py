"""The order of rows that lie in a file: endless epochs, each row once in each, in another order.

A file is read in pages of neighbouring rows. An epoch visits the pages in a random order; so many
pages at a time make a buffer, and the rows of a buffer come in a random order. All of it is a
function of the seed and the position alone, so that a run can continue anywhere.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Int

__all__ = ["Paging", "ShuffledPages"]

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
