"""Inputs of natural shape: images and sequences as the rows of a table."""

import math
from typing import Any

import numpy as np

from dvip.processes import ImplicitProcess

__all__ = ["as_rows"]


def as_rows(
    X: Any, process: ImplicitProcess | None, estimator: str
) -> tuple[Any, tuple[int, ...] | None]:
    """X with each image or sequence as one row, and the shape that it had.

    What has two dimensions or fewer stays as it is, without a shape. More are an error unless the
    process makes use of them.
    """
    structured = process is not None and process.structured
    if structured and not hasattr(X, "shape"):
        X = np.asarray(X)
    num_rows, *shape = getattr(X, "shape", ()) or (0,)
    if len(shape) < 2:
        return X, None
    if not structured:
        raise ValueError(
            f"X has {1 + len(shape)} dimensions, but {estimator} expected <= 2, (rows, inputs), "
            'with this prior. For images use prior="conv", for sequences prior="recurrent", or '
            "make each row flat."
        )
    return np.asarray(X).reshape(num_rows, math.prod(shape)), tuple(shape)
