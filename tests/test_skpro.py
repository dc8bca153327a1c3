"""The adapter to skpro: its checks pass, its distributions are ours, sktime forecasts with it."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dvip import CountMixture, DVIPClassifier, DVIPRegressor, GaussianMixture

pytest.importorskip("skpro", reason='needs pip install "dvip[skpro]"')

from dvip.skpro import PredictiveDistribution, SkproRegressor

ROOT = Path(__file__).parent.parent
SMALL = {"n_layers": 1, "n_prior_samples": 5, "max_iter": 60, "n_predictive_samples": 8}

# What skpro and pandas warn each other of is not ours.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def rows():
    random = np.random.default_rng(0)
    X = pd.DataFrame(random.normal(size=(40, 2)), columns=["a", "b"], index=range(100, 140))
    y = pd.DataFrame({"y": X["a"] + 0.1 * random.normal(size=40), "z": X["b"]}, index=X.index)
    return X, y


@pytest.mark.parametrize("kind", [PredictiveDistribution, SkproRegressor])
def test_checks_of_skpro(kind):
    from skpro.utils import check_estimator

    results = check_estimator(kind, raise_exceptions=False, verbose=False)
    assert len(results) > 50
    assert {name: result for name, result in results.items() if result != "PASSED"} == {}


def test_predictions_are_those_of_the_estimator(rows):
    X, y = rows
    estimator = DVIPRegressor.paper(**SMALL)
    model = SkproRegressor(estimator).fit(X, y)
    assert not hasattr(estimator, "model_")
    expected = DVIPRegressor.paper(**SMALL).fit(X, y.to_numpy()).predict_dist(X)
    distribution = model.predict_proba(X)
    assert list(distribution.columns) == ["y", "z"]
    assert distribution.index.equals(X.index)
    np.testing.assert_allclose(model.predict(X), expected.mean, rtol=1e-6)
    np.testing.assert_allclose(model.predict_var(X), np.square(expected.std), rtol=1e-6)
    np.testing.assert_allclose(distribution.cdf(y), expected.cdf(y.to_numpy()), rtol=1e-6)
    interval = model.predict_interval(X, coverage=0.9)
    lower, upper = expected.interval(0.9)
    np.testing.assert_allclose(interval[("z", 0.9, "lower")], lower[:, 1], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(interval[("y", 0.9, "upper")], upper[:, 0], rtol=1e-5, atol=1e-6)
    # Targets of a row are drawn together, and the global seed decides.
    np.random.seed(0)  # noqa: NPY002 (which is what skpro draws with)
    drawn = distribution.sample(4)
    assert drawn.shape == (4 * len(X), 2)
    np.testing.assert_array_equal(
        drawn.to_numpy().reshape(4, len(X), 2),
        expected.sample(4, np.random.RandomState(0)),
    )


def test_rows_and_targets_can_be_chosen(rows):
    random = np.random.default_rng(1)
    means, noise = random.normal(size=(3, 2, 4)), np.array([0.1, 0.3])
    mixture = GaussianMixture(means, np.full((3, 2, 4), 0.2), noise)
    distribution = PredictiveDistribution(mixture, index=["i", "j", "k"], columns=["a", "b"])
    last = distribution.loc[["k", "i"], ["b"]]
    np.testing.assert_allclose(last.mean()["b"], mixture.mean[[2, 0], 1])
    single = distribution.iloc[1, 1]
    assert single.ndim == 0
    assert single.mean() == pytest.approx(mixture.mean[1, 1])
    assert single.log_pdf(0.5) == pytest.approx(mixture.target(1).log_prob(np.full(3, 0.5))[1])
    assert single.ppf(0.0) == -np.inf


def test_energy_gives_the_crps():
    random = np.random.default_rng(2)
    mixture = GaussianMixture(random.normal(size=(2, 5)), np.full((2, 5), 0.4), np.array(0.1))
    distribution = PredictiveDistribution(mixture)
    x = np.array([[0.3], [-1.0]])
    energy, spread = distribution.energy(x)["energy"], distribution.energy()["energy"]
    np.testing.assert_allclose(energy - spread / 2, mixture.crps(x), rtol=1e-9)
    draws = mixture.sample(200_000, 0)
    np.testing.assert_allclose(energy, np.abs(draws - x.T).mean(axis=0), rtol=1e-2)
    np.testing.assert_allclose(spread, np.abs(draws - draws[::-1]).mean(axis=0), rtol=1e-2)


def test_counts_are_discrete(rows):
    X, _ = rows
    y = pd.DataFrame({"n": np.random.default_rng(0).poisson(np.exp(X["a"]))}, index=X.index)
    model = SkproRegressor(DVIPRegressor.paper(**SMALL, likelihood="poisson")).fit(X, y)
    distribution = model.predict_proba(X[:2])
    assert isinstance(distribution.predictive, CountMixture)
    probabilities = [distribution.pmf(float(count)).to_numpy()[:, 0] for count in range(200)]
    np.testing.assert_allclose(np.sum(probabilities, axis=0), 1, atol=1e-6)
    assert (distribution.pdf(1.0).to_numpy() == 0).all()


def test_a_classifier_is_refused(rows):
    X, y = rows
    with pytest.raises(ValueError, match=r"must be a regressor of dvip"):
        SkproRegressor(DVIPClassifier()).fit(X, y)


def test_examples_of_the_page(tmp_path, monkeypatch):
    """Among them a forecast with intervals, by sktime."""
    pytest.importorskip("sktime", reason="needs pip install sktime")
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "skpro.md").read_text()
    codes = re.findall(r"```py\n(.*?)```", page, flags=re.DOTALL)
    assert len(codes) >= 2
    for code in codes:
        names: dict = {}
        exec(code, names)
        intervals = names["intervals"].to_numpy()
        assert np.isfinite(intervals).all()
        assert (intervals[:, 0] < intervals[:, 1]).all()
