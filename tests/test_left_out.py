"""Rows that are left out, schedules, and what a calibration makes of them."""

import numpy as np
import pytest

from dvip.batches import ArrayData
from dvip.calibration import (
    LeftOut,
    LeftOutClasses,
    best_log_likelihood,
    best_log_score,
    fit_scale,
    fit_temperature,
    tempered,
)
from dvip.distributions import GaussianMixture, LogNormalMixture
from dvip.training.schedule import Schedule, Validation

ROWS = ArrayData(np.arange(50.0)[:, None], np.zeros((50, 1)), np.ones(50))


def rows_of(data):
    return set(data.inputs[:, 0].astype(int))


@pytest.mark.parametrize("number", [1, 3, 5, 7])
def test_stretches_are_folds(number):
    folds = [rows_of(ROWS.stretch(0, k / number, (k + 1) / number)) for k in range(number)]
    assert sum(map(len, folds)) == 50
    assert set.union(*folds) == set(range(50))
    assert max(map(len, folds)) - min(map(len, folds)) <= 1
    for k, fold in enumerate(folds):
        rest = rows_of(ROWS.stretch(0, (k + 1) / number, 1 + k / number))
        assert rest == set(range(50)) - fold
    assert rows_of(ROWS.stretch(1, 0, 0.5)) != rows_of(ROWS.stretch(0, 0, 0.5))


def test_classes_are_spread_over_stretches():
    classes = np.repeat([0, 1, 2], [30, 15, 5])
    for k in range(5):
        chosen = ROWS.stretch(3, k / 5, (k + 1) / 5, classes)
        counts = np.bincount(classes[sorted(rows_of(chosen))], minlength=3)
        assert abs(counts - [6, 3, 1]).max() <= 1


def test_the_learning_rate_falls_all_the_time_or_in_the_end():
    steps = np.arange(100)
    all_the_time = Schedule.of(0.1, 100, waits=False).learning_rates(steps)
    np.testing.assert_array_equal(all_the_time, 0.05 * (1 + np.cos(np.pi * (steps / 100))))
    in_the_end = Schedule.of(0.1, 100, waits=True).learning_rates(steps)
    assert (in_the_end[:70] == 0.1).all()
    assert (np.diff(in_the_end[70:]) < 0).all()


def test_a_schedule_ends_early():
    schedule = Schedule.of(0.1, 1000, waits=True)
    for step in (200, 400):
        schedule.drop(step)
    assert (schedule.drops, schedule.dropped, schedule.end) == (2, 400, 1000)
    assert schedule.learning_rates(np.arange(450, 460)) == pytest.approx(0.1 / 9)
    schedule.drop(500)
    assert schedule.end == 500
    schedule = Schedule.of(0.1, 1000, waits=True)
    schedule.drop(800)  # it falls already
    assert (schedule.drops, schedule.end) == (0, 1000)
    schedule = Schedule.of(0.1, 1000, waits=False)
    schedule.shorten(100, 10, 20.5)
    assert (schedule.falls, schedule.end) == (0, 300)
    schedule.shorten(150, 10, 1e9)  # longer it does not become
    assert schedule.end == 300
    schedule.shorten(150, 10, -3.0)
    assert schedule.end == 160


def test_scores_decide_when_to_stop():
    validation = Validation(lambda model: 0.0)
    for step, score in ((250, -1.0), (500, -0.5), (750, -0.52), (1000, -0.51)):
        validation.note(step, score, np.array([score]))
    assert validation.best_step == 500
    assert validation.best == [-0.5]
    assert not validation.has_come_to_rest(0)
    validation.note(1250, -0.53, np.zeros(1))
    assert validation.has_come_to_rest(0)
    assert not validation.has_come_to_rest(1000)  # the rate dropped not long ago
    validation.note(1500, float("nan"), np.zeros(1))
    assert validation.best_score == -0.5


def test_a_training_without_hope_of_its_rivals_score():
    """Far behind after half of the steps, or less far if nothing improves any more."""
    validation = Validation(lambda model: 0.0)
    validation.rival = lambda: 1.0
    validation.note(500, 0.6, np.zeros(1))
    assert not validation.is_hopeless(2_000)  # it is early
    validation.note(1_000, 0.65, np.zeros(1))
    assert not validation.is_hopeless(2_000)
    validation.note(1_500, 0.6, np.zeros(1))
    assert not validation.is_hopeless(2_000)  # not for long
    validation.note(1_750, 0.6, np.zeros(1))
    assert validation.is_hopeless(2_000)
    validation.rival = lambda: 0.8
    assert not validation.is_hopeless(2_000)
    behind = Validation(lambda model: 0.0)
    behind.rival = lambda: 1.0
    behind.note(1_000, -0.6, np.zeros(1))
    assert behind.is_hopeless(2_000)


