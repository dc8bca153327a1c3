"""Training: the compiled loop, the order of the data, checkpoints, progress."""

from dvip.batches import ArrayData, read_ahead
from dvip.training.checkpoints import CheckpointFolder, CheckpointWarning
from dvip.training.placement import LostProcess, StoppedElsewhere, is_first_process, placement
from dvip.training.progress import progress_bar, row_counter
from dvip.training.trainer import (
    Data,
    Optimiser,
    TrainingDiverged,
    TrainingResult,
    TrainingSettings,
    train,
    train_once,
)

__all__ = [
    "ArrayData",
    "CheckpointFolder",
    "CheckpointWarning",
    "Data",
    "LostProcess",
    "Optimiser",
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
    "train_once",
]
