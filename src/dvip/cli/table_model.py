"""A saved model together with how it reads tables."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from dvip.cli.errors import warn
from dvip.estimators.loading import load_with_table
from dvip.tables import Surprises, TableEncoder, TableError, read_blocks

__all__ = ["TableModel", "open_model"]


@dataclass(frozen=True)
class TableModel:
    """A model that predicts from tables."""

    estimator: Any
    encoder: TableEncoder

    @property
    def is_classifier(self) -> bool:
        """Whether the model predicts labels."""
        return hasattr(self.estimator, "classes_")

    def blocks(self, table: Path, rows: range | None = None) -> Iterator[tuple[pd.DataFrame, Any]]:
        """Each block of a table and its inputs; at the end, warns of what was unexpected.

        With `rows`, only those.
        """
        text_columns = self.encoder.text_columns
        if self.is_classifier and self.estimator.classes_.dtype.kind in "OUT":
            text_columns += self.encoder.targets
        surprises = Surprises()
        start = 0  # of a block, over all files of a folder
        for block in read_blocks(table, text_columns):
            first, start = start, start + len(block)
            if rows is not None:
                block = block[max(0, rows.start - first) : max(0, rows.stop - first)]
            if len(block):
                yield block, self._inputs(self.encoder.encode(block, surprises))
        for line in surprises.lines():
            warn(line)

    def _inputs(self, encoded: Any) -> Any:
        # An estimator that was fitted to named columns wants them named.
        names = getattr(self.estimator, "feature_names_in_", None)
        return encoded if names is None else pd.DataFrame(encoded, columns=names)


def open_model(path: Path, table: Path, targets: Sequence[str] = ()) -> TableModel:
    """The model at `path`, to be used on `table`.

    A model that Python code saved does not say how it reads tables: then the names of its inputs
    count, or without names the table's numeric columns, if they are as many as the inputs.
    """
    estimator, content = load_with_table(path)
    if content is not None:
        encoder = TableEncoder.from_json(content)
        return TableModel(estimator, encoder)
    names = getattr(estimator, "feature_names_in_", None)
    if names is None:
        names = _numeric_columns(table, targets)
        if len(names) != estimator.n_features_in_:
            raise TableError(
                f"{path} was saved without column names and has {estimator.n_features_in_} inputs, "
                f"but {table} has {len(names)} numeric columns: fit it to a DataFrame, or remove "
                "columns."
            )
    return TableModel(estimator, TableEncoder.of_numbers(map(str, names), targets))


def _numeric_columns(table: Path, targets: Sequence[str]) -> list[str]:
    block = next(read_blocks(table))
    numeric = block.select_dtypes(["number", "bool"])
    return [str(name) for name in numeric.columns if name not in targets]
