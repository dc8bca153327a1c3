"""Options that several commands share, and what they do to what a command prints."""

import contextlib
import io
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dvip.registry import MODELS

if TYPE_CHECKING:
    from dvip.tables import TableFile

__all__ = [
    "DEFAULT_MODEL",
    "CoordinatorOption",
    "DecimalOption",
    "DistributedOption",
    "EncodingOption",
    "JsonOption",
    "Model",
    "ModelArgument",
    "NumProcessesOption",
    "ProcessIdOption",
    "QuietOption",
    "SepOption",
    "TableArgument",
    "Task",
    "TestTableArgument",
    "opened",
    "printing",
]


class Task(StrEnum):
    """What kind of target a model has."""

    AUTO = "auto"
    REGRESSION = "regression"
    CLASSIFICATION = "classification"


# Which model to train.
Model = StrEnum("Model", {name: name for name in MODELS})  # type: ignore[misc]
DEFAULT_MODEL = Model("dvip")


def _table(text: str) -> Any:
    """A path, or an address such as s3://bucket/rows.parquet."""
    if "://" not in text:
        return Path(text)
    from dvip.tables.addresses import located

    return located(text)


TABLE_HELP = (
    "A CSV, Parquet or Excel file, a folder of Parquet files, or - for standard input. CSV and "
    "Parquet may be at an address such as s3://bucket/folder."
)
# (Of the type `Path`, an address would lose a slash.)
TableArgument = Annotated[Any, typer.Argument(parser=_table, help=TABLE_HELP, metavar="TABLE")]
TestTableArgument = TableArgument
ModelArgument = Annotated[
    Path, typer.Argument(help="The folder that `dvip fit --out` wrote.", metavar="MODEL")
]

DistributedOption = Annotated[
    bool,
    typer.Option(
        "--distributed", help="One of several processes, as Slurm, Open MPI or Kubernetes say."
    ),
]
CoordinatorOption = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Address of process 0, where no cluster says it."),
]
NumProcessesOption = Annotated[
    int | None, typer.Option(min=1, help="How many processes there are.")
]
ProcessIdOption = Annotated[int | None, typer.Option(min=0, help="Which of them this is, from 0.")]

SepOption = Annotated[
    str | None,
    typer.Option(help="What separates the values of a text table: a sign, or tab; else found out."),
]
EncodingOption = Annotated[
    str | None, typer.Option(help="Of a text table, such as latin-1; UTF-8 by default.")
]
DecimalOption = Annotated[
    str | None, typer.Option(help="The decimal mark of a text table, . or ,; else found out.")
]
QuietOption = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print nothing but warnings and errors.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]


@contextlib.contextmanager
def opened(
    table: Path, sep: str | None, encoding: str | None, decimal: str | None
) -> "Iterator[TableFile]":
    """The table that the options describe, while it is used."""
    from dvip.tables import TextFormat, given_table

    with given_table(table, TextFormat.of_options(sep, encoding, decimal)) as given:
        yield given


@contextlib.contextmanager
def printing(*, quiet: bool = False, elsewhere: bool = False) -> Iterator[None]:
    """Within it, lines go nowhere, or to standard error where standard output is for data."""
    target = io.StringIO() if quiet else sys.stderr if elsewhere else sys.stdout
    with contextlib.redirect_stdout(target):
        yield
