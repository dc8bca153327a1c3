"""Metrics against plain, independent computations of the same quantities."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from dvip import GaussianMixture
from dvip.metrics import (
    ClassificationScores,
    RegressionScores,
    classification_metrics,
    regression_metrics,
)


def mixture(rows=40, components=3, targets=(), seed=0):
    random = np.random.default_rng(seed)
    shape = (rows, *targets, components)
    means, variances = random.normal(size=shape), random.gamma(1, size=shape)
    noise = random.gamma(1, size=targets)
    distribution = GaussianMixture(means, variances, noise)
    return distribution, distribution.sample(1, random_state=seed)[0]


def rows_of(distribution, rows):
    means, variances = distribution.means[rows], distribution.function_variances[rows]
    return GaussianMixture(means, variances, distribution.noise_variance)


def test_regression_metrics_of_one_gaussian_each_are_those_of_scipy():
    distribution, y = mixture(components=1)
    means = distribution.means[:, 0]
    normal = stats.norm(means, np.sqrt(distribution.function_variances[:, 0] + distribution._noise))
    metrics = regression_metrics(distribution, y)
    assert metrics["nll"] == pytest.approx(-normal.logpdf(y).mean())
    assert metrics["rmse"] == pytest.approx(math.sqrt(np.mean((y - means) ** 2)))
    for percent in (50, 90, 95):
        lower, upper = normal.interval(percent / 100)
        assert metrics[f"coverage_{percent}"] == np.mean((lower <= y) & (y <= upper))


def test_crps_is_the_integral_of_the_squared_error_of_the_cdf():
    distribution, y = mixture(rows=3)
    row = [rows_of(distribution, [i]) for i in range(3)]

    def integral(i):
        below = integrate.quad(lambda t: row[i].cdf(t)[0] ** 2, -np.inf, y[i])[0]
        above = integrate.quad(lambda t: (1 - row[i].cdf(t)[0]) ** 2, y[i], np.inf)[0]
        return below + above

    expected = np.mean([integral(i) for i in range(3)])
    assert regression_metrics(distribution, y)["crps"] == pytest.approx(expected, rel=1e-6)


def test_draws_of_the_distribution_itself_are_covered_as_often_as_promised():
    metrics = regression_metrics(*mixture(rows=4_000))
    for percent in (50, 90, 95):
        assert metrics[f"coverage_{percent}"] == pytest.approx(percent / 100, abs=0.025)


@given(st.integers(1, 39), st.sampled_from([(), (2,)]))
def test_scores_of_blocks_add_up(rows, targets):
    distribution, y = mixture(targets=targets)
    judged = RegressionScores()
    for part in (slice(0, rows), slice(rows, None)):
        judged.add(rows_of(distribution, part), y[part])
    assert judged.num_rows == len(y)
    assert judged.metrics() == pytest.approx(regression_metrics(distribution, y))


@pytest.mark.parametrize("num_classes", [2, 4])
def test_scores_of_labels_add_up(num_classes):
    random = np.random.default_rng(0)
    probabilities = random.dirichlet(np.ones(num_classes), size=30)
    classes = ["a", "b", "c", "d"][:num_classes]
    labels = random.choice(classes, size=30).tolist()
    judged = ClassificationScores(classes, label=str.upper)
    for part in (slice(0, 11), slice(11, None)):
        judged.add(probabilities[part], [label.lower() for label in labels[part]])
    assert judged.metrics() == pytest.approx(classification_metrics(probabilities, labels, classes))


def test_several_targets_are_pooled_but_judged_jointly_in_nll():
    distribution, y = mixture(components=1, targets=(2,))
    each = [
        regression_metrics(
            GaussianMixture(
                distribution.means[:, target],
                distribution.function_variances[:, target],
                distribution.noise_variance[target],
            ),
            y[:, target],
        )
        for target in range(2)
    ]
    pooled = regression_metrics(distribution, y)
    # With one component the targets are independent: densities multiply.
    assert pooled["nll"] == pytest.approx(each[0]["nll"] + each[1]["nll"])
    assert pooled["rmse"] ** 2 == pytest.approx(np.mean([one["rmse"] ** 2 for one in each]))
    assert pooled["coverage_90"] == pytest.approx(np.mean([one["coverage_90"] for one in each]))


def test_a_column_of_targets_is_not_broadcast():
    distribution, y = mixture()
    assert regression_metrics(distribution, y[:, None]) == regression_metrics(distribution, y)


PROBABILITIES = np.array([[0.9, 0.1], [0.6, 0.4], [0.3, 0.7], [0.45, 0.55], [0.6, 0.4]])
LABELS = ["no", "yes", "yes", "no", "no"]


def test_classification_metrics_by_hand():
    metrics = classification_metrics(PROBABILITIES, LABELS, ["no", "yes"])
    assert metrics["accuracy"] == 3 / 5
    expected = np.log([0.9, 0.4, 0.7, 0.45, 0.6]).mean()
    assert metrics["log_likelihood"] == pytest.approx(expected)
    # Of the 3 x 2 pairs of a "no" and a "yes": 0.1 < 0.4, 0.1 < 0.7, 0.55 < 0.7, 0.4 < 0.7 are
    # right, 0.55 > 0.4 is wrong, 0.4 = 0.4 is half.
    assert metrics["auc"] == pytest.approx(4.5 / 6)
    # Bins of width 1/15: 0.9 alone, 0.7 alone, 0.55 alone, twice 0.6 with one right.
    gaps = [1 - 0.9, 1 - 0.7, 0.55 - 0, 2 * 0.6 - 1]
    assert metrics["ece"] == pytest.approx(sum(gaps) / 5)


def test_certain_and_right_is_perfect_and_certain_and_wrong_is_finite():
    certain = np.array([[1.0, 0.0], [0.0, 1.0]])
    assert classification_metrics(certain, [0, 1], [0, 1]) == {
        "accuracy": 1,
        "log_likelihood": 0,
        "ece": 0,
        "auc": 1,
    }
    wrong = classification_metrics(certain, [1, 0], [0, 1])
    assert wrong["accuracy"] == 0
    assert wrong["ece"] == 1
    assert -50 < wrong["log_likelihood"] < -30


def test_auc_needs_two_classes():
    three = np.full((4, 3), 1 / 3)
    assert "auc" not in classification_metrics(three, [0, 1, 2, 0], [0, 1, 2])
    assert math.isnan(classification_metrics(PROBABILITIES, ["no"] * 5, ["no", "yes"])["auc"])


def test_unknown_labels_are_named():
    with pytest.raises(ValueError, match=r"labels maybe are not among the classes.*\(no, yes\)"):
        classification_metrics(PROBABILITIES, ["no", "maybe", "yes", "no", "no"], ["no", "yes"])
