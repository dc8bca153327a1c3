"""Batches of scaled rows from a file of records: what training reads when it streams."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from dvip.objectives import Batch
from dvip.sources.order import Paging, ShuffledPages
from dvip.sources.writing import RowsContent
from dvip.training.batches import ALL, Share

__all__ = ["StreamedRows"]


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
        self._paging = Paging.of(content.num_rows, content.row_bytes)
        self._orders: dict[Share, ShuffledPages] = {}
        # The class of each label, by the number that the label has in the file.
        labels: Any = content.labels
        places = None if classes is None else np.searchsorted(classes, labels)
        self._codes = None if places is None else places.astype(content.dtype)
        self._factor = (content.unit / scale).astype(content.dtype)
        self._offset = ((content.shift - mean) / scale).astype(content.dtype)

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return self.content.num_rows

    @property
    def num_columns(self) -> int:
        """How many numbers a row has, inputs, targets and weight together."""
        return self.content.num_columns

    def fingerprint(self) -> str:
        """Other rows have another one, also in another order or on another scale."""
        content = self.content
        labels = None if content.labels is None else content.labels.tolist()
        known = [content.checksum, content.num_rows, content.dtype, labels]
        numbers = [content.statistics.mean, content.statistics.squares, self.mean, self.scale]
        digest = hashlib.sha256(str(known).encode())
        for array in numbers:
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def batches(
        self, seed: int, step: int, num_steps: int, batch_size: int, share: Share = ALL
    ) -> Batch:
        """The batches of `num_steps` steps from `step` on: every array has a leading step axis.

        Of several shares, each has pages of its own, which no other process reads.
        """
        size = batch_size // share.parts
        rows = self.rows(seed, step * size, num_steps * size, share)
        shape = (num_steps, size)
        return Batch(
            rows.inputs.reshape(*shape, -1),
            rows.targets.reshape(*shape, -1),
            rows.weights.reshape(shape),
        )

    def rows(self, seed: int, start: int, count: int, share: Share = ALL) -> Batch:
        """Positions start, ..., start + count - 1 of the endless sequence of shuffled epochs."""
        records: Any = np.concatenate(list(self._order(share).rows(seed, start, count)))
        values: Any = records[:, :-1] * self._factor + self._offset
        values = np.clip(values, -self.limit, self.limit)
        inputs: Any = values[:, : self.content.num_inputs]
        targets: Any = values[:, self.content.num_inputs :]
        if self._codes is not None:
            targets = self._codes[records[:, -2].astype(int)][:, None]
        return Batch(inputs, targets, records[:, -1])

    def _order(self, share: Share) -> ShuffledPages:
        """The order of the pages of a share: every n-th page of n shares."""
        if share not in self._orders:
            pages = np.arange(share.part, self._paging.num_pages, share.parts)
            if not len(pages):
                raise ValueError(
                    f"{self.num_rows:,} rows are too few to be shared by {share.parts} processes "
                    "that stream: use fewer processes, or read the table into memory."
                )
            self._orders[share] = ShuffledPages(self._paging, pages, self._read_pages)
        return self._orders[share]

    def _read_pages(self, pages: Int[np.ndarray, " pages"]) -> np.ndarray:
        """The records of these pages, by reading: pages of a mapping would count as memory."""
        paging, content = self._paging, self.content
        extents = [paging.rows_of(int(page)) for page in pages]
        records = np.empty((sum(rows for _, rows in extents), content.num_columns), content.dtype)
        end = 0
        for first, rows in extents:
            target = records[end : end + rows].data.cast("B")
            self._file.seek(first * content.row_bytes)
            if self._file.readinto(target) != len(target):
                raise OSError(f"{self.path} became shorter while it was read: start again.")
            end += rows
        return records
