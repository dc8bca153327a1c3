"""Whole functions drawn from a posterior, as functions of scaled inputs, with their derivatives.

Whatever a model is made of, a draw answers two questions: its values at some rows, and how they
change along each input.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from jaxtyping import Float

__all__ = ["Draws", "Mapped", "Scaled", "Shifted", "Together"]

Rows = Float[np.ndarray, "rows inputs"]
Values = Float[np.ndarray, "functions rows outputs"]
Gradients = Float[np.ndarray, "functions rows outputs inputs"]

# By how much a value is moved to find the slope of a map.
STEP = 1e-5


class Draws(Protocol):
    """Some functions: the same at any inputs, call after call."""

    def __call__(self, inputs: Rows) -> Values:
        """Their values."""

    def gradient(self, inputs: Rows) -> Gradients:
        """The derivatives of the values by each of a row's inputs."""


@dataclass(frozen=True)
class Together:
    """The functions of several models as one; each says which of all its own are."""

    number: int
    parts: Sequence[tuple[np.ndarray, Draws]]

    def __call__(self, inputs: Rows) -> Values:
        """Of all of them."""
        return self._joined(lambda draws: draws(inputs))

    def gradient(self, inputs: Rows) -> Gradients:
        """Of all of them."""
        return self._joined(lambda draws: draws.gradient(inputs))

    def _joined(self, ask: Callable[[Draws], np.ndarray]) -> np.ndarray:
        answers = [(which, ask(draws)) for which, draws in self.parts]
        first = answers[0][1]
        joined = np.empty((self.number, *first.shape[1:]), first.dtype)
        for which, answer in answers:
            joined[which] = answer
        return joined


@dataclass(frozen=True)
class Scaled:
    """Functions in other units."""

    draws: Draws
    offset: Float[np.ndarray, " outputs"]
    scale: Float[np.ndarray, " outputs"]

    def __call__(self, inputs: Rows) -> Values:
        """The values in these units."""
        return self.draws(inputs) * self.scale + self.offset

    def gradient(self, inputs: Rows) -> Gradients:
        """Their derivatives."""
        return self.draws.gradient(inputs) * self.scale[:, None]


@dataclass(frozen=True)
class Mapped:
    """Functions whose values go through a map of each number, such as an exponential.

    Of more units than outputs, the first count.
    """

    draws: Draws
    map: Callable[[Values], Values]

    def __call__(self, inputs: Rows) -> Values:
        """The mapped values."""
        return self.map(self.draws(inputs))

    def gradient(self, inputs: Rows) -> Gradients:
        """By the chain rule; the slope of the map by differences, which are exact for a line."""
        values = np.asarray(self.draws(inputs), dtype=float)
        slopes = (self.map(values + STEP) - self.map(values - STEP)) / (2 * STEP)
        return slopes[..., None] * self.draws.gradient(inputs)[:, :, : slopes.shape[-1]]


@dataclass(frozen=True)
class Shifted:
    """Functions that depart from those drawn by a common curve, each by a height of its own."""

    draws: Draws
    heights: Float[np.ndarray, "functions 1 outputs"]
    curve: Callable[[Rows], Float[np.ndarray, " rows"]]
    slope: Callable[[Rows], Float[np.ndarray, "rows inputs"]]

    def __call__(self, inputs: Rows) -> Values:
        """The values, shifted."""
        return self.draws(inputs) + self.heights * self.curve(inputs)[:, None]

    def gradient(self, inputs: Rows) -> Gradients:
        """Of values and curve together."""
        return self.draws.gradient(inputs) + self.heights[..., None] * self.slope(inputs)[:, None]
