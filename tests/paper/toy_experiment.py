"""Small runs of a generated dataset, which the tests of experiments share."""

import json
import time

from dvip.paper.grids import EXPERIMENTS

STEPS = 50  # with fewer, there is a warning


def toy_runs(*splits):
    return EXPERIMENTS["prior-constraint"].runs(["toy"], ["vip-elbo"], splits, max_iter=STEPS)


def stored(folder):
    """Every result below a folder, without what differs from run to run."""
    results = {}
    for path in folder.rglob("*.json"):
        result = json.loads(path.read_text())
        for name in ("seconds", "cpu_seconds", "scoring_seconds", "finished"):
            del result[name]
        results[path.relative_to(folder)] = result
    return results


def wait_until(happens, seconds=100):
    for _ in range(10 * seconds):
        if happens():
            return
        time.sleep(0.1)
    raise AssertionError("It did not happen.")
