"""Checkpoints: all that a training needs to go on as if nothing had happened.

A folder holds one folder for each of the last few, `step-000012000`. The order of the data and all
random numbers are functions of the seed and the step, so that the parameters, the optimiser's
state and the bounds so far are enough for a continuation that is equal bit for bit.
"""

import shutil
import signal
import threading
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from dvip.files import expanded, lock, why_not_writable
from dvip.persistence import (
    CHECKPOINT,
    CheckpointError,
    check_numbers,
    in_a_line,
    read_folder,
    write_folder,
)

__all__ = [
    "Checkpoint",
    "CheckpointFolder",
    "CheckpointWarning",
    "HeldBackSignals",
    "check_usable",
    "steps_of",
]

# How many are kept: more than one, as the newest may turn out to be damaged.
NUM_KEPT = 3
# Between two, where no number of steps is asked for. Writing one takes some hundredths of a second.
DEFAULT_SECONDS = 60.0
# Differences to another training that a message lists.
MAX_LISTED = 4


class CheckpointWarning(UserWarning):
    """A checkpoint is damaged or could not be written; the training goes on."""


@dataclass(frozen=True)
class Checkpoint:
    """A training after `step` steps."""

    step: int
    # What was trained, and how: a training goes on only where this is the same.
    training: Mapping[str, Any]
    arrays: Mapping[str, np.ndarray]


def _place(folder: Path, step: int) -> Path:
    return folder / f"step-{step:09d}"


def _places(folder: Path) -> dict[int, Path]:
    """What is named as a checkpoint, the last step first."""
    numbers = (path.name.removeprefix("step-") for path in folder.glob("step-*"))
    steps = sorted((int(number) for number in numbers if number.isdecimal()), reverse=True)
    return {step: _place(folder, step) for step in steps}


def steps_of(folder: Path) -> list[int]:
    """The steps of the checkpoints in a folder, the last first; of any part and member.

    A write that was cut off is none: the manifest, which is written last, is missing.
    """
    folders = [folder, *folder.glob("member-*"), *folder.glob("part-*/member-*")]
    places = [place for each in folders for place in _places(each).items()]
    steps = {step for step, path in places if (path / CHECKPOINT.manifest).exists()}
    return sorted(steps, reverse=True)


def check_usable(folder: str | Path, *, resume: bool) -> None:
    """Raises an error if nothing can be written in a folder, or if it would replace something."""
    folder = expanded(folder)
    _check_writable(folder)
    if folder.is_dir():
        with _in_use(folder):
            _check_new(folder, resume=resume)


def _check_writable(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise CheckpointError(f"{folder} is a file; checkpoints need a folder.")
    reason = why_not_writable(folder)
    if reason is not None:
        raise CheckpointError(reason)


def _check_new(folder: Path, *, resume: bool) -> None:
    steps = steps_of(folder)
    if steps and not resume:
        raise CheckpointError(
            f"{folder} holds checkpoints up to step {steps[0]:,}: resume that training, or choose "
            "another folder for a new one."
        )


@contextmanager
def _in_use(folder: Path) -> Iterator[None]:
    """Within it, no other training can use the folder; an error if one does."""
    with lock(folder, wait=False) as free:
        if not free:
            raise CheckpointError(
                f"{folder} is in use by another training that still runs: wait for its end, or "
                "choose another folder."
            )
        yield


def _read(folder: Path, step: int) -> Checkpoint:
    """A checkpoint of a folder, if it is one in all its parts."""
    path = _place(folder, step)
    content, arrays = read_folder(path, CHECKPOINT)
    try:
        training, bounds = content["training"], arrays["bounds"]
        steps_at_once, most = training["steps_at_once"], training["max_iter"]
        counts = (content["step"], steps_at_once, most, training["seed"] + 1)
        if not all(type(count) is int and 1 <= count <= 2**31 for count in counts):
            raise ValueError("its steps or its seed are no such numbers.")
        done = steps_at_once * len(bounds)
        if not (bounds.ndim == 1 and step == content["step"] == min(done, most)):
            raise ValueError(f"what it holds is not of step {step:,}.")
        # A square of a large gradient may be too large for a number.
        check_numbers(arrays, may_be_infinite=".optimiser")
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} is no checkpoint: {in_a_line(error)}") from error
    return Checkpoint(step, training, arrays)


