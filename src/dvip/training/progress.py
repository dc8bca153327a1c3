"""Progress bars on a terminal: of training, and of rows that are read or predicted.

Elsewhere, as in the log of a batch job, training writes a line a minute.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["progress_bar", "row_counter"]

SECONDS_BETWEEN_LINES = 60.0

Report = Callable[[int, float | str], None]


@contextmanager
def progress_bar(max_iter: int, *, shown: bool) -> Iterator[Report]:
    """Gives the function that `train` reports to; silent unless `shown`.

    It hears the steps so far and the bound, or how a sampling is in words.
    """
    if not shown:
        yield lambda steps, bound: None
        return
    if not sys.stderr.isatty():
        yield _line_a_minute(max_iter)
        return
    with _bar("training", "{task.completed}/{task.total}", "{task.fields[state]}") as bar:
        task = bar.add_task("training", total=max_iter, state="compiling")

        def report(steps: int, bound: float | str) -> None:
            speed = bar.tasks[task].speed
            rate = f"{speed:,.0f} steps/s" if speed else "compiling"
            bar.update(task, completed=steps, state=f"{rate} {_in_words(bound)}")

        yield report


def _bar(what: str, *texts: str) -> Any:
    """A bar between what is done and how much of it. Rich is imported where there is one."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    shown = (TextColumn(what), BarColumn(), *map(TextColumn, texts), TimeRemainingColumn())
    return Progress(*shown, console=Console(stderr=True))


def _in_words(bound: float | str) -> str:
    return bound if isinstance(bound, str) else f"bound {bound:,.1f}"


def _line_a_minute(max_iter: int) -> Report:
    first: tuple[float, int] | None = None
    last = time.monotonic()

    def report(steps: int, bound: float | str) -> None:
        nonlocal first, last
        now = time.monotonic()
        # The time left is judged by what was done since the first report, compiled and under way.
        began, done_then = first = first or (now, steps)
        if now - last < SECONDS_BETWEEN_LINES or steps == done_then:
            return
        last = now
        left = (max_iter - steps) * (now - began) / (steps - done_then)
        line = (
            f"{steps:,} of {max_iter:,} steps, {_in_words(bound)}, about {left / 60:.0f} min left"
        )
        print(line, file=sys.stderr, flush=True)

    return report


@contextmanager
def row_counter(
    total: int | None, what: str, *, shown: bool = True, unit: str = "rows"
) -> Iterator[Callable[[int], None]]:
    """Gives a function that is told of rows done; silent unless `shown` and on a terminal."""
    if not (shown and sys.stderr.isatty()):
        yield lambda rows: None
        return
    with _bar(what, "{task.completed:,.0f} " + unit) as bar:
        task = bar.add_task(what, total=total)
        yield lambda rows: bar.advance(task, rows)
