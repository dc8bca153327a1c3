"""Rows split off for testing, by their number alone: no list of rows has to be kept."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from dvip.tables.cells import TableError, check_present, quoted
from dvip.tables.columns import ColumnSurvey
from dvip.tables.encoder import TableEncoder
from dvip.tables.readers import is_parquet, read_blocks
from dvip.tables.targets import TargetSurvey, with_targets

__all__ = ["RowSplit", "TableSurvey", "row_ranks", "survey_table"]

_GOLDEN = 0x9E3779B97F4A7C15


def row_ranks(rows: np.ndarray, seed: int) -> np.ndarray:
    """A hash of each row's number, uniform over the unsigned 64-bit numbers.

    The finaliser of the generator SplitMix64 at the positions of the rows.
    """
    start = np.random.SeedSequence(seed).generate_state(1, np.uint64)[0]
    with np.errstate(over="ignore"):
        bits = start + (rows.astype(np.uint64) + np.uint64(1)) * np.uint64(_GOLDEN)
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


@dataclass(frozen=True)
class RowSplit:
    """Which rows are for testing: each with probability `fraction`; None is no row."""

    fraction: float | None
    seed: int

    def is_test(self, rows: np.ndarray) -> np.ndarray:
        """Whether each row, given by its number in the table, is for testing."""
        if self.fraction is None:
            return np.zeros(len(rows), dtype=bool)
        return row_ranks(rows, self.seed) < np.uint64(self.fraction * 2.0**64)


# Medians are those of a random sample of the rows where there are more than so many rows, or so
# many numbers in them.
MAX_SAMPLED_ROWS, MAX_SAMPLED_NUMBERS = 100_000, 2**22
LAST_RANK = 2**64 - 1


@dataclass
class TableSurvey:
    """What was seen of a table so far; of its columns, in the rows that are for training."""

    targets: tuple[str, ...]
    drop: tuple[str, ...]
    split: RowSplit
    text_columns: tuple[str, ...] = ()
    num_rows: int = 0
    num_labelled: int = 0
    num_test: int = 0
    columns: dict[str, ColumnSurvey] = field(default_factory=dict)
    # Of the first target, over all rows and over those for training.
    target: TargetSurvey = field(default_factory=TargetSurvey)
    training_target: TargetSurvey = field(default_factory=TargetSurvey)
    _max_rank: int = LAST_RANK
    _num_sampled: int = 0

    def add(self, frame: pd.DataFrame) -> None:
        """Looks at the next block."""
        numbers = pd.Series(np.arange(self.num_rows, self.num_rows + len(frame)), frame.index)
        self._check_names(frame)
        self.num_rows += len(frame)
        frame = with_targets(frame, self.targets)
        rows = numbers[frame.index].to_numpy()
        test = self.split.is_test(rows)
        self.num_labelled += len(frame)
        self.num_test += int(test.sum())
        self.target.add(frame[self.targets[0]])
        training, ranks = frame[~test], row_ranks(rows[~test], self.split.seed + 1)
        self.training_target.add(training[self.targets[0]])
        for name, survey in self.columns.items():
            survey.add(training[name], ranks, self._max_rank)
        self._num_sampled += int((ranks <= self._max_rank).sum())
        self._thin()

    def _check_names(self, frame: pd.DataFrame) -> None:
        names = list(frame.columns)
        if not self.columns:
            check_present([*self.targets, *self.drop], names)
            used = [name for name in names if name not in (*self.targets, *self.drop)]
            self.columns = {name: ColumnSurvey(name) for name in used}
            return
        lacking = [name for name in (*self.targets, *self.columns) if name not in set(names)]
        if lacking:
            raise TableError(
                f"{frame.attrs.get('file')} lacks columns of the files before it: {quoted(lacking)}"
            )

    def _thin(self) -> None:
        """Halves the sample for the medians while it is too large."""
        enough = min(MAX_SAMPLED_ROWS, max(1_000, MAX_SAMPLED_NUMBERS // max(1, len(self.columns))))
        while self._num_sampled > 2 * enough:
            self._max_rank //= 2
            self._num_sampled //= 2
            for survey in self.columns.values():
                survey.thin(self._max_rank)

    @property
    def num_training(self) -> int:
        """How many rows there are to train on."""
        return self.num_labelled - self.num_test

    def mixed_columns(self) -> tuple[str, ...]:
        """Columns that were numbers in some blocks and text in others."""
        mixed = [name for name, survey in self.columns.items() if survey.is_mixed]
        target = self.targets[:1] if self.target.is_mixed else ()
        return (*mixed, *target)

    def encoder(self) -> TableEncoder:
        """How to encode the table."""
        choices = [survey.choose() for survey in self.columns.values()]
        return TableEncoder.of_choices(choices, self.targets)


def survey_table(
    path: Path,
    targets: Sequence[str],
    drop: Sequence[str],
    split: RowSplit,
    on_rows: Callable[[int], None] = lambda rows: None,
) -> TableSurvey:
    """Surveys a table in one pass; in two, where the blocks of a CSV file disagree on a type.

    Then the columns in question are read as the text that is there.
    """
    text_columns: tuple[str, ...] = ()
    while True:
        survey = TableSurvey(tuple(targets), tuple(drop), split, text_columns)
        for frame in read_blocks(path, text_columns):
            survey.add(frame)
            on_rows(len(frame))
        if not survey.num_labelled:
            raise TableError(f"No row of {path} has a value in {', '.join(targets)}.")
        mixed = survey.mixed_columns()
        if is_parquet(path) or not set(mixed) - set(text_columns):
            return survey
        text_columns = tuple({*text_columns, *mixed})
