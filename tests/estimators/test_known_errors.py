"""Known errors of rows, `noise_std`: regressors of every kind, sources, saving, mistakes."""

import numpy as np
import pandas as pd
import pytest
from examples import TINY, TINY_DEEP_GP, TINY_SIP, numpy_features

from dvip import (
    ArraySource,
    CheckpointError,
    DeepGPRegressor,
    DVIPClassifier,
    DVIPRegressor,
    ModelFileError,
    Regression,
    SIPRegressor,
    load,
    open_source,
)
from dvip.estimators.base import DeepEstimator
from dvip.registry import LIKELIHOODS
from dvip.runtime import precision

ROWS = 96
RANDOM = np.random.default_rng(0)
X = RANDOM.uniform(-2, 2, size=(ROWS, 1))
ERRORS = np.where(np.arange(ROWS) % 2, 0.5, 10.0)
Y = 100 + 10 * np.sin(2 * X[:, 0]) + ERRORS * RANDOM.normal(size=ROWS)
SETTINGS = {**TINY, "n_layers": 1, "batch_size": 32}
KINDS = {
    "dvip": lambda: regressor(),
    "deep-gp": lambda: DeepGPRegressor(n_layers=1, **TINY_DEEP_GP),
    "sip": lambda: SIPRegressor(**{**TINY_SIP, "max_iter": 50}),
}


def regressor(**more):
    return DVIPRegressor.paper(**{**SETTINGS, **more})


@pytest.fixture(scope="module")
def fitted():
    return regressor().fit(X, Y, noise_std=ERRORS)


def noise_of(model):
    """The standard deviation of the noise that was learned, in the unit of y."""
    return float(np.sqrt(model.model_.likelihood.variance[0]) * model.target_scaler_.scale[0])


def test_a_layer_is_weighted_bayesian_regression():
    """At the prior that was learned, predictions are those of the exact posterior of its features.

    Each row counts by its own error: without them, or with those of other rows, they are not.
    """
    settings = dict(batch_size=ROWS, max_iter=3000, precision="float64")
    model = regressor(**settings).fit(X, Y, noise_std=ERRORS)
    layer, scaler = model.model_.network.stages[0].layer, model.target_scaler_
    with precision("float64"):
        prior_mean, features = numpy_features(layer, model.input_scaler_.transform(X).T)
    phi, residuals = features[0].T, scaler.transform(Y[:, None])[:, 0] - prior_mean[0]

    def exact(errors):
        variances = float(model.model_.likelihood.variance[0]) + (errors / scaler.scale[0]) ** 2
        inverse = np.eye(phi.shape[1]) + phi.T @ (phi / variances[:, None])
        mean = np.linalg.solve(inverse, phi.T @ (residuals / variances))
        return (prior_mean[0] + phi @ mean) * scaler.scale[0] + scaler.mean[0]

    predicted = model.predict(X)
    assert np.abs(predicted - exact(ERRORS)).max() < 0.05
    assert np.abs(predicted - exact(ERRORS[::-1])).max() > 0.5
    assert np.abs(predicted - exact(np.full(ROWS, 7.0))).max() > 0.5


@pytest.mark.parametrize("kind", ["dvip", "deep-gp", pytest.param("sip", marks=pytest.mark.slow)])
def test_errors_are_added_at_prediction(kind):
    model = KINDS[kind]().fit(X, Y, noise_std=ERRORS)
    assert model.known_errors_
    mean, std = model.predict(X, return_std=True)
    at, with_errors = model.predict(X, return_std=True, noise_std=ERRORS)
    np.testing.assert_array_equal(at, mean)
    np.testing.assert_allclose(with_errors, np.hypot(std, ERRORS), rtol=1e-12)
    distribution = model.predict_dist(X, ERRORS)
    np.testing.assert_allclose(distribution.std, with_errors, rtol=1e-6)
    parts, plain = distribution.variance_parts(), model.predict_dist(X).variance_parts()
    np.testing.assert_allclose(parts.noise, plain.noise + ERRORS**2, rtol=1e-12)
    np.testing.assert_array_equal(parts.function, plain.function)


def test_errors_explain_noise(fitted):
    without = regressor().fit(X, Y)
    assert not without.known_errors_
    assert noise_of(fitted) < 0.6 * noise_of(without)


