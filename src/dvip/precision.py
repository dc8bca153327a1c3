"""Single or double precision, for the computations of one model and not for the whole process."""

from contextlib import AbstractContextManager

import jax
import numpy as np

__all__ = ["PRECISIONS", "precision"]

PRECISIONS = ("float32", "float64")


def precision(dtype: str | np.dtype) -> AbstractContextManager:
    """Within it, new JAX arrays have this floating-point type. It holds for this thread alone."""
    return jax.enable_x64(np.dtype(dtype) == np.float64)
