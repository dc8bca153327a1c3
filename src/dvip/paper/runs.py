"""How all runs of a grid get done.

Runs are done one after another or several at once; what is there already is left out.
"""

import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread

from dvip.paper.results import Results, Run

__all__ = ["Outcome", "run_all"]


@dataclass(frozen=True)
class Outcome:
    """What became of a run: done now, done before, being done elsewhere, or failed."""

    run: Run
    state: str  # "done", "skipped", "elsewhere", "diverged" or "failed"
    seconds: float = 0.0
    message: str = ""


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
        # Here, as processes that only share out the work need nothing of JAX.
        from dvip.paper.execution import execute

        try:
            result = execute(run, data)
        except Exception as error:
            # One run that fails, for want of memory or whatever it may be, does not end the others.
            name = "" if isinstance(error, ValueError | OSError) else f"{type(error).__name__}: "
            first_line = (str(error).splitlines() or [type(error).__name__])[0]
            return Outcome(run, "failed", message=f"{name}{first_line}")
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
    """`jobs` processes that each do a run after another. A process that dies fails its run."""
    _share_cores(max(1, (os.cpu_count() or 1) // jobs))

    def submit(pool: ProcessPoolExecutor, run: Run) -> Future[Outcome]:
        on_start(run)
        return pool.submit(do, run, folder, data, force)

    waiting = list(reversed(runs))
    while waiting:
        # If a process dies, all that was under way is lost; alone, each shows whether it was to
        # blame.
        for run in _empty(waiting, jobs, submit, ended):
            if _empty([run], 1, submit, ended):
                message = "its process was killed, perhaps for want of memory"
                ended(Outcome(run, "failed", message=message))


def _empty(
    waiting: list[Run],
    jobs: int,
    submit: Callable[[ProcessPoolExecutor, Run], Future[Outcome]],
    ended: Callable[[Outcome], None],
) -> list[Run]:
    """Does the runs that wait, from the last on; returns those under way when a process died."""
    pool = ProcessPoolExecutor(jobs, get_context("spawn"), initializer=_follow_parent)
    running: dict[Future[Outcome], Run] = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                running[submit(pool, waiting[-1])] = waiting[-1]
                waiting.pop()
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in sorted(done, key=lambda future: future.exception() is not None):
                outcome = future.result()
                del running[future]
                ended(outcome)
    except BrokenProcessPool:
        return list(running.values())
    except BaseException:
        _kill(pool)
        raise
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    return []


def _share_cores(threads: int) -> None:
    """Gives new processes so many threads each: threads that wait for each other are slow.

    Read by JAX and by the libraries of linear algebra when they start.
    """
    for name in ("NPROC", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(name, str(threads))


def _follow_parent() -> None:
    """Ctrl-C is the first process's to answer, and no process outlives it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    assert parent is not None

    def end_with_parent() -> None:
        parent.join()
        os._exit(1)

    Thread(target=end_with_parent, daemon=True).start()


def _kill(pool: ProcessPoolExecutor) -> None:
    for process in list((pool._processes or {}).values()):
        process.kill()
