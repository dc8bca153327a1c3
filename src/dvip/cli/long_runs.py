"""Options of long runs: `--checkpoint`, `--resume`, and several processes."""

import contextlib
import io
import os
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

import jax
import typer

from dvip.batches import ALL, Part
from dvip.cli.console import INTERRUPTED, counted, report
from dvip.tables import TableError
from dvip.training import is_first_process
from dvip.training.checkpoints import CheckpointWarning, check_usable, steps_of

__all__ = ["Checkpointing", "Distributing", "file_of_part", "rows_of_part"]

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


# A process that is not heard of for so long is taken for dead, and the others stop.
HEARTBEAT_SECONDS = 30
# In which all processes must have started.
START_SECONDS = 300


def rows_of_part(part: Part, total: int) -> range:
    """Positions of a part's rows in a table; the parts follow each other."""
    if total < part.number:
        raise TableError(f"{counted(total, 'row')} are too few for {part.number} processes.")
    start, end = (total * index // part.number for index in (part.index, part.index + 1))
    return range(start, end)


def file_of_part(part: Part, path: Path) -> Path:
    """The file of a part, for what all parts together would write to `path`."""
    if part.number == 1:
        return path
    stem, dot, suffixes = path.name.partition(".")
    return path.with_name(f"{stem}-{part.index:05d}-of-{part.number:05d}{dot}{suffixes}")


@dataclass(frozen=True)
class Distributing:
    """The options of a command that deal with several processes."""

    distributed: bool = False
    coordinator: str | None = None
    num_processes: int | None = None
    process_id: int | None = None

    @property
    def wanted(self) -> bool:
        """Whether the command is one of several processes."""
        return self.distributed or self._given != (None, None, None)

    @property
    def _given(self) -> tuple[str | None, int | None, int | None]:
        return self.coordinator, self.num_processes, self.process_id

    @contextmanager
    def together(self) -> Iterator[None]:
        """Within it, the processes compute together. Only the first of them prints.

        A process that fails does not wait for the others, which then stop as well.
        """
        if not self.wanted:
            yield
            return
        self.connect()
        try:
            with contextlib.ExitStack() as quiet:
                if jax.process_index() > 0:
                    quiet.enter_context(contextlib.redirect_stdout(io.StringIO()))
                yield
        except BaseException as error:
            _leave_at_once(report(error))
        jax.distributed.shutdown()

    def part(self) -> Part:
        """Which part of the rows is this process's; predictions need no more of each other."""
        if not self.wanted:
            return ALL
        if self.coordinator is None and self.process_id is not None and self.num_processes:
            if self.process_id >= self.num_processes:
                raise typer.BadParameter(
                    f"{self.process_id} must be below the number of processes.",
                    param_hint="'--process-id'",
                )
            return Part(self.process_id, self.num_processes)
        self.connect()
        part = Part(jax.process_index(), jax.process_count())
        jax.distributed.shutdown()
        return part

    def connect(self) -> None:
        """Has JAX find the other processes: from the options, or from the cluster's environment."""
        if any(part is not None for part in self._given) and None in self._given:
            raise typer.BadParameter(
                "--coordinator, --num-processes and --process-id belong together: give all three, "
                "or --distributed alone on a cluster that JAX knows.",
                param_hint="'--coordinator'",
            )
        before = signal.getsignal(signal.SIGTERM)
        try:
            jax.distributed.initialize(
                *self._given,
                initialization_timeout=START_SECONDS,
                heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
            )
        except (RuntimeError, ValueError) as error:
            raise ValueError(
                f"The processes did not find each other: {str(error).splitlines()[0]} Outside of "
                "Slurm, Open MPI and Kubernetes, give --coordinator HOST:PORT --num-processes N "
                "--process-id I."
            ) from error
        # JAX has taken SIGTERM for a service that is not used here: it means what it meant before.
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def _leave_at_once(code: int) -> NoReturn:
    """Ends the process without waiting for the others, which an ordinary exit would."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
