"""Gradients of function draws, of every kind of regression, against finite differences."""

import warnings

import numpy as np
import pandas as pd
import pytest
from examples import TINY, TINY_DEEP_GP, TINY_SIP, regression_data

from dvip import DeepGPRegressor, DVIPRegressor, SIPRegressor
from dvip.function_draws import Mapped, Shifted, Together
from dvip.neighbourhood import Neighbourhood
from dvip.sum_kernel import SumKernel

STEP = 1e-5


def differences(functions, X, step=STEP):
    """The derivatives of functions of rows by each input, by central differences."""
    moves = step * np.eye(X.shape[1])
    return np.stack([(functions(X + e) - functions(X - e)) / (2 * step) for e in moves], axis=-1)


def assert_gradients(model, X, number=4, rtol=1e-4):
    functions = model.sample_functions(number, random_state=0)
    found, expected = functions.gradient(X), differences(functions, X)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol * np.abs(expected).max())


def test_a_gaussian_process_with_two_targets():
    X, y = regression_data(40, num_targets=2)
    model = DVIPRegressor(inference="exact", precision="float64").fit(X, y)
    assert_gradients(model, X[:5] + 0.1)


def test_all_parts_of_the_kernel():
    random = np.random.default_rng(0)
    kernel = SumKernel(random.normal(scale=0.5, size=13))
    points, rows = random.normal(size=(6, 3)), random.normal(size=(4, 3))
    coefficients = random.normal(size=(6, 2))
    found = kernel.gradient(rows, points, coefficients)
    np.testing.assert_allclose(
        found, differences(lambda x: kernel(x, points) @ coefficients, rows), rtol=1e-6, atol=1e-8
    )


@pytest.mark.parametrize(
    "model",
    [
        DVIPRegressor(**TINY, n_layers=2, n_members=2, likelihood="heteroscedastic"),
        pytest.param(DeepGPRegressor(**TINY_DEEP_GP, n_layers=2), marks=pytest.mark.slow),
        pytest.param(
            DVIPRegressor(**TINY, n_layers=2, n_inducing=6, likelihood="log-normal"),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            DVIPRegressor(n_layers=1, inference="mcmc", n_prior_samples=5, n_chains=1, max_iter=50),
            marks=pytest.mark.slow,
        ),
        pytest.param(SIPRegressor(**TINY_SIP), marks=pytest.mark.slow),
    ],
    ids=["members", "deep GP", "positive", "sampled", "SIP"],
)
def test_deep_models(model):
    X, y = regression_data(40)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.set_params(precision="float64", max_iter=50).fit(X, y)
    assert_gradients(model, X[:3])


def test_maps_and_shifts_and_several_together():
    def line(inputs):
        return np.stack([inputs, 2 * inputs])

    line.gradient = lambda inputs: np.tile([[np.eye(2)], [2 * np.eye(2)]], (len(inputs), 1, 1))
    X = np.random.default_rng(0).normal(size=(5, 2))
    near = Neighbourhood.of(X[:3], np.array([0.7, 1.5]), 0)
    heights = np.array([[[1.0, 2.0]], [[-1.0, 0.5]]])
    doubtful = Shifted(line, heights, near.beyond, near.slopes_beyond)
    positive = Mapped(doubtful, lambda values: np.exp(values)[..., :1])
    both = Together(4, [(np.array([0, 3]), positive), (np.array([1, 2]), positive)])
    far = X + 4
    np.testing.assert_allclose(both.gradient(far), differences(both, far), rtol=1e-6)
    np.testing.assert_array_equal(both(far)[[0, 3]], both(far)[[1, 2]])
    assert (near.beyond(far) > 0).all()
    np.testing.assert_array_equal(near.slopes_beyond(X[:3]), 0)  # nothing is in doubt there


def test_a_table_has_a_derivative_by_each_encoded_column():
    random = np.random.default_rng(0)
    table = pd.DataFrame({"a": random.normal(size=30), "b": random.choice(["u", "v", "w"], 30)})
    model = DVIPRegressor(inference="exact").fit(table, 3 * table["a"])
    slopes = model.sample_functions(2, random_state=0).gradient(table[:6])
    width = len(model.encoder_.get_feature_names_out())
    assert slopes.shape == (2, 6, width)
    np.testing.assert_allclose(slopes[..., 0], 3, atol=0.3)