def test_rows_with_small_errors_are_followed():
    """Of two groups of rows that disagree, that with the smaller errors is right."""
    sign = np.where(np.arange(ROWS) % 2, 1.0, -1.0)
    y = 100 + sign * 10 * np.sin(2 * X[:, 0])
    for followed in (1.0, -1.0):
        errors = np.where(sign == followed, 0.5, 20.0)
        predicted = regressor().fit(X, y, noise_std=errors).predict(X)
        assert np.corrcoef(predicted, followed * np.sin(2 * X[:, 0]))[0, 1] > 0.5


# Takes long to compile.
@pytest.mark.slow
def test_equal_errors_are_one_noise():
    """The noise that is learned and the errors are together what is learned without them."""
    y = 100 + 10 * np.sin(2 * X[:, 0]) + 5 * RANDOM.normal(size=ROWS)
    settings = dict(max_iter=600, batch_size=ROWS)
    whole = regressor(**settings).fit(X, y)
    part = regressor(**settings).fit(X, y, noise_std=3.0)
    assert np.hypot(noise_of(part), 3.0) == pytest.approx(noise_of(whole), rel=0.02)
    assert np.abs(part.predict(X) - whole.predict(X)).max() < 1.0


def test_every_way_to_give_errors(fitted):
    """A list, a column or a series of them, one number for all; a row of weight two is two rows."""
    expected = fitted.predict(X)
    for errors in (ERRORS.tolist(), pd.Series(ERRORS), ERRORS[:, None], ERRORS.astype(np.float32)):
        assert np.array_equal(regressor().fit(X, Y, noise_std=errors).predict(X), expected)
    one = regressor().fit(X, Y, noise_std=3).predict(X)
    assert np.array_equal(regressor().fit(X, Y, noise_std=np.full(ROWS, 3.0)).predict(X), one)
    weights = np.where(np.arange(ROWS) < 10, 0.0, 2.0)
    twice = [np.concatenate([array[10:]] * 2) for array in (X, Y, ERRORS)]
    weighted = regressor().fit(X, Y, weights, noise_std=ERRORS).predict(X)
    repeated = regressor().fit(*twice[:2], noise_std=twice[2]).predict(X)
    assert np.array_equal(weighted, repeated)


def test_several_targets_have_errors_of_their_own():
    both = np.column_stack([Y, -Y])
    errors = np.column_stack([ERRORS, np.full(ROWS, 2.0)])
    model = regressor().fit(X, both, noise_std=errors)
    std = model.predict(X, return_std=True)[1]
    wider = model.predict(X, return_std=True, noise_std=errors)[1]
    np.testing.assert_allclose(wider, np.hypot(std, errors), rtol=1e-12)
    alike = model.predict_dist(X, noise_std=ERRORS)  # the same for both
    np.testing.assert_allclose(alike.std, np.hypot(std, ERRORS[:, None]), rtol=1e-6)
    np.testing.assert_allclose(alike.target(1).std, alike.std[:, 1])
    assert alike.interval(0.9)[0].shape == (ROWS, 2)


def trained_rows(monkeypatch, estimator, *arguments, **named):
    """What a fit trains on: scaled inputs and targets, in the order of the inputs."""
    seen = []
    monkeypatch.setattr(
        DeepEstimator,
        "_train_on",
        lambda self, data, inputs, _: seen.append(data.batches(0, 0, 1, data.num_rows)),
    )
    estimator.fit(*arguments, **named)
    monkeypatch.undo()
    inputs, targets = (np.asarray(array)[0] for array in (seen[0].inputs, seen[0].targets))
    order = inputs[:, 0].argsort()
    return inputs[order], targets[order]


