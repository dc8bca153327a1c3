"""The default, which chooses, on tables of all kinds: tiny, odd, streamed, with classes."""

import numpy as np
import pandas as pd
import pytest
from examples import regression_data

from dvip import ArraySource, DVIPClassifier, DVIPRegressor
from dvip.estimators import candidates, choice, stacks

QUICK = dict(
    max_iter=60, n_members=2, n_prior_samples=5, batch_size=16, n_predictive_samples=10, n_layers=1
)
X, Y = regression_data(num_rows=70)
NOTHING = np.random.default_rng(7).normal(size=70)


def names(model):
    return [judgement.name for judgement in model.choice_]


def test_several_targets():
    y = np.stack([NOTHING, -2 * NOTHING, np.roll(NOTHING, 1)], axis=1)
    model = DVIPRegressor(**QUICK).fit(X, y)
    distribution = model.predict_dist(X[:6])
    assert distribution.mean.shape == (6, 3)
    assert distribution.distance.shape == (6,)
    assert np.isfinite(distribution.log_prob(y[:6])).all()
    assert model.sample_functions(4, random_state=0)(X[:6]).shape == (4, 6, 3)
    far = model.predict_dist(X[:6] + 1e3)
    assert np.all(far.std > 10 * distribution.std)


def test_a_weight_of_two_is_the_row_twice():
    weights = np.where(np.arange(6) % 4 == 0, 2.0, 1.0)
    weighted = DVIPRegressor().fit(X[:6], Y[:6], weights)
    repeated = np.repeat(np.arange(6), weights.astype(int))
    twice = DVIPRegressor().fit(X[repeated], Y[repeated])
    np.testing.assert_allclose(weighted.predict(X), twice.predict(X), rtol=1e-6)
    plain = DVIPRegressor().fit(X[:6], Y[:6])
    assert not np.allclose(weighted.predict(X), plain.predict(X), rtol=1e-6)


def test_known_errors(monkeypatch):
    """Rows whose errors are large count for little, and errors of new rows are added."""
    y, errors = Y[:40].copy(), np.full(40, 0.01)
    y[::5] += 300
    errors[::5] = 300
    model = DVIPRegressor().fit(X[:40], y, noise_std=errors)
    plain = DVIPRegressor(inference="exact").fit(X[:40], y)
    right = np.abs(model.predict(X[40:]) - Y[40:]).mean()
    assert right < 0.5 * np.abs(plain.predict(X[40:]) - Y[40:]).mean()
    wide = model.predict_dist(X[40:], noise_std=500.0).std
    assert np.all(wide > 10 * model.predict_dist(X[40:]).std)
    monkeypatch.setattr(candidates, "FEW_ROWS", 60)
    mixed = DVIPRegressor(**QUICK).fit(X, NOTHING, noise_std=0.5)
    assert names(mixed) == ["gp", "sampled gp", "constant", "bnn"]
    assert np.all(mixed.predict_dist(X, noise_std=9.0).std > mixed.predict_dist(X).std)


@pytest.mark.parametrize(
    "num_rows", [1, 3, 5, *(pytest.param(number, marks=pytest.mark.slow) for number in (2, 4, 12))]
)
def test_tiny_tables(num_rows):
    model = DVIPRegressor().fit(X[:num_rows], Y[:num_rows])
    distribution = model.predict_dist(X)
    assert np.isfinite(distribution.log_prob(Y)).all()
    assert np.all(distribution.std > 0)
    assert np.isfinite(model.sample_functions(3, random_state=0)(X)).all()
    assert np.isfinite(model.distance(X)).all()


@pytest.mark.parametrize(
    "given",
    [{"n_members": 1}, pytest.param({"validation_fraction": 0.05}, marks=pytest.mark.slow)],
    ids=str,
)
def test_so_few_rows_that_none_is_left_out(given):
    model = DVIPRegressor(**given).fit(X[:5], Y[:5])
    assert np.isfinite(model.predict_dist(X).log_prob(Y)).all()


@pytest.mark.parametrize("num_rows", [pytest.param(1, marks=pytest.mark.slow), 5])
def test_tiny_tables_of_counts(num_rows):
    given = {name: QUICK[name] for name in QUICK if name != "n_members"}
    model = DVIPRegressor(**given, likelihood="poisson").fit(X[:num_rows], np.arange(num_rows))
    assert np.isfinite(model.predict_dist(X).log_prob(np.arange(70))).all()


@pytest.mark.parametrize(
    ("odd", "num_rows"),
    [
        # Networks take long to compile.
        pytest.param(odd, number, marks=[pytest.mark.slow] * (number == 70 and odd != "y"))
        for odd in ("y", "columns", "one column", "rows", "half of the rows")
        for number in (5, 70)
    ],
)
def test_constant_and_repeated(odd, num_rows):
    inputs, y = X[:num_rows].copy(), Y[:num_rows].copy()
    match odd:
        case "y":
            y[:] = 3
        case "columns":
            inputs[:] = 2
        case "one column":
            inputs = inputs[:, :1]
        case "rows":
            inputs[:], y[:] = inputs[0], y[0]
        case "half of the rows":
            half = num_rows // 2
            inputs[:half], y[:half] = inputs[-half:], y[-half:]
    model = DVIPRegressor(**QUICK).fit(inputs, y)
    for rows in (inputs, inputs + 1):
        mean, std = model.predict(rows, return_std=True)
        assert np.isfinite(mean).all()
        assert np.all(std > 0)
    if odd == "y":
        np.testing.assert_allclose(model.predict(inputs), 3, rtol=0.05)


