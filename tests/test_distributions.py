"""The predictive mixture: every number that it gives, against integration and large samples."""

import numpy as np
import pytest
from examples import numbers_of
from scipy import stats
from scipy.integrate import quad
from scipy.optimize import brentq

import dvip.distributions.gaussian_mixture
from dvip import CountMixture, GaussianMixture, LogNormalMixture, Predictive

RANDOM = np.random.default_rng(1)
ROWS, COMPONENTS = 4, 6


def make_mixture(*targets, full_noise=False):
    shape = (ROWS, *targets, COMPONENTS)
    return GaussianMixture(
        RANDOM.normal(size=shape) * 2 + 5,
        RANDOM.uniform(0.01, 1.5, size=shape),
        RANDOM.uniform(0.05, 0.3, size=shape if full_noise else targets),
    )


MIXTURE = make_mixture()
SEVERAL = make_mixture(2)
# Noise of each row, target and component.
NOISY = make_mixture(2, full_noise=True)
Y = RANDOM.normal(size=ROWS) * 2 + 5
MANY = 50_000


def stds(mixture, index):
    """Standard deviations of the components of one row (and target), noise included."""
    noise = mixture.noise_variance
    if noise.ndim == mixture.means.ndim:
        noise = noise[index]
    elif not isinstance(index, int):
        noise = noise[index[1]]
    return np.sqrt(mixture.function_variances[index] + noise)


def density(mixture, index):
    means, deviations = mixture.means[index], stds(mixture, index)
    return lambda y: stats.norm.pdf(y, means, deviations).mean()


def integrate(mixture, index, function):
    means, deviations = mixture.means[index], stds(mixture, index)
    low, high = (means - 12 * deviations).min(), (means + 12 * deviations).max()
    p = density(mixture, index)
    return quad(lambda y: function(y) * p(y), low, high, points=sorted(means), limit=500)[0]


EVERYTHING = [
    *((MIXTURE, row) for row in range(ROWS)),
    *((SEVERAL, (row, target)) for row in range(ROWS) for target in range(2)),
    *((NOISY, (row, row % 2)) for row in range(ROWS)),
]
NAMES = {id(MIXTURE): "one target", id(SEVERAL): "two targets", id(NOISY): "noise of each"}
IDS = [f"{NAMES[id(mixture)]} {index}" for mixture, index in EVERYTHING]
all_mixtures = pytest.mark.parametrize("mixture", [MIXTURE, SEVERAL, NOISY], ids=NAMES.values())
each = pytest.mark.parametrize(("mixture", "index"), EVERYTHING, ids=IDS)


@each
def test_mean_and_std(mixture, index):
    mean = integrate(mixture, index, lambda y: y)
    np.testing.assert_allclose(mixture.mean[index], mean, rtol=1e-8)
    variance = integrate(mixture, index, lambda y: (y - mean) ** 2)
    np.testing.assert_allclose(mixture.std[index], np.sqrt(variance), rtol=1e-8)


@each
def test_cdf(mixture, index):
    for y in (2.0, 5.0, 7.5):
        p = density(mixture, index)
        expected, _ = quad(p, -40, y, points=[2, 4, 5], limit=500)
        np.testing.assert_allclose(mixture.cdf(y)[index], expected, atol=1e-8)


@each
def test_quantiles(mixture, index):
    means, deviations = mixture.means[index], stds(mixture, index)
    for p in (1e-9, 0.05, 0.5, 0.8, 1 - 1e-6):
        expected = brentq(
            lambda y, p=p: stats.norm.cdf(y, means, deviations).mean() - p, -40, 50, xtol=1e-13
        )
        np.testing.assert_allclose(mixture.quantile(p)[index], expected, rtol=1e-9)


@each
def test_crps(mixture, index):
    """∫ (F(x) - 1{x ≥ y})² dx, which is the definition."""
    means, deviations = mixture.means[index], stds(mixture, index)

    def cdf(x):
        return stats.norm.cdf(x, means, deviations).mean()

    for y in (-3.0, 4.0, 12.0):
        below, _ = quad(lambda x: cdf(x) ** 2, -40, y, limit=500, points=[0, 3])
        above, _ = quad(lambda x: (1 - cdf(x)) ** 2, y, 50, limit=500, points=[13, 15])
        np.testing.assert_allclose(mixture.crps(y)[index], below + above, rtol=1e-6)


def test_log_prob_of_one_target():
    expected = [np.log(density(MIXTURE, row)(Y[row])) for row in range(ROWS)]
    np.testing.assert_allclose(MIXTURE.log_prob(Y), expected, rtol=1e-10)


