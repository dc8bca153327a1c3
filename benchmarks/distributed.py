"""Two processes against one, the same global batch, one computing thread for each process.

    python benchmarks/distributed.py

Three layers with default settings on generated rows, of as many inputs as the streaming benchmark
has and of few, where a step is short and the exchange of gradients counts for more. All processes
start before the first round, compile, and wait; then each round trains with one process and with
two, in turn. Results go to `benchmarks/results/distributed.json`, one entry a round, and the
medians to `distributed.md`. Nothing else should run on the machine meanwhile.
"""

import argparse
import os
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

from results_file import ResultsFile

OUT = Path(__file__).parent / "results" / "distributed.json"
NUM_ROWS, BATCH_SIZE = 100_000, 4_000
# The number of inputs, and the steps of a training: so many that all take about as long.
STEPS = {27: 240, 8: 480}


def work(process_id: int, num_processes: int, port: int, num_inputs: int) -> None:
    """A process of a training: trains each time that it reads a line, and tells the seconds."""
    # Read by JAX when it starts. The system places the threads: gloo's own thread polls while its
    # peer is early, and bound to the same core it competes with the training.
    os.environ["NPROC"] = "1"
    import jax
    import numpy as np

    from dvip import DVIPRegressor

    if num_processes > 1:
        jax.distributed.initialize(f"127.0.0.1:{port}", num_processes, process_id)
    random = np.random.default_rng(0)
    X = random.normal(size=(NUM_ROWS, num_inputs))
    y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * random.normal(size=NUM_ROWS)
    model = DVIPRegressor.paper(batch_size=BATCH_SIZE, max_iter=STEPS[num_inputs])
    model.fit(X, y)
    print("ready", flush=True)
    for _ in sys.stdin:
        started, started_cpu = time.perf_counter(), time.process_time()
        model.fit(X, y)
        print(time.perf_counter() - started, time.process_time() - started_cpu, flush=True)


class Training:
    """The processes of one contestant."""

    def __init__(self, num_processes: int, num_inputs: int):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.processes = [
            subprocess.Popen(
                [sys.executable, __file__, "--worker", f"{i},{num_processes},{port},{num_inputs}"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for i in range(num_processes)
        ]

    def hear(self) -> list[str]:
        """The next line of each process; what is not dvip's own is skipped."""
        lines = []
        for process in self.processes:
            line = "[Gloo]"
            while line.startswith("[Gloo]"):
                line = process.stdout.readline().strip()
            lines.append(line)
        return lines

    def seconds(self) -> tuple[float, float]:
        """The time of one training and of its processor: those of its slowest process."""
        for process in self.processes:
            process.stdin.write("go\n")
            process.stdin.flush()
        times = [tuple(map(float, line.split())) for line in self.hear()]
        return max(wall for wall, _ in times), max(cpu for _, cpu in times)

    def end(self) -> None:
        for process in self.processes:
            process.stdin.close()
        for process in self.processes:
            process.wait(timeout=60)


def measure(num_inputs: int, rounds: int, results: ResultsFile) -> None:
    steps = STEPS[num_inputs]
    trainings = {number: Training(number, num_inputs) for number in (1, 2)}
    for training in trainings.values():
        assert set(training.hear()) == {"ready"}
    for index in range(rounds):
        for number, training in trainings.items():
            seconds, cpu = training.seconds()
            measured = {"rows_per_second": BATCH_SIZE * steps / seconds, "cpu_seconds": cpu}
            key = {"inputs": num_inputs, "processes": number, "round": index}
            results.add(key, {**measured, "steps": steps})
    for training in trainings.values():
        training.end()


def write_table(results: ResultsFile) -> None:
    lines = [
        "| inputs | rows a second, one process | two | ratio, median (of the rounds) |",
        "|---|---|---|---|",
    ]
    for num_inputs in STEPS:
        entries = [entry for entry in results if entry["inputs"] == num_inputs]
        if not entries:
            continue
        one, two = (
            [entry["rows_per_second"] for entry in entries if entry["processes"] == number]
            for number in (1, 2)
        )
        ratios = [b / a for a, b in zip(one, two, strict=True)]
        lines.append(
            f"| {num_inputs} | {statistics.median(one):,.0f} | {statistics.median(two):,.0f} "
            f"| {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) |"
        )
    lines += ["", f"Batches of {BATCH_SIZE:,} rows, three layers, a computing thread a process."]
    text = "\n".join(lines) + "\n"
    OUT.with_suffix(".md").write_text(text)
    print(text)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--inputs", type=int, choices=list(STEPS), help="only with so many inputs")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(*map(int, options.worker.split(",")))
        return
    results = ResultsFile(OUT)
    for num_inputs in [options.inputs] if options.inputs else STEPS:
        measure(num_inputs, options.rounds, results)
    write_table(results)


if __name__ == "__main__":
    main()
