"""Training: the compiled loop, the order of the data, progress."""

from dvip.training.batches import ArrayData
from dvip.training.loop import Data, TrainingDiverged, TrainingResult, TrainingSettings, train
from dvip.training.progress import progress_bar, row_counter
from dvip.training.reading_ahead import read_ahead

__all__ = [
    "ArrayData",
    "Data",
    "TrainingDiverged",
    "TrainingResult",
    "TrainingSettings",
    "progress_bar",
    "read_ahead",
    "row_counter",
    "train",
]
