"""When a training ends: its cycles, the scores of left-out rows, and the time that there is.

Within a cycle the learning rate falls to zero along half a cosine. Without left-out rows there is
one. With them, each cycle is twice as long as the one before it, the parameters of the best score
are kept, and a cycle that brings nothing is the last.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dvip.batches import Batch
from dvip.network import SampleNoise
from dvip.objectives import DeepModel, data_fit
from dvip.runtime import random_key

__all__ = ["Clock", "Schedule", "Validation"]

# A cycle that would be shorter than this share of its length is not begun.
LEAST_SHARE = 0.25

# Left-out rows that a score is of, at most, and the samples sent through the network for each.
MAX_ROWS, NUM_SAMPLES = 2_000, 16
ROWS_AT_ONCE = 100
# The share of the time of training that scores may take, a row that is trained on being worth so
# many that are scored.
MAX_SHARE, BACKWARD = 0.05, 3


@dataclass
class Schedule:
    """Cycles of a training, by the steps at which they end; all but the last are whole pieces."""

    learning_rate: float
    ends: list[int]

    @classmethod
    def of(
        cls, learning_rate: float, max_iter: int, num_steps: int, first: int | None
    ) -> "Schedule":
        """One cycle, or cycles of which the first has about so many steps, in pieces."""
        if first is None:
            return cls(learning_rate, [max_iter])
        length = num_steps * max(1, round(first / num_steps))
        ends = [0]
        while ends[-1] + 1.5 * length < max_iter:
            ends.append(ends[-1] + length)
            length *= 2
        # What remains is a cycle of its own, of at least half its length and less than twice it.
        return cls(learning_rate, [*ends[1:], max_iter])

    @property
    def end(self) -> int:
        """The last step."""
        return self.ends[-1]

    def cycle(self, step: int) -> tuple[int, int]:
        """Where the cycle of a step begins and ends."""
        index = int(np.searchsorted(self.ends, step, side="right"))
        index = min(index, len(self.ends) - 1)
        return (self.ends[index - 1] if index else 0), self.ends[index]

    def learning_rates(self, steps: np.ndarray) -> np.ndarray:
        """From the first to zero along half a cosine; zero from the end of the cycle on."""
        begin, end = self.cycle(int(steps[0]))
        progress = np.minimum((steps - begin) / (end - begin), 1.0)
        return 0.5 * self.learning_rate * (1 + np.cos(np.pi * progress))

    def restore(self, ends: np.ndarray) -> None:
        """The cycles as a checkpoint has them; a ValueError unless they are cycles of this one."""
        if not (ends.ndim == 1 and len(ends) and ends.dtype.kind == "i"):
            raise ValueError("the ends of its cycles are no steps.")
        if not (ends[0] > 0 and np.all(np.diff(ends) > 0) and ends[-1] <= self.end):
            raise ValueError(f"its cycles end at the steps {ends.tolist()}.")
        self.ends = ends.tolist()

    def end_at(self, step: int) -> None:
        """Makes this step the last one."""
        self.ends = [*(end for end in self.ends if end < step), step]

    def shorten(self, step: int, num_steps: int, num_pieces: float) -> None:
        """Makes the training end in time: from `step` on there is time for so many pieces."""
        begin, end = self.cycle(step)
        possible = step + num_steps * max(0, int(min(num_pieces, 2**31)))
        if possible >= end:
            return
        worthwhile = begin + LEAST_SHARE * (end - begin)
        if step == begin > 0 and possible < worthwhile:
            self.end_at(step)
        else:
            self.end_at(max(possible, step + num_steps))


@dataclass
class Clock:
    """How long a piece takes, and until when there is time."""

    deadline: float
    _last: float | None = None
    _times: list[float] = field(default_factory=list)

    def piece_done(self) -> None:
        """Notes the time; the first piece, which is compiled, does not count."""
        now = time.monotonic()
        if self._last is not None:
            self._times.append(now - self._last)
        self._last = now

    def pieces_left(self) -> float:
        """For how many pieces there is time."""
        if not self._times:
            return np.inf
        return (self.deadline - time.monotonic()) / max(float(np.median(self._times)), 1e-6)


class Validation:
    """Left-out rows, and the scores of a model on them as its training goes on.

    A score is the mean of log p(y) over the rows, on the scale of the model.
    """

    def __init__(self, rows: Batch, seed: int):
        num_rows = min(len(rows.inputs), MAX_ROWS)
        num_batches = -(-num_rows // ROWS_AT_ONCE)
        chosen = np.resize(np.arange(num_rows), num_batches * ROWS_AT_ONCE)
        counted = np.arange(len(chosen)) < num_rows
        weights = rows.weights[chosen] * counted
        shaped = (rows.inputs[chosen], rows.targets[chosen], weights / weights.sum())
        self._batches = Batch(
            *(
                array.reshape(num_batches, ROWS_AT_ONCE, *array.shape[1:]).astype(array.dtype)
                for array in shaped
            )
        )
        self._key = random_key(seed)
        self._noise: SampleNoise | None = None
        # Step and score of each look, and the parameters of the best as one vector.
        self.scores: list[tuple[int, float]] = []
        self.best: np.ndarray | None = None

    @property
    def num_row_samples(self) -> int:
        """What a score costs."""
        return NUM_SAMPLES * self._batches.weights.size

    def pieces_between(self, row_samples: int) -> int:
        """Pieces of the training, of so many row-samples each, between two scores."""
        return -(-self.num_row_samples // max(1, int(MAX_SHARE * BACKWARD * row_samples)))

    def score(self, model: DeepModel) -> Float[Array, ""]:
        """That of a model, whose parameters are those of some step."""
        if self._noise is None:
            self._noise = model.network.draw_sample_noise(self._key, NUM_SAMPLES)
        return _mean_log_density(model, self._batches, self._noise)

    def note(self, step: int, score: float, parameters: Float[Array, " parameters"]) -> None:
        """Notes a score; keeps the parameters if it is the best so far."""
        if self.best is None or score > self.best_score:
            self.best = np.array(parameters)
        self.scores.append((step, score))

    def restore(self, arrays: Mapping[str, np.ndarray], shape: tuple[int, ...]) -> None:
        """The scores that a checkpoint has; a ValueError unless they are such."""
        scores, best = arrays["scores"], arrays.get("best")
        if scores.ndim != 2 or scores.shape[1] != 2 or (best is None) != (len(scores) == 0):
            raise ValueError("its scores are none.")
        if best is not None and best.shape != shape:
            raise ValueError(f"its best parameters have the shape {best.shape}.")
        self.scores = [(int(step), float(score)) for step, score in scores]
        self.best = best

    @property
    def best_score(self) -> float:
        """The highest so far; one that is not a number is none."""
        return max((score for _, score in self.scores if np.isfinite(score)), default=-np.inf)

    @property
    def best_step(self) -> int:
        """Where it was reached."""
        best = self.best_score
        return next((step for step, score in self.scores if score == best), 0)

    def improved(self, begin: int, end: int) -> bool:
        """Whether a cycle brought a better score than all before it."""
        before = [score for step, score in self.scores if step <= begin]
        return not before or begin < self.best_step <= end


@eqx.filter_jit
def _mean_log_density(model: DeepModel, batches: Batch, noise: SampleNoise) -> Float[Array, ""]:
    """Σ weight · log p(y) over all rows."""

    def add(total: Array, batch: Batch) -> tuple[Array, None]:
        return total + jnp.sum(batch.weights * data_fit(model, batch, noise, 1.0)), None

    start = jnp.zeros((), batches.weights.dtype)
    return jax.lax.scan(add, start, batches)[0]
