"""What the commands tell: lines, metrics, errors without a traceback."""

import functools
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ParamSpec, TypeVar

import typer
from rich.console import Console
from rich.table import Table

from dvip.files import expanded

__all__ = ["INTERRUPTED", "counted", "print_metrics", "report", "reports_errors", "warn"]

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

# Errors that are the user's or the system's to mend.
EXPECTED = (ValueError, OSError)
# What a shell reports for a program that Ctrl-C stopped.
INTERRUPTED = 130
# ... and for one whose output nobody reads any more.
PIPE_CLOSED = 141
MAX_LINES = 2


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """A number of things, such as "1 row" and "2,000 rows"."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def warn(line: str) -> None:
    """A line for the user that is not part of the result."""
    typer.echo(f"Warning: {line}", err=True)


def report(error: BaseException) -> int:
    """Tells the user of an error and gives the exit code; what is not expected is a bug."""
    if isinstance(error, typer.Exit):
        return error.exit_code
    if isinstance(error, BrokenPipeError):  # the reader, such as `head`, has seen enough
        return PIPE_CLOSED
    if isinstance(error, KeyboardInterrupt):
        typer.echo(f"Stopped. {error}" if str(error) else "Stopped. Nothing was written.", err=True)
        return INTERRUPTED
    if not isinstance(error, EXPECTED):
        traceback.print_exception(error)
        return 1
    lines = str(error).strip().splitlines() or [type(error).__name__]
    typer.echo(f"Error: {' '.join(lines[:MAX_LINES])}", err=True)
    return 1


def reports_errors(command: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Bad files and bad values end a command with a message; other errors are bugs and stay.

    Warnings are a line each.
    """

    @functools.wraps(command)
    def reporting(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        for name, value in kwargs.items():  # no shell does that after `--out=`
            if isinstance(value, Path):
                kwargs[name] = expanded(value)
        with warnings.catch_warnings():
            warnings.simplefilter("default", UserWarning)
            warnings.showwarning = lambda message, *_, **__: warn(" ".join(str(message).split()))
            try:
                result = command(*args, **kwargs)
                sys.stdout.flush()
            except (*EXPECTED, KeyboardInterrupt) as error:
                code = report(error)
                if code == PIPE_CLOSED:
                    # What is still to be written at the end of the program goes nowhere.
                    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                raise typer.Exit(code) from error
            return result

    return reporting


def print_metrics(title: str, columns: Mapping[str, Mapping[str, float]]) -> None:
    """A table with a row for each metric and a column for each model."""
    from dvip.metrics import MEANINGS  # which loads scikit-learn

    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("metric")
    for name in columns:
        table.add_column(name, justify="right")
    table.add_column("meaning", style="dim")
    for metric in next(iter(columns.values())):
        values = [f"{metrics[metric]:.4g}" for metrics in columns.values()]
        table.add_row(metric, *values, MEANINGS[metric])
    Console().print(table)
