"""What a training needs to go on from a checkpoint: its folder, its seed, what it is of."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from dvip.estimators.descriptions import encode_parameters
from dvip.estimators.serialisation import encode_attributes
from dvip.training import CheckpointFolder, is_first_process, placement

__all__ = ["checkpoint_folder", "training_identity", "training_seed"]

# Parameters that a training does not depend on, and those that its settings and seed stand for.
NOT_OF_THE_IDENTITY = (
    "verbose",
    "inference",  # the settings of a sampler are others
    "n_predictive_samples",
    "random_state",
    "max_iter",
    "batch_size",
    "learning_rate",
    "alpha",
    "n_training_samples",
    "max_seconds",
    "n_chains",
    "calibrate",
    "validation_fraction",
)
# Parameters that earlier versions did not have, and what they did.
NEW_PARAMETERS = {"features": "inducing", "posterior": "gaussian"}
# Attributes that say how the data were made numbers of the model's scale.
PREPARATION = ("input_scaler_", "target_scaler_", "target_shape_", "input_shape_", "classes_")


@contextmanager
def checkpoint_folder(
    checkpoint_dir: str | Path | None, checkpoint_every: int | None, resume: bool
) -> Iterator[CheckpointFolder | None]:
    """Where the checkpoints of a `fit` go, if it has any; the first process writes them.

    No other training can use the folder meanwhile.
    """
    if checkpoint_dir is None and (checkpoint_every is not None or resume):
        raise ValueError("checkpoint_every and resume need the folder, checkpoint_dir.")
    if checkpoint_dir is None or not is_first_process():
        yield None
        return
    with CheckpointFolder.opened(checkpoint_dir, checkpoint_every, resume=resume) as folder:
        yield folder


def training_seed(random_state: Any, checkpoints: CheckpointFolder | None) -> int:
    """The seed of a training; that of the one to go on with, where any will do."""
    seed = check_random_state(random_state).randint(np.iinfo(np.int32).max)
    if random_state is None and checkpoints is not None and checkpoints.seed is not None:
        seed = checkpoints.seed
    return int(placement().of_first_process(np.int32(seed)))


def training_identity(estimator: Any, fingerprint: str) -> dict[str, Any]:
    """What is trained on which data, as its checkpoints state it.

    The data are those of the fingerprint, and how they were scaled or encoded before.
    """
    parameters = encode_parameters(estimator)
    of_the_model = {
        name: value
        for name, value in parameters.items()
        if name not in NOT_OF_THE_IDENTITY and value != NEW_PARAMETERS.get(name)
    }
    arrays: dict[str, np.ndarray] = {}
    preparation = encode_attributes(estimator, PREPARATION, arrays)
    digest = hashlib.sha256(f"{fingerprint}{json.dumps(preparation)}".encode())
    for array in arrays.values():
        digest.update(array.tobytes())
    return {
        "estimator": type(estimator).__name__,
        **of_the_model,
        "data": digest.hexdigest(),
    }
