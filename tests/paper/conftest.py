"""What the tests of the paper's wing share: small files of data, and finished runs."""

import numpy as np
import pytest
from data_files import UCI_SPLITS, rows_of, write
from toy_experiment import toy_runs

from dvip.paper.runs import run_all


@pytest.fixture(scope="session")
def toy_results(tmp_path_factory):
    """Three finished runs of a generated dataset."""
    folder = tmp_path_factory.mktemp("results")
    outcomes = run_all(toy_runs(0, 1, 2), folder)
    assert [outcome.state for outcome in outcomes] == ["done"] * 3
    return folder


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "data"


@pytest.fixture
def random():
    return np.random.default_rng(0)


@pytest.fixture
def energy(folder, random):
    """A table of energy's shape with a second target, which is not to be used."""
    table = random.standard_normal((6, 10)).round(4)
    place = folder / "uci/energy/data"
    write(place / "data.txt", rows_of(table, "\t"))
    write(place / "index_features.txt", rows_of([[k] for k in range(8)]))
    write(place / "index_target.txt", "8\n")
    for number, (train, test) in UCI_SPLITS.items():
        write(place / f"index_train_{number}.txt", rows_of([[k] for k in train]))
        write(place / f"index_test_{number}.txt", "".join(f"{k:.6e}\n" for k in test))
    return place, table[:, :9]
