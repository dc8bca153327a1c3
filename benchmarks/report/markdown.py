"""The results as tables in Markdown."""

import math
from collections.abc import Iterable

from contestants import DEEP_GP, DVIP, DVIP_GP, OWN_DEEP_GP
from report.summaries import (
    Mean,
    Rounds,
    different,
    matching,
    qualities,
    round_ratios,
    time_to_quality,
)
from results_file import Entry
from tables import PAPER_NLL


def page(results: dict[str, list[Entry]], machine: dict) -> str:
    """One section for each measurement that has results."""
    sections = []
    for name, entries in results.items():
        if name in SECTIONS and entries:
            sections.append(SECTIONS[name](entries))
            sections += [f"![{FIGURES[name]}]({name}.png)"] if name in FIGURES else []
    return "\n\n".join(["# Benchmarks", _introduction(machine), *sections]) + "\n"


def _introduction(machine: dict) -> str:
    text = (
        "Made by `python benchmarks/run.py`. Speeds are medians over interleaved rounds, with the "
        "middle half of the rounds as the noise; scores are means over splits with their standard "
        "errors."
    )
    if not machine:
        return text
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    return (
        f"{text} {machine['cores']} cores, {machine['processor']}; Python {machine['python']}, "
        f"{versions}."
    )


def _table(title: str, note: str, head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    lines = [line(head), line(["---"] * len(head)), *map(line, rows)]
    return "\n\n".join([f"## {title}", *([note] if note else []), "\n".join(lines)])


def line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _noise(rounds: Rounds, scale: float, digits: int) -> str:
    middle, low, high = (scale * v for v in (rounds.median, rounds.low, rounds.high))
    return f"{middle:,.{digits}f} ({low:,.{digits}f} - {high:,.{digits}f})"


def plus_minus(mean: Mean) -> str:
    alone = f"{mean.mean:.3f}"
    return alone if math.isnan(mean.error) else f"{mean.mean:.3f} ± {mean.error:.3f}"


def _steps(entries: list[Entry]) -> str:
    rows = []
    for name in (DVIP, DVIP_GP, OWN_DEEP_GP):
        for depth in sorted(different(matching(entries, contestant=name), "layers")):
            cells = [name, str(depth)]
            for contestant in (name, DEEP_GP):
                runs = matching(entries, layers=depth, contestant=contestant)
                cells.append(_noise(Rounds.of(r["seconds"] for r in runs), 1e3, 3) if runs else "")
            ratios = round_ratios(
                entries,
                {"layers": depth, "contestant": DEEP_GP},
                {"layers": depth, "contestant": name},
            )
            rows.append([*cells, _noise(ratios, 1.0, 0) if ratios else ""])
    note = (
        "Milliseconds; S = 20, BNN 10-10, batches of 100, float32, a table of Power's shape; the "
        "deep GPs have 100 inducing points a layer. The ratio is that within a round."
    )
    head = ["model", "layers", "milliseconds", DEEP_GP, "times faster"]
    return _table("Training step", note, head, rows)


def _alpha(entries: list[Entry]) -> str:
    rows = []
    for shape in different([{"shape": _shape(entry)} for entry in entries], "shape"):
        of_shape = matching(entries, **shape)
        elbo, alpha = ({"objective": name} for name in ("ELBO", "α = 1"))
        cells = [str(value) for value in shape.values()]
        for objective in (elbo, alpha):
            runs = matching(of_shape, **objective)
            cells.append(_noise(Rounds.of(run["seconds"] for run in runs), 1e3, 3))
        for field in ("seconds", "processor_seconds"):
            ratios = round_ratios(of_shape, alpha, elbo, field)
            cells.append(_noise(ratios, 1.0, 2) if ratios else "")
        rows.append(cells)
    note = (
        "A step with α = 1 and three samples against one on the ELBO with one sample: S = 20, BNN "
        "10-10, batches of 100, float32. The ratios are those within a round, of the clock and of "
        "the processor's time."
    )
    head = ["prior", "inputs", "layers", "ELBO, ms", "α = 1, ms", "times", "times, processor"]
    return _table("The α-energy", note, head, rows)


def _members(entries: list[Entry]) -> str:
    one, five = ({"members": number} for number in (1, 5))
    runs = [Rounds.of(run["seconds"] for run in matching(entries, **key)) for key in (one, five)]
    ratios = round_ratios(entries, five, one)
    cells = [*(_noise(each, 1.0, 1) for each in runs), _noise(ratios, 1.0, 2) if ratios else ""]
    note = (
        "Seconds of a fit; two layers, α = 1, three samples, a table of Power's shape, compiled "
        "before. The ratio is that within a round."
    )
    return _table("Members side by side", note, ["one", "five", "times"], [cells])


def _shape(entry: Entry) -> Entry:
    return {name: entry[name] for name in ("prior", "inputs", "layers")}


def _compile(entries: list[Entry]) -> str:
    rows = []
    for cache in different(entries, "cache"):
        runs = matching(entries, cache=cache)
        rows.append([cache, _noise(Rounds.of(run["seconds"] for run in runs), 1.0, 2)])
    note = f"Seconds of the first fit of {entries[0]['layers']} layers (one step) in a new process."
    return _table("Compile time", note, ["cache", "seconds"], rows)


def _prediction(entries: list[Entry]) -> str:
    rows = []
    for name in different(entries, "contestant"):
        runs = matching(entries, contestant=name)
        count, samples = runs[0]["rows"], runs[0]["samples"]
        per_second = Rounds.of(1 / run["seconds"] for run in runs)
        cells = [name, f"{count:,}", str(samples) if samples > 1 else "none needed"]
        row_samples = _noise(per_second, samples / 1e6, 3) if samples > 1 else ""
        rows.append([*cells, _noise(per_second, 1.0, 0), row_samples])
    note = "Three layers; the exact GP is conditioned on 2,000 rows."
    head = ["model", "rows", "samples", "rows a second", "million row-samples a second"]
    return _table("Prediction", note, head, rows)


def _memory(entries: list[Entry]) -> str:
    rows = []
    for name in different(entries, "contestant"):
        runs = matching(entries, contestant=name)
        peak, imports = (
            Rounds.of(run[field] for run in runs) for field in ("megabytes", "megabytes_imports")
        )
        rows.append([name, _noise(peak, 1.0, 0), f"{imports.median:.0f}"])
    note = (
        "Megabytes at the peak of a process that fits and predicts a table of Power's shape, and "
        "how many of them its imports took."
    )
    return _table("Memory", note, ["model", "peak", "imports"], rows)


def _quality(entries: list[Entry]) -> str:
    rows, reached = [], []
    for dataset in different(entries, "dataset"):
        of_dataset = qualities(entries, dataset)
        paper = f"{PAPER_NLL[dataset]:.2f}" if dataset in PAPER_NLL else ""
        first = time_to_quality(of_dataset)
        if paper:
            cells = (
                [f"{first.settings['max_iter']:,}", f"{first.seconds.mean:.1f}"]
                if first
                else ["not reached", ""]
            )
            reached.append([dataset, paper, *cells, plus_minus(first.nll) if first else ""])
        for q in of_dataset:
            scores = map(plus_minus, (q.nll, q.rmse, q.crps))
            coverage = f"{100 * q.coverage:.1f} %"
            seconds = f"{q.seconds.mean:.1f}"
            rows.append([dataset, q.label, str(q.splits), seconds, *scores, coverage])
    head = ["dataset", "model", "splits", "seconds", "nll", "rmse", "crps", "90 % intervals cover"]
    sections = [_table("Quality", QUALITY_NOTE, head, rows)]
    if reached:
        head = ["dataset", "paper, DVIP 3", "steps", "seconds", "nll"]
        sections.insert(0, _table("Time to quality", TIME_NOTE, head, reached))
    return "\n\n".join(sections)


TIME_NOTE = (
    "dvip's first budget of steps whose mean test NLL is no worse than the paper's by more than "
    "two standard errors, and its seconds of training, compilation included."
)
QUALITY_NOTE = (
    "Published splits; seconds of training, compilation included, each fit in a new process with "
    "an empty cache."
)

SECTIONS = {
    "step": _steps,
    "alpha": _alpha,
    "members": _members,
    "compile": _compile,
    "prediction": _prediction,
    "memory": _memory,
    "quality": _quality,
}

# Measurements that have a plot, and what it shows.
FIGURES = {
    "step": "Milliseconds a training step by depth",
    "quality": "Test negative log-likelihood against seconds of training",
}
