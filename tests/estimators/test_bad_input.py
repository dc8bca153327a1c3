"""Bad input: a result that makes sense, or an error of a line or two that says what is wrong.

Few shapes of models, so that hundreds of examples share their compilations: what is compiled
depends on the batch size and the number of inputs, not on the number of rows.
"""

from typing import Any

import numpy as np
import pytest
from examples import TINY
from hypothesis import given, settings
from hypothesis import strategies as st

from dvip import BayesianNeuralNetwork, DVIPClassifier, DVIPRegressor

SETTINGS: dict[str, Any] = dict(
    n_layers=2,
    n_units=2,
    n_prior_samples=3,
    prior=BayesianNeuralNetwork(hidden=(3,)),
    max_iter=5,
    batch_size=2,
    n_predictive_samples=4,
)
SHALLOW = {**SETTINGS, "n_layers": 1, "n_units": None}
# Ordinary numbers, and those at the ends of what a float can be.
NUMBERS = st.one_of(
    st.floats(-100, 100),
    st.sampled_from([0.0, -0.0, 1.0, 1e-150, -1e150, 1e150, 5e-324, 1e-300, 1e300, 1.7e308]),
)


@st.composite
def columns(draw, num_rows):
    """Numbers of any scale; often constant, often with repetitions."""
    pool = draw(st.lists(NUMBERS, min_size=1, max_size=num_rows))
    return draw(st.lists(st.sampled_from(pool), min_size=num_rows, max_size=num_rows))


@st.composite
def tables(draw, min_rows=1, num_columns=None):
    num_rows = draw(st.integers(min_rows, 9))
    width = num_columns or draw(st.sampled_from([1, 3]))
    return np.array([draw(columns(num_rows)) for _ in range(width)]).T


def readable(error):
    text = str(error)
    return 10 < len(text) < 400


@pytest.mark.parametrize(
    ("make", "width"),
    [(lambda: DVIPRegressor.paper(**SETTINGS), 3), (DVIPRegressor, None)],
    ids=["networks", "default"],
)
@settings(max_examples=10)
@given(data=st.data())
def test_any_finite_regression(make, width, data):
    """Finite predictions, at the rows of the table and far away from them."""
    X = data.draw(tables(num_columns=width))
    y = np.array(data.draw(columns(len(X))))
    model = make()
    largest = np.abs(y).max()
    spread = np.std(y / largest) * largest if largest > 0 else 0.0
    if largest > 1e279 or spread > 1e139 or 1e-305 < spread < 1e-139:
        with pytest.raises(ValueError, match="rescale y") as caught:
            model.fit(X, y)
        assert readable(caught.value)
        return
    model.fit(X, y)
    for table in (X, data.draw(tables(num_columns=X.shape[1]))):
        mean, std = model.predict(table, return_std=True)
        assert mean.shape == std.shape == (len(table),)
        assert np.isfinite(mean).all()
        assert np.isfinite(std).all()
        assert (std > 0).all()
    # Predictions are about as large as the targets, not as the inputs.
    assert (np.abs(model.predict(X)) / max(1.0, largest) < 1e3).all()


@settings(max_examples=20)
@given(data=st.data())
def test_any_finite_classification(data):
    X = data.draw(tables())
    labels = data.draw(
        st.sampled_from([np.array(["a", "b"]), np.array([5, -5]), np.array([False, True])])
    )
    y = labels[data.draw(st.lists(st.integers(0, 1), min_size=len(X), max_size=len(X)))]
    model = DVIPClassifier.paper(**SHALLOW)
    if len(np.unique(y)) == 1:
        with pytest.raises(ValueError, match="one class") as caught:
            model.fit(X, y)
        assert readable(caught.value)
        return
    model.fit(X, y)
    for table in (X, data.draw(tables(num_columns=X.shape[1]))):
        probabilities = model.predict_proba(table)
        assert probabilities.shape == (len(table), 2)
        assert (probabilities >= 0).all()
        np.testing.assert_allclose(probabilities.sum(axis=1), 1)
        assert np.isin(model.predict(table), labels).all()


GOOD = np.random.default_rng(0).normal(size=(8, 3))
TARGETS = GOOD[:, 0] + 1


