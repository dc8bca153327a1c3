"""What works with what: the estimators inside tools of others, and tables of others inside them.

`docs/works-with.md` has the same list: a test compares them.
"""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import sklearn
from examples import regression_data
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor, make_column_transformer
from sklearn.ensemble import (
    BaggingRegressor,
    StackingClassifier,
    StackingRegressor,
    VotingRegressor,
)
from sklearn.inspection import DecisionBoundaryDisplay, partial_dependence, permutation_importance
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    cross_val_predict,
    cross_val_score,
    cross_validate,
    learning_curve,
)
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from dvip import DVIPClassifier, DVIPRegressor, TableEncoder

X, Y = regression_data(60)
LABELS = np.where(Y > 100, "high", "low")
TABLE = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "kind": np.where(X[:, 2] > 5, "u", "v")})
PAGE = Path(__file__).parent.parent / "docs" / "works-with.md"

WORKS = {}


def works_with(name):
    """Notes a test as the proof of a line in the docs."""

    def noted(test):
        WORKS[name] = test
        return test

    return noted


def regressor(**settings):
    given = {"n_layers": 1, "n_prior_samples": 5, "n_predictive_samples": 5, "max_iter": 60}
    return DVIPRegressor.paper(**given, **settings)


def classifier():
    return DVIPClassifier.paper(n_layers=1, n_prior_samples=5, n_predictive_samples=5, max_iter=60)


@pytest.fixture(scope="module")
def fitted():
    return regressor().fit(X, Y)


@works_with("`partial_dependence`")
def test_partial_dependence(fitted):
    found = partial_dependence(fitted, X, [0], grid_resolution=4)
    values = found["grid_values"][0]
    expected = [fitted.predict(np.column_stack([np.full(60, v), X[:, 1:]])).mean() for v in values]
    np.testing.assert_allclose(found["average"][0], expected, rtol=1e-5)


@works_with("`permutation_importance`")
def test_permutation_importance(fitted):
    found = permutation_importance(fitted, X, Y, n_repeats=2, random_state=0)
    assert found.importances_mean.shape == (3,)


@pytest.mark.slow
@works_with("`DecisionBoundaryDisplay`")
def test_decision_boundary():
    from matplotlib.figure import Figure

    model = classifier().fit(X[:, :2], LABELS)
    ax = Figure().subplots()
    DecisionBoundaryDisplay.from_estimator(
        model, X[:, :2], grid_resolution=5, response_method="predict_proba", ax=ax
    )


@works_with("`TransformedTargetRegressor`")
def test_transformed_targets():
    positive = Y - Y.min() + 1
    model = TransformedTargetRegressor(regressor(), func=np.log, inverse_func=np.exp)
    assert (model.fit(X, positive).predict(X) > 0).all()


@pytest.mark.slow
@works_with("`StackingRegressor`, `StackingClassifier`, `VotingRegressor`, `BaggingRegressor`")
def test_ensembles_of_others():
    both = [("dvip", regressor()), ("line", LinearRegression())]
    for model in (StackingRegressor(both, cv=2), VotingRegressor(both)):
        assert np.isfinite(model.fit(X, Y).predict(X)).all()
    bag = BaggingRegressor(regressor(), n_estimators=2, random_state=0).fit(X, Y)
    assert np.isfinite(bag.predict(X)).all()
    pair = [("dvip", classifier()), ("line", LogisticRegression())]
    stacked = StackingClassifier(pair, cv=2).fit(X, LABELS)
    np.testing.assert_allclose(stacked.predict_proba(X).sum(axis=1), 1)


@pytest.mark.slow
@works_with("`CalibratedClassifierCV`")
def test_calibrated_classifier():
    model = CalibratedClassifierCV(classifier(), cv=2).fit(X, LABELS)
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1)


@pytest.mark.slow
@works_with("`MultiOutputRegressor`")
def test_one_model_for_each_target():
    targets = np.column_stack([Y, -Y])
    assert MultiOutputRegressor(regressor()).fit(X, targets).predict(X).shape == (60, 2)


