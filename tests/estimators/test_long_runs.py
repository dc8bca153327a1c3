"""A process that learns batch by batch for days holds as much at the end as after a while."""

import gc
import os
from pathlib import Path

import numpy as np
import pytest
from examples import TINY

from dvip import DVIPRegressor

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc"),
]
MAX_GROWTH = 1.02


def held():
    """Memory of the process in pages, and its open files."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages, len(os.listdir("/proc/self/fd"))


def assert_flat(job, times):
    """Nothing grows after the first tenth, however often the job is done."""
    for _ in range(times // 10):
        job()
    pages, files = held()
    for _ in range(times - times // 10):
        job()
    pages_after, files_after = held()
    assert files_after <= files
    assert pages_after <= MAX_GROWTH * pages


def test_a_day_of_partial_fit():
    random = np.random.default_rng(0)
    model = DVIPRegressor.paper(n_layers=1, **TINY)

    def job():
        inputs = random.normal(size=(int(random.integers(16, 200)), 2))
        model.partial_fit(inputs, inputs[:, 0])

    assert_flat(job, 5_000)
    assert np.isfinite(model.predict(np.zeros((1, 2)))).all()