class CheckpointFolder:
    """The checkpoints of one training. `resumed` is the one to go on from, if there is one."""

    def __init__(self, folder: str | Path, every: int | None = None, *, resume: bool = False):
        """Raises an error if nothing can be written there, or if it would overwrite something.

        `every` is the number of steps between two checkpoints; by default there is one a minute.
        """
        self.folder, self.every = expanded(folder), every
        if every is not None and not (isinstance(every, Integral) and every >= 1):
            raise ValueError(f"checkpoint_every={every!r} must be a whole number of at least 1.")
        _check_writable(self.folder)
        _check_new(self.folder, resume=resume)
        self.resumed = self._newest_intact()
        self._last_step = self.resumed.step if self.resumed else 0
        self._last_time = time.monotonic()

    @classmethod
    @contextmanager
    def opened(
        cls, folder: str | Path, every: int | None = None, *, resume: bool = False
    ) -> Iterator["CheckpointFolder"]:
        """The folder for one training alone, which ends with this: a second one is refused."""
        path = expanded(folder)
        _check_writable(path)
        path.mkdir(parents=True, exist_ok=True)
        with _in_use(path):
            yield cls(path, every, resume=resume)

    def _steps(self) -> list[int]:
        """Those of its own checkpoints, the last first."""
        places = _places(self.folder).items()
        return [step for step, path in places if (path / CHECKPOINT.manifest).exists()]

    def _newest_intact(self) -> Checkpoint | None:
        damages = []
        for step in self._steps():
            try:
                checkpoint = _read(self.folder, step)
            except CheckpointError as error:
                damages.append(str(error))
                continue
            for damage in damages:
                warnings.warn(
                    f"{damage} The checkpoint before it is used, of step {checkpoint.step:,}.",
                    CheckpointWarning,
                    stacklevel=2,
                )
            return checkpoint
        if damages:
            raise CheckpointError(
                f"No checkpoint in {self.folder} can be used. {damages[0]} Choose another folder "
                "to start anew."
            )
        return None

    def of_member(self, index: int) -> "CheckpointFolder":
        """A folder in this one, for a member of an ensemble."""
        return self._within(f"member-{index + 1}")

    def of_part(self, index: int) -> "CheckpointFolder":
        """A folder in this one, for a part of a model that is several."""
        return self._within(f"part-{index + 1}")

    def _within(self, name: str) -> "CheckpointFolder":
        return CheckpointFolder(self.folder / name, self.every, resume=True)

    @property
    def seed(self) -> int | None:
        """That of the training to go on with, if there is one."""
        parts = [self, *(self._within(path.name) for path in sorted(self.folder.glob("part-*")))]
        for part in parts:
            first = part.resumed or part.of_member(0).resumed
            if first is not None:
                return first.training["seed"]
        return None

    def check(self, training: Mapping[str, Any]) -> None:
        """Raises an error that says what differs unless the checkpoints are of this training."""
        if self.resumed is None:
            return
        differing = _differences(self.resumed.training, training)
        if differing:
            more = f"; {len(differing) - MAX_LISTED} more" if len(differing) > MAX_LISTED else ""
            raise CheckpointError(
                f"The checkpoints in {self.folder} are of another training: "
                f"{'; '.join(differing[:MAX_LISTED])}{more}. Give what was given then, or another "
                "folder to start anew."
            )

    def due(self, step: int) -> bool:
        """Whether it is time for the next one."""
        if self.every is not None:
            return step - self._last_step >= self.every
        return time.monotonic() - self._last_time >= DEFAULT_SECONDS

    def write(self, checkpoint: Checkpoint) -> None:
        """Adds a checkpoint and removes what is too old.

        One that cannot be written is a warning: those before it are intact, and the training need
        not end because of a full disk.
        """
        content = {
            "step": checkpoint.step,
            "training": checkpoint.training,
        }
        folder = _place(self.folder, checkpoint.step)
        self._last_step, self._last_time = checkpoint.step, time.monotonic()
        try:
            write_folder(folder, CHECKPOINT, content, checkpoint.arrays)
        except OSError as error:
            if checkpoint.step not in self._steps():
                shutil.rmtree(folder, ignore_errors=True)
            warnings.warn(
                f"No checkpoint could be written at step {checkpoint.step:,}: "
                f"{error.strerror or type(error).__name__}. Those before it are intact.",
                CheckpointWarning,
                stacklevel=2,
            )
            return
        self._remove_old(checkpoint.step)

    def _remove_old(self, step: int) -> None:
        """All but the last few up to this step, and what is left of writes that were cut off.

        Those of later steps were damaged, or this training would have gone on from them.
        """
        kept = [old for old in self._steps() if old <= step][:NUM_KEPT]
        for old, path in _places(self.folder).items():
            if old not in kept:
                shutil.rmtree(path, ignore_errors=True)


# Differences whose values would tell a user nothing: a checksum, a number made of `random_state`.
WITHOUT_VALUES = {"data": "the data differ", "seed": "the seed differs"}


def _differences(before: Any, now: Any, name: str = "") -> list[str]:
    """What differs between two descriptions of a training, in words."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        names = [*before, *(key for key in now if key not in before)]
        return [
            line
            for key in names
            for line in _differences(before.get(key), now.get(key), f"{name}.{key}".lstrip("."))
        ]
    if before == now:
        return []
    return [WITHOUT_VALUES.get(name, f"{name} was {in_a_line(repr(before))} and is {now!r}")]


class HeldBackSignals:
    """Within it, a signal is only noted; `deliver` lets it do what it would have done at once.

    A second signal is not held back. Only the main thread has signals; elsewhere this does nothing.
    """

    def __init__(self, *numbers: signal.Signals):
        self.numbers = numbers
        self.noted: int | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> "HeldBackSignals":
        if threading.current_thread() is threading.main_thread():
            for number in self.numbers:
                previous = signal.getsignal(number)
                # What is ignored stays ignored; what is not Python's could not be put back.
                if previous not in (signal.SIG_IGN, None):
                    self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *exception: object) -> None:
        self._put_back()
        self._previous = {}
        self.deliver()

    def _put_back(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        second = self.noted is not None
        self.noted = number
        if second:
            self.deliver()

    def deliver(self) -> None:
        """Lets a signal that was noted take effect: an exception, or the end of the process."""
        if self.noted is None:
            return
        number, self.noted = self.noted, None
        self._put_back()
        signal.raise_signal(number)
        # Whoever handled it wants to go on.
        for other in self._previous:
            signal.signal(other, self._note)
