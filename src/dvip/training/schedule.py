"""When a training ends: the learning rate, the scores of left-out rows, and the time there is.

Without left-out rows the learning rate falls to zero along half a cosine from the first step to the
last. With them it stays as it is until their score does not improve any more, and is then divided
by three, twice at most; in the last third of the steps it falls to zero. What is scored is a
running mean of the parameters, and the best of these is kept.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Array

from dvip.objectives import DeepModel
from dvip.training.placement import Placement

__all__ = ["Clock", "Schedule", "Validation"]

# The share of a training over which the learning rate falls, where it does not all the time.
FALLING = 0.3
# How often it drops before that, and by which factor.
MAX_DROPS, DROP = 2, 3.0


@dataclass
class Schedule:
    """The learning rate of each step: constant up to `falls`, then down to zero at `end`.

    `drops` is how often it has dropped, `dropped` the step of the last time.
    """

    learning_rate: float
    falls: int
    end: int
    drops: int = 0
    dropped: int = 0

    @classmethod
    def of(cls, learning_rate: float, max_iter: int, *, waits: bool) -> "Schedule":
        """Falling all the time, or waiting for the scores of left-out rows."""
        return cls(learning_rate, round((1 - FALLING) * max_iter) if waits else 0, max_iter)

    def learning_rates(self, steps: np.ndarray) -> np.ndarray:
        """Along half a cosine from where it begins to fall; zero from the end on."""
        progress = (steps - self.falls) / max(1, self.end - self.falls)
        rate = self.learning_rate / DROP**self.drops if self.drops else self.learning_rate
        return 0.5 * rate * (1 + np.cos(np.pi * np.clip(progress, 0.0, 1.0)))

    def drop(self, step: int) -> None:
        """Drops after this step; one that dropped as often as it may ends there."""
        if step >= self.falls:
            return
        if self.drops == MAX_DROPS:
            self.end = step
        else:
            self.drops, self.dropped = self.drops + 1, step

    def shorten(self, step: int, num_steps: int, num_pieces: float) -> None:
        """Makes the training end in time: from `step` on there is time for so many pieces."""
        possible = step + num_steps * max(1, int(min(num_pieces, 2**31)))
        if step < self.end and possible < self.end:
            self.end = possible
            self.falls = min(self.falls, max(step, round((1 - FALLING) * possible)))

    @property
    def numbers(self) -> np.ndarray:
        """What changes, for a checkpoint."""
        return np.array([self.falls, self.end, self.drops, self.dropped], np.int32)

    def restore(self, numbers: np.ndarray) -> None:
        """As a checkpoint has it; a ValueError if it cannot be so."""
        if numbers.shape != (4,) or numbers.dtype.kind != "i":
            raise ValueError("its learning rate is none.")
        falls, end, drops, dropped = numbers.tolist()
        if not (falls >= 0 and 0 < end <= self.end and 0 <= drops <= MAX_DROPS and dropped >= 0):
            raise ValueError(f"its learning rate is none of this training: {numbers.tolist()}.")
        self.falls, self.end, self.drops, self.dropped = falls, end, drops, dropped


@dataclass
class Clock:
    """How long a piece takes, and until when there is time."""

    deadline: float
    _last: float | None = None
    _times: list[float] = field(default_factory=list)

    def stop(self) -> None:
        """There is no time any more."""
        self.deadline = -np.inf

    def piece_done(self) -> None:
        """Notes the time; the first piece, which is compiled, does not count."""
        now = time.monotonic()
        if self._last is not None:
            self._times.append(now - self._last)
        self._last = now

    def pieces_left(self) -> float:
        """For how many pieces there is time."""
        if self.deadline == -np.inf:
            return 0.0
        if not self._times:
            return np.inf
        # Some pieces are followed by a look at the left-out rows: a mean, not a median.
        return (self.deadline - time.monotonic()) / max(float(np.mean(self._times[-50:])), 1e-6)


# The first step that is scored: before, the running mean is still of where the training began.
FIRST_SCORE = 500
# Steps between two scores, and steps without a better one after which nothing improves any more; at
# least, and as a share of those that it took to the best.
STEPS_BETWEEN = 250
PATIENCE, PATIENT_SHARE = 750, 0.4
# The share of the steps after which a training is compared with a rival, and by how much a score
# that cannot be made up for is lower; and one that has come to rest.
COMPARED, HOPELESS, HOPELESS_AT_REST = 1 / 2, 1.5, 0.25


class Validation:
    """The scores of a model on left-out rows as its training goes on, and the best so far.

    `score` judges a model: higher is better. `rival`, if there is one, is the score of another kind
    of model on such rows.
    """

    def __init__(self, score: Callable[[DeepModel], float]):
        self.score = score
        self.rival: Callable[[], float] | None = None
        # Step and score of each look.
        self.scores: list[tuple[int, float]] = []
        # As one vector: the running mean of the parameters, and those of the best score.
        self.mean: Array | np.ndarray | None = None
        self.best: np.ndarray | None = None

    def note(self, step: int, score: float, parameters: np.ndarray) -> None:
        """Notes a score; keeps the parameters if it is the best so far."""
        if self.best is None or score > self.best_score:
            self.best = np.array(parameters)
        self.scores.append((step, score))

    @property
    def best_score(self) -> float:
        """The highest so far; one that is not a number is none."""
        return max((score for _, score in self.scores if np.isfinite(score)), default=-np.inf)

    @property
    def best_step(self) -> int:
        """Where it was reached."""
        best = self.best_score
        return next((step for step, score in self.scores if score == best), 0)

    def has_come_to_rest(self, since: int = 0) -> bool:
        """Whether there was no better score for long, or for long since that step."""
        waited = self.scores[-1][0] - max(self.best_step, since)
        return waited >= max(PATIENCE, PATIENT_SHARE * self.best_step)

    def is_hopeless(self, max_iter: int) -> bool:
        """Whether the rival is so much better that nothing is gained by going on."""
        if self.rival is None or self.scores[-1][0] < COMPARED * max_iter:
            return False
        behind = HOPELESS_AT_REST if self.has_come_to_rest() else HOPELESS
        return self.best_score < self.rival() - behind

    def arrays(self) -> dict[str, np.ndarray]:
        """For a checkpoint."""
        arrays = {"scores": np.array(self.scores, dtype=np.float64).reshape(-1, 2)}
        vectors = {"mean": self.mean, "best": self.best}
        known = {name: vector for name, vector in vectors.items() if vector is not None}
        return arrays | {name: np.asarray(vector) for name, vector in known.items()}

    def restore(self, arrays: Mapping[str, np.ndarray], shape: tuple[int, ...]) -> None:
        """What a checkpoint has; a ValueError unless it is such."""
        scores, vectors = arrays["scores"], {name: arrays.get(name) for name in ("mean", "best")}
        if scores.ndim != 2 or scores.shape[1] != 2 or bool(len(scores)) != ("best" in arrays):
            raise ValueError("its scores are none.")
        for name, vector in vectors.items():
            if vector is not None and vector.shape != shape:
                raise ValueError(f"its {name} parameters have the shape {vector.shape}.")
        self.scores = [(int(step), float(score)) for step, score in scores]
        self.mean, self.best = vectors["mean"], vectors["best"]

    def share(self, place: Placement, like: Array) -> None:
        """Gives all processes what the first knows; vectors are like this one."""
        num_scores = int(place.of_first_process(np.int32(len(self.scores))))
        steps, scores = np.resize(np.array(self.scores or [(0, 0.0)]), (max(1, num_scores), 2)).T
        vectors = [np.zeros_like(like) if v is None else v for v in (self.mean, self.best)]
        known, steps, scores, mean, best = place.of_first_process(
            (np.bool_(self.mean is not None), steps.astype(np.int32), scores, *vectors)
        )
        pairs = zip(np.asarray(steps).tolist(), np.asarray(scores).tolist(), strict=True)
        self.scores = list(pairs)[:num_scores]
        self.mean = place.everywhere(np.asarray(mean)) if known else None
        self.best = np.asarray(best) if num_scores else None
