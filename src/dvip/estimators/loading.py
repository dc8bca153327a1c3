"""`load`: the estimator that `save` wrote."""

from pathlib import Path
from typing import Any

from dvip.estimators.deep_gp import DeepGPClassifier, DeepGPRegressor
from dvip.estimators.implicit_processes import DVIPClassifier, DVIPRegressor, SIPRegressor
from dvip.estimators.serialisation import restore_estimator

__all__ = ["ESTIMATORS", "load", "load_with_table"]

_CLASSES = (DVIPRegressor, DVIPClassifier, DeepGPRegressor, DeepGPClassifier, SIPRegressor)
ESTIMATORS = {cls.__name__: cls for cls in _CLASSES}


def load(path: str | Path, *, prior: Any = None, likelihood: Any = None) -> Any:
    """The model that was saved at `path`. Nothing is executed.

    `prior` and `likelihood` are needed only where the model has one of your own class: a file
    cannot hold your code. They must be as those that the model was trained with.
    """
    return load_with_table(path, prior=prior, likelihood=likelihood)[0]


def load_with_table(path: str | Path, **own_objects: Any) -> tuple[Any, Any]:
    """The model at `path`, and how it encodes tables if the command line fitted it."""
    return restore_estimator(path, ESTIMATORS, own_objects)