@pytest.mark.parametrize("kind", ["arrays", "csv", "npy"])
def test_streams_have_the_rows_of_arrays(kind, monkeypatch, tmp_path):
    """Also errors of very different sizes, in single precision."""
    monkeypatch.setenv("DVIP_ROW_CACHE", str(tmp_path / "cache"))
    errors = np.geomspace(1e-9, 10, ROWS)
    if kind == "arrays":
        source = ArraySource(X, Y, noise_std=errors)
    elif kind == "csv":
        frame = pd.DataFrame({"x": X[:, 0], "y": Y, "e": errors})
        frame.to_csv(tmp_path / "t.csv", index=False)
        source = open_source(tmp_path / "t.csv", target="y", noise_std="e")
        assert source.feature_names == ["x"]
    else:
        for name, array in (("X", X), ("y", Y), ("e", errors)):
            np.save(tmp_path / f"{name}.npy", array)
        source = open_source(
            tmp_path / "X.npy", target=tmp_path / "y.npy", noise_std=tmp_path / "e.npy"
        )
    ours = trained_rows(monkeypatch, regressor(), source)
    theirs = trained_rows(monkeypatch, regressor(), X, Y, noise_std=errors)
    assert ours[1].shape == (ROWS, 2)
    np.testing.assert_allclose(ours[0], theirs[0], atol=1e-5)
    np.testing.assert_allclose(ours[1][:, 0], theirs[1][:, 0], atol=1e-5)
    np.testing.assert_allclose(ours[1][:, 1], theirs[1][:, 1], rtol=1e-5)


def test_streams_learn_from_errors(fitted, monkeypatch, tmp_path):
    monkeypatch.setenv("DVIP_ROW_CACHE", str(tmp_path / "cache"))
    streamed = regressor().fit(ArraySource(X, Y, noise_std=ERRORS))
    assert streamed.known_errors_
    assert noise_of(streamed) == pytest.approx(noise_of(fitted), rel=0.3)


def test_saved_models_remember(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert loaded.known_errors_ is True
    assert np.array_equal(
        loaded.predict(X, return_std=True, noise_std=2.0)[1],
        fitted.predict(X, return_std=True, noise_std=2.0)[1],
    )
    for name, value in (
        ("known_errors_", "yes"),
        ("noise_names_", ("a", "b")),
        ("noise_names_", 3),
    ):
        setattr(loaded, name, value)
        loaded.save(tmp_path / "wrong")
        with pytest.raises(ModelFileError, match=name):
            load(tmp_path / "wrong")
        loaded = load(tmp_path / "model")


def test_a_fit_goes_on_where_it_was_stopped(fitted, monkeypatch, tmp_path):
    kept = {"checkpoint_dir": tmp_path / "checkpoints", "checkpoint_every": 100}
    with monkeypatch.context() as patch:
        patch.setattr(DeepEstimator, "_keep", stop)
        with pytest.raises(KeyboardInterrupt):
            regressor().fit(X, Y, noise_std=ERRORS, **kept)
    resumed = regressor().fit(X, Y, noise_std=ERRORS, **kept, resume=True)
    assert np.array_equal(resumed.predict(X), fitted.predict(X))
    with pytest.raises(CheckpointError, match="data"):
        regressor().fit(X, Y, noise_std=2 * ERRORS, **kept, resume=True)


def stop(*_):
    raise KeyboardInterrupt


def test_calls_of_partial_fit_all_have_errors():
    model = regressor().partial_fit(X, Y, noise_std=ERRORS)
    model.partial_fit(X, Y, noise_std=ERRORS)
    assert model.n_samples_seen_ == 2 * ROWS
    with pytest.raises(ValueError, match="pass noise_std here, too"):
        model.partial_fit(X, Y)
    without = regressor().partial_fit(X, Y)
    with pytest.raises(ValueError, match="leave out noise_std here, too"):
        without.partial_fit(X, Y, noise_std=ERRORS)


WRONG = {
    "zero": (0.0, "positive"),
    "negative": (np.where(np.arange(ROWS) == 3, -1.0, ERRORS), "-1.0 in row 4"),
    "not a number": (np.where(np.arange(ROWS) == 3, np.nan, ERRORS), "nan in row 4"),
    "infinite": (np.inf, "inf"),
    "too few": (ERRORS[:-1], r"\(95,\) for y of the shape \(96,\)"),
    "too wide": (np.ones((ROWS, 2)), r"\(96, 2\)"),
    "text": ("0.1", "must be numbers"),
    "texts": (["a"] * ROWS, "must be numbers"),
    "truth": (True, "must be numbers"),
    "hidden": (np.ma.masked_array(ERRORS, ERRORS > 1), "masked"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_errors(case, fitted, monkeypatch):
    errors, message = WRONG[case]
    monkeypatch.setattr(DeepEstimator, "_train_on", no_training)
    for call in (
        lambda: regressor().fit(X, Y, noise_std=errors),
        lambda: regressor().partial_fit(X, Y, noise_std=errors),
        lambda: fitted.predict(X, noise_std=errors),
        lambda: fitted.predict_dist(X, noise_std=errors),
    ):
        with pytest.raises(ValueError, match=message) as caught:
            call()
        assert len(str(caught.value)) < 250
    if np.shape(errors) == (ROWS,) and case != "hidden":
        with pytest.raises(ValueError, match=r"error of row \d+ is .*positive"):
            regressor().fit(ArraySource(X, Y, noise_std=errors))


def no_training(*_):
    raise AssertionError


class NoErrors(Regression):
    """A likelihood that knows of no errors."""

    def expected_log_prob(self, targets, mean, variance):
        raise AssertionError

    log_expected_power = predictive = expected_log_prob


def takes_errors(name):
    return getattr(LIKELIHOODS[name], "takes_errors", None)


# The one that is not slow has what two others have.
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name != "heteroscedastic-student-t"))
        for name in LIKELIHOODS
        if takes_errors(name)
    ],
)
def test_likelihoods_that_take_errors(name):
    model = regressor(likelihood=name, max_iter=50).fit(X, Y, noise_std=ERRORS)
    std = model.predict(X, return_std=True)[1]
    at, wider = model.predict(X, return_std=True, noise_std=ERRORS)
    assert np.isfinite(at).all()
    assert (wider > np.hypot(std, 0.99 * ERRORS)).all()
    assert (model.predict_dist(X, ERRORS).std > std).all()


