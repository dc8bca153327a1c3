"""Two processes against one, the same global batch, one computing thread for each process.

    python benchmarks/distributed.py

Three layers with default settings on generated rows. All processes start before the first round,
compile, and wait; then each round trains with one process and with two, in turn. Results go to
`benchmarks/results/distributed.json`, one entry a round, and the medians to `distributed.md`.
Nothing else should run on the machine meanwhile.
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
NUM_ROWS, NUM_INPUTS, BATCH_SIZE = 100_000, 8, 4_000


def work(process_id: int, num_processes: int, port: int, steps: int) -> None:
    """A process of a training: trains each time that it reads a line, and tells the seconds."""
    # Read by JAX when it starts. The system places the threads: gloo's own thread polls while its
    # peer is early, and on a process bound to one core it takes half of that from the training.
    os.environ["NPROC"] = "1"
    import jax
    import numpy as np

    from dvip import DVIPRegressor

    if num_processes > 1:
        jax.distributed.initialize(f"127.0.0.1:{port}", num_processes, process_id)
    random = np.random.default_rng(0)
    X = random.normal(size=(NUM_ROWS, NUM_INPUTS))
    y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * random.normal(size=NUM_ROWS)
    # Compiles: the program is of 80 steps, which a training repeats.
    DVIPRegressor(batch_size=BATCH_SIZE, max_iter=80).fit(X, y)
    model = DVIPRegressor(batch_size=BATCH_SIZE, max_iter=steps)
    print("ready", flush=True)
    for _ in sys.stdin:
        started, started_cpu = time.perf_counter(), time.process_time()
        model.fit(X, y)
        print(time.perf_counter() - started, time.process_time() - started_cpu, flush=True)


class Training:
    """The processes of one contestant."""

    def __init__(self, num_processes: int, steps: int):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.processes = [
            subprocess.Popen(
                [sys.executable, __file__, "--worker", f"{i},{num_processes},{port},{steps}"],
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


def measure(rounds: int, steps: int) -> None:
    results = ResultsFile(OUT)
    trainings = {number: Training(number, steps) for number in (1, 2)}
    for training in trainings.values():
        assert set(training.hear()) == {"ready"}
    for index in range(rounds):
        for number, training in trainings.items():
            seconds, cpu = training.seconds()
            measured = {"rows_per_second": BATCH_SIZE * steps / seconds, "cpu_seconds": cpu}
            results.add({"processes": number, "round": index}, {**measured, "steps": steps})
    for training in trainings.values():
        training.end()
    write_table(results)


def write_table(results: ResultsFile) -> None:
    rates = {
        number: [entry["rows_per_second"] for entry in results if entry["processes"] == number]
        for number in (1, 2)
    }
    ratios = [two / one for one, two in zip(rates[1], rates[2], strict=True)]
    lines = ["| processes, a computing thread each | rows a second, median | of the rounds |", "|---|---|---|"]
    for number, values in rates.items():
        spread = f"{min(values):,.0f} to {max(values):,.0f}"
        lines.append(f"| {number} | {statistics.median(values):,.0f} | {spread} |")
    lines += [
        "",
        f"Ratio: {statistics.median(ratios):.2f}, median of {len(ratios)} interleaved rounds "
        f"({min(ratios):.2f} to {max(ratios):.2f}). Batches of {BATCH_SIZE:,} rows, three layers.",
    ]
    text = "\n".join(lines) + "\n"
    OUT.with_suffix(".md").write_text(text)
    print(text)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=1_600, help="of a training, a multiple of 80")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(*map(int, options.worker.split(",")))
    else:
        measure(options.rounds, options.steps)


if __name__ == "__main__":
    main()
