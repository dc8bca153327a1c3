"""Runs of a grid, one after another or several at once; what is done already is left out."""

import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from dvip.experiments.results import Results
from dvip.experiments.runs import Run, execute

__all__ = ["Outcome", "parse_shard", "run_all", "shard"]


@dataclass(frozen=True)
class Outcome:
    """What became of a run: done now, done before, being done elsewhere, or failed."""

    run: Run
    state: str  # "done", "skipped", "elsewhere", "diverged" or "failed"
    seconds: float = 0.0
    message: str = ""


def parse_shard(text: str) -> tuple[int, int]:
    """Part and number of parts of "3/20"."""
    part, _, parts = text.partition("/")
    if not (part.isdigit() and parts.isdigit() and 1 <= int(part) <= int(parts)):
        raise ValueError(f"--shard {text}: give a part and how many there are, such as 3/20.")
    return int(part), int(parts)


def shard(runs: Sequence[Run], part: int, parts: int) -> list[Run]:
    """Part 1, ..., `parts` of the runs: every one is in exactly one part."""
    return list(runs[part - 1 :: parts])


def run_all(
    runs: Sequence[Run],
    folder: Path,
    *,
    data: Path | None = None,
    jobs: int = 1,
    force: bool = False,
    on_start: Callable[[Run], None] = lambda run: None,
    on_end: Callable[[Outcome], None] = lambda outcome: None,
) -> list[Outcome]:
    """Does all runs that have no result yet, or all of them with `force`."""
    results = Results(folder)
    outcomes = []

    def ended(outcome: Outcome) -> None:
        outcomes.append(outcome)
        on_end(outcome)

    left = []
    for run in runs:
        if run in results and not force:
            ended(Outcome(run, "skipped"))
        else:
            left.append(run)
    if jobs == 1:
        for run in left:
            on_start(run)
            ended(do(run, folder, data, force))
    elif left:
        _run_in_processes(left, folder, data, jobs, force, on_start, ended)
    return outcomes


def do(run: Run, folder: Path, data: Path | None, force: bool) -> Outcome:
    """Does one run and stores its result, unless another process has done or is doing it."""
    results = Results(folder)
    with results.claim(run) as ours:
        if not ours:
            return Outcome(run, "elsewhere")
        if run in results and not force:
            return Outcome(run, "skipped")
        try:
            result = execute(run, data)
        except (ValueError, OSError, MemoryError) as error:
            return Outcome(run, "failed", message=str(error) or type(error).__name__)
        results.write(run, result)
    state = "diverged" if result["error"] else "done"
    return Outcome(run, state, result["seconds"], result["error"] or "")


def _run_in_processes(
    runs: Sequence[Run],
    folder: Path,
    data: Path | None,
    jobs: int,
    force: bool,
    on_start: Callable[[Run], None],
    ended: Callable[[Outcome], None],
) -> None:
    """`jobs` processes that each do a run after another. A process that dies fails its runs."""
    waiting = list(reversed(runs))
    _share_cores(max(1, (os.cpu_count() or 1) // jobs))
    while waiting:
        pool = ProcessPoolExecutor(jobs, get_context("spawn"), initializer=_leave_interrupts)
        running: dict[Future[Outcome], Run] = {}
        try:
            while waiting or running:
                while waiting and len(running) < jobs:
                    run = waiting.pop()
                    on_start(run)
                    running[pool.submit(do, run, folder, data, force)] = run
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    outcome = future.result()
                    del running[future]
                    ended(outcome)
        except BrokenProcessPool:
            for run in running.values():
                message = "its process was killed, perhaps for want of memory"
                ended(Outcome(run, "failed", message=message))
        except BaseException:
            _kill(pool)
            raise
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _share_cores(threads: int) -> None:
    """Gives new processes so many threads each: threads that wait for each other are slow.

    Read by JAX and by the libraries of linear algebra when they start.
    """
    for name in ("NPROC", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(name, str(threads))


def _leave_interrupts() -> None:
    """Ctrl-C is the first process's to answer."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _kill(pool: ProcessPoolExecutor) -> None:
    for process in list((pool._processes or {}).values()):
        process.kill()