def test_log_prob_of_several_targets_is_joint():
    y = RANDOM.normal(size=(ROWS, 2)) + 5
    deviations = np.sqrt(SEVERAL.function_variances + SEVERAL.noise_variance[:, None])
    each_target = stats.norm.pdf(y[..., None], SEVERAL.means, deviations)
    expected = np.log(each_target.prod(axis=1).mean(axis=-1))
    assert SEVERAL.log_prob(y).shape == (ROWS,)
    np.testing.assert_allclose(SEVERAL.log_prob(y), expected, rtol=1e-10)


@pytest.mark.parametrize("mixture", [SEVERAL, NOISY], ids=["two targets", "noise of each"])
def test_one_of_several_targets(mixture):
    for index in range(2):
        alone = mixture.target(index)
        assert alone.shape == (ROWS, COMPONENTS)
        for name in ("cdf", "quantile", "crps"):
            whole = getattr(mixture, name)(0.3)
            np.testing.assert_allclose(getattr(alone, name)(0.3), whole[:, index], rtol=1e-12)
        expected = [np.log(density(mixture, (row, index))(5.0)) for row in range(ROWS)]
        np.testing.assert_allclose(alone.log_prob(5.0), expected, rtol=1e-10)


def test_crps_without_a_closed_form():
    """From quantiles, as a family that has no formula gets it."""
    for y in (-3.0, 5.0, 9.0):
        found = Predictive.crps(NOISY, y)
        np.testing.assert_allclose(found, NOISY.crps(y), rtol=5e-3)


def test_log_prob_far_out_is_finite():
    """Where every density underflows: that of the nearest component, less log R."""
    y = 1e4
    deviations = np.sqrt(MIXTURE.function_variances + MIXTURE.noise_variance)
    expected = stats.norm.logpdf(y, MIXTURE.means, deviations).max(axis=-1) - np.log(COMPONENTS)
    np.testing.assert_allclose(MIXTURE.log_prob(y), expected, rtol=1e-3)


@all_mixtures
def test_interval_is_central(mixture):
    for p in (0.5, 0.9):
        low, high = mixture.interval(p)
        np.testing.assert_allclose(mixture.cdf(low), (1 - p) / 2, atol=1e-10)
        np.testing.assert_allclose(mixture.cdf(high), (1 + p) / 2, atol=1e-10)


def test_quantile_between_narrow_components():
    """A density of two needles: flat distribution function, then jumps."""
    mixture = GaussianMixture(np.array([[0.0, 1.0]]), np.full((1, 2), 1e-12), np.array(0.0))
    assert abs(mixture.quantile(0.25)[0]) < 1e-5
    assert abs(mixture.quantile(0.75)[0] - 1) < 1e-5
    assert 0 < mixture.quantile(0.5)[0] < 1
    np.testing.assert_allclose(mixture.cdf(mixture.quantile(0.2)), 0.2, atol=1e-6)


@all_mixtures
def test_samples(mixture):
    draws = mixture.sample(MANY, random_state=0)
    assert draws.shape == (MANY, *mixture.mean.shape)
    error = mixture.std / np.sqrt(MANY)
    assert (np.abs(draws.mean(axis=0) - mixture.mean) < 5 * error).all()
    for y in (3.0, 5.0, 6.5):
        share, expected = (draws <= y).mean(axis=0), mixture.cdf(y)
        error = np.sqrt(expected * (1 - expected) / MANY)
        assert (np.abs(share - expected) < 5 * error).all()
    assert np.array_equal(draws[:3], mixture.sample(MANY, random_state=0)[:3])
    assert not np.array_equal(mixture.sample(3, random_state=1), mixture.sample(3, random_state=2))


def test_sampled_targets_of_a_row_share_their_component():
    draws = SEVERAL.sample(MANY, random_state=0)
    for row in range(ROWS):
        expected = np.cov(SEVERAL.means[row], bias=True)[0, 1]
        first, second = draws[:, row].T
        products = (first - first.mean()) * (second - second.mean())
        assert abs(products.mean() - expected) < 5 * products.std() / np.sqrt(MANY)


@all_mixtures
def test_parts_of_the_variance(mixture):
    """Noise: what the known function would leave. Function: the rest, here from samples of f."""
    noise, function = mixture.variance_parts()
    assert noise.shape == function.shape == mixture.mean.shape
    np.testing.assert_allclose(noise + function, np.square(mixture.std), rtol=1e-12)
    expected = mixture.noise_variance
    expected = (
        expected.mean(axis=-1) if mixture is NOISY else np.broadcast_to(expected, noise.shape)
    )
    np.testing.assert_allclose(noise, np.broadcast_to(expected, noise.shape))
    without_noise = GaussianMixture(mixture.means, mixture.function_variances, 0 * noise[0])
    draws = without_noise.sample(MANY, random_state=3)
    squares = np.square(draws - draws.mean(axis=0))
    error = squares.std(axis=0) / np.sqrt(MANY)
    assert (np.abs(squares.mean(axis=0) - function) < 5 * error).all()


