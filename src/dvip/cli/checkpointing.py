"""`--checkpoint` and `--resume`: a training that is stopped says how to go on with it."""

import shlex
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import typer

from dvip.cli.errors import INTERRUPTED, warn
from dvip.training import is_first_process
from dvip.training.checkpoints import CheckpointWarning, check_usable, steps_of

__all__ = ["Checkpointing"]

# What a shell reports for a program that SIGTERM stopped.
TERMINATED = 143


class _Terminated(BaseException):
    """SIGTERM, as an exception."""


def _terminate(*_: object) -> NoReturn:
    raise _Terminated


@dataclass(frozen=True)
class Checkpointing:
    """The options of a command that deal with checkpoints."""

    folder: Path | None = None
    every: int | None = None
    resume: bool = False

    def check(self, out: Path) -> None:
        """Raises an error before a table is read rather than after it; the model goes to `out`."""
        if self.folder is not None:
            if self.folder.resolve().is_relative_to(out.resolve()):
                raise ValueError(
                    f"The checkpoints cannot be in {out}, which will be the folder of the model: "
                    "choose another --checkpoint."
                )
            check_usable(self.folder, resume=self.resume)
        elif self.resume or self.every is not None:
            raise typer.BadParameter(
                "--resume and --checkpoint-every need the folder of the checkpoints.",
                param_hint="'--checkpoint'",
            )

    @property
    def of_fit(self) -> dict[str, Any]:
        """The arguments for an estimator's `fit`."""
        if self.folder is None:
            return {}
        return {
            "checkpoint_dir": self.folder,
            "checkpoint_every": self.every,
            "resume": self.resume,
        }

    @contextmanager
    def stopping(self) -> Iterator[None]:
        """Within it, Ctrl-C and SIGTERM end the program with the command that goes on.

        A training that runs writes a checkpoint before either takes effect.
        """
        if self.folder is None:
            yield
            return
        with warnings.catch_warnings(), _handled(signal.SIGTERM, _terminate):
            warnings.simplefilter("always", CheckpointWarning)
            warnings.showwarning = lambda message, *_, **__: warn(str(message))
            try:
                yield
            except (KeyboardInterrupt, _Terminated) as stop:
                if is_first_process():
                    self._tell_how_to_go_on(self.folder)
                code = TERMINATED if isinstance(stop, _Terminated) else INTERRUPTED
                raise typer.Exit(code) from None

    def _tell_how_to_go_on(self, folder: Path) -> None:
        steps = steps_of(folder)
        last = f"the last checkpoint is of step {steps[0]:,}" if steps else "no checkpoint yet"
        command = ["dvip", *sys.argv[1:], *([] if self.resume else ["--resume"])]
        typer.echo(f"Stopped; {last}. To go on:\n  {shlex.join(command)}", err=True)


@contextmanager
def _handled(number: signal.Signals, handler: Any) -> Iterator[None]:
    """Within it, `handler` handles a signal; only the main thread can."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, previous)
