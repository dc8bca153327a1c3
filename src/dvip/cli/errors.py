"""Expected errors as one or two lines on stderr and an exit code, without a traceback."""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import typer

__all__ = ["reports_errors", "warn"]

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

# What a shell reports for a program that Ctrl-C stopped.
INTERRUPTED = 130
MAX_LINES = 2


def warn(line: str) -> None:
    """A line for the user that is not part of the result."""
    typer.echo(f"Warning: {line}", err=True)


def reports_errors(command: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Bad files and bad values end a command with a message; other errors are bugs and stay."""

    @functools.wraps(command)
    def reporting(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        try:
            return command(*args, **kwargs)
        except (ValueError, OSError) as error:
            lines = str(error).strip().splitlines() or [type(error).__name__]
            typer.echo(f"Error: {' '.join(lines[:MAX_LINES])}", err=True)
            raise typer.Exit(1) from error
        except KeyboardInterrupt:
            typer.echo("Stopped. Nothing was written.", err=True)
            raise typer.Exit(INTERRUPTED) from None

    return reporting
