"""A training that does not succeed leaves the estimator as it was."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dvip.training import TrainingDiverged

__all__ = ["undone_on_failure"]


@contextmanager
def undone_on_failure(estimator: Any) -> Iterator[None]:
    """Takes back what was set on the estimator if an error, or Ctrl-C, ends the training.

    Scales, classes and model belong together. A training that diverged has set all of them: its
    last finite model is kept.
    """
    before = dict(vars(estimator))
    try:
        yield
    except TrainingDiverged:
        raise
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise
