"""Streaming: ways to shuffle rows of a file, the time of a step, and memory with millions of rows.

    python benchmarks/streaming.py --folder SCRATCH [--only shuffling,steps,large]

Tables of 27 inputs and a target are generated into the scratch folder and removed afterwards.

- shuffling: a million rows, in random order and sorted by the target. "memory" is all rows in
  memory, shuffled in full; "cache" is dvip's: records in a file, random pages of 4 KB, shuffled in
  a buffer; "row groups" reads the Parquet file itself, two random row groups of 100,000 rows at a
  time, shuffled together. The correlation is that of the mean target of neighbouring batches of
  100; the score is that of a model of two layers after 3,000 steps, on other rows.
- steps: the time of a training step of three layers on rows in memory and streamed, interleaved.
- large: `dvip fit` for 20,000 steps and `dvip predict --samples 10`, each in a process of its own.

Output: `benchmarks/results/streaming.json` and `.md`.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dvip import DVIPRegressor, open_source
from dvip.batches import Batch
from dvip.estimators.base import DeepEstimator
from dvip.metrics import regression_metrics
from dvip.sources import NumberTargets, StreamedRows, cached_rows
from dvip.training import ArrayData, Data
from new_process import peak_megabytes
from results_file import ResultsFile

OUT = Path(__file__).parent / "results"
INPUTS, BATCH = 27, 100
NAMES = [*(f"x{index}" for index in range(INPUTS)), "y"]
CHUNK, ROW_GROUP = 500_000, 100_000
SHUFFLED_ROWS, QUALITY_STEPS, TIMED_STEPS, ROUNDS = 1_000_000, 3_000, 1_000, 5


def rows_of_table(num_rows: int, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    weights = np.random.default_rng(0).normal(size=INPUTS)
    inputs = random.normal(size=(num_rows, INPUTS)).astype(np.float32)
    noise = 0.3 * random.normal(size=num_rows)
    target = np.sin(inputs @ weights / 3) + inputs[:, 0] * inputs[:, 1] + noise
    return np.column_stack([inputs, target.astype(np.float32)])


def generate(path: Path, num_rows: int) -> None:
    """Chunk by chunk: the table is not in memory."""
    writer = None
    for number, start in enumerate(range(0, num_rows, CHUNK)):
        table = as_table(rows_of_table(min(CHUNK, num_rows - start), number))
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()


def as_table(rows: np.ndarray) -> pa.Table:
    columns = [np.ascontiguousarray(column) for column in rows.T]
    return pa.table(dict(zip(NAMES, columns, strict=True)))


class RowGroups:
    """Batches straight from a Parquet file: two row groups at a time, shuffled together."""

    num_columns = INPUTS + 2

    def __init__(self, path: Path, mean: np.ndarray, scale: np.ndarray):
        self.path, self.mean, self.scale = path, mean, scale
        self.num_rows = pq.read_metadata(path).num_rows
        self.batch_stream = self._batches(np.random.default_rng(0))

    def _batches(self, random: np.random.Generator) -> Iterator[np.ndarray]:
        with pq.ParquetFile(self.path) as file:
            while True:
                for pair in random.permutation(file.num_row_groups).reshape(-1, 2):
                    table = file.read_row_groups([int(group) for group in pair])
                    rows = np.column_stack([column.to_numpy() for column in table.columns])
                    rows = (random.permutation(rows) - self.mean) / self.scale
                    yield from rows.astype(np.float32).reshape(-1, BATCH, INPUTS + 1)

    def batches(self, seed: int, step: int, num_steps: int, batch_size: int) -> Any:
        rows = np.stack([next(self.batch_stream) for _ in range(num_steps)])
        return Batch(rows[..., :-1], rows[..., -1:], np.ones(rows.shape[:2], np.float32))


@contextmanager
def opened(path: Path, way: str) -> Iterator[tuple[Data, np.ndarray, np.ndarray]]:
    """The data of one way to shuffle, ready for its first batch; mean and scale of columns."""
    with cached_rows(open_source(path, target="y"), NumberTargets(), "float32") as (file, content):
        mean, scale = content.mean, content.std
        if way == "cache":
            with closing(StreamedRows(file, content, mean, scale, 1e6)) as data:
                yield data, mean, scale
        elif way == "row groups":
            yield RowGroups(path, mean, scale), mean, scale
        else:
            rows = np.concatenate([batch.to_pandas().to_numpy() for batch in _batches_of(path)])
            rows = ((rows - mean) / scale).astype(np.float32)
            ones = np.ones(len(rows), np.float32)
            yield ArrayData(rows[:, :-1], rows[:, -1:], ones), mean, scale


def _batches_of(path: Path) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(path, pre_buffer=False) as file:
        yield from file.iter_batches(ROW_GROUP)


@contextmanager
def training_on(data: Data) -> Iterator[None]:
    """Within it, estimators that fit a source train on these data instead."""
    original = DeepEstimator._train_on

    def train_on(self: Any, _: Data, inputs: np.ndarray, checkpoints: None) -> None:
        original(self, data, inputs, checkpoints)

    DeepEstimator._train_on = train_on  # type: ignore[method-assign]
    try:
        yield
    finally:
        DeepEstimator._train_on = original  # type: ignore[method-assign]


def measure_shuffling(results: ResultsFile, folder: Path) -> None:
    test = rows_of_table(20_000, 10**6)
    for order in ("random", "sorted"):
        path = folder / f"{order}.parquet"
        rows = rows_of_table(SHUFFLED_ROWS, 0)
        rows = rows[rows[:, -1].argsort()] if order == "sorted" else rows
        pq.write_table(as_table(rows), path, row_group_size=ROW_GROUP)
        del rows
        for way in ("memory", "cache", "row groups"):
            key = {"what": "shuffling", "order": order, "way": way}
            if key in results:
                continue
            with opened(path, way) as (data, _, _):
                start = time.perf_counter()
                data.batches(0, 0, 1, BATCH)
                first = time.perf_counter() - start
                start = time.perf_counter()
                means = [
                    np.asarray(data.batches(0, step, 200, BATCH).targets).mean(axis=(1, 2))
                    for step in range(1, 4_001, 200)
                ]
                seconds = time.perf_counter() - start
                means = np.concatenate(means)
                model = DVIPRegressor.paper(n_layers=2, max_iter=QUALITY_STEPS)
                with training_on(data):
                    model.fit(open_source(path, target="y"))
                scores = regression_metrics(model.predict_dist(_named(test)), test[:, -1])
            results.add(
                key,
                {
                    "first_batch_seconds": first,
                    "batches_per_second": len(means) / seconds,
                    "correlation": float(np.corrcoef(means[1:], means[:-1])[0, 1]),
                    **{name: scores[name] for name in ("nll", "rmse", "crps")},
                },
            )
        path.unlink()


def _named(rows: np.ndarray) -> Any:
    import pandas as pd

    return pd.DataFrame(rows[:, :-1], columns=NAMES[:-1])


def measure_steps(results: ResultsFile, folder: Path) -> None:
    key = {"what": "steps", "rows": 2_000_000}
    if key in results:
        return
    path = folder / "steps.parquet"
    generate(path, key["rows"])
    times: dict[str, list[float]] = {"memory": [], "cache": []}
    with opened(path, "memory") as (memory, _, _), opened(path, "cache") as (cache, _, _):
        for number in range(1 + ROUNDS):
            for way, data in (("memory", memory), ("cache", cache)):
                milliseconds = step_milliseconds(data, path)
                if number:  # the first compiles
                    times[way].append(milliseconds)
    path.unlink()
    medians = {way: statistics.median(values) for way, values in times.items()}
    ratio = statistics.median(b / a for a, b in zip(times["memory"], times["cache"], strict=True))
    results.add(key, {"milliseconds": medians, "rounds": times, "ratio": ratio})


def step_milliseconds(data: Data, path: Path) -> float:
    """Of a step, over a whole training: reading, gathering and computing."""
    model = DVIPRegressor.paper(n_layers=3, max_iter=TIMED_STEPS)
    seconds = []
    original = DeepEstimator._train_on

    def timed(self: Any, _: Data, inputs: np.ndarray, checkpoints: None) -> None:
        start = time.perf_counter()
        original(self, data, inputs, checkpoints)
        seconds.append(time.perf_counter() - start)

    DeepEstimator._train_on = timed  # type: ignore[method-assign]
    try:
        model.fit(open_source(path, target="y"))
    finally:
        DeepEstimator._train_on = original  # type: ignore[method-assign]
    return 1e3 * seconds[0] / TIMED_STEPS


def measure_large(results: ResultsFile, folder: Path, sizes: list[int], steps: int) -> None:
    for num_rows in sizes:
        path, model = folder / f"large-{num_rows}.parquet", folder / f"model-{num_rows}"
        jobs = {
            "fit": ["fit", path, "--target", "y", "--out", model, "--max-iter", steps],
            "predict": ["predict", model, path, "--out", folder / "p.parquet", "--samples", 10],
        }
        keys = {job: {"what": "large", "rows": num_rows, "job": job} for job in jobs}
        if all(key in results for key in keys.values()):
            continue
        generate(path, num_rows)
        for job, arguments in jobs.items():
            measured = in_new_process([str(argument) for argument in arguments], folder)
            results.add(keys[job], {"file_bytes": path.stat().st_size, **measured})
        path.unlink()


def in_new_process(arguments: list[str], folder: Path) -> dict[str, Any]:
    """Seconds and peak memory of a command in a process of its own."""
    finished = subprocess.run(
        [sys.executable, __file__, "--command", json.dumps(arguments)],
        env={**os.environ, "DVIP_ROW_CACHE": str(folder / "rows")},
        capture_output=True,
        text=True,
        check=True,
    )
    print(finished.stdout, finished.stderr)
    return json.loads(finished.stdout.splitlines()[-1])


def run_command(arguments: list[str]) -> None:
    from dvip.cli import app

    start = time.perf_counter()
    app(arguments, standalone_mode=False)
    seconds = time.perf_counter() - start
    print(json.dumps({"seconds": seconds, "megabytes": peak_megabytes()}))


def markdown(results: ResultsFile) -> str:
    def entries(what: str) -> list[dict[str, Any]]:
        return [entry for entry in results if entry["what"] == what]

    lines = [
        "# Streaming",
        "",
        "Ways to shuffle a million rows of a Parquet file (`benchmarks/streaming.py` says how):",
        "",
        "| order of the file | way | first batch | batches of 100 a second | correlation of "
        "neighbouring batches | nll | rmse |",
        "|---|---|---|---|---|---|---|",
    ]
    for entry in entries("shuffling"):
        lines.append(
            f"| {entry['order']} | {entry['way']} | {entry['first_batch_seconds']:.2f} s | "
            f"{entry['batches_per_second']:,.0f} | {entry['correlation']:.3f} | "
            f"{entry['nll']:.3f} | {entry['rmse']:.3f} |"
        )
    for entry in entries("steps"):
        times = entry["milliseconds"]
        lines += [
            "",
            f"A step of three layers, {entry['rows']:,} rows: {times['memory']:.3f} ms from "
            f"memory, {times['cache']:.3f} ms streamed; the median ratio of "
            f"{len(entry['rounds']['cache'])} interleaved rounds is {entry['ratio']:.2f}.",
        ]
    lines += ["", "| rows | command | seconds | peak memory |", "|---|---|---|---|"]
    for entry in entries("large"):
        lines.append(
            f"| {entry['rows']:,} ({entry['file_bytes'] / 1e9:.1f} GB) | dvip {entry['job']} | "
            f"{entry['seconds']:.0f} | {entry['megabytes']:,.0f} MB |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=Path("streaming-scratch"))
    parser.add_argument("--only", default="shuffling,steps,large")
    parser.add_argument("--rows", default="2000000,10000000")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--command", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.command:
        run_command(json.loads(arguments.command))
        return
    arguments.folder.mkdir(parents=True, exist_ok=True)
    os.environ["DVIP_ROW_CACHE"] = str(arguments.folder / "rows")
    results = ResultsFile(OUT / "streaming.json")
    parts = arguments.only.split(",")
    if "shuffling" in parts:
        measure_shuffling(results, arguments.folder)
    if "steps" in parts:
        measure_steps(results, arguments.folder)
    if "large" in parts:
        sizes = [int(size) for size in arguments.rows.split(",")]
        measure_large(results, arguments.folder, sizes, arguments.steps)
    (OUT / "streaming.md").write_text(markdown(results))
    print(markdown(results))


if __name__ == "__main__":
    main()
