"""Data that need not fit in memory: sources of rows, and batches of them for training."""

from dvip.sources.arrays import ArraySource
from dvip.sources.cache import cached_rows
from dvip.sources.opening import open_source
from dvip.sources.rows import StreamedRows
from dvip.sources.source import Block, Source
from dvip.sources.statistics import ColumnStatistics
from dvip.sources.table import TableSource
from dvip.sources.targets import LabelTargets, NumberTargets

__all__ = [
    "ArraySource",
    "Block",
    "ColumnStatistics",
    "LabelTargets",
    "NumberTargets",
    "Source",
    "StreamedRows",
    "TableSource",
    "cached_rows",
    "open_source",
]
