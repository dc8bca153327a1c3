"""Training: the compiled loop, the order of the data, checkpoints, progress."""

from dvip.training.batches import ArrayData
from dvip.training.checkpoints import CheckpointFolder, CheckpointWarning
from dvip.training.loop import TrainingDiverged, TrainingResult, TrainingSettings, train
from dvip.training.placement import LostProcess, StoppedElsewhere, is_first_process, placement
from dvip.training.progress import progress_bar

__all__ = [
    "ArrayData",
    "CheckpointFolder",
    "CheckpointWarning",
    "LostProcess",
    "StoppedElsewhere",
    "TrainingDiverged",
    "TrainingResult",
    "TrainingSettings",
    "is_first_process",
    "placement",
    "progress_bar",
    "train",
]
