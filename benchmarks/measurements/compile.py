"""Compile time: the first fit, of one step, in new processes; without the cache and with it."""

import os
import subprocess
import sys
import tempfile

from measurements import Options
from results_file import ResultsFile

LAYERS = 5

FIRST_FIT = f"""
import time, numpy as np
from dvip import DVIPRegressor
X = np.random.default_rng(0).standard_normal((1000, 4))
start = time.perf_counter()
DVIPRegressor.paper(n_layers={LAYERS}, max_iter=1).fit(X, X[:, 0])
print(time.perf_counter() - start)
"""


def measure(results: ResultsFile, options: Options) -> None:
    for number in range(options.rounds):
        keys = [{"layers": LAYERS, "cache": cache, "round": number} for cache in ("cold", "warm")]
        if not options.again and all(key in results for key in keys):
            continue
        with tempfile.TemporaryDirectory() as cache:
            for key in keys:  # the first fills the cache for the second
                results.add(key, {"seconds": _first_fit(cache)})


def _first_fit(cache: str) -> float:
    environment = {**os.environ, "DVIP_COMPILATION_CACHE": cache}
    command = [sys.executable, "-c", FIRST_FIT]
    finished = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    return float(finished.stdout)
