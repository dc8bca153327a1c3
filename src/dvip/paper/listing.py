"""`dvip datasets`: what is known of each dataset, and whether it is there."""

import json
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dvip.paper.datasets import DATASETS, Dataset, cache_folder, data_folders

__all__ = ["list_datasets"]

# Files that are listed by name; of more, the first is named and the others are counted.
MAX_LISTED = 2


class State(NamedTuple):
    """Whether a dataset can be used, in words and in a colour."""

    words: str
    colour: str


def list_datasets(data: Path | None, *, as_json: bool) -> None:
    """Prints all datasets: as a table on a terminal, as lines otherwise, or as JSON."""
    folders = data_folders(data)
    if as_json:
        entries = [_entry(dataset, data) for dataset in DATASETS.values()]
        typer.echo(
            json.dumps({"folders": [str(f) for f in folders], "datasets": entries}, indent=1)
        )
        return
    looked = (
        f"Looked for in {', then '.join(map(str, folders))}; what is public is then downloaded "
        f"to {cache_folder()}."
    )
    console = Console()
    if console.is_terminal:
        console.print(_table(data))
        console.print(Text(looked))
    else:
        for dataset in DATASETS.values():
            typer.echo("\n  ".join([_title(dataset), *_details(dataset, data)]))
        typer.echo(looked)


def _entry(dataset: Dataset, data: Path | None) -> dict[str, object]:
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


def _table(data: Path | None) -> Table:
    table = Table(box=box.SIMPLE, show_lines=True, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for dataset in DATASETS.values():
        state, *details = _details(dataset, data)
        left = Text.assemble((dataset.name, "bold"), f"\n{dataset.task}\n{_shape(dataset)}")
        left.append(f"\n{_splits(dataset)}")
        right = Text.assemble((state, _state(dataset, data).colour), "\n", "\n".join(details))
        table.add_row(left, right)
    return table


def _title(dataset: Dataset) -> str:
    return f"{dataset.name}: {dataset.task}, {_shape(dataset)}, {_splits(dataset)}"


def _details(dataset: Dataset, data: Path | None) -> list[str]:
    return [
        _state(dataset, data).words,
        f"address: {dataset.address}",
        f"licence: {dataset.licence}",
        f"files: {_files(dataset)}",
    ]


def _shape(dataset: Dataset) -> str:
    return f"{dataset.rows:,} x {dataset.num_inputs}"


def _splits(dataset: Dataset) -> str:
    if dataset.num_splits is None:
        return "split by seed"
    return "1 split" if dataset.num_splits == 1 else f"{dataset.num_splits} splits"


def _state(dataset: Dataset, data: Path | None) -> State:
    if not dataset.parts:
        return State("made when it is needed", "green")
    found = dataset.found(data)
    missing = [path for path, place in found.items() if place is None]
    if not missing:
        folders = dict.fromkeys(str(place.parent) for place in found.values() if place)
        return State(f"there: {', '.join(folders)}", "green")
    some = "" if len(missing) == len(found) else f"{len(missing)} of {len(found)} files are "
    by_itself = all(part.addresses for part in dataset.parts if part.path in missing)
    how = "downloaded when needed" if by_itself else "put there by hand"
    return State(f"{some}not there, to be {how}", "yellow" if by_itself else "red")


def _files(dataset: Dataset) -> str:
    paths = dataset.files
    if len(paths) <= MAX_LISTED:
        return ", ".join(paths) or "none"
    folder = PurePosixPath(paths[0]).parent
    return f"{paths[0]} and {len(paths) - 1} more in {folder}/"
