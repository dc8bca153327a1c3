"""The estimators: scikit-learn's tools, weights, and consistent predictions."""

import pickle

import jax
import numpy as np
import pandas as pd
import pytest
from examples import TINY, regression_data
from scipy.special import ndtr
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures

from dvip import DVIPClassifier, DVIPRegressor

X, Y = regression_data()
Y2 = regression_data(num_targets=2)[1]
LABELS = np.array(["low", "middle", "high"])[np.digitize(Y, np.quantile(Y, [0.3, 0.6]))]
SHALLOW = {**TINY, "n_layers": 1}
DEEP = {**TINY, "n_layers": 2}
# Functions to be drawn; another number of them is another program.
MANY = 4_000


@pytest.fixture(scope="module")
def shallow():
    return DVIPRegressor.paper(**SHALLOW).fit(X, Y)


@pytest.fixture(scope="module")
def deep():
    return DVIPRegressor.paper(**DEEP).fit(X, Y)


@pytest.fixture(scope="module")
def several_targets():
    return DVIPRegressor.paper(**DEEP).fit(X, Y2)


@pytest.fixture(scope="module")
def binary():
    return DVIPClassifier.paper(**SHALLOW).fit(X, Y > 100)


@pytest.fixture(scope="module")
def multiclass():
    return DVIPClassifier.paper(**SHALLOW).fit(X, LABELS)


def same_model(first, second):
    pairs = zip(jax.tree.leaves(first.model_), jax.tree.leaves(second.model_), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


# scikit-learn's tools.


def test_learns_on_the_users_scale(shallow, deep, several_targets):
    for model in (shallow, deep):
        assert model.score(X, Y) > 0.5
        mean, std = model.predict(X, return_std=True)
        assert mean.shape == std.shape == Y.shape
        inside = np.abs(Y - mean) < 2 * std
        assert inside.mean() > 0.85
    assert several_targets.predict(X).shape == Y2.shape
    assert several_targets.score(X, Y2) > 0.3


def test_classifiers_learn(binary, multiclass):
    assert binary.score(X, Y > 100) > 0.8
    assert multiclass.score(X, LABELS) > 0.6
    assert list(multiclass.classes_) == ["high", "low", "middle"]
    probabilities = multiclass.predict_proba(X)
    assert probabilities.shape == (len(X), 3)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-12)
    assert np.array_equal(multiclass.predict(X), multiclass.classes_[probabilities.argmax(axis=1)])


def test_pipeline_grid_search_and_cross_validation():
    pipeline = make_pipeline(
        PolynomialFeatures(1, include_bias=False), DVIPRegressor.paper(**SHALLOW)
    )
    search = GridSearchCV(pipeline, {"dvipregressor__learning_rate": [1e-4, 0.05]}, cv=2)
    search.fit(X, Y)
    assert search.best_params_ == {"dvipregressor__learning_rate": 0.05}
    assert search.predict(X[:3]).shape == (3,)
    scores = cross_val_score(DVIPClassifier.paper(**SHALLOW), X, Y > 100, cv=2)
    assert (scores > 0.6).all()


def test_data_frames(shallow):
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model = DVIPRegressor.paper(**SHALLOW).fit(frame, pd.Series(Y))
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    assert same_model(model, shallow)
    assert np.array_equal(model.predict(frame), shallow.predict(X))
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame.rename(columns={"b": "other"}))
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[["c", "b", "a"]])
    with pytest.warns(UserWarning, match="feature names"):
        model.predict(X)


@pytest.mark.parametrize(
    "labels",
    [
        np.array(["no", "yes"]),
        np.array(["no", "yes"], dtype=object),
        np.array([False, True]),
        np.array([-2, 7]),
        np.array([1.0, 3.0]),
        np.array([254, 255], dtype=np.uint8),
    ],
    ids=["text", "objects", "booleans", "whole numbers", "floats", "bytes"],
)
def test_labels_of_any_type(binary, labels):
    """The same model as with booleans, up to the names of the classes."""
    model = DVIPClassifier.paper(**SHALLOW).fit(X, labels[(Y > 100).astype(int)])
    assert model.classes_.dtype == labels.dtype
    assert np.array_equal(model.classes_, labels)
    assert np.array_equal(model.predict_proba(X), binary.predict_proba(X))
    assert np.array_equal(model.predict(X) == labels[1], binary.predict(X))


