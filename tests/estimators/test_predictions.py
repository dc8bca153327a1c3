"""Intervals, quantiles, variances and sets of labels: the same numbers as the distribution has."""

import numpy as np
import pandas as pd
import pytest
from examples import TINY, regression_data

import dvip.estimators.predictions
from dvip import DVIPClassifier, DVIPRegressor, PredictionSet

SETTINGS = {**TINY, "n_layers": 2}
X, Y = regression_data(num_targets=2)


@pytest.fixture(scope="module")
def model():
    return DVIPRegressor.paper(**SETTINGS).fit(X, Y[:, 0], noise_std=2.0)


@pytest.fixture(scope="module")
def of_several():
    return DVIPRegressor.paper(**{**SETTINGS, "n_layers": 1}).fit(X, Y)


@pytest.fixture(scope="module")
def classifier():
    labels = np.array(["low", "middle", "high"])[np.digitize(Y[:, 0], [90, 110])]
    return DVIPClassifier.paper(**{**SETTINGS, "n_layers": 1}).fit(X, labels)


@pytest.mark.parametrize("noise_std", [None, 25.0])
def test_they_are_those_of_the_distribution(model, noise_std, monkeypatch):
    monkeypatch.setattr(dvip.estimators.predictions, "COMPONENTS_AT_ONCE", 9 * 11)
    dist = model.predict_dist(X, noise_std)
    intervals = model.predict_interval(X, 0.8, noise_std)
    assert intervals.shape == (len(X), 2)
    np.testing.assert_allclose(intervals, np.stack(dist.interval(0.8), axis=-1), rtol=1e-9)
    quantiles = model.predict_quantiles(X, [0.9, 0.1], noise_std=noise_std)
    np.testing.assert_allclose(quantiles[:, 0], dist.quantile(0.9), rtol=1e-9)
    np.testing.assert_allclose(quantiles[:, 1], dist.quantile(0.1), rtol=1e-9)
    np.testing.assert_allclose(model.predict_var(X, noise_std), dist.variance, rtol=1e-9)


def test_several_targets_are_an_axis_before_the_quantiles(of_several):
    dist = of_several.predict_dist(X)
    quantiles = of_several.predict_quantiles(X, [0.1, 0.5, 0.9])
    assert quantiles.shape == (len(X), 2, 3)
    assert np.array_equal(quantiles[..., 1], dist.median)
    assert np.array_equal(quantiles[:, 1, 2], dist.target(1).quantile(0.9))
    assert of_several.predict_interval(X).shape == (len(X), 2, 2)
    assert of_several.predict_var(X).shape == (len(X), 2)


def test_no_rows_give_no_rows(model, of_several, classifier):
    exact = DVIPRegressor(inference="exact").fit(X, Y[:, 0])
    for each in (model, exact):
        assert each.predict(X[:0]).shape == (0,)
        assert [part.shape for part in each.predict(X[:0], return_std=True)] == [(0,), (0,)]
        assert each.predict_interval(X[:0]).shape == (0, 2)
        assert len(each.predict_dist(X[:0])) == 0
        assert each.sample_functions(3, 0)(X[:0]).shape == (3, 0)
    assert of_several.predict_quantiles(X[:0], [0.1, 0.5, 0.9]).shape == (0, 2, 3)
    assert classifier.predict(X[:0]).shape == (0,)
    assert classifier.predict_proba(X[:0]).shape == (0, 3)
    assert len(classifier.predict_set(X[:0])) == 0
    with pytest.raises(ValueError, match="3 features"):
        model.predict(X[:0, :2])
    with pytest.raises(ValueError, match="0 sample"):
        DVIPRegressor().fit(X[:0], Y[:0, 0])


def test_no_rows_of_a_table():
    table = pd.DataFrame({"a": X[:, 0], "b": np.where(X[:, 1] > 5, "yes", "no")})
    model = DVIPRegressor.paper(**{**SETTINGS, "n_layers": 1}).fit(table, Y[:, 0])
    assert model.predict(table[:0]).shape == (0,)
    with pytest.raises(ValueError, match="0 numbers"):
        DVIPRegressor().fit(table[:0], Y[:0, 0])


def test_log_probabilities(classifier):
    logs = classifier.predict_log_proba(X)
    np.testing.assert_allclose(np.exp(logs), classifier.predict_proba(X))


@pytest.mark.parametrize("coverage", [0.05, 0.5, 0.9, 0.999])
def test_sets_are_the_smallest_that_hold_the_probability(classifier, coverage):
    sets = classifier.predict_set(X, coverage)
    probabilities = classifier.predict_proba(X)
    held = np.where(sets.mask, probabilities, 0).sum(axis=1)
    assert (held >= coverage - 1e-9).all()
    smallest = np.where(sets.mask, probabilities, 1).min(axis=1)
    assert (held - smallest < coverage).all()
    # What is in the set is at least as probable as what is not.
    assert (smallest >= np.where(sets.mask, 0, probabilities).max(axis=1)).all()
    labels = classifier.predict(X)
    assert all(labels[row] == sets[row][0] for row in range(len(X)))
    assert sets.contains(labels).all()
    assert np.array_equal(sets.sizes, [len(row) for row in sets])
    assert "60 rows" in repr(sets)


def test_labels_that_are_not_in_a_set():
    sets = PredictionSet.of(np.array([[0.6, 0.4], [0.05, 0.95]]), np.array([3, 8]), 0.9)
    assert sets.contains([8, 3]).tolist() == [True, False]
    assert sets.contains(np.array([5, 8])).tolist() == [False, True]
    assert sets.contains(pd.Series([3, 8])).tolist() == [True, True]
    with pytest.raises(ValueError, match="3 labels for 2 sets"):
        sets.contains([3, 3, 8])


@pytest.mark.parametrize("coverage", [0, 1, 90, -0.5, None, "0.9", [0.5, 0.9], True, float("nan")])
def test_coverages_that_cannot_be(model, classifier, coverage):
    for method in (model.predict_interval, classifier.predict_set):
        with pytest.raises(ValueError, match=r"coverage=.*such as 0\.9"):
            method(X, coverage)


@pytest.mark.parametrize("quantiles", [0.5, [], [0.1, 1.0], [[0.5]], ["0.5"], [None], None])
def test_quantiles_that_cannot_be(model, quantiles):
    with pytest.raises(ValueError, match="quantiles="):
        model.predict_quantiles(X, quantiles)
