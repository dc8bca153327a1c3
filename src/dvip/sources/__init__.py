"""Data that need not fit in memory: sources of rows, and batches of them for training."""

from dvip.sources.paths import open_source
from dvip.sources.record_cache import cached_rows
from dvip.sources.records import ColumnStatistics, LabelTargets, NumberTargets
from dvip.sources.source import ArraySource, Block, Source, TableSource
from dvip.sources.streamed_rows import StreamedRows

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