@pytest.fixture(scope="module")
def fitted():
    return DVIPRegressor.paper(**SETTINGS).fit(GOOD, TARGETS)


@pytest.fixture(scope="module")
def fitted_classifier():
    return DVIPClassifier.paper(**SHALLOW).fit(GOOD, TARGETS > 1)


BAD_VALUES = [np.nan, np.inf, -np.inf, None, "text", "", "1,5", 1j, [1, 2], {}, b"\xff"]


@settings(max_examples=200)
@given(
    value=st.sampled_from(BAD_VALUES),
    row=st.integers(0, len(GOOD) - 1),
    column=st.integers(0, 2),
    where=st.sampled_from(["X", "y", "X of predict", "labels", "X of predict_proba"]),
)
def test_bad_values(fitted, fitted_classifier, value, row, column, where):
    """One bad value anywhere is refused."""

    def spoiled(array, index):
        array = array.astype(object)
        array[index] = value
        return array

    X = spoiled(GOOD, (row, column))
    use = {
        "X": lambda: DVIPRegressor.paper(**SETTINGS).fit(X, TARGETS),
        "y": lambda: DVIPRegressor.paper(**SETTINGS).fit(GOOD, spoiled(TARGETS, row)),
        "X of predict": lambda: fitted.predict(X),
        "labels": lambda: DVIPClassifier.paper(**SETTINGS).fit(GOOD, spoiled(TARGETS > 1, row)),
        "X of predict_proba": lambda: fitted_classifier.predict_proba(X),
    }[where]
    with pytest.raises((ValueError, TypeError)) as caught:
        use()
    assert len(str(caught.value)) < 1_000


@pytest.mark.parametrize(
    "X",
    [
        np.zeros((0, 3)),
        np.zeros((8, 0)),
        np.zeros(8),
        np.zeros((8, 3, 1)),
        np.zeros((7, 3)),
        np.full((8, 3), "a"),
        np.full((8, 3), 1j),
        [[1.0, 2.0, 3.0]] * 7 + [[1.0, 2.0]],
        None,
        "table.csv",
        3.0,
    ],
    ids=lambda X: f"{type(X).__name__} {np.shape(X) if isinstance(X, np.ndarray) else ''}",
)
@pytest.mark.parametrize("cls", [DVIPRegressor, DVIPClassifier])
def test_bad_inputs(cls, X):
    with pytest.raises((ValueError, TypeError)) as caught:
        cls(**SHALLOW).fit(X, TARGETS > 1)
    assert len(str(caught.value)) < 1_000


@pytest.mark.parametrize(
    "y",
    [
        np.zeros((8, 2, 2)),
        np.zeros((8, 0)),
        np.zeros(7),
        np.array(list("abcdefgh")),
        np.full(8, None),
        None,
        3.0,
    ],
    ids=lambda y: f"{type(y).__name__} {np.shape(y)}",
)
def test_bad_targets(y):
    with pytest.raises((ValueError, TypeError)) as caught:
        DVIPRegressor.paper(**SETTINGS).fit(GOOD, y)
    assert len(str(caught.value)) < 1_000


@pytest.mark.parametrize("y", [np.linspace(0, 1, 8), np.zeros((8, 2)), np.full(8, None), None])
def test_bad_labels(y):
    with pytest.raises((ValueError, TypeError)) as caught:
        DVIPClassifier.paper(**SETTINGS).fit(GOOD, y)
    assert len(str(caught.value)) < 1_000


@pytest.mark.parametrize("width", [0, 1, 2, 4, 10])
def test_wrong_width_at_prediction(fitted, fitted_classifier, width):
    table = np.zeros((5, width))
    functions = fitted.sample_functions(2, random_state=0)
    for predict in (
        fitted.predict,
        fitted.predict_dist,
        fitted_classifier.predict,
        fitted_classifier.predict_proba,
        functions,
    ):
        with pytest.raises(ValueError, match="feature") as caught:
            predict(table)
        assert readable(caught.value)


@pytest.mark.parametrize("rows", [0, 1])
def test_no_rows_and_one_row_at_prediction(fitted, rows):
    table = np.zeros((rows, 3))
    assert fitted.predict(table).shape == (rows,)


