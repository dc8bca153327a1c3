"""Training: the compiled loop, the order of the data, checkpoints, progress."""

from dvip.training.batches import ArrayData
from dvip.training.checkpoints import CheckpointFolder, CheckpointWarning
from dvip.training.loop import Data, TrainingDiverged, TrainingResult, TrainingSettings, train
from dvip.training.placement import LostProcess, StoppedElsewhere, is_first_process, placement
from dvip.training.progress import progress_bar, row_counter
from dvip.training.reading_ahead import read_ahead

__all__ = [
    "ArrayData",
    "CheckpointFolder",
    "CheckpointWarning",
    "Data",
    "LostProcess",
    "StoppedElsewhere",
    "TrainingDiverged",
    "TrainingResult",
    "TrainingSettings",
    "is_first_process",
    "placement",
    "progress_bar",
    "read_ahead",
    "row_counter",
    "train",
]
