"""Estimators with inducing points: the contract of all estimators, and data that are difficult."""

import inspect

import numpy as np
import pytest
from examples import TINY, TINY_DEEP_GP, regression_data
from scipy.stats import norm

from dvip import DeepGPClassifier, DeepGPRegressor, DVIPClassifier, DVIPRegressor
from dvip.kernels import RBF, EmpiricalKernel
from dvip.layers import SparseGPLayer

X, Y = regression_data()
DEEP = {**TINY_DEEP_GP, "n_layers": 2}
INDUCING = {**TINY, "n_layers": 1, "n_inducing": 10, "n_prior_samples": 40}
MODELS = {
    "sparse gp": lambda: DeepGPRegressor(**TINY_DEEP_GP, n_layers=1),
    "deep gp": lambda: DeepGPRegressor(**DEEP),
    "deep gp, α": lambda: DeepGPRegressor(**DEEP, alpha=0.5),
    "inducing points": lambda: DVIPRegressor.paper(**INDUCING),
    "deep, inducing points": lambda: DVIPRegressor.paper(**{**INDUCING, "n_layers": 2}),
}


ALWAYS = ("deep gp", "inducing points")


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(make, id=name, marks=[pytest.mark.slow] * (name not in ALWAYS))
        for name, make in MODELS.items()
    ],
)
def model(request):
    return request.param().fit(X, Y)


def test_learns_on_the_users_scale(model):
    assert model.score(X, Y) > 0.5
    mean, std = model.predict(X, return_std=True)
    assert (np.abs(Y - mean) < 2 * std).mean() > 0.85


def test_function_draws_have_the_predictions_moments(model):
    functions = model.sample_functions(500, random_state=0)
    values = functions(X[:5])
    np.testing.assert_array_equal(functions(X[:5]), values)
    assert values.shape == (500, 5)
    mean, std = model.predict(X[:5], return_std=True)
    noise = model.predict_dist(X[:5]).variance_parts()[0]
    std = np.sqrt(std**2 - noise)
    assert (np.abs(values.mean(axis=0) - mean) < 0.3 * std).all()  # nine predictive samples
    np.testing.assert_allclose(values.std(axis=0), std, rtol=0.4)


def test_layers_are_sparse_gps(model):
    kernel = RBF if isinstance(model, DeepGPRegressor) else EmpiricalKernel
    layers = [stage.layer for stage in model.model_.network.stages]
    assert [type(layer) for layer in layers] == [SparseGPLayer] * model.n_layers
    assert all(isinstance(layer.kernel, kernel) for layer in layers)
    assert all(layer.inducing.shape == (3, 10) for layer in layers)


@pytest.mark.parametrize(
    "classifier",
    [
        pytest.param(DeepGPClassifier(**TINY_DEEP_GP, n_layers=1), id="sparse gp"),
        pytest.param(DeepGPClassifier(**DEEP), id="deep gp", marks=pytest.mark.slow),
        pytest.param(
            DVIPClassifier.paper(**{**INDUCING, "n_layers": 2}), id="vip", marks=pytest.mark.slow
        ),
    ],
)
def test_classifiers_learn(classifier):
    labels = np.array(["low", "middle", "high"])[np.digitize(Y, np.quantile(Y, [0.3, 0.6]))]
    classifier.fit(X, labels)
    assert classifier.score(X, labels) > 0.6
    np.testing.assert_allclose(classifier.predict_proba(X).sum(axis=1), 1)


@pytest.mark.parametrize("value", [0, -1, 2.5, "many", True])
@pytest.mark.parametrize("cls", [DeepGPRegressor, DVIPRegressor])
def test_wrong_number_of_inducing_points(cls, value):
    with pytest.raises(ValueError, match=r"n_inducing=.* must be a whole number of at least 1"):
        cls(n_inducing=value).fit(X, Y)


HARD = {
    "one row": X[:1],
    "equal rows": np.ones((16, 3)),
    "a constant column": np.column_stack([X[:16, :2], np.ones(16)]),
    "few distinct rows": np.tile(X[:4], (4, 1)),
    "an outlier": np.vstack([X[:15], [[1e300, 0, 0]]]),
}


@pytest.mark.parametrize("rows", HARD.values(), ids=HARD.keys())
def test_hard_inputs(rows):
    """The prediction stays between the targets, about, wherever it is asked for."""
    targets = Y[: len(rows)]
    model = DeepGPRegressor(**DEEP).fit(rows, targets)
    assert np.isfinite(model.bound_history_).all()
    for inputs in (rows, np.full((1, 3), 1e300), X):
        mean, std = model.predict(inputs, return_std=True)
        assert (np.abs(mean - targets.mean()) <= 3 * max(np.ptp(targets), 1)).all()
        assert (std > 0).all()
        assert np.isfinite(std).all()


def test_noise_is_learned():
    """A linear function with noise of a known size: density close to the true one."""
    random = np.random.default_rng(0)
    inputs = random.uniform(-2, 2, size=(300, 1))
    targets = inputs[:, 0] + 0.5 * random.normal(size=300)
    model = DeepGPRegressor(**{**TINY_DEEP_GP, "batch_size": 100, "max_iter": 500}, n_layers=1)
    model.fit(inputs[:200], targets[:200])
    density = model.predict_dist(inputs[200:]).log_prob(targets[200:]).mean()
    truth = norm.logpdf(targets[200:], inputs[200:, 0], 0.5).mean()
    assert truth - 0.1 < density < truth + 0.1


@pytest.mark.parametrize("cls", [DVIPRegressor, DVIPClassifier, DeepGPRegressor, DeepGPClassifier])
def test_every_parameter_is_documented_with_its_default(cls):
    documentation = inspect.getdoc(cls)
    for name, parameter in inspect.signature(cls).parameters.items():
        (line,) = [line for line in documentation.splitlines() if line.startswith(f"{name} : ")]
        default = parameter.default
        shown = f'"{default}"' if isinstance(default, str) else str(default)
        assert line.endswith("optional" if default is None else f"default {shown}")
