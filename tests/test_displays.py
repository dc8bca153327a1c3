"""Displays in scikit-learn's way: what they draw is what the model says."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from examples import regression_data
from matplotlib.figure import Figure

from dvip import DVIPClassifier, DVIPRegressor
from dvip.plots import (
    BoundDisplay,
    CalibrationDisplay,
    EffectDisplay,
    FunctionDrawsDisplay,
    MeasuredDisplay,
    PredictionDisplay,
    ReliabilityDisplay,
    SurfaceDisplay,
    VarianceDisplay,
    column_importances,
)

SETTINGS = {"n_layers": 1, "n_prior_samples": 5, "n_predictive_samples": 5, "max_iter": 400}
X, Y = regression_data(80)
TABLE = pd.DataFrame({"height": X[:, 0], "kind": np.where(X[:, 1] > 5, "b", "a"), "age": X[:, 2]})
LABELS = np.where(Y > 100, "high", "low")


@pytest.fixture(scope="module")
def model():
    fitted = DVIPRegressor.paper(**SETTINGS).fit(TABLE, Y)
    fitted.target_names_ = ("price",)
    return fitted


@pytest.fixture(scope="module")
def classifier():
    return DVIPClassifier.paper(**SETTINGS).fit(X, LABELS)


@pytest.fixture
def ax():
    return Figure().subplots()


def lines(ax):
    return {line.get_label(): line.get_xydata() for line in ax.get_lines()}


def test_predictions_over_one_input(model, ax):
    display = PredictionDisplay.from_estimator(model, TABLE, Y, feature="height", ax=ax)
    assert display.ax_ is ax
    assert display.figure_ is ax.figure
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("height", "price")
    x, mean = lines(ax)["mean"].T
    rows = pd.DataFrame(
        {"height": x, "kind": TABLE["kind"].mode()[0], "age": TABLE["age"].median()}
    )
    np.testing.assert_allclose(mean, model.predict(rows), rtol=1e-6)
    band = next(part for part in ax.collections if part.get_label() == "90 % interval")
    low, high = band.get_paths()[0].get_extents().intervaly
    intervals = model.predict_interval(rows, 0.9)
    np.testing.assert_allclose((low, high), (intervals.min(), intervals.max()), rtol=1e-6)
    np.testing.assert_allclose(lines(ax)["rows"], np.column_stack([TABLE["height"], Y]))
    with pytest.raises(ValueError, match="name the one to draw along"):
        PredictionDisplay.from_estimator(model, TABLE, ax=ax)
    for bad in ("weight", 7, 1.5):
        with pytest.raises(ValueError, match="is no column"):
            PredictionDisplay.from_estimator(model, TABLE, feature=bad, ax=ax)
    with pytest.raises(ValueError, match="no numbers to draw along"):
        PredictionDisplay.from_estimator(model, TABLE, feature="kind", ax=ax)


def test_predictions_that_were_made_before(model, ax):
    dist = model.predict_dist(TABLE)
    display = PredictionDisplay.from_predictions(TABLE["height"], dist, Y, ax=ax)
    order = np.argsort(TABLE["height"].to_numpy())
    np.testing.assert_allclose(lines(ax)["mean"][:, 1], dist.mean[order])
    again = Figure().subplots()
    assert display.plot(coverages=[0.5], ax=again).ax_ is again


def test_new_axes_are_those_of_pyplot(model):
    display = MeasuredDisplay.from_estimator(model, TABLE, Y)
    assert display.figure_.number in plt.get_fignums()
    plt.close(display.figure_)


def test_surface(model, classifier, ax):
    for response in ("mean", "std"):
        display = SurfaceDisplay.from_estimator(
            model, TABLE, features=("height", 2), response=response, ax=Figure().subplots()
        )
        place = (7, 30)  # along age, along height
        row = pd.DataFrame(
            {"height": [display.x[30]], "kind": TABLE["kind"].mode()[0], "age": [display.y[7]]}
        )
        expected = getattr(model.predict_dist(row), response)[0]
        assert display.values[place] == pytest.approx(expected, rel=1e-5)
    assert display.ax_.get_ylabel() == "age"
    assert display.labels[2] == "standard deviation of price"
    of_class = SurfaceDisplay.from_estimator(classifier, X, target=1, ax=ax)
    assert of_class.labels == ("x0", "x1", "probability of low")
    assert ((of_class.values >= 0) & (of_class.values <= 1)).all()
    with pytest.raises(ValueError, match="response"):
        SurfaceDisplay.from_estimator(model, TABLE, features=(0, 2), response="mode", ax=ax)


def test_calibration(model, ax):
    display = CalibrationDisplay.from_estimator(model, TABLE, Y, ax=ax)
    dist = model.predict_dist(TABLE)
    lower, upper = dist.interval(0.5)
    inside = np.mean((lower <= Y) & (upper >= Y))
    promised, observed = display.judged.coverage()
    assert observed[np.searchsorted(promised, 0.5)] == pytest.approx(inside)
    other = Figure().subplots()
    CalibrationDisplay.from_predictions(Y, dist, kind="pit", ax=other)
    heights = [bar.get_height() for bar in other.patches if bar.get_width() == pytest.approx(0.05)]
    counts = np.histogram(dist.cdf(Y), 20, (0, 1))[0]
    np.testing.assert_allclose(heights[-20:], counts * 20 / len(Y))
    with pytest.raises(ValueError, match="kind="):
        display.plot(kind="box", ax=ax)


def test_measured_against_predicted(model, ax):
    MeasuredDisplay.from_estimator(model, TABLE, Y, coverage=0.5, ax=ax)
    np.testing.assert_allclose(lines(ax)["rows"], np.column_stack([model.predict(TABLE), Y]))
    segments = {
        round(float(part[0, 0]), 6): part[:, 1] for part in ax.collections[0].get_segments()
    }
    intervals = model.predict_interval(TABLE, 0.5)
    for mean, interval in zip(model.predict(TABLE), intervals, strict=True):
        np.testing.assert_allclose(segments[round(float(mean), 6)], interval, rtol=1e-6)


def test_reliability(classifier, ax):
    display = ReliabilityDisplay.from_estimator(classifier, X, LABELS, ax=ax)
    assert display.judged.right_counts.sum() == (classifier.predict(X) == LABELS).sum()
    probabilities = classifier.predict_proba(X)
    other = ReliabilityDisplay.from_predictions(LABELS, probabilities, kind="confidence", ax=ax)
    assert np.array_equal(other.judged.confidence_counts, display.judged.confidence_counts)
    with pytest.raises(ValueError, match="kind="):
        display.plot(kind="box", ax=ax)


def test_bound(model, ax):
    BoundDisplay.from_estimator(model, ax=ax)
    steps, bounds = lines(ax)["DVIPRegressor"].T
    np.testing.assert_allclose(bounds, model.bound_history_)
    assert steps[-1] == 400
    exact = DVIPRegressor(inference="exact").fit(X, Y)
    with pytest.raises(ValueError, match="no training steps"):
        BoundDisplay.from_estimator(exact, ax=ax)
    members = BoundDisplay.from_predictions([1, 2], [[1, 2], [3, 4]], ax=Figure().subplots())
    assert len(members.ax_.get_lines()) == 2


def test_function_draws(model, classifier, ax):
    display = FunctionDrawsDisplay.from_estimator(
        model, TABLE, feature="height", n_functions=3, random_state=7, ax=ax
    )
    assert len(ax.get_lines()) == 3
    rows = pd.DataFrame(
        {"height": display.x, "kind": TABLE["kind"].mode()[0], "age": TABLE["age"].median()}
    )
    np.testing.assert_allclose(display.draws, model.sample_functions(3, 7)(rows))
    latent = FunctionDrawsDisplay.from_estimator(classifier, X, feature=0, ax=Figure().subplots())
    assert latent.ax_.get_ylabel() == "latent function"


def test_variance(model, ax):
    display = VarianceDisplay.from_estimator(model, TABLE, feature="height", ax=ax)
    order = np.argsort(TABLE["height"].to_numpy())
    total = display.parts.noise + display.parts.function
    np.testing.assert_allclose(total, model.predict_var(TABLE)[order])
    sorted_rows = VarianceDisplay.from_predictions(model.predict_dist(TABLE), ax=ax)
    assert (np.diff(np.add(*sorted_rows.parts)) >= 0).all()


def test_effects_are_means_of_whole_functions(model, ax):
    display = EffectDisplay.from_estimator(
        model, TABLE, "height", n_functions=4, random_state=3, ax=ax
    )
    functions = model.sample_functions(4, 3)
    for place in (0, 11):
        rows = TABLE.assign(height=display.values[place])
        np.testing.assert_allclose(display.draws[:, place], functions(rows).mean(axis=1), rtol=1e-5)
    assert display.labels == ("height", "price")
    kinds = EffectDisplay.from_estimator(
        model, TABLE, "kind", n_functions=4, ax=Figure().subplots()
    )
    assert set(kinds.values) == {"a", "b"}
    assert {tick.get_text() for tick in kinds.ax_.get_xticklabels()} == {"a", "b"}
    EffectDisplay.from_predictions([0.0, 1.0], [[1, 2], [3, 5]], ax=ax)
    np.testing.assert_allclose(lines(ax)[ax.get_lines()[-1].get_label()][:, 1], [2, 3.5])
    with pytest.raises(ValueError, match="is empty"):
        EffectDisplay.from_estimator(model, TABLE.assign(height=np.nan), "height", ax=ax)


def test_effects_on_probabilities(classifier, ax):
    display = EffectDisplay.from_estimator(classifier, X, 0, n_functions=6, ax=ax)
    assert display.labels == ("x0", "probability of low")
    assert ((display.draws >= 0) & (display.draws <= 1)).all()


def test_probabilities_under_functions(classifier):
    """Their mean over many functions is what is predicted."""
    functions = classifier.sample_probabilities(400, random_state=0)
    probabilities = functions(X[:20])
    assert probabilities.shape == (400, 20, 2)
    np.testing.assert_allclose(probabilities.sum(axis=2), 1)
    assert np.array_equal(functions(X[:3]), probabilities[:, :3])
    predicted = classifier.set_params(n_predictive_samples=200).predict_proba(X[:20])
    np.testing.assert_allclose(probabilities.mean(axis=0), predicted, atol=0.05)


def test_importances_follow_what_the_target_depends_on():
    random = np.random.default_rng(0)
    inputs = random.normal(size=(100, 3))
    exact = DVIPRegressor(inference="exact").fit(inputs, 3 * inputs[:, 1] + inputs[:, 2])
    importances = column_importances(exact, inputs)
    assert list(importances.index) == ["x1", "x2", "x0"]
    assert importances["x0"] < 0.05
    # Shuffled, its part of the prediction is drawn anew: twice its variance, of 9 and 1 in 10.
    assert importances["x1"] == pytest.approx(np.sqrt(2 * 0.9), rel=0.15)
    assert importances["x2"] == pytest.approx(np.sqrt(2 * 0.1), rel=0.15)
