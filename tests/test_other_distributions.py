"""Predictive mixtures of positive numbers and of counts, against SciPy's distributions."""

import numpy as np
import pytest
from examples import numbers_of
from scipy import stats
from scipy.integrate import quad

from dvip import CountMixture, GaussianMixture, LogNormalMixture, Predictive

RANDOM = np.random.default_rng(1)
ROWS = 4

POSITIVE = LogNormalMixture(
    GaussianMixture(
        RANDOM.normal(size=(ROWS, 2, 3)), RANDOM.uniform(0.1, 0.5, (ROWS, 2, 3)), np.full(2, 0.2)
    )
)
COUNTS = CountMixture(
    RANDOM.uniform(0.5, 9, (ROWS, 2, 3)),
    np.array([2.0, 5.0])[None, :, None],
    np.array([0.2, 0.5, 0.3]),
)


def test_a_log_normal_distribution():
    one = GaussianMixture(np.array([[0.4]]), np.array([[0.3]]), np.array(0.2))
    log_normal, exact = LogNormalMixture(one), stats.lognorm(np.sqrt(0.5), scale=np.exp(0.4))
    np.testing.assert_allclose(log_normal.mean, exact.mean())
    np.testing.assert_allclose(log_normal.std, exact.std())
    np.testing.assert_allclose(log_normal.log_prob(1.3), exact.logpdf(1.3))
    np.testing.assert_allclose(log_normal.quantile(0.2), exact.ppf(0.2))
    assert log_normal.cdf(-1.0) == log_normal.cdf(0.0) == 0
    assert log_normal.log_prob(0.0) == -np.inf
    for y in (-1.0, 0.7, 5.0):
        expected = quad(lambda x, y=y: (exact.cdf(x) - (x >= y)) ** 2, min(y, 0), 60, points=[0, y])
        np.testing.assert_allclose(log_normal.crps(y), expected[0], rtol=1e-6)
    wide = POSITIVE.rescaled(2.0)
    np.testing.assert_allclose(wide.logs.std, 2 * POSITIVE.logs.std)


def test_counts():
    k = np.array([2.0, 5.0])[:, None]
    exact = stats.nbinom(k, k / (k + COUNTS.rates))
    weights = COUNTS.weights
    np.testing.assert_allclose(COUNTS.mean, exact.mean() @ weights)
    for y in (0, 3, 12):
        np.testing.assert_allclose(COUNTS.cdf(y), exact.cdf(y) @ weights)
        joint = exact.pmf(y).prod(axis=1) @ weights
        np.testing.assert_allclose(COUNTS.log_prob(y), np.log(joint))
    assert (COUNTS.log_prob(1.5) == -np.inf).all()
    assert (COUNTS.cdf(-0.5) == 0).all()
    poisson = CountMixture(np.array([[3.0], [4_000.0]]))
    exact = stats.poisson([3.0, 4_000.0])
    for p in (1e-3, 0.5, 0.99):
        assert np.array_equal(poisson.quantile(p), exact.ppf(p))
    np.testing.assert_allclose(poisson.std, exact.std())
    np.testing.assert_allclose(poisson.log_prob([2, 4_100]), exact.logpmf([2, 4_100]))
    with pytest.raises(NotImplementedError, match="CountMixture cannot be changed"):
        poisson.rescaled(2.0)


@pytest.mark.parametrize("y", [-2.0, 0.0, 3.0, 3.4, 40.0, 4_050.0])
def test_crps_of_counts(y):
    """The sum over all counts, each of a width of one; wide distributions in blocks."""
    rates = np.array([[3.0, 5.0], [4_000.0, 4_300.0]])
    found = CountMixture(rates).crps(y)
    counts = np.arange(-10, 10_000)
    cdf = np.mean(stats.poisson(rates[..., None]).cdf(counts), axis=1)
    share = np.clip(y - counts, 0, 1)  # of [n, n + 1) that lies below y
    expected = (share * cdf**2 + (1 - share) * (1 - cdf) ** 2).sum(axis=1)
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=1e-4)


@pytest.mark.parametrize("distribution", [POSITIVE, COUNTS], ids=["log-normal", "counts"])
def test_other_families_are_mixed(distribution):
    both = Predictive.mixture([distribution, distribution])
    for first, second in zip(numbers_of(both), numbers_of(distribution), strict=True):
        np.testing.assert_allclose(first, second, rtol=1e-9)
    alone = distribution.target(1)
    np.testing.assert_allclose(alone.crps(3.0), distribution.crps(3.0)[:, 1], rtol=1e-9)
    np.testing.assert_allclose(alone.quantile(0.3), distribution.quantile(0.3)[:, 1], rtol=1e-9)
