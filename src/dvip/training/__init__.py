"""Training: the compiled loop, the order of the data, checkpoints, progress."""

from dvip.batches import ArrayData, read_ahead
from dvip.training.checkpoints import CheckpointFolder, CheckpointWarning
from dvip.training.diagnostics import Diagnostics
from dvip.training.members import Member, train_members
from dvip.training.placement import LostProcess, StoppedElsewhere, is_first_process, placement
from dvip.training.progress import progress_bar, row_counter
from dvip.training.schedule import Validation
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
    "Diagnostics",
    "LostProcess",
    "Member",
    "Optimiser",
    "StoppedElsewhere",
    "TrainingDiverged",
    "TrainingResult",
    "TrainingSettings",
    "Validation",
    "is_first_process",
    "placement",
    "progress_bar",
    "read_ahead",
    "row_counter",
    "train",
    "train_members",
    "train_once",
]
