"""Training steps and predictions of dvip beside GPyTorch's deep GP, interleaved in one run.

    pip install ".[peers]" && python benchmarks/speed.py

The setting is that of the paper on a table of Power's shape (9,568 rows, 4 inputs; generated, since
the time of a step does not depend on the values): S = 20, BNN 10-10, batches of 100, float32; the
deep GP has 100 inducing points a layer. Every round times each contestant once; the table shows the
medians over the rounds and, as the noise, the middle half of them. Compile times are of fresh
processes. Output: `benchmarks/results/speed.json` and `speed.md`.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

ROWS, INPUTS, BATCH = 9_568, 4, 100
OUT = Path(__file__).parent / "results"


def power_like() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    inputs = random.standard_normal((ROWS, INPUTS)).astype(np.float32)
    targets = np.sin(inputs).sum(axis=1) + 0.1 * random.standard_normal(ROWS)
    return inputs, targets.astype(np.float32)


def dvip_contestants(depths: list[int], steps: int) -> dict[str, tuple[Callable[[], None], int]]:
    from dvip import DeepGPRegressor, DVIPRegressor
    from dvip.training import ArrayData, TrainingSettings, train

    inputs, targets = power_like()
    data = ArrayData(inputs, targets[:, None], np.ones(ROWS, np.float32))
    settings = TrainingSettings(steps, BATCH, 5e-3, alpha=0.0, num_samples=1, seed=0)

    def contestant(cls: type, depth: int) -> Callable[[], None]:
        model = cls(n_layers=depth, max_iter=1, batch_size=BATCH).fit(inputs, targets)
        return lambda: train(model.model_, data, settings)

    models = {"dvip": DVIPRegressor, "dvip's deep GP": DeepGPRegressor}
    return {
        f"step, {name}, {depth} layers": (contestant(cls, depth), steps)
        for name, cls in models.items()
        for depth in depths
    }


def gpytorch_contestants(
    depths: list[int], steps: int
) -> dict[str, tuple[Callable[[], None], int]]:
    from gpytorch_deep_gp import Trainer

    inputs, targets = power_like()

    def contestant(depth: int) -> Callable[[], None]:
        trainer = Trainer(inputs, targets, depth, BATCH)
        return lambda: trainer.steps(steps)

    return {f"step, GPyTorch, {depth} layers": (contestant(depth), steps) for depth in depths}


def prediction_contestant(rows: int = 10_000) -> dict[str, tuple[Callable[[], None], int]]:
    from dvip import DVIPRegressor

    inputs, targets = power_like()
    model = DVIPRegressor(n_layers=3, max_iter=200).fit(inputs, targets)
    new = np.random.default_rng(1).standard_normal((rows, INPUTS))
    return {
        f"predict_dist, dvip, 3 layers, {rows} rows, R=100": (lambda: model.predict_dist(new), 1)
    }


def interleaved(
    contestants: dict[str, tuple[Callable[[], None], int]], rounds: int
) -> dict[str, list[float]]:
    """Seconds of one step (or call) of each contestant, in each round."""
    for work, _ in contestants.values():
        work()  # compilation and other things of the first time
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, (work, steps) in contestants.items():
            start = time.perf_counter()
            work()
            seconds[name].append((time.perf_counter() - start) / steps)
    return seconds


FIRST_FIT = """
import time, numpy as np
from dvip import DVIPRegressor
X = np.random.default_rng(0).standard_normal((1000, 4))
start = time.perf_counter()
DVIPRegressor(n_layers={depth}, max_iter=1).fit(X, X[:, 0])
print(time.perf_counter() - start)
"""


def compile_seconds(depth: int) -> dict[str, float]:
    """Seconds of a first fit of one step, in new processes: without and with the cache filled."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "DVIP_COMPILATION_CACHE": cache}
        command = [sys.executable, "-c", FIRST_FIT.format(depth=depth)]
        cold, warm = (
            float(subprocess.run(command, env=environment, capture_output=True, check=True).stdout)
            for _ in range(2)
        )
    return {f"first fit, cold, {depth} layers": cold, f"first fit, warm, {depth} layers": warm}


def markdown(results: dict) -> str:
    def median(name: str) -> float:
        return float(np.median(results["seconds"][name]))

    lines = ["| what | median | middle half | against GPyTorch |", "|---|---|---|---|"]
    for name, values in results["seconds"].items():
        low, middle, high = 1e3 * np.quantile(values, [0.25, 0.5, 0.75])
        peer = name.replace("dvip's deep GP", "GPyTorch").replace("dvip", "GPyTorch")
        ratio = (
            f"{median(peer) / median(name):.0f} times faster" if peer in results["seconds"] else ""
        )
        ratio = "" if peer == name else ratio
        lines.append(f"| {name} | {middle:.3f} ms | {low:.3f} - {high:.3f} ms | {ratio} |")
    lines += [f"| {name} | {value:.2f} s | | |" for name, value in results["compile"].items()]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--layers", type=int, nargs="+", default=[1, 2, 3, 5])
    parser.add_argument("--no-peers", action="store_true", help="time dvip alone")
    arguments = parser.parse_args()
    contestants = dvip_contestants(arguments.layers, steps=1000)
    if not arguments.no_peers:
        contestants |= gpytorch_contestants(arguments.layers, steps=10)
    contestants |= prediction_contestant()
    results = {
        "machine": {"processor": platform.machine(), "cores": os.cpu_count()},
        "seconds": interleaved(contestants, arguments.rounds),
        "compile": compile_seconds(max(arguments.layers)),
    }
    OUT.mkdir(exist_ok=True)
    (OUT / "speed.json").write_text(json.dumps(results, indent=1))
    (OUT / "speed.md").write_text(markdown(results) + "\n")
    print(markdown(results))


if __name__ == "__main__":
    main()
