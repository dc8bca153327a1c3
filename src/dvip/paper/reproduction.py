"""`dvip reproduce`: an experiment of the paper, its runs and then its tables and figures."""

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table as RichTable
from rich.text import Text

from dvip.batches import Part
from dvip.cli.console import INTERRUPTED
from dvip.files import lock, replace_file
from dvip.paper.grids import EXPERIMENTS, Experiment
from dvip.paper.page import html_report, write_experiment
from dvip.paper.results import LOCKS, Results, Run
from dvip.paper.runs import Outcome, run_all
from dvip.paper.summaries import Table, agreement, summarise, summarise_all, tables
from dvip.paper.verdicts import verdicts

__all__ = ["list_experiments", "parse_part", "part_of", "reproduce_experiment", "write_report"]

# Words for what became of runs, in the order of a summary.
STATES = {
    "done": "done",
    "skipped": "were there",
    "elsewhere": "being done by another process",
    "diverged": "diverged",
    "failed": "failed",
}
# Characters between two columns of a table in a terminal.
BORDER = 3


def list_experiments() -> None:
    """Prints the experiments with their datasets and methods."""
    for experiment in EXPERIMENTS.values():
        typer.echo(f"{experiment.name}: {experiment.title}")
        typer.echo(f"  datasets: {' '.join(experiment.datasets)}")
        typer.echo(f"  methods:  {' '.join(experiment.methods)}")
        for method, datasets in experiment.datasets_of.items():
            typer.echo(f"  {method} only on: {' '.join(datasets)}")


def reproduce_experiment(
    name: str,
    out: Path,
    *,
    datasets: Sequence[str],
    methods: Sequence[str],
    splits: Sequence[int],
    seeds: Sequence[int],
    max_iter: int | None,
    data: Path | None,
    jobs: int,
    part: str | None,
    force: bool,
) -> None:
    """Does the runs that are missing, and writes the experiment's tables and figures."""
    if name not in EXPERIMENTS:
        known = ", ".join(EXPERIMENTS)
        raise ValueError(f"There is no experiment {name!r}; choose from {known}.")
    experiment = EXPERIMENTS[name]
    runs = experiment.runs(datasets, methods, splits, seeds, max_iter)
    runs = part_of(runs, parse_part(part)) if part else runs
    Results(out)  # says so if it cannot be a folder of results
    out.mkdir(parents=True, exist_ok=True)
    if experiment.timed and jobs > 1:
        typer.echo(f"The times of {name} are its results: one run at a time.", err=True)
        jobs = 1
    display = Display(len(runs), jobs)
    try:
        with display:
            outcomes = run_all(
                runs,
                out,
                data=data,
                jobs=jobs,
                force=force,
                on_start=display.start,
                on_end=display.end,
            )
    except KeyboardInterrupt:
        ended = f"{display.ended:,} of {len(runs):,} runs"
        typer.echo(f"Stopped after {ended}; the same command goes on.", err=True)
        raise typer.Exit(INTERRUPTED) from None
    report_outcomes(outcomes)
    show_tables(experiment, out, max_iter)
    if any(outcome.state == "failed" for outcome in outcomes):
        raise typer.Exit(1)


def parse_part(text: str) -> Part:
    """The part that "3/20" names, the third of twenty."""
    index, _, number = text.partition("/")
    if not (index.isdigit() and number.isdigit() and 1 <= int(index) <= int(number)):
        raise ValueError(f"--shard {text}: give a part and how many there are, such as 3/20.")
    return Part(int(index) - 1, int(number))


def part_of(runs: Sequence[Run], part: Part) -> list[Run]:
    """The runs of a part: every run is in exactly one.

    The order of a grid has a period, the number of its methods; shuffled, each part has some of
    all of them.
    """
    shuffled = list(runs)
    Random(0).shuffle(shuffled)
    chosen = set(shuffled[part.index :: part.number])
    return [run for run in runs if run in chosen]


def show_tables(experiment: Experiment, out: Path, max_iter: int | None) -> None:
    """Prints the tables of all results that are there, and writes them and the figures."""
    # Of several processes, the last to write has the results of all.
    with lock(out / LOCKS / "tables", wait=True):
        summary = summarise(experiment, Results(out), max_iter)
        if not summary.cells:
            return
        written = write_experiment(summary, out)
    for table in tables(summary):
        print_table(table)
        verdict = agreement(summary, table.metric)
        if verdict:
            typer.echo(verdict)
    for claim, numbers, verdict in verdicts(summary):
        typer.echo(f"{claim}: {verdict}. {numbers}.")
    typer.echo(f"Wrote {', '.join(map(str, written))}.")


def print_table(table: Table) -> None:
    """A table for a terminal: a column a dataset, ours above the paper's."""
    console = Console()
    console.print(Text(table.title, style="bold"))
    for places in groups_that_fit(table, console.width):
        console.print(_part_of_table(table, places))