def test_a_table_with_text_and_gaps():
    table = pd.DataFrame(X[:40].copy(), columns=["a", "b", "c"])
    table["kind"] = np.where(X[:40, 0] > 5, "x", "y")
    table.loc[3, "b"] = None
    model = DVIPRegressor().fit(table, Y[:40])
    assert np.isfinite(model.predict(table.iloc[::-1])).all()
    assert model.distance(table).shape == (40,)


@pytest.mark.parametrize("num_classes", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_classification(num_classes):
    labels = np.array(["a", "b", "c"])[np.digitize(X[:, 0], [5, 7][: num_classes - 1])]
    settings = {**QUICK, "max_iter": 300, "learning_rate": 0.05}
    model = DVIPClassifier(**settings).fit(X, labels)
    probabilities = model.predict_proba(X)
    assert probabilities.shape == (70, num_classes)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)
    assert model.score(X, labels) > 0.75
    assert names(model) == ["linear", "bnn"]
    assert model.parts_[0].calibration_.temperature > 0
    assert model.sample_functions(4, random_state=0)(X).shape[:2] == (4, 70)
    assert np.all(model.distance(X + 100) > model.distance(X))


@pytest.mark.parametrize(
    "labels",
    [
        *("abc", 30 * "a" + "b"),
        *(pytest.param(labels, marks=pytest.mark.slow) for labels in ("ab", "ababa", 4 * "abc")),
    ],
)
def test_tiny_tables_of_classes(labels):
    settings = {name: QUICK[name] for name in QUICK if name != "n_members"}
    rows = X[: len(labels)]
    model = DVIPClassifier(**settings).fit(rows, list(labels))
    assert list(model.classes_) == sorted(set(labels))
    probabilities = model.predict_proba(X)
    assert np.isfinite(probabilities).all()
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize(
    "kind",
    [
        "few rows",
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("in memory", "many rows")),
    ],
)
def test_a_source(kind, tmp_path, monkeypatch):
    """Few rows of a stream are read into memory: its folds are whole pages."""
    monkeypatch.setenv("DVIP_ROW_CACHE", str(tmp_path))
    monkeypatch.setattr(candidates, "FEW_ROWS", 60)
    if kind == "many rows":
        for module in (candidates, choice):
            monkeypatch.setattr(module, "MANY_ROWS", 70)
        monkeypatch.setattr("dvip.sources.streamed_rows.PAGE_BYTES", 64)
    source = ArraySource(X, Y)
    source.in_memory = kind == "in memory"
    model = DVIPRegressor(**QUICK).fit(source)
    assert names(model)[0] == "gp"
    assert "bnn" in names(model)[-1]
    assert model.n_samples_seen_ == 70
    assert model.score(X, Y) > 0.8
    np.testing.assert_allclose(model.distance(X), 0, atol=1e-2)
    classifier = DVIPClassifier(**QUICK).fit(ArraySource(X, np.where(Y > 100, "a", "b")))
    assert np.isfinite(classifier.predict_proba(X)).all()


def test_few_rows_of_a_stream_in_closed_form(tmp_path, monkeypatch):
    monkeypatch.setenv("DVIP_ROW_CACHE", str(tmp_path))
    source = ArraySource(X, Y)
    source.in_memory = False
    model = DVIPRegressor(inference="exact", calibrate=True).fit(source)
    plain = DVIPRegressor(inference="exact", calibrate=True).fit(X, Y)
    np.testing.assert_allclose(model.predict(X), plain.predict(X), rtol=0.1)
    assert model.calibration_.scale > 0


def test_many_rows_are_sampled_for_the_process(monkeypatch):
    """It sees so many at most, of a stream as well."""
    seen, tried = [], stacks.ChoosingRegressor._candidates

    def without_networks(*arguments):
        return [each for each in tried(*arguments) if "bnn" not in each.name]

    def noted(data, folds, *others):
        seen.append((len(data.inputs), sum(map(len, folds))))
        raise EOFError

    monkeypatch.setattr(stacks.ChoosingRegressor, "_candidates", without_networks)
    monkeypatch.setattr(stacks, "fit_closed_form", noted)
    monkeypatch.setattr(choice, "MAX_ROWS_OF_GP", 90)
    monkeypatch.setattr("dvip.estimators.ensembles.MAX_CALIBRATED", 40)
    inputs, y = regression_data(num_rows=300)
    with pytest.raises(EOFError):
        DVIPRegressor(**QUICK).fit(inputs, y)
    ((number, judged),) = seen
    assert 80 <= number <= 92
    assert 40 <= judged <= 44
