"""The weight of a KL at measurement points, by posteriors in closed form."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from threadpoolctl import threadpool_limits

from dvip.neighbours import function_space, measurement
from dvip.neighbours.fitted_gp import NOISE
from dvip.neighbours.function_space import weight_of_context
from dvip.neighbours.measurement import CAUTION, ExactPosterior, growth, kl_weight
from dvip.sum_kernel import SumKernel

random = np.random.default_rng(0)
INPUTS, TARGETS = random.normal(size=(40, 2)), random.normal(size=(40, 1))
KERNEL = SumKernel.usual(2)


@pytest.fixture(autouse=True)
def one_thread():
    """As in a training: threads would wait for each other."""
    with threadpool_limits(1, user_api="blas"):
        yield


def given(chosen):
    return ExactPosterior(KERNEL, INPUTS[chosen], 0.1, TARGETS[chosen])


def test_weight_of_the_kl_follows_that_of_an_exact_posterior():
    # All rows stand for themselves; some for more, and less than as many times as they are fewer.
    assert kl_weight(given, INPUTS, (40, 0), 40) == pytest.approx(1)
    alone = kl_weight(given, INPUTS, (10, 0), 40)
    assert 1.5 < alone < 4
    assert kl_weight(given, INPUTS, (10, 5), 40) < alone
    # Of more rows than are known it is larger; rows that come late add less.
    known, first, second = (kl_weight(given, INPUTS, (3, 0), 40 * times) for times in (1, 2, 4))
    assert 1 < second / first < first / known < 2


def test_growth():
    """As many doublings as there are, each with its growth; between whole ones without a step."""
    for ratio in (0.5, 0.9, 1.0):
        growths = 0.8 * ratio ** np.arange(6)
        of_rows = np.exp2(np.cumsum(np.append(3.0, growths)))
        for doublings in (1, 2, 3):
            expected = of_rows[3 + doublings] / of_rows[3]
            assert growth(of_rows[:4], doublings) == pytest.approx(expected, rel=1e-6)
        between = [growth(of_rows[:4], doublings) for doublings in (0, 0.01, 0.5, 0.99, 1)]
        assert between == sorted(between)
        assert between[0] == 1
    # Growth that does not fall is a power; nothing can be learned from what falls.
    assert growth([1, 1.1, 1.3, 2.6], 2) == pytest.approx(4, rel=1e-6)
    assert growth([2.0, 2.0, 1.9, 1.8], 5) == 1


def test_many_rows_are_extrapolated_from_few(monkeypatch):
    inputs = random.normal(size=(1_600, 2))

    def all_of(chosen):
        return ExactPosterior(KERNEL, inputs[chosen], 0.1)

    monkeypatch.setattr(measurement, "NUM_WEIGHED", len(inputs))
    exact = kl_weight(all_of, inputs, (40, 10), len(inputs))
    monkeypatch.setattr(measurement, "NUM_WEIGHED", 400)
    assert kl_weight(all_of, inputs, (40, 10), len(inputs)) == pytest.approx(exact, rel=0.1)


def test_the_kl_is_that_of_densities():
    """By samples of the posterior at some points; on average, with targets of the process."""
    points = random.normal(size=(3, 2))
    cross, prior = KERNEL(points, INPUTS), KERNEL(points, points)
    whole = KERNEL(INPUTS, INPUTS) + 0.1 * np.eye(40)
    gain = np.linalg.solve(whole, cross.T).T
    smoothed = NOISE**2 * np.eye(3)
    first = multivariate_normal(gain @ TARGETS[:, 0], prior - gain @ cross.T + smoothed)
    second = multivariate_normal(np.zeros(3), prior + smoothed)
    drawn = first.rvs(100_000, random_state=0)
    expected = np.mean(first.logpdf(drawn) - second.logpdf(drawn))
    assert given(np.arange(40)).kl(points) == pytest.approx(expected, rel=0.01)

    of_process = np.linalg.cholesky(whole) @ random.normal(size=(40, 20_000))
    with_targets = ExactPosterior(KERNEL, INPUTS, 0.1, of_process).kl(points)
    assert ExactPosterior(KERNEL, INPUTS, 0.1).kl(points) == pytest.approx(with_targets, rel=0.02)


def test_weight_of_a_line_in_function_space():
    """Context points determine a line, whatever the number of rows: nothing is missing."""
    inputs = random.normal(size=(60, 2))
    assert weight_of_context(inputs, (), "tanh", 1.0, 0.01, 60) == pytest.approx(CAUTION, rel=0.05)
    assert weight_of_context(inputs, (), "tanh", 1.0, 0.01, 6_000) < 2.5 * CAUTION
    # Rows of many inputs tell little of each other: the more there are, the more is missing.
    many = random.normal(size=(300, 20))
    weights = [weight_of_context(many, (30,), "tanh", 2.0, 0.01, number) for number in (300, 3_000)]
    assert 1.5 < weights[0] / CAUTION < 6
    assert weights[1] > 2 * weights[0]
    assert 1 < weight_of_context(many, (30,), "tanh", 2.0, 1.0, 300) < weights[0]


def test_large_networks_are_weighed_by_fewer_rows(monkeypatch):
    inputs = random.normal(size=(400, 5))
    options = (inputs, (20,), "tanh", 2.0, 0.01, 400)
    by_all = weight_of_context(*options)
    monkeypatch.setattr(function_space, "MAX_DERIVATIVES", 200 * 141)
    by_some = weight_of_context(*options)
    assert by_some != by_all
    assert by_some == pytest.approx(by_all, rel=0.15)


def test_weight_in_function_space_by_log_determinants():
    """Of a line: K = X diag(p²) Xᵀ, and half of the log-determinants before and after the rows."""
    inputs = random.normal(size=(30, 1))
    design = np.hstack([inputs, np.ones((30, 1))])
    kernel = design @ design.T
    after = kernel - kernel @ np.linalg.solve(kernel + 0.01 * np.eye(30), kernel)
    determinants = [np.linalg.slogdet(each + NOISE**2 * np.eye(30))[1] for each in (kernel, after)]
    exact = ExactPosterior(lambda first, second: first @ second.T + 1, inputs, 0.01)
    expected = 0.5 * (determinants[0] - determinants[1])
    assert exact.kl(inputs) == pytest.approx(expected, rel=1e-3)
