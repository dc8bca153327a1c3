"""What the neighbours share: the parameters of networks, and how parameters are checked."""

import numbers
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from dvip.estimators.base import DeepEstimator
from dvip.estimators.builder import check_count
from dvip.processes.bnn import check_activation

__all__ = ["NetworkEstimator", "check_among", "check_positive"]


class NetworkEstimator(DeepEstimator):
    """A model of one layer that is made of a network, or of several.

    Subclasses list their parameters, these among them, in an `__init__` that calls `_store`.
    """

    # What estimators of several layers have as parameters.
    n_layers: int | None = 1
    n_units: int | Sequence[int] | None = None
    input_propagation: bool | Sequence[bool] = True
    alpha: float | None = 0.0
    n_training_samples: int | None = None

    hidden: Sequence[int]
    activation: str

    _default_steps: ClassVar[tuple[int, int]] = (10_000, 50_000)
    # Positive numbers among the parameters; a subclass adds its own.
    _positive: ClassVar[tuple[str, ...]] = ()

    @property
    def _without_variance(self) -> bool:
        return True

    def check_parameters(self) -> None:
        """Raises an error, which says what to do, unless the parameters make sense."""
        if "hidden" in self._get_param_names():
            if isinstance(self.hidden, str) or not isinstance(self.hidden, Sequence | np.ndarray):
                raise ValueError(f"hidden={self.hidden!r}: give widths, such as (50, 50).")
            for width in self.hidden:
                check_count("hidden", width)
            if not len(self.hidden):
                raise ValueError("hidden=(): give at least one width, such as (50, 50).")
            check_activation(self.activation)
        for name in self._positive:
            check_positive(name, getattr(self, name))
        super().check_parameters()

    def _widths(self, num_inputs: int, num_units: int) -> tuple[int, ...]:
        """Those of the network, from inputs to units."""
        return (num_inputs, *map(int, self.hidden), num_units)


def check_positive(name: str, value: Any) -> None:
    """Raises an error unless the parameter is a positive number."""
    if not (isinstance(value, numbers.Real) and 0 < float(value) < np.inf):
        raise ValueError(f"{name}={value!r} must be a positive number.")


def check_among(name: str, value: Any, possible: Sequence[str]) -> None:
    """Raises an error unless the parameter is one of these words."""
    if not (isinstance(value, str) and value in possible):
        raise ValueError(f"{name}={value!r} is not known: use one of {', '.join(possible)}.")