@pytest.mark.parametrize(
    "weights",
    [
        np.zeros(8),
        -np.ones(8),
        np.full(8, np.nan),
        np.full(8, np.inf),
        np.full(8, 1e300),
        np.ones(7),
        np.ones((8, 1)),
        np.full(8, "heavy"),
    ],
    ids=lambda w: f"{w.dtype} {w.shape} {w.flat[0]}",
)
@pytest.mark.parametrize("cls", [DVIPRegressor, DVIPClassifier])
def test_bad_weights(cls, weights):
    with pytest.raises((ValueError, TypeError)) as caught:
        cls(**SETTINGS).fit(GOOD, TARGETS > 1, sample_weight=weights)
    assert readable(caught.value)


@settings(max_examples=20)
@given(
    st.lists(
        st.sampled_from([0.0, 1e-300, 1e-30, 0.5, 1.0, 1e6, 1e20]), min_size=8, max_size=8
    ).filter(any)
)
def test_any_finite_weights(weights):
    model = DVIPRegressor.paper(**SETTINGS).fit(GOOD, TARGETS, sample_weight=weights)
    mean, std = model.predict(GOOD, return_std=True)
    assert np.isfinite(mean).all()
    assert (std > 0).all()


# Tables that are odd in one way.


@pytest.mark.parametrize("value", [0.0, 7.0, -1e150, 1e-150, 1e270])
def test_constant_target_is_predicted(value):
    mean, std = (
        DVIPRegressor.paper(**SETTINGS).fit(GOOD, np.full(8, value)).predict(GOOD, return_std=True)
    )
    assert np.isfinite(std).all()
    # The deviation of a constant is taken as its size, or one, which decides how far off a short
    # training is.
    scale = min(abs(value), 1) or 1
    assert (np.abs(mean - value) <= 5 * max(scale, 1e-100) + 1e-9 * abs(value)).all()
    assert (std < 5 * max(scale, 1e-100) + 1e-9 * abs(value)).all()


def test_constant_columns_do_not_matter_much():
    """With columns that say nothing a long enough training still finds what does."""
    X = np.column_stack([np.full(40, 3.0), np.linspace(-1, 1, 40), np.full(40, 1e150)])
    y = 2 * X[:, 1]
    assert DVIPRegressor.paper(**TINY, n_layers=1).fit(X, y).score(X, y) > 0.5


@pytest.mark.parametrize("scale", [1e-150, 1e-100, 1e100, 1e150])
def test_scale_of_inputs_is_irrelevant(fitted, scale):
    X = GOOD * scale
    model = DVIPRegressor.paper(**SETTINGS).fit(X, TARGETS)
    assert np.isfinite(model.predict(X)).all()
    z = model.input_scaler_.transform(X)
    np.testing.assert_allclose(z, fitted.input_scaler_.transform(GOOD), rtol=1e-9)


@pytest.mark.parametrize("scale", [1e-139, 1e-100, 1e100, 1e139])
def test_scale_of_targets_is_irrelevant(fitted, scale):
    dist = DVIPRegressor.paper(**SETTINGS).fit(GOOD, TARGETS * scale).predict_dist(GOOD)
    y = TARGETS * scale
    for number in (dist.mean, dist.std, dist.quantile(0.9), dist.crps(y)):
        assert np.isfinite(number).all()
        assert (np.abs(number) < 100 * scale).all()
    assert np.isfinite(dist.log_prob(y)).all()
    assert (np.abs(dist.cdf(y) - 0.5) <= 0.5).all()


def test_duplicate_rows_with_different_targets():
    """They cannot be told apart: the prediction is one number between the targets."""
    X = np.zeros((20, 3))
    y = np.tile([0.0, 1.0], 10)
    mean = DVIPRegressor.paper(**SETTINGS).fit(X, y).predict(X)
    assert len(np.unique(mean)) == 1


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(SHALLOW, id="one layer", marks=pytest.mark.slow),
        pytest.param(SETTINGS, id="two layers"),
    ],
)
def test_thousands_of_columns(options):
    X = np.random.default_rng(1).normal(size=(9, 2_000))
    model = DVIPRegressor.paper(**options).fit(X, X[:, 0])
    assert np.isfinite(model.predict(X)).all()
    with pytest.raises(ValueError, match="2000 features") as caught:
        model.predict(X[:, :1_999])
    assert readable(caught.value)