def mixture(mean, std):
    return GaussianMixture(mean[:, None], np.zeros((len(mean), 1)), np.square(std)[..., None])


def test_the_scale_of_a_single_model_is_found():
    random = np.random.default_rng(0)
    mean = random.normal(size=2_000)
    y = mean + 1.6 * random.normal(size=2_000)
    found = fit_scale([LeftOut(mixture(mean, np.ones(2_000)), y, np.ones(2_000))], 1)
    assert found.scale == pytest.approx(1.6, rel=0.05)
    assert found.tail_weight <= 0.003
    y[::20] *= 6
    assert fit_scale([LeftOut(mixture(mean, np.ones(2_000)), y, np.ones(2_000))], 1).tail_weight > 0


def test_weights_count_as_rows():
    random = np.random.default_rng(0)
    y = np.concatenate([random.normal(size=500), 3 * random.normal(size=500)])
    weights = np.repeat([1.0, 0.0], 500)
    found = fit_scale([LeftOut(mixture(np.zeros(1000), np.ones(1000)), y, weights)], 1)
    assert found.scale == pytest.approx(1.0, abs=0.07)


def test_logarithms_are_rescaled_where_they_are_modelled():
    random = np.random.default_rng(0)
    y = np.exp(2 * random.normal(size=1_000))
    logs = mixture(np.zeros(1_000), np.ones(1_000))
    found = fit_scale([LeftOut(LogNormalMixture(logs), y, np.ones(1_000))], 1)
    assert found.scale == pytest.approx(2.0, rel=0.05)


def test_the_ensemble_is_judged_and_not_its_members():
    """Members whose means scatter around the truth: alone too sure, together almost right."""
    random = np.random.default_rng(0)
    rows, members, scatter = 1_000, 5, 1.0
    y = random.normal(size=rows)  # around a mean of zero
    means = scatter * random.normal(size=(members, rows))
    owner = np.arange(rows) % members
    left_out, alone = [], []
    for index in range(members):
        chosen = owner == index
        number = int(chosen.sum())
        own = LeftOut(mixture(means[index, chosen], np.ones(number)), y[chosen], np.ones(number))
        others = [mixture(means[j, chosen], np.ones(number)) for j in range(members) if j != index]
        alone.append(own)
        left_out.append(own._replace(others=others))
    of_members, of_ensemble = fit_scale(alone, 1).scale, fit_scale(left_out, members).scale
    assert of_members == pytest.approx(np.sqrt(1 + scatter**2), rel=0.05)
    # The ensemble's own variance is 1 + 4/5, its error 1 + 1/5.
    assert of_ensemble == pytest.approx(np.sqrt(1.2 / 1.8), abs=0.12)


def test_temperatures():
    random = np.random.default_rng(0)
    logits = random.normal(size=(4_000, 3))
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    classes = np.array([random.choice(3, p=p) for p in probabilities])
    too_sure = tempered(probabilities, 0.5)
    judged = LeftOutClasses(too_sure, classes, np.ones(4_000))
    found = fit_temperature([judged], 1).temperature
    assert found == pytest.approx(2.0, rel=0.1)
    np.testing.assert_allclose(tempered(too_sure, 2.0), probabilities, atol=1e-12)
    right = np.log(probabilities[np.arange(4_000), classes]).mean()
    assert best_log_likelihood(too_sure, classes, np.ones(4_000)) == pytest.approx(right, abs=0.01)


def test_scores_while_training_are_of_the_best_scale():
    random = np.random.default_rng(0)
    y = random.normal(size=500)
    ones = np.ones(500)
    right = best_log_score(LeftOut(mixture(0 * y, ones), y, ones))
    too_sure = best_log_score(LeftOut(mixture(0 * y, ones / 3), y, ones))
    assert too_sure == pytest.approx(right, abs=0.02)
    wrong = best_log_score(LeftOut(mixture(0 * y + 3, ones), y, ones))
    assert wrong < right - 0.5