def test_crps_in_blocks(monkeypatch):
    whole = SEVERAL.crps(5.0)
    for pairs in (1, 3 * COMPONENTS**2):
        monkeypatch.setattr(dvip.distributions.gaussian_mixture, "MAX_PAIRS", pairs)
        np.testing.assert_allclose(SEVERAL.crps(5.0), whole, rtol=1e-13)


def test_single_precision_components():
    """Numbers of a float32 model: computed in double from there on."""
    single = GaussianMixture(
        MIXTURE.means.astype(np.float32),
        MIXTURE.function_variances.astype(np.float32),
        MIXTURE.noise_variance,
    )
    for name in ("log_prob", "cdf", "crps"):
        result = getattr(single, name)(Y)
        assert result.dtype == np.float64
        np.testing.assert_allclose(result, getattr(MIXTURE, name)(Y), rtol=1e-5)
    assert single.mean.dtype == single.std.dtype == np.float64


@pytest.mark.parametrize("method", ["log_prob", "cdf", "crps"])
def test_shapes_of_y(method):
    evaluate = getattr(MIXTURE, method)
    rows = evaluate(Y)
    assert rows.shape == (ROWS,)
    assert np.array_equal(evaluate(list(Y)), rows)
    assert np.array_equal(evaluate(Y[:, None]), rows)  # a column is fine
    assert np.array_equal(evaluate(Y[0])[0], rows[0])  # a number is for every row
    for wrong in (Y[:3], np.zeros((ROWS, 2)), np.zeros((2, ROWS, 1))):
        with pytest.raises(ValueError, match=r"y has shape .* the prediction has \(4,\)"):
            evaluate(wrong)
    with pytest.raises(ValueError, match=r"y has shape \(4,\).* has \(4, 2\)"):
        getattr(SEVERAL, method)(Y)


@all_mixtures
def test_several_quantiles(mixture):
    for several in ([0.1, 0.9], (0.1, 0.9), np.array([0.1, 0.9])):
        low, high = mixture.quantile(several)
        assert np.array_equal(low, mixture.quantile(0.1))
        assert np.array_equal(high, mixture.quantile(0.9))
    assert mixture.quantile([0.5]).shape == (1, *mixture.mean.shape)


@pytest.mark.parametrize("p", [[0.1, 1.0], [], [[0.5]], [None], ["0.5"]])
def test_bad_sequences_of_probabilities(p):
    for function in (MIXTURE.quantile, MIXTURE.interval):
        with pytest.raises(ValueError, match="p="):
            function(p)


@all_mixtures
def test_several_intervals(mixture):
    lower, upper = mixture.interval([0.5, 0.9])
    for place, p in enumerate((0.5, 0.9)):
        assert np.array_equal(lower[place], mixture.interval(p)[0])
        assert np.array_equal(upper[place], mixture.interval(p)[1])


COUNTS = CountMixture(RANDOM.uniform(0.5, 9, size=(ROWS, COMPONENTS)), np.array(3.0))
LOGS = LogNormalMixture(make_mixture(2, full_noise=True))


@pytest.mark.parametrize("mixture", [MIXTURE, SEVERAL, NOISY, COUNTS, LOGS])
def test_some_rows(mixture):
    mixture = mixture.at_distance(np.arange(4.0))
    mask = np.array([True, False, True, False])
    for rows in (slice(1, 3), mask, [2, 0], np.array([3]), slice(0, 0), []):
        index = np.array(rows, dtype=int) if isinstance(rows, list) else rows
        some = mixture[rows]
        assert len(some) == len(mixture.mean[index])
        for name in ("mean", "median", "variance", "distance"):
            np.testing.assert_allclose(getattr(some, name), getattr(mixture, name)[index])
        np.testing.assert_allclose(some.pdf(3.0), mixture.pdf(3.0)[index])
    assert np.array_equal(mixture[-1].mean, mixture.mean[-1:])
    assert len(list(mixture)) == len(mixture) == ROWS
    np.testing.assert_allclose(mixture.variance, mixture.std**2)
    np.testing.assert_allclose(np.log(mixture.pdf(3.0)), mixture.log_prob(3.0))
    for bad in ((0, 0), "first", 7, [0.5]):
        with pytest.raises(IndexError):
            mixture[bad]


