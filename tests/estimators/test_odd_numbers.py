"""Numbers that are hard to compute with: the right answer, a warning, or one clear line."""

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from dvip import DVIPClassifier, DVIPRegressor, ExtrapolationWarning

SETTINGS = {"n_layers": 1, "max_iter": 600, "n_prior_samples": 10, "n_predictive_samples": 5}
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(100, 2))
NOISE = 0.1 * RANDOM.normal(size=100)
Y = X[:, 0] + NOISE


def relative_error(inputs, targets, weights=None, new=None, expected=None):
    """Of the mean, in deviations of what is expected."""
    model = DVIPRegressor.paper(**SETTINGS).fit(inputs, targets, weights)
    expected = targets if expected is None else expected
    errors = model.predict(inputs if new is None else new) - expected
    return np.sqrt(np.mean(np.square(errors))) / np.std(expected)


@pytest.mark.parametrize(
    ("inputs", "targets"),
    [
        (X * 1e30, Y * 1e30),
        (X * 1e-30, Y * 1e-30),
        (X * [1e30, 1e-30], Y),
        (X + 1e9, Y),
        (X, Y + 1e9),
        (np.tile(X[:, :1], 2), Y),
    ],
    ids=["huge", "tiny", "mixed", "inputs at 1e9", "targets at 1e9", "columns repeated"],
)
def test_scale_and_offset_do_not_matter(inputs, targets):
    assert relative_error(inputs, targets) < 0.3


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e12])
def test_weights_of_any_size(size):
    weights = size * 10.0 ** RANDOM.uniform(0, 3, size=100)
    assert relative_error(X, Y, weights) < 0.5


def test_weights_that_count_for_nothing():
    with pytest.warns(UserWarning, match="adds up to 1e-10 rows: the model stays near its prior"):
        relative_error(X, Y, np.full(100, 1e-12))


@pytest.mark.parametrize(
    ("inputs", "targets", "what"),
    [
        (X * 1e-310, Y, "'column 0', 'column 1'"),
        ((X * 1_000).round() + 2.0**60, Y, "'column 0', 'column 1'"),
        (X, Y * 1e-310, "y"),
        (X, Y + 1e15, "y"),
    ],
    ids=["subnormal", "beyond 2^53", "subnormal targets", "targets at 1e15"],
)
def test_lost_digits_are_told(inputs, targets, what):
    with pytest.warns(UserWarning, match=f"The values of {what} differ by hardly more than round"):
        DVIPRegressor.paper(**SETTINGS).fit(inputs, targets)


def test_a_row_that_decides_a_scale_is_told():
    outlier = np.eye(100)[0] * 1e6
    with pytest.warns(UserWarning, match="One value of 'column 1' is so large"):
        DVIPRegressor.paper(**SETTINGS).fit(X + outlier[:, None] * [0, 1], Y)
    with pytest.warns(UserWarning, match="One value of y is so large"):
        DVIPRegressor.paper(**SETTINGS).fit(X, Y + outlier)


def test_a_constant_column_that_changes_is_told():
    constant = np.column_stack([X[:, 0], np.full(100, 7.0)])
    model = DVIPRegressor.paper(**SETTINGS).fit(constant, Y)
    with pytest.warns(ExtrapolationWarning, match="100 of 100 rows .* 'column 1'"):
        model.predict(np.add(constant, [0, 2]))


def test_one_category_is_left_out():
    table = pd.DataFrame(X, columns=["a", "b"]).assign(c="same")
    with pytest.warns(UserWarning, match="'c' has the same value in every row"):
        assert relative_error(table, Y) < 0.3


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (np.ma.masked_greater(X, 1), "X is a masked array with hidden values"),
        (np.arange(100).astype("M8[D]")[:, None], "X holds dates or times"),
        (pd.DataFrame(X, columns=["a", "a"]), "X has several columns of the name 'a'"),
        (pd.DataFrame(), r"X is a table of the shape \(0, 0\)"),
        (pd.DataFrame({"a": pd.arrays.SparseArray(Y)}), "X has sparse columns"),
        (scipy.sparse.csr_matrix(X), "dense data is required"),
        (X + 1j, "Complex data not supported"),
    ],
    ids=["masked", "dates", "names", "empty", "sparse columns", "sparse", "complex"],
)
def test_inputs_that_stand_for_something_else(inputs, message):
    for fit in (DVIPRegressor.paper(**SETTINGS).fit, DVIPClassifier.paper(**SETTINGS).fit):
        with pytest.raises((ValueError, TypeError), match=message):
            fit(inputs, (Y > 0).astype(int))


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (np.ma.masked_greater(Y, 1), "y is a masked array with hidden values"),
        (np.arange(100).astype("M8[D]"), "y holds dates or times"),
        (np.arange(100).astype("m8[D]"), "y holds dates or times"),
        (["a", "b"] * 50, "y must be an array of numbers"),
        (scipy.sparse.csr_matrix(Y[:, None]), "y must be an array of numbers"),
    ],
    ids=["masked", "dates", "times", "text", "sparse"],
)
def test_targets_that_stand_for_something_else(targets, message):
    with pytest.raises(ValueError, match=message):
        DVIPRegressor.paper(**SETTINGS).fit(X, targets)


def test_mistakes_after_the_fit():
    model = DVIPRegressor.paper(**SETTINGS).fit(X, Y)
    with pytest.raises(ValueError, match=r"shape \(100, 2\), that of the first call was \('rows'"):
        model.partial_fit(X, np.column_stack([Y, Y]))
    for n in (-1, "a", 1.5, None):
        with pytest.raises(ValueError, match="must be a whole number of draws"):
            model.predict_dist(X).sample(n)
    with pytest.raises(ValueError, match="precision='float16' must be one of"):
        model.set_params(precision="float16").predict(X)
    with pytest.raises(ValueError, match="fresh_noise='yes' must be True or False"):
        DVIPRegressor.paper(fresh_noise="yes").fit(X, Y)
    classifier = DVIPClassifier.paper(**SETTINGS)
    for classes, message in (([0, 1, None], "no label in row 3"), ([0, "a"], "several types")):
        with pytest.raises(ValueError, match=f"classes has .*{message}"):
            classifier.partial_fit(X, Y > 0, classes=classes)


def test_the_range_grows_with_the_rows_of_further_calls():
    model = DVIPRegressor.paper(**SETTINGS).partial_fit(X, Y).partial_fit(10 * X, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(10 * X)
    with pytest.warns(ExtrapolationWarning, match="far outside"):
        model.predict(100 * X)