def groups_that_fit(table: Table, width: int) -> list[list[int]]:
    """The datasets, by number, in groups that have room side by side: a cut cell says nothing."""
    names = [max(map(len, column)) for column in zip(*(row[:2] for row in table.rows), strict=True)]
    groups: list[list[int]] = []
    left = 0
    for place, dataset in enumerate(table.datasets):
        needed = BORDER + max(len(dataset), *(len(row.texts[place]) for row in table.rows))
        if needed > left:
            groups.append([])
            left = width - 1 - sum(BORDER + name for name in names)
        groups[-1].append(place)
        left -= needed
    return groups


def _part_of_table(table: Table, places: Sequence[int]) -> RichTable:
    """Some of its datasets, and the methods that have something there."""
    shown, previous = RichTable("method", ""), None
    for place in places:
        shown.add_column(table.datasets[place], justify="right")
    for row in table.rows:
        texts = [Text(row.texts[p], style="bold" if row.best[p] else "") for p in places]
        if not any(texts):
            continue
        name = row.method if row.method != previous else ""
        previous = row.method
        shown.add_row(name, row.source, *texts, style="" if row.source == "dvip" else "dim")
    return shown


def write_report(folder: Path, out: Path, *, tables_too: bool, max_iter: int | None) -> None:
    """Writes one HTML page of all results in a folder, and on request its parts beside them."""
    if not folder.is_dir():
        raise ValueError(f"There is no folder {folder}: `dvip reproduce --out` makes one.")
    if out.is_dir():
        raise ValueError(f"{out} is a folder: give the name of a file, such as report.html.")
    summaries = summarise_all(Results(folder), max_iter)
    page = html_report(summaries).encode()
    out.parent.mkdir(parents=True, exist_ok=True)
    replace_file(out, page)
    typer.echo(f"Wrote {out} ({len(page) / 1e6:.1f} MB): open it in a browser.")
    if tables_too:
        for summary in summaries:
            table, *_ = write_experiment(summary, folder)
            typer.echo(f"Wrote {table} and its figures.")


def report_outcomes(outcomes: Sequence[Outcome]) -> None:
    """How many runs ended how, and why some failed."""
    counts = Counter(outcome.state for outcome in outcomes)
    parts = [f"{counts[state]:,} {words}" for state, words in STATES.items() if counts[state]]
    total = "1 run" if len(outcomes) == 1 else f"{len(outcomes):,} runs"
    typer.echo(f"{total}: {', '.join(parts)}." if parts else f"{total}.")
    for message, number in Counter(
        outcome.message for outcome in outcomes if outcome.state == "failed"
    ).items():
        first = next(outcome.run for outcome in outcomes if outcome.message == message)
        more = f" (and {number - 1} more)" if number > 1 else ""
        typer.echo(f"Failed: {first}{more}: {message}", err=True)


class Display:
    """Runs done, running and left, with an estimate of the time: live, or a line for each run."""

    def __init__(self, total: int, jobs: int):
        self.total, self.jobs = total, jobs
        self.ended = 0
        self.seconds: list[float] = []
        # When each of them began.
        self.running: dict[Run, float] = {}
        self.console = Console(stderr=True)
        self.live = Live(console=self.console, get_renderable=self._text, refresh_per_second=2)

    def __enter__(self) -> "Display":
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.live.stop()

    def start(self, run: Run) -> None:
        """A run begins, or begins again."""
        self.running[run] = time.monotonic()

    def end(self, outcome: Outcome) -> None:
        """A run ends, or is found to be there."""
        self.ended += 1
        began = self.running.pop(outcome.run, None)
        if outcome.state == "skipped":
            return
        if outcome.state == "done" and began is not None:
            self.seconds.append(time.monotonic() - began)
        self.console.print(
            Text(f"[{self.ended}/{self.total}] {outcome.run}: {self._words(outcome)}")
        )

    def _words(self, outcome: Outcome) -> str:
        if outcome.state == "done":
            return f"{outcome.seconds:.0f} s{self._estimate()}"
        return STATES[outcome.state]

    def _estimate(self) -> str:
        left = self.total - self.ended
        if not self.seconds or not left:
            return ""
        seconds = left * sum(self.seconds) / len(self.seconds) / self.jobs
        return f", about {duration(seconds)} left"

    def _text(self) -> Text:
        names = "; ".join(map(str, self.running))
        left = self.total - self.ended - len(self.running)
        counts = f"{self.ended} of {self.total} done, {len(self.running)} running, {left} left"
        return Text(f"{counts}{self._estimate()}\n  {names}")


def duration(seconds: float) -> str:
    """A time for people: 50 s, 7 min, 3.2 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
