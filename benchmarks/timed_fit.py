"""One fit of `DVIPRegressor()` on some rows of kin40k, in a process of its own, and its times.

DVIP_DATA=... DVIP_COMPILATION_CACHE=... python benchmarks/timed_fit.py ROWS
"""

import json
import sys
import time

import numpy as np

started = time.perf_counter()
from dvip import DVIPRegressor  # noqa: E402  # its time counts

imported = time.perf_counter()
from new_process import peak_megabytes  # noqa: E402
from splits import arena_rows  # noqa: E402

PREDICTED_ROWS = 1_000


def main() -> None:
    inputs, targets = arena_rows("kin40k")
    order = np.random.default_rng(0).permutation(len(inputs))
    rows, others = order[: int(sys.argv[1])], order[-PREDICTED_ROWS:]
    start, processor = time.perf_counter(), time.process_time()
    model = DVIPRegressor().fit(inputs[rows], targets[rows])
    fitted, processor = time.perf_counter(), time.process_time() - processor
    model.predict(inputs[others], return_std=True)
    times = {
        "import_seconds": imported - started,
        "fit_seconds": fitted - start,
        "processor_seconds": processor,
        "prediction_seconds": time.perf_counter() - fitted,
        "megabytes": peak_megabytes(),
    }
    print(json.dumps(times))


if __name__ == "__main__":
    main()
