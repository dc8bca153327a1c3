"""The commands of the paper: `dvip reproduce`, `dvip report` and `dvip datasets`.

What they do is imported when they run: `--help` is quick.
"""

import json
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dvip.cli.console import reports_errors
from dvip.cli.options import (
    DecimalOption,
    EncodingOption,
    SepOption,
    TestTableArgument,
    opened,
)

if TYPE_CHECKING:
    from dvip.paper.datasets.dataset import Dataset

__all__ = ["commands"]

commands = typer.Typer()


@commands.command()
@reports_errors
def reproduce(
    experiment: Annotated[
        str | None, typer.Argument(help="Such as uci; without one, all are listed.")
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Folder of the results; what it has already is not done again.")
    ] = Path("results"),
    dataset: Annotated[
        list[str] | None, typer.Option(help="Only this dataset. Repeat it for several.")
    ] = None,
    method: Annotated[
        list[str] | None, typer.Option(help="Only this method. Repeat it for several.")
    ] = None,
    split: Annotated[
        list[int] | None, typer.Option(min=0, help="Only this split. Repeat it for several.")
    ] = None,
    seed: Annotated[
        list[int] | None, typer.Option(min=0, help="Only this seed. Repeat it for several.")
    ] = None,
    max_iter: Annotated[
        int | None,
        typer.Option(min=1, help="Training steps, instead of each method's own; kept apart."),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder of the datasets, before $DVIP_DATA and the cache.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Runs at the same time.")] = 1,
    part: Annotated[
        str | None, typer.Option("--shard", help="A part of the runs, such as 3/20, for clusters.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Repeat runs that are there.")] = False,
) -> None:
    """Run an experiment of the paper, and compare with what the paper has.

    Every run is one file, written when it ends. Stop it at any time: the same command goes on
    with what is missing. Several processes may work on the same folder.

    \b
    Examples:
      dvip reproduce
      dvip reproduce uci --dataset energy --method dvip-3 --split 0
      dvip reproduce uci --split 0 --split 1 --jobs 2
      dvip reproduce gp-prior --dataset kin8nm --shard 3/20
      dvip report results --out report.html
    """
    from dvip.paper.reproduction import list_experiments, reproduce_experiment

    if experiment is None:
        list_experiments()
        return
    reproduce_experiment(
        experiment,
        out,
        datasets=dataset or [],
        methods=method or [],
        splits=split or [],
        seeds=seed or [],
        max_iter=max_iter,
        data=data,
        jobs=jobs,
        part=part,
        force=force,
    )


@commands.command()
@reports_errors
def report(
    folder: Annotated[
        Path,
        typer.Argument(
            help="What `dvip fit --out` wrote, a model, or `dvip reproduce --out`, results.",
            metavar="MODEL|RESULTS",
        ),
    ],
    table: TestTableArgument = None,
    out: Annotated[Path, typer.Option(help="The HTML file to write.")] = Path("report.html"),
    tables: Annotated[
        bool,
        typer.Option("--tables", help="Write Markdown tables and PNG figures into RESULTS too."),
    ] = False,
    max_iter: Annotated[
        int | None, typer.Option(min=1, help="The runs of `dvip reproduce --max-iter` instead.")
    ] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(help="The target column; needed only for models that Python code saved."),
    ] = None,
    noise_column: Annotated[
        list[str] | None,
        typer.Option(help="The column of known errors; needed only where --target is."),
    ] = None,
    sep: SepOption = None,
    encoding: EncodingOption = None,
    decimal: DecimalOption = None,
) -> None:
    """Write one HTML page: of a model, judged by a table, or of all results of the paper.

    A model's page has its scores beside baselines, its calibration, the effects of the most
    important columns, and rows to look at. Give it a table that the model has not seen.

    \b
    Examples:
      dvip report model unseen.csv --out page.html
      dvip report results
      dvip report results --out report.html --tables
      dvip report results --max-iter 2000
    """
    from dvip.cli.model_report import is_model, report_model
    from dvip.paper.reproduction import write_report

    if table is None and is_model(folder):
        raise ValueError(
            f"{folder} is a model: name a table to judge it by, best of all one that it has not "
            "seen."
        )
    if table is None:
        write_report(folder, out, tables_too=tables, max_iter=max_iter)
        return
    if tables or max_iter is not None:
        raise ValueError(
            "--tables and --max-iter are for results, not for a model: leave them out."
        )
    with opened(table, sep, encoding, decimal) as given:
        report_model(folder, given, out, target or [], noise_column or [])