@pytest.mark.parametrize("name", [name for name in LIKELIHOODS if takes_errors(name) is False])
def test_likelihoods_that_take_none(name):
    with pytest.raises(ValueError, match="cannot use known errors of rows"):
        regressor(likelihood=name).fit(X, np.round(Y), noise_std=ERRORS)


def test_errors_where_they_have_no_use():
    likelihood = regressor(likelihood=NoErrors())
    for arguments in ((X, Y), (ArraySource(X, Y, noise_std=ERRORS),)):
        errors = {"noise_std": ERRORS} if len(arguments) == 2 else {}
        with pytest.raises(ValueError, match=r"NoErrors cannot use known errors.*gaussian"):
            likelihood.fit(*arguments, **errors)
    labels = np.where(Y > 100, "high", "low")
    classifier = DVIPClassifier.paper(**SETTINGS)
    with pytest.raises(ValueError, match="noise_std is for regressions"):
        classifier.fit(X, labels, noise_std=ERRORS)
    with pytest.raises(ValueError, match="Labels have no error"):
        classifier.fit(ArraySource(X, labels, noise_std=ERRORS))
    with pytest.raises(ValueError, match="A source brings its"):
        regressor().fit(ArraySource(X, Y), noise_std=ERRORS)
    with pytest.raises(ValueError, match="X has 96 rows, but noise_std has 5"):
        ArraySource(X, Y, noise_std=ERRORS[:5])


def test_errors_in_another_unit(monkeypatch):
    monkeypatch.setattr(DeepEstimator, "_train_on", lambda *_: None)
    for arguments, errors in (
        ((X, Y), {"noise_std": 1000 * ERRORS}),
        ((ArraySource(X, Y, noise_std=1000 * ERRORS),), {}),
    ):
        with pytest.warns(UserWarning, match="is it in the unit of y"):
            regressor().fit(*arguments, **errors)


def test_columns_of_errors(tmp_path):
    frame = pd.DataFrame({"x": X[:, 0], "y": Y, "z": Y, "e": ERRORS, "word": "a"})
    frame.to_parquet(tmp_path / "t.parquet")
    path = tmp_path / "t.parquet"
    for targets, errors, message in (
        ("y", "nope", "no column 'nope'"),
        ("y", "y", "is a target"),
        (["y", "z"], "e", "name one for each"),
        (["y", "z"], ["e", "e"], "twice"),
        ("y", 3, "noise_std=3 must be"),
    ):
        with pytest.raises(ValueError, match=message):
            open_source(path, target=targets, noise_std=errors)
    source = open_source(path, target="y", columns=["x"], noise_std="word")
    with pytest.raises(ValueError, match=r"Column 'word' has a in row 1 of t\.parquet"):
        regressor().fit(source)
