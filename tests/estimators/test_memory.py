"""Memory does not grow with what need not be held; what is done in parts has the same result."""

import tracemalloc

import numpy as np
import pytest
from examples import TINY, regression_data

from dvip import DVIPRegressor, GaussianMixture
from dvip.distributions import predictive
from dvip.estimators import scales
from dvip.estimators.scales import Standardiser, decided_by_one_row, merge_duplicates
from dvip.prediction import MAX_INPUT_NUMBERS, rows_at_once

RANDOM = np.random.default_rng(0)


def peak_bytes(function, *arguments):
    """The most that the arrays of NumPy held during the call, and its result."""
    tracemalloc.start()
    try:
        result = function(*arguments)
        return tracemalloc.get_traced_memory()[1], result
    finally:
        tracemalloc.stop()


def test_predictions_keep_no_components():
    inputs, targets = regression_data(40)
    model = DVIPRegressor.paper(
        n_layers=2, **TINY | {"max_iter": 50, "n_predictive_samples": 1_000}
    )
    model.fit(inputs, np.stack([targets, targets], axis=1))
    rows = np.tile(inputs, (15, 1))
    for asked in (rows[:3], rows):  # compiles
        model.predict(asked, return_std=True)
    model.predict_dist(rows)
    components = len(rows) * 2 * 1_000
    peak, _ = peak_bytes(lambda: model.predict(rows, return_std=True))
    assert peak < 2 * components  # bytes; all of them would be 16 a component, and more
    peak, distribution = peak_bytes(model.predict_dist, rows)
    assert distribution.shape == (len(rows), 2, 1_000)
    assert peak < 28 * components  # of which the result has 16


def test_rows_at_once_are_fewer_where_there_are_many_inputs():
    assert rows_at_once(1, 1, 100_000) * 100_000 <= MAX_INPUT_NUMBERS
    assert rows_at_once(1, 1, MAX_INPUT_NUMBERS * 2) == 1
    assert rows_at_once(1, 1, 1_000) == rows_at_once(1)


@pytest.mark.parametrize("shape", [(60,), (60, 4)], ids=["one target", "targets"])
def test_a_distribution_in_parts(shape, monkeypatch):
    components = (*shape, 5)
    noises = (RANDOM.uniform(size=shape[1:]), RANDOM.uniform(size=components))
    y = RANDOM.normal(size=shape)
    for noise in noises:
        distribution = GaussianMixture(
            RANDOM.normal(size=components), RANDOM.uniform(size=components), noise
        )

        def results(distribution=distribution):
            return (
                distribution.std,
                distribution.cdf(y),
                distribution.log_prob(y),
                distribution.crps(y),
                distribution.quantile([0.1, 0.7]),
                distribution.sample(3, random_state=0),
            )

        whole = results()
        monkeypatch.setattr(predictive, "MAX_COMPONENTS", 70)
        for one, other in zip(whole, results(), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12)
        monkeypatch.undo()


def test_a_distribution_is_not_copied(monkeypatch):
    monkeypatch.setattr(predictive, "MAX_COMPONENTS", 20_000)
    means = RANDOM.normal(size=(1_000, 10, 100))
    distribution = GaussianMixture(means, np.ones_like(means), np.ones(10))
    for question in (
        lambda: distribution.std,
        lambda: distribution.quantile(0.9),
        lambda: distribution.log_prob(0.0),
        lambda: distribution.cdf(0.0),
        lambda: distribution.sample(2, random_state=0),
    ):
        assert peak_bytes(question)[0] < means.nbytes / 2


def test_scaling_large_tables(monkeypatch):
    values, weights = RANDOM.normal(size=(300, 2_000)), RANDOM.uniform(size=300)
    values[100:200] = values[:100]  # of which the targets are the same, too
    targets = values[:, :1]

    def results():
        scaler = Standardiser.fit(values, weights)
        merged = merge_duplicates(values, targets, weights)
        scaled = scaler.transform(values, "float32")
        return scaler.mean, scaler.scale, scaled, decided_by_one_row(values), *merged

    whole = results()
    assert len(whole[-1]) == 200
    monkeypatch.setattr(scales, "MAX_NUMBERS", 10_000)
    for one, other in zip(whole, results(), strict=True):
        assert np.array_equal(one, other)
    for question, copies in (
        (lambda: Standardiser.fit(values, weights), 0.5),
        (lambda: decided_by_one_row(values), 0.5),
        (lambda: Standardiser.fit(values, weights).transform(values, "float32"), 1.0),
        (lambda: merge_duplicates(values, targets, weights), 2.2),
    ):
        assert peak_bytes(question)[0] < copies * values.nbytes
