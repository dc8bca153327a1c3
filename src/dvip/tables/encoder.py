"""The inputs of a model from the columns of a table: fitted once, stored with the model."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from dvip.tables.cells import TableError, check_present, quoted
from dvip.tables.columns import (
    Column,
    LeftOut,
    NumberColumn,
    Surprises,
    TextColumn,
    choose_column,
    column_from_json,
    column_to_json,
)

__all__ = ["TableEncoder"]

# What a message about unusable columns quotes.
MAX_REASONS = 3


@dataclass(frozen=True)
class TableEncoder:
    """Which columns a model uses and how each becomes numbers; the rest, and why it is left out."""

    columns: tuple[Column, ...]
    targets: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()

    @classmethod
    def fit(
        cls, frame: pd.DataFrame, targets: Iterable[str] = (), drop: Iterable[str] = ()
    ) -> "TableEncoder":
        """Decides on every column of a training table but the targets and those to drop."""
        targets, drop = tuple(targets), tuple(drop)
        check_present([*targets, *drop], list(frame.columns))
        names = [name for name in frame.columns if name not in targets and name not in drop]
        return cls.of_choices([choose_column(name, frame[name]) for name in names], targets)

    @classmethod
    def of_choices(
        cls, choices: Sequence[Column | LeftOut], targets: Iterable[str] = ()
    ) -> "TableEncoder":
        """From what was decided on each column."""
        used = [column for column in choices if not isinstance(column, LeftOut)]
        left_out = [column for column in choices if isinstance(column, LeftOut)]
        if not used:
            reasons = [f"{column.name!r} {column.reason}" for column in left_out[:MAX_REASONS]]
            raise TableError(
                f"The table has no column to predict from: {'; '.join(reasons) or 'none is left'}."
            )
        return cls(tuple(used), tuple(targets), tuple(left_out))

    @classmethod
    def of_numbers(cls, names: Iterable[str], targets: Iterable[str] = ()) -> "TableEncoder":
        """For a model that was fitted to numbers: these columns as they are, without gaps."""
        columns = [NumberColumn(name, fill=None, had_gaps=False) for name in names]
        return cls(tuple(columns), tuple(targets))

    @property
    def feature_names(self) -> list[str]:
        """A name for each input."""
        return [name for column in self.columns for name in column.feature_names]

    @property
    def text_columns(self) -> tuple[str, ...]:
        """The columns that hold categories."""
        return tuple(column.name for column in self.columns if isinstance(column, TextColumn))

    def encode(self, frame: pd.DataFrame, surprises: Surprises | None = None) -> np.ndarray:
        """The inputs, rows x features. Tells `surprises` what the training table did not have."""
        surprises = Surprises() if surprises is None else surprises
        there = set(frame.columns)
        missing = [column.name for column in self.columns if column.name not in there]
        if missing:
            table = frame.attrs.get("file", "The table")
            raise TableError(f"{table} lacks columns that the model needs: {quoted(missing)}.")
        return np.hstack([column.encode(frame[column.name], surprises) for column in self.columns])

    def to_json(self) -> dict[str, Any]:
        """All of it as what JSON can hold."""
        return {
            "columns": [column_to_json(column) for column in self.columns],
            "targets": list(self.targets),
            "left_out": [asdict(column) for column in self.left_out],
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "TableEncoder":
        """The encoder that `to_json` described."""
        try:
            return cls(
                tuple(column_from_json(column) for column in content["columns"]),
                tuple(content["targets"]),
                tuple(LeftOut(**column) for column in content["left_out"]),
            )
        except (KeyError, TypeError) as error:
            raise TableError(f"The description of the table is damaged: {error!r}.") from error
