"""A new prior is its own file and a line in the registry: everything finds it by its name."""

import numpy as np
import pytest
from examples import TINY, RandomWaves

from dvip import DVIPRegressor, load
from dvip.registry import PRIORS

INPUTS = np.random.default_rng(0).normal(size=(40, 2))
TARGETS = INPUTS.sum(axis=1)


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setitem(PRIORS._homes, "waves", "examples:RandomWaves")


@pytest.mark.parametrize("prior", ["waves", RandomWaves(num_waves=5)], ids=["name", "object"])
def test_estimators_and_files_know_it(prior, registered, tmp_path):
    options = {**TINY, "max_iter": 20, "prior": prior}
    model = DVIPRegressor.paper(n_layers=1, **options).fit(INPUTS, TARGETS)
    processes = [stage.layer.process for stage in model.model_.network.stages]
    assert all(type(process) is RandomWaves for process in processes)
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.get_params()["prior"] == prior
    assert np.array_equal(again.predict(INPUTS), model.predict(INPUTS))


def test_errors_list_it(registered):
    with pytest.raises(ValueError, match=r"'sines'.*\bwaves\b"):
        DVIPRegressor.paper(prior="sines").fit(INPUTS, TARGETS)
