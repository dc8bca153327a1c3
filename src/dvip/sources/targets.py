"""Targets of a stream as numbers: checked, or labels numbered as they appear."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from dvip.sources.source import Block

__all__ = ["LabelTargets", "NumberTargets", "Targets"]

# Distinct labels, beyond which they are no classes but a mistake.
MAX_LABELS = 10_000


@dataclass
class NumberTargets:
    """Targets of a regression, rows x outputs."""

    kind: ClassVar[str] = "numbers"

    def encode(self, block: Block) -> np.ndarray:
        """The numbers of a block, as they are."""
        targets = block.targets.reshape(len(block), -1)
        try:
            return targets.astype(np.float64)
        except (TypeError, ValueError):
            for row, values in enumerate(targets):
                _check_number(values, block, row)
            raise

    def finish(self) -> np.ndarray | None:
        """Nothing to translate."""
        return None


@dataclass
class LabelTargets:
    """Labels of a classification: each is the number of labels that appeared before it."""

    kind: ClassVar[str] = "labels"
    codes: dict[Any, int] = field(default_factory=dict)

    def encode(self, block: Block) -> np.ndarray:
        """The codes of a block, rows x 1."""
        labels = block.targets.reshape(-1)
        if len(labels) != len(block):
            raise ValueError(f"Labels have the shape {block.targets.shape}, expected one a row.")
        if labels.dtype.kind in "mM":
            raise ValueError("Labels of a stream cannot be times: write them as text.")
        try:
            distinct, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
        except TypeError:
            raise ValueError(
                f"Labels before {block.row_name(len(block) - 1)} are of types that do not compare, "
                "such as numbers and text, or missing."
            ) from None
        for label, position in zip(distinct.tolist(), first, strict=True):
            if label not in self.codes:
                self._check(label, block.row_name(int(position)))
                self.codes[label] = len(self.codes)
        codes = np.array([self.codes[label] for label in distinct.tolist()], dtype=np.float64)
        return codes[inverse.reshape(-1)][:, None]

    def _check(self, label: Any, row: str) -> None:
        known = next(iter(self.codes), label)
        if isinstance(label, float) and label != np.round(label):
            raise ValueError(
                f"Unknown label type: {row} has {label}, which is no label. Use a regressor for "
                "numbers, or fill what is missing."
            )
        if isinstance(label, str) != isinstance(known, str):
            raise ValueError(f"Labels are of several types: {row} has {label!r} after {known!r}.")
        if len(self.codes) == MAX_LABELS:
            raise ValueError(f"There are more than {MAX_LABELS:,} different labels.")

    def finish(self) -> np.ndarray | None:
        """The labels, in the order of their codes."""
        return np.array(list(self.codes))


Targets = NumberTargets | LabelTargets


def _check_number(values: np.ndarray, block: Block, row: int) -> None:
    try:
        values.astype(np.float64)
    except (TypeError, ValueError):
        shown = ", ".join(repr(value) for value in values.tolist())
        raise ValueError(f"The target of {block.row_name(row)} is no number: {shown}.") from None