@commands.command()
@reports_errors
def datasets(
    data: Annotated[Path | None, typer.Option(help="A folder to look in first.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """List the datasets that are known by name, and which of them are there.

    They are looked for in the folder that --data names, in $DVIP_DATA and in the user's cache;
    public files that are in none of them are downloaded when they are needed.

    \b
    Examples:
      dvip datasets
      dvip datasets --data ~/data
      dvip datasets --json
    """
    list_datasets(data, as_json=as_json)


# Files that are listed by name; of more, the first is named and the others are counted.
MAX_LISTED = 2


def list_datasets(data: Path | None, *, as_json: bool) -> None:
    """Prints all datasets: as a table on a terminal, as lines otherwise, or as JSON."""
    from dvip.paper.datasets.catalogue import DATASETS
    from dvip.paper.datasets.dataset import cache_folder, data_folders

    folders = [str(folder) for folder in data_folders(data)]
    if as_json:
        entries = [_entry(dataset, data) for dataset in DATASETS.values()]
        typer.echo(json.dumps({"folders": folders, "datasets": entries}, indent=1))
        return
    looked = (
        f"Looked for in {', then '.join(folders)}; what is public is then downloaded "
        f"to {cache_folder()}."
    )
    console = Console()
    if console.is_terminal:
        console.print(_table(DATASETS.values(), data))
        console.print(Text(looked))
    else:
        for dataset in DATASETS.values():
            title = f"{dataset.name}: {', '.join(_about(dataset))}"
            typer.echo("\n  ".join([title, _state(dataset, data)[0], *_details(dataset)]))
        typer.echo(looked)


def _entry(dataset: "Dataset", data: Path | None) -> dict[str, object]:
    found = dataset.found(data)
    return {
        "name": dataset.name,
        "task": dataset.task,
        "rows": dataset.rows,
        "inputs": dataset.num_inputs,
        "splits": dataset.num_splits,
        "address": dataset.address,
        "licence": dataset.licence,
        "files": {path: None if place is None else str(place) for path, place in found.items()},
        "there": None not in found.values(),
        "downloads": all(part.addresses for part in dataset.parts),
    }


def _table(datasets: "Iterable[Dataset]", data: Path | None) -> Table:
    table = Table(box=box.SIMPLE, show_lines=True, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for dataset in datasets:
        left = Text.assemble((dataset.name, "bold"), *(f"\n{line}" for line in _about(dataset)))
        right = Text.assemble(_state(dataset, data), "\n", "\n".join(_details(dataset)))
        table.add_row(left, right)
    return table


def _about(dataset: "Dataset") -> list[str]:
    splits = {None: "split by seed", 1: "1 split"}
    return [
        dataset.task,
        f"{dataset.rows:,} x {dataset.num_inputs}",
        splits.get(dataset.num_splits, f"{dataset.num_splits} splits"),
    ]


def _details(dataset: "Dataset") -> list[str]:
    files = ", ".join(dataset.files) or "none"
    if len(dataset.files) > MAX_LISTED:
        folder = PurePosixPath(dataset.files[0]).parent
        files = f"{dataset.files[0]} and {len(dataset.files) - 1} more in {folder}/"
    return [f"address: {dataset.address}", f"licence: {dataset.licence}", f"files: {files}"]


def _state(dataset: "Dataset", data: Path | None) -> tuple[str, str]:
    """Whether a dataset can be used, in words and in a colour."""
    if not dataset.parts:
        return "made when it is needed", "green"
    found = dataset.found(data)
    missing = [path for path, place in found.items() if place is None]
    if not missing:
        folders = dict.fromkeys(str(place.parent) for place in found.values() if place)
        return f"there: {', '.join(folders)}", "green"
    some = "" if len(missing) == len(found) else f"{len(missing)} of {len(found)} files are "
    by_itself = all(part.addresses for part in dataset.parts if part.path in missing)
    how = "downloaded when needed" if by_itself else "put there by hand"
    return f"{some}not there, to be {how}", "yellow" if by_itself else "red"
