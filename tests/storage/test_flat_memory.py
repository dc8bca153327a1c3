"""A process that loads, fits and saves for a long time: memory and open files stay as they are."""

import multiprocessing
import os
from pathlib import Path

import numpy as np
import pytest
from examples import regression_data

from dvip import ArraySource, BayesianNeuralNetwork, DVIPRegressor, load

X, Y = regression_data(num_rows=30)
OPTIONS = dict(
    n_layers=2,
    n_prior_samples=4,
    prior=BayesianNeuralNetwork(hidden=(3,)),
    max_iter=60,
    batch_size=16,
    n_predictive_samples=5,
)
FIRST, ALL = 100, 1_000
PROCESS = Path("/proc/self")

pytestmark = pytest.mark.skipif(not PROCESS.exists(), reason="only Linux tells of its memory")


def num_open_files():
    return len(list((PROCESS / "fd").iterdir()))


def num_bytes():
    return int((PROCESS / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def one_of_each(folder, number):
    """Fits of other seeds, rates and numbers of rows, which share their programs; a load."""
    options = {**OPTIONS, "random_state": number, "learning_rate": 0.01 + 1e-5 * number}
    rows = slice(0, 16 + number % 14)
    model = DVIPRegressor.paper(**options).fit(
        X[rows], Y[rows], checkpoint_dir=folder / str(number)
    )
    model.save(folder / "model")
    load(folder / "model").predict(X[rows])
    if number % 10 == 0:
        DVIPRegressor.paper(**options).fit(ArraySource(X, Y))
        model.partial_fit(X, Y)


def measure(folder, results):
    for number in range(ALL):
        one_of_each(folder, number)
        if number + 1 in (FIRST, ALL):
            results.put((num_bytes(), num_open_files()))


@pytest.mark.faults
def test_a_thousand_fits_and_loads(tmp_path):
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    process = context.Process(target=measure, args=(tmp_path, results))
    process.start()
    (first, files), (last, files_at_the_end) = (results.get(timeout=900) for _ in range(2))
    process.join()
    print(f"{first / 1e6:.1f} MB after {FIRST}, {last / 1e6:.1f} MB after {ALL}")
    assert last < 1.02 * first
    assert files_at_the_end == files


@pytest.mark.slow
def test_files_are_closed(tmp_path):
    one_of_each(tmp_path, 0)
    before = num_open_files()
    for number in (1, 10):
        one_of_each(tmp_path, number)
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "model.json").write_text("{")
    for path in (tmp_path / "damaged", tmp_path / "missing"):
        with pytest.raises(ValueError, match="model"):
            load(path)
    with pytest.raises(ValueError, match="sample_weight"):
        DVIPRegressor.paper(**OPTIONS).fit(X, Y, np.full(30, 1e300), checkpoint_dir=tmp_path / "c")
    assert num_open_files() == before