def test_labels_of_pandas(binary):
    names = pd.Series(np.where(Y > 100, "yes", "no"))
    for labels in (names, names.astype("category"), names.astype("string"), list(names)):
        model = DVIPClassifier.paper(**SHALLOW).fit(X, labels)
        assert list(model.classes_) == ["no", "yes"]
        assert np.array_equal(model.predict_proba(X), binary.predict_proba(X))


def test_column_of_targets(shallow):
    """A column is one target; predictions have its shape."""
    model = DVIPRegressor.paper(**SHALLOW).fit(X, Y[:, None])
    assert model.predict(X).shape == (len(X), 1)
    assert np.array_equal(model.predict(X)[:, 0], shallow.predict(X))


@pytest.mark.parametrize("name", ["shallow", "deep", "several_targets", "binary", "multiclass"])
def test_pickle(request, name):
    model = request.getfixturevalue(name)
    restored = pickle.loads(pickle.dumps(model))
    assert np.array_equal(restored.predict(X), model.predict(X))
    if hasattr(model, "predict_proba"):
        assert np.array_equal(restored.predict_proba(X), model.predict_proba(X))


def test_clone_and_refit(shallow):
    copy = clone(shallow)
    with pytest.raises(NotFittedError):
        copy.predict(X)
    assert copy.get_params() == shallow.get_params()
    assert same_model(copy.fit(X, Y), shallow)
    assert same_model(copy.fit(X, Y), shallow)  # nothing remains of the first fit


def test_not_fitted():
    model = DVIPRegressor.paper()
    for use in (
        lambda: model.predict(X),
        lambda: model.predict_dist(X),
        lambda: model.sample_functions(1),
        lambda: model.save("nowhere"),
        lambda: DVIPClassifier.paper().predict_proba(X),
    ):
        with pytest.raises(NotFittedError):
            use()


def test_numbers_of_numpy(shallow):
    """As a grid search over `np.arange` gives them: the same model."""
    numbers = {
        name: np.array([value])[0]
        for name, value in SHALLOW.items()
        if isinstance(value, int | float)
    }
    options = {**SHALLOW, **numbers, "n_training_samples": np.int64(1), "alpha": np.float64(0)}
    model = DVIPRegressor.paper(**options, fresh_noise=np.bool_(False), random_state=np.int64(0))
    assert same_model(model.fit(X, Y), shallow)


def test_seeds():
    first, same, other = (
        DVIPRegressor.paper(**SHALLOW, random_state=seed).fit(X, Y)
        for seed in (1, np.random.RandomState(1), 2)
    )
    assert same_model(first, same)
    assert not same_model(first, other)


# Weights.


def test_weights_count_rows():
    """Twice in the table is the same as a weight of two; a weight of zero the same as absence."""
    weights = np.ones(len(X))
    weights[:10], weights[10:15] = 2, 0
    rows = np.r_[0:10, 0:10, 15 : len(X)]
    weighted = DVIPRegressor.paper(**SHALLOW).fit(X, Y, sample_weight=weights)
    repeated = DVIPRegressor.paper(**SHALLOW).fit(X[rows], Y[rows])
    assert same_model(weighted, repeated)
    codes = Y > 100
    weighted = DVIPClassifier.paper(**SHALLOW).fit(X, codes, sample_weight=weights)
    repeated = DVIPClassifier.paper(**SHALLOW).fit(X[rows], codes[rows])
    assert same_model(weighted, repeated)


def test_weights_draw_the_fit():
    """Two tables that contradict each other: the heavier one wins."""
    both, contradiction = np.r_[X, X], np.r_[Y, 200 - Y]
    weights = np.repeat([1.0, 1e-3], len(X))
    model = DVIPRegressor.paper(**SHALLOW).fit(both, contradiction, sample_weight=weights)
    assert model.score(X, Y) > 0.5
    model.fit(both, contradiction, sample_weight=weights[::-1])
    assert model.score(X, 200 - Y) > 0.5


def test_class_without_weight_is_unknown():
    model = DVIPClassifier.paper(**SHALLOW).fit(X, LABELS, sample_weight=(LABELS != "middle") * 1.0)
    assert list(model.classes_) == ["high", "low"]


# Predictions.


