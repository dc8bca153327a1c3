"""Progress bars, on a terminal only: of training, and of rows that are read or predicted."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

__all__ = ["progress_bar", "row_counter"]


@contextmanager
def progress_bar(max_iter: int, *, shown: bool) -> Iterator[Callable[[int, float], None]]:
    """Gives the function that `train` reports to; silent unless `shown` and on a terminal."""
    console = Console(stderr=True)
    columns = (
        TextColumn("training"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TextColumn("bound {task.fields[bound]:,.1f}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not (shown and console.is_terminal)) as bar:
        task = bar.add_task("training", total=max_iter, bound=float("nan"), rate="compiling")

        def report(steps: int, bound: float) -> None:
            speed = bar.tasks[task].speed
            rate = f"{speed:,.0f} steps/s" if speed else "compiling"
            bar.update(task, completed=steps, bound=bound, rate=rate)

        yield report


@contextmanager
def row_counter(
    total: int | None, what: str, *, shown: bool = True
) -> Iterator[Callable[[int], None]]:
    """Gives a function that is told of rows done; silent unless `shown` and on a terminal."""
    console = Console(stderr=True)
    columns = (
        TextColumn(what),
        BarColumn(),
        TextColumn("{task.completed:,.0f} rows"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not (shown and console.is_terminal)) as bar:
        task = bar.add_task(what, total=total)
        yield lambda rows: bar.advance(task, rows)
