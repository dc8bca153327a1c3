"""What is known of a dataset: its shape, where it is public, its files, and how to read them."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from dvip.data.downloading import DownloadError, download
from dvip.data.errors import DataError, MissingDataError
from dvip.data.files import DataFile
from dvip.data.locating import data_folders, find

__all__ = ["Dataset", "Find", "Split"]


class Split(NamedTuple):
    """Rows to train on and rows to test on: inputs (rows, columns) and one target a row.

    Targets are floats for a regression and integer labels for a classification.
    """

    inputs: np.ndarray
    targets: np.ndarray
    test_inputs: np.ndarray
    test_targets: np.ndarray


# From the path of a file below the data folder to where it is on this machine.
Find = Callable[[str], Path]


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A dataset by name.

    `num_splits` is how many splits into training and test rows are published; 1 where there is one
    test part, which then every split number gives, so that runs differ by their seeds alone; None
    where the number of a split seeds a random one. `parts` are the files that are looked for
    and `read` makes a `Split` of them; it asks for the files that it needs.
    """

    name: str
    task: Literal["regression", "classification"]
    rows: int
    num_inputs: int
    num_splits: int | None
    address: str
    licence: str
    parts: tuple[DataFile, ...]
    read: Callable[[Find, int], Split]

    @property
    def files(self) -> tuple[str, ...]:
        """The paths of the files, below the data folder."""
        return tuple(part.path for part in self.parts)

    def found(self, data: Path | None = None) -> dict[str, Path | None]:
        """Where each file is on this machine; None where it is not."""
        folders = data_folders(data)
        return {part.path: find(part, folders) for part in self.parts}

    def load(self, split: int = 0, data: Path | None = None) -> Split:
        """The rows of a split. Files that are in none of the folders are downloaded."""
        self._check_split(split)
        loaded = self.read(partial(self._locate, folders=data_folders(data)), split)
        self._check_shapes(loaded)
        return loaded

    def _locate(self, path: str, *, folders: list[Path]) -> Path:
        part = next(part for part in self.parts if part.path == path)
        place = find(part, folders)
        if place is not None:
            return place
        looked = f"{self.name}: {path} is not in {' or '.join(map(str, folders))}"
        by_hand = f"by hand as {folders[0] / path}"
        if not part.addresses:
            raise MissingDataError(
                f"{looked}, and cannot be downloaded by itself: put it there {by_hand}. "
                f"Its source is {self.address}."
            )
        try:
            return download(part, self.parts)
        except DownloadError as error:
            raise MissingDataError(
                f"{looked}, and cannot be downloaded from {error}. Put it there {by_hand}."
            ) from error

    def _check_split(self, split: int) -> None:
        if split < 0:
            raise DataError(f"{self.name} has no split {split}: splits are counted from 0.")
        if self.num_splits not in (None, 1) and split >= self.num_splits:
            raise DataError(
                f"{self.name} has no split {split}: its published splits are 0 to "
                f"{self.num_splits - 1}."
            )

    def _check_shapes(self, split: Split) -> None:
        for part, inputs, targets in (
            ("training", split.inputs, split.targets),
            ("test", split.test_inputs, split.test_targets),
        ):
            if inputs.shape != (len(targets), self.num_inputs):
                raise DataError(
                    f"The {part} inputs of {self.name} have {inputs.shape[1]} columns, expected "
                    f"are {self.num_inputs}: {self._suspects()}"
                )
            if not len(targets):
                raise DataError(f"{self.name} has no {part} rows: {self._suspects()}")
            for values in (inputs, targets):
                # The minimum is NaN if any value is: no second array of the size of the data.
                if not np.isfinite(values.min()) or not np.isfinite(values.max()):
                    raise DataError(
                        f"The {part} rows of {self.name} have values that are missing or "
                        f"infinite: {self._suspects()}"
                    )

    def _suspects(self) -> str:
        return f"check {self.files[0]}{' and its neighbours' if len(self.files) > 1 else ''}."