@pytest.mark.parametrize("name", ["shallow", "deep", "several_targets"])
def test_predict_is_the_distributions_mean_and_std(request, name):
    model = request.getfixturevalue(name)
    mean, std = model.predict(X, return_std=True)
    dist = model.predict_dist(X)
    np.testing.assert_allclose(dist.mean, mean, rtol=1e-12)
    np.testing.assert_allclose(dist.std, std, rtol=1e-12)
    components = 1 if name == "shallow" else TINY["n_predictive_samples"]
    assert dist.means.shape == (*mean.shape, components)
    noise, function = dist.variance_parts()
    np.testing.assert_allclose(noise + function, std**2, rtol=1e-12)
    assert (noise > 0).all()
    assert (function > 0).all()


@pytest.mark.parametrize("name", ["shallow", "deep", "several_targets", "multiclass"])
def test_a_prediction_does_not_depend_on_the_other_rows(request, name):
    """Nor on their number: 3,000 rows go through in pieces."""
    model = request.getfixturevalue(name)
    predict = model.predict_proba if name == "multiclass" else model.predict
    table = np.random.default_rng(1).normal(size=(3_000, 3)) * 2 + 5
    whole = predict(table)
    for rows in (slice(0, 1), slice(2_990, 3_000), slice(700, 1_900), slice(None, None, -1)):
        np.testing.assert_allclose(predict(table[rows]), whole[rows], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "name", [pytest.param("shallow", marks=pytest.mark.slow), "several_targets"]
)
def test_function_draws(request, name):
    model = request.getfixturevalue(name)
    functions = model.sample_functions(MANY, random_state=0)
    values = functions(X)
    assert values.shape == (MANY, *model.predict(X).shape)
    assert np.array_equal(functions(X), values)  # the same functions, call after call
    np.testing.assert_allclose(functions(X[10:20]), values[:, 10:20], rtol=1e-5)
    again = model.sample_functions(MANY, random_state=0)(X)
    assert np.array_equal(again, values)
    other = model.sample_functions(MANY, random_state=1)(X)
    assert not np.isclose(other[:5], values[:5], rtol=1e-9).any()


def test_function_draws_have_the_predictive_moments(several_targets):
    model = several_targets
    values = model.sample_functions(MANY, random_state=0)(X[:6])
    precise = clone(model).set_params(n_predictive_samples=MANY)
    vars(precise).update({k: v for k, v in vars(model).items() if k.endswith("_")})
    dist = precise.predict_dist(X[:6])
    variance = dist.variance_parts().function
    # Both are averages over as many independent samples.
    error = np.sqrt(2 * variance / MANY)
    assert (np.abs(values.mean(axis=0) - dist.mean) < 5 * error).all()
    squares = np.square(values - dist.mean)
    error = np.sqrt(2 * squares.var(axis=0) / MANY)
    assert (np.abs(squares.mean(axis=0) - variance) < 5 * error).all()


def test_latent_functions_of_classifiers(binary, multiclass):
    """Where the units decide: averages over draws are probabilities, but for the draws' error."""
    latent = binary.sample_functions(MANY, random_state=0)(X)
    assert latent.shape == (MANY, len(X), 1)
    draws = ndtr(latent[..., 0].astype(float))
    error = draws.std(axis=0) / np.sqrt(MANY)
    assert (np.abs(draws.mean(axis=0) - binary.predict_proba(X)[:, 1]) < 5 * error + 1e-5).all()

    latent = multiclass.sample_functions(5, random_state=0)(X)
    assert latent.shape == (5, len(X), 3)
    agreement = (latent.argmax(axis=2) == multiclass.predict_proba(X).argmax(axis=1)).mean()
    assert agreement > 0.6


@pytest.mark.parametrize("n", [0, -1, 1.5, None, "many"])
def test_bad_numbers_of_draws(shallow, n):
    with pytest.raises(ValueError, match="n="):
        shallow.sample_functions(n)


@pytest.mark.parametrize("name", ["shallow", "binary"])
def test_parameters_that_were_changed_after_the_fit(request, name):
    model = pickle.loads(pickle.dumps(request.getfixturevalue(name)))
    for bad in ({"learning_rate": -5}, {"batch_size": 0}, {"n_training_samples": 0}):
        before = {key: getattr(model, key) for key in bad}
        with pytest.raises(ValueError, match=f"{next(iter(bad))}=.* must be"):
            model.set_params(**bad).partial_fit(X, Y > 100)
        model.set_params(**before)
    with pytest.raises(ValueError, match="n_predictive_samples=0 must be"):
        model.set_params(n_predictive_samples=0).predict(X)
