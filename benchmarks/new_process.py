"""One fit and prediction in a process of its own: its time, scores and memory, nobody else's.

Compilation starts from an empty cache, so that it is part of the seconds. Imports are not.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import contestants
import tables


def fit_in_new_process(
    contestant: str, settings: dict[str, Any], table: tuple[str, int] | None
) -> dict[str, Any] | None:
    """What `fit_and_score` measures; `table` is a UCI set and split, or the one like Power.

    A run that fails is reported and gives None: the others need not wait for it.
    """
    with tempfile.TemporaryDirectory() as cache:
        finished = subprocess.run(
            [sys.executable, __file__, json.dumps([contestant, settings, table])],
            env={**os.environ, "DVIP_COMPILATION_CACHE": cache},
            capture_output=True,
            text=True,
            check=False,
        )
    if finished.returncode:
        print(f"{contestant} {settings} {table or ''} failed:", finished.stderr, sep="\n")
        return None
    return json.loads(finished.stdout.splitlines()[-1])


def fit_and_score(
    contestant: str, settings: dict[str, Any], table: tuple[str, int] | None
) -> dict[str, Any]:
    split = published_split(*table) if table else tables.power_like()
    model = contestants.make(contestant, settings)
    megabytes_before = peak_megabytes()
    start = time.perf_counter()
    model.fit(split.inputs, split.targets)
    fitted = time.perf_counter()
    distribution = model.predict_dist(split.test_inputs)
    predicted = time.perf_counter()
    megabytes = peak_megabytes()
    from dvip.metrics import regression_metrics  # not part of the contestant's memory

    scores = regression_metrics(distribution, split.test_targets)
    return {
        "seconds": fitted - start,
        "prediction_seconds": predicted - fitted,
        "megabytes_imports": megabytes_before,
        "megabytes": megabytes,
        "test_rows": len(split.test_targets),
        **{name: scores[name] for name in ("nll", "rmse", "crps", "coverage_90")},
    }


def published_split(dataset: str, split: int) -> Any:
    from dvip.data import load_split  # not part of the memory that is measured, on another table

    return load_split(dataset, split)


def peak_megabytes() -> float:
    """The most memory that this process has held so far."""
    status = Path("/proc/self/status")
    if status.exists():
        # Not ru_maxrss: there, Linux counts the process that started this one.
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    unit = 1024**2 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


if __name__ == "__main__":
    print(json.dumps(fit_and_score(*json.loads(sys.argv[1]))))
