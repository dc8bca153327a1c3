"""Training: the compiled loop, the order of the data, checkpoints, progress."""

from dvip.training.batches import ArrayData
from dvip.training.checkpoints import CheckpointFolder, CheckpointWarning
from dvip.training.loop import TrainingDiverged, TrainingResult, TrainingSettings, train
from dvip.training.progress import progress_bar

__all__ = [
    "ArrayData",
    "CheckpointFolder",
    "CheckpointWarning",
    "TrainingDiverged",
    "TrainingResult",
    "TrainingSettings",
    "progress_bar",
    "train",
]