@pytest.mark.slow
@works_with("`cross_val_score`, `cross_val_predict`, `cross_validate`, `learning_curve`")
def test_cross_validation():
    assert np.isfinite(cross_val_score(regressor(), X, Y, cv=2)).all()
    assert cross_val_predict(classifier(), X, LABELS, cv=2, method="predict_proba").shape == (60, 2)
    scoring = ("neg_root_mean_squared_error", "r2")
    assert "test_r2" in cross_validate(regressor(), X, Y, cv=2, scoring=scoring)
    assert len(learning_curve(regressor(), X, Y, cv=2, train_sizes=[0.5, 1.0])[0]) == 2


@pytest.mark.slow
@works_with("`Pipeline`, `ColumnTransformer`, `GridSearchCV`")
def test_pipelines_and_searches():
    columns: ColumnTransformer = make_column_transformer(
        (StandardScaler(), ["a", "b"]), (OneHotEncoder(), ["kind"])
    )
    pipeline = make_pipeline(columns, regressor())
    search = GridSearchCV(pipeline, {"dvipregressor__alpha": [0.0, 0.5]}, cv=2).fit(TABLE, Y)
    assert np.isfinite(search.predict(TABLE)).all()


@works_with("metadata routing of `sample_weight` and `noise_std`")
def test_metadata_routing():
    with sklearn.config_context(enable_metadata_routing=True):
        model = regressor().set_fit_request(sample_weight=True, noise_std=True)
        model.set_score_request(sample_weight=False)
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        pipeline = make_pipeline(scaler, model)
        weights = np.where(np.arange(60) < 30, 1.0, 0.0)
        pipeline.fit(X, Y, sample_weight=weights, noise_std=2.0)
        assert pipeline[-1].known_errors_
        scaled = StandardScaler().fit_transform(X)
        alone = regressor().fit(scaled[:30], Y[:30], noise_std=2.0)
    np.testing.assert_allclose(pipeline.predict(X), alone.predict(scaled), rtol=1e-5)


@works_with("`set_output` of `TableEncoder`: pandas, polars")
def test_set_output():
    encoder = TableEncoder().set_output(transform="pandas").fit(TABLE)
    encoded = encoder.transform(TABLE)
    assert isinstance(encoded, pd.DataFrame)
    assert list(encoded.columns) == ["a", "b", "kind = u", "kind = v"]
    model = make_pipeline(encoder, regressor()).fit(TABLE, Y)
    assert list(model[-1].feature_names_in_) == list(encoded.columns)
    try:
        import polars as pl
    except ImportError:
        return
    assert isinstance(encoder.set_output(transform="polars").transform(TABLE), pl.DataFrame)


def same_as_pandas(table, y, labels):
    """Models that were fitted to another kind of table predict what those of pandas do."""
    for make, target in ((regressor, (y, Y)), (classifier, (labels, LABELS))):
        model, expected = make().fit(table, target[0]), make().fit(TABLE, target[1])
        assert np.array_equal(model.predict(table), expected.predict(TABLE))
        assert np.array_equal(model.predict(TABLE), expected.predict(TABLE))
        assert list(model.feature_names_in_) == ["a", "b", "kind"]


@works_with("tables and columns of pyarrow")
def test_pyarrow():
    same_as_pandas(pa.table(TABLE.to_dict("list")), pa.chunked_array([Y]), pa.array(LABELS))


@works_with("DataFrames and Series of polars")
def test_polars():
    pl = pytest.importorskip("polars", reason="needs polars")
    same_as_pandas(pl.DataFrame(TABLE.to_dict("list")), pl.Series(Y), pl.Series(LABELS.tolist()))
    numbers = pl.DataFrame({"a": X[:, 0], "b": X[:, 1]})
    assert np.isfinite(regressor().fit(numbers, Y).predict_interval(numbers)).all()


@pytest.mark.slow
@works_with("SHAP: `shap.Explainer(model.predict, X)`")
def test_shap(fitted):
    shap = pytest.importorskip("shap", reason="needs shap")
    explained = shap.Explainer(fitted.predict, X[:20])(X[:2])
    total = explained.values.sum(axis=1) + explained.base_values
    np.testing.assert_allclose(total, fitted.predict(X[:2]), rtol=1e-4)


def test_the_docs_have_the_same_list():
    listed = re.findall(r"^\| (.+?) \| .+ \|$", PAGE.read_text(), re.MULTILINE)
    assert listed[0] == "with"
    assert [line for line in listed if line != "---"][1:] == list(WORKS)