@pytest.mark.parametrize("p", [0, 1, -0.1, 1.5, float("nan"), float("inf"), None, "0.5"])
def test_bad_probabilities(p):
    for function in (MIXTURE.quantile, MIXTURE.interval):
        with pytest.raises(ValueError, match=r"p=.*between 0 and 1"):
            function(p)


def test_one_component_is_a_gaussian():
    mixture = GaussianMixture(np.array([[2.0]]), np.array([[0.5]]), np.array(0.25))
    normal = stats.norm(2.0, np.sqrt(0.75))
    np.testing.assert_allclose(mixture.std, normal.std())
    np.testing.assert_allclose(mixture.log_prob(3.0), normal.logpdf(3.0))
    np.testing.assert_allclose(mixture.quantile(0.9), normal.ppf(0.9))
    # Gneiting and Raftery's formula for a Gaussian.
    z = (3.0 - 2.0) / normal.std()
    crps = normal.std() * (
        z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / np.sqrt(np.pi)
    )
    np.testing.assert_allclose(mixture.crps(3.0), crps)


# Components of different probabilities.


def weighted(mixture):
    weights = RANDOM.uniform(size=COMPONENTS)
    return GaussianMixture(
        mixture.means, mixture.function_variances, mixture.noise_variance, weights / weights.sum()
    )


def repeated(mixture, times):
    """The equally weighted mixture with that many copies of each component."""
    noise = np.broadcast_to(mixture._noise, mixture.shape)
    parts = (mixture.means, mixture.function_variances, noise)
    return GaussianMixture(*(np.repeat(part, times, axis=-1) for part in parts))


def assert_equal_numbers(one, other):
    for first, second in zip(numbers_of(one), numbers_of(other), strict=True):
        np.testing.assert_allclose(first, second, rtol=1e-9)


@all_mixtures
def test_weights_are_like_copies_of_components(mixture):
    times = np.array([1, 3, 2, 1, 4, 1])
    parts = (mixture.means, mixture.function_variances, mixture.noise_variance)
    assert_equal_numbers(GaussianMixture(*parts, times / times.sum()), repeated(mixture, times))


def test_weighted_samples():
    mixture = weighted(SEVERAL)
    draws = mixture.sample(MANY, random_state=0)
    assert (np.abs(draws.mean(axis=0) - mixture.mean) < 5 * mixture.std / np.sqrt(MANY)).all()
    share = (draws <= 5.0).mean(axis=0)
    assert (np.abs(share - mixture.cdf(5.0)) < 2.5 / np.sqrt(MANY)).all()


@all_mixtures
def test_models_are_mixed_with_equal_weights(mixture):
    shape = (*mixture.shape[:-1], 2)
    other = GaussianMixture(np.zeros(shape), np.ones(shape), np.full(shape[1:-1], 0.5))
    for first in (mixture, weighted(mixture)):
        both = Predictive.mixture([first, other])
        assert both.shape == (*mixture.shape[:-1], COMPONENTS + 2)
        np.testing.assert_allclose(both.mean, 0.5 * first.mean, rtol=1e-12)
        np.testing.assert_allclose(
            both.cdf(4.0), 0.5 * (first.cdf(4.0) + other.cdf(4.0)), rtol=1e-12
        )
    same = Predictive.mixture([mixture, mixture])
    assert same.weights is None
    assert_equal_numbers(same, mixture)
    assert Predictive.mixture([mixture]) is mixture


@all_mixtures
def test_rescaled(mixture):
    wide = mixture.rescaled(1.7)
    np.testing.assert_allclose(wide.mean, mixture.mean, rtol=1e-12)
    np.testing.assert_allclose(wide.std, 1.7 * mixture.std, rtol=1e-12)
    distance = mixture.quantile(0.2) - mixture.mean
    np.testing.assert_allclose(wide.quantile(0.2), mixture.mean + 1.7 * distance, rtol=1e-9)
    tailed = mixture.rescaled(1.7, tail_weight=0.1, tail_scale=3.0)
    np.testing.assert_allclose(tailed.mean, mixture.mean, rtol=1e-12)
    tail = stats.norm(mixture.mean, 3 * wide.std)
    np.testing.assert_allclose(tailed.cdf(7.0), 0.9 * wide.cdf(7.0) + 0.1 * tail.cdf(7.0))
    np.testing.assert_allclose(
        np.square(tailed.std), (0.9 + 0.1 * 9) * np.square(wide.std), rtol=1e-12
    )
