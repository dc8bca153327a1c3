"""The members of an ensemble, trained side by side: each in a thread.

A step is a chain of small operations, which one core works through. Each member is trained as if it
were alone: its result does not depend on the others, or on how many threads there are.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from threading import Event, Lock
from typing import Any, TypeVar

import jax
import numpy as np

from dvip.objectives import DeepModel
from dvip.runtime import precision
from dvip.training.checkpoints import CheckpointFolder, HeldBackSignals
from dvip.training.placement import ALONE, placement
from dvip.training.schedule import Clock, Validation
from dvip.training.trainer import STOPPING_SIGNALS, Data, TrainingResult, TrainingSettings, train

__all__ = ["Member", "side_by_side", "train_members"]

Result = TypeVar("Result")

# Trainings at the same time, for each core.
MAX_THREADS = 8


@dataclass(frozen=True)
class Member:
    """A model to train, and on what."""

    model: DeepModel
    data: Data
    settings: TrainingSettings
    validation: Validation | None = None
    checkpoints: CheckpointFolder | None = None
    identity: Mapping[str, Any] | None = None


class _Stopped(Exception):
    """A member stopped because all are to stop."""


class _SharedSignals:
    """What the main thread heard of, for the trainings in other threads."""

    def __init__(self, heard: HeldBackSignals):
        self._heard = heard
        self.cancelled = Event()

    def __enter__(self) -> "_SharedSignals":
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    @property
    def noted(self) -> int | None:
        """Not None if the training is to stop."""
        return 0 if self.cancelled.is_set() else self._heard.noted

    def deliver(self) -> None:
        """Ends the training of this thread."""
        if self.noted is not None:
            raise _Stopped


class _TimeTable:
    """Shares the time that there is among the members that are still to come."""

    def __init__(self, num_members: int, num_threads: int, max_seconds: float | None):
        self._left, self._num_threads = num_members, num_threads
        self._deadline = np.inf if max_seconds is None else time.monotonic() + max_seconds
        self._lock = Lock()
        self._clocks: list[Clock] = []

    def clock(self) -> Clock:
        """That of the next member."""
        with self._lock:
            rounds = -(-self._left // self._num_threads)
            self._left -= 1
            now = time.monotonic()
            self._clocks.append(Clock(now + (self._deadline - now) / rounds))
            return self._clocks[-1]

    def stop(self) -> None:
        """Has all members end soon."""
        self._deadline = -np.inf
        for clock in self._clocks:
            clock.stop()


def train_members(
    members: Sequence[Member],
    dtype: str,
    on_progress: Callable[[int, float], Any] = lambda steps, bound: None,
    max_seconds: float | None = None,
    *,
    stoppable: bool = False,
) -> list[TrainingResult]:
    """Trains all of them. `on_progress` hears the steps of all members, and the latest bound.

    Where it returns True and they are `stoppable`, all of them end soon.

    Several processes train one member after the other, together.
    """
    in_threads = len(members) > 1 and placement() is ALONE and jax.default_backend() == "cpu"
    # More than there are cores: none waits for the last of the others.
    cores = os.cpu_count() or 1
    num_threads = min(len(members), MAX_THREADS * cores) if in_threads and cores > 1 else 1
    times = _TimeTable(len(members), num_threads, max_seconds)
    timed = stoppable or max_seconds is not None
    steps, lock, compiled = [0] * len(members), Lock(), Event()

    def trained(index: int, signals: Any = None) -> TrainingResult:
        member = members[index]

        def report(done: int, bound: float) -> None:
            with lock:
                steps[index] = done
                if on_progress(sum(steps), bound) is True:
                    times.stop()
            compiled.set()

        if index and signals is not None:
            compiled.wait()  # the first compiles for all
        with precision(dtype):  # threads do not inherit it
            result = train(
                member.model,
                member.data,
                member.settings,
                report,
                member.checkpoints,
                member.identity,
                validation=member.validation,
                clock=times.clock() if timed else None,
                signals=signals,
            )
        report(member.settings.max_iter, float(result.bounds[-1]))
        return result

    return side_by_side(trained, len(members), num_threads, at_the_end=compiled.set)


def side_by_side(
    job: Callable[..., Result],
    number: int,
    num_threads: int,
    at_the_end: Callable[[], None] = lambda: None,
) -> list[Result]:
    """`job` of each index in a thread; with one thread, in this one.

    Jobs in threads get the signals as a second argument: they look at what is `noted` between two
    pieces, and then `deliver` it. `at_the_end` frees jobs that wait, before all are waited for.
    """
    if num_threads == 1:
        return [job(index) for index in range(number)]
    with HeldBackSignals(*STOPPING_SIGNALS) as heard, ThreadPoolExecutor(num_threads) as threads:
        signals = _SharedSignals(heard)
        futures = [threads.submit(job, index, signals) for index in range(number)]
        try:
            wait(futures, return_when=FIRST_EXCEPTION)
        finally:
            # One failed, or a second signal came: the others end with their piece.
            if not all(future.done() for future in futures):
                signals.cancelled.set()
            at_the_end()
            for future in futures:
                future.cancel()
            wait(futures)
        heard.deliver()
        errors = [error for future in futures if (error := _error_of(future)) is not None]
        if errors:
            raise errors[0]
        return [future.result() for future in futures]


def _error_of(future: Any) -> BaseException | None:
    """What a member failed with; that others stopped because of it says nothing."""
    if future.cancelled():
        return None
    error = future.exception()
    return None if isinstance(error, _Stopped) else error
