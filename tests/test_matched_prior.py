"""Network priors that resemble a Gaussian process."""

import jax
import numpy as np
import pytest
from examples import noise_of, random_key, started, values_of

from dvip import BayesianNeuralNetwork, DVIPRegressor, GaussianProcess, Monotone, load
from dvip.processes.matching import covariance_of

SMOOTH = started(GaussianProcess(lengthscale=2.0), 1)


def distance(network):
    """Of the covariance of its functions from that of the process, beside the latter."""
    points = jax.random.normal(random_key(1), (1, 30))
    values = values_of(network, noise_of(network, 2_000, seed=2), points)
    wanted = np.asarray(covariance_of(SMOOTH, points))
    return np.linalg.norm(np.cov(np.asarray(values).T) - wanted) / np.linalg.norm(wanted)


def slowly(case):
    return pytest.param(case, marks=pytest.mark.slow)


@pytest.mark.parametrize("kernel", ["rbf", *map(slowly, ("matern12", "matern32", "matern52"))])
def test_covariances_are_those_of_the_process_functions(kernel):
    process = started(GaussianProcess(kernel, num_frequencies=256), 2, seed=3)
    points = jax.random.normal(random_key(4), (2, 6))
    values = values_of(process, noise_of(process, 10_000, seed=5), points)
    expected = np.asarray(values).T @ np.asarray(values) / len(values)
    np.testing.assert_allclose(covariance_of(process, points), expected, atol=0.05)


OTHERS = ({"constrained": False}, {"zero_mean": True})


@pytest.mark.parametrize("options", [{}, *map(slowly, OTHERS)])
def test_functions_have_nearly_the_covariance(options):
    before = BayesianNeuralNetwork((20,), **options).initialise(1, random_key(0))
    after = BayesianNeuralNetwork.matched_to(SMOOTH, 1, steps=400, hidden=(20,), **options)
    assert distance(before) > 0.5
    assert distance(after) < 0.2
    assert distance(after.initialise(1, random_key(6))) == distance(after)


@pytest.mark.slow
def test_as_a_prior_it_starts_there_and_is_saved(tmp_path):
    prior = BayesianNeuralNetwork.matched_to(SMOOTH, 1, steps=5, hidden=(5,))
    random = np.random.default_rng(0)
    X = random.normal(size=(40, 1))
    y = np.sin(X[:, 0])
    options = dict(prior=prior, n_layers=2, inference="vi", batch_size=20)
    for shared in (True, False):
        model = DVIPRegressor(max_iter=60, shared_prior=shared, **options).fit(X, y)
        model.save(tmp_path / "model")
        loaded = load(tmp_path / "model")
        assert np.array_equal(loaded.predict(X), model.predict(X))
        assert np.array_equal(loaded.prior.start.value, prior.start.value)
        start = model.build_model(np.zeros((1, 1), np.float32)).network.stages[0].layer.process
        copies = start.process if hasattr(start, "process") else start
        assert np.allclose(copies.log_scale, prior.log_scale)
    assert np.array_equal(loaded.fit(X, y).predict(X), model.predict(X))
    with pytest.raises(ValueError, match="matched for 1 inputs, and there are 2"):
        DVIPRegressor(max_iter=60, **options).fit(np.hstack([X, X]), y)


def test_what_cannot_be_matched():
    with pytest.raises(ValueError, match="is no GaussianProcess"):
        BayesianNeuralNetwork.matched_to(BayesianNeuralNetwork(), 1)
    with pytest.raises(ValueError, match="steps=0 must be"):
        BayesianNeuralNetwork.matched_to(SMOOTH, 1, steps=0)
    with pytest.raises(ValueError, match="other than 2 inputs"):
        BayesianNeuralNetwork.matched_to(SMOOTH, 2)
    with pytest.raises(ValueError, match="Monotone cannot be matched"):
        Monotone.matched_to(SMOOTH, 1)
