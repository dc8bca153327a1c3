"""Training: the compiled loop, the order of the data, checkpoints, progress."""

from dvip.batches import ArrayData, read_ahead
from dvip.training.checkpoints import CheckpointFolder, CheckpointWarning
from dvip.training.placement import LostProcess, StoppedElsewhere, is_first_process, placement
from dvip.training.progress import progress_bar, row_counter
from dvip.training.trainer import Data, TrainingDiverged, TrainingResult, TrainingSettings, train

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
