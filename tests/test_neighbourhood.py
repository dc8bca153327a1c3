"""Distances from the training rows, and what predictions far from them gain."""

import numpy as np
import pytest

from dvip import DVIPRegressor, neighbourhood
from dvip.neighbourhood import Neighbourhood

pytestmark = pytest.mark.usefixtures("short_chains")


def rows(number, num_inputs=2, seed=0):
    return np.random.default_rng(seed).normal(size=(number, num_inputs)).astype(np.float32)


def brute_force(known, slopes, inputs):
    """The distance of each input from the nearest of the rows, one by one."""
    return np.array(
        [min(np.linalg.norm(slopes * (one.astype(float) - row)) for row in known) for one in inputs]
    )


SLOPES = np.array([2.0, 0.1])


def test_distances_are_those_of_brute_force():
    known, inputs = rows(30), rows(12, seed=1)
    nearby = Neighbourhood.of(known, SLOPES, 0)
    expected = brute_force(known, SLOPES, inputs)
    among = [brute_force(np.delete(known, i, 0), SLOPES, known[i : i + 1])[0] for i in range(30)]
    np.testing.assert_allclose(nearby.unit, np.median(among), rtol=1e-5)
    np.testing.assert_allclose(nearby.usual, np.quantile(among, 0.95), rtol=1e-5)
    np.testing.assert_allclose(nearby.relative(inputs), expected / nearby.unit, rtol=1e-5)
    beyond = np.maximum(expected - nearby.usual, 0)
    np.testing.assert_allclose(nearby.beyond(inputs), beyond, rtol=1e-5, atol=1e-9)


def test_training_rows_are_at_no_distance():
    known = rows(30)
    nearby = Neighbourhood.of(known, SLOPES, 0)
    np.testing.assert_array_equal(nearby.relative(known), 0)
    np.testing.assert_array_equal(nearby.beyond(known), 0)


def test_inputs_that_change_nothing_do_not_count():
    nearby = Neighbourhood.of(rows(30), np.array([1.0, 0.0]), 0)
    inputs = rows(5, seed=1)
    moved = inputs + np.array([0, 1e3], np.float32)
    np.testing.assert_allclose(nearby.relative(inputs), nearby.relative(moved))


def test_many_rows_and_inputs_are_sampled():
    number = neighbourhood.MAX_ROWS
    many = Neighbourhood.of(rows(3 * number), SLOPES, 0)
    assert many.rows.shape == (number, 2)
    again, other = (Neighbourhood.of(rows(3 * number), SLOPES, seed) for seed in (0, 1))
    np.testing.assert_array_equal(many.rows, again.rows)
    assert not np.array_equal(many.rows, other.rows)
    wide = Neighbourhood.of(rows(50, 2**15), np.ones(2**15), 0)
    assert wide.rows.size <= neighbourhood.MAX_NUMBERS


def test_distances_come_in_pieces_of_bounded_size(monkeypatch):
    known, inputs = rows(40), rows(101, seed=1)
    nearby = Neighbourhood.of(known, SLOPES, 0)
    whole, sizes = nearby.relative(inputs), []
    plain = neighbourhood.cdist

    def noted(first, second):
        found = plain(first, second)
        sizes.append(found.size)
        return found

    monkeypatch.setattr(neighbourhood, "cdist", noted)
    monkeypatch.setattr(neighbourhood, "DISTANCES_AT_ONCE", 400)
    np.testing.assert_array_equal(nearby.relative(inputs), whole)
    assert len(sizes) == 11
    assert max(sizes) <= 400
    assert nearby.relative(inputs[:0]).shape == (0,)


@pytest.mark.parametrize("known", [rows(1), np.zeros((5, 2), np.float32)], ids=["one", "alike"])
def test_rows_without_a_distance_between_them(known):
    nearby = Neighbourhood.of(known, SLOPES, 0)
    assert nearby.unit == 1
    assert nearby.usual == 0
    np.testing.assert_allclose(nearby.relative(known + np.float32(1)), np.linalg.norm(SLOPES))


def test_arrays_make_the_same_neighbourhood():
    nearby, inputs = Neighbourhood.of(rows(30), SLOPES, 0), rows(12, seed=1)
    again = Neighbourhood.from_arrays(nearby.arrays(), 2)
    np.testing.assert_array_equal(again.relative(inputs), nearby.relative(inputs))
    np.testing.assert_array_equal(again.beyond(inputs), nearby.beyond(inputs))


@pytest.mark.parametrize(
    "wrong",
    [
        {"rows": np.zeros((5, 3), np.float32)},
        {"rows": np.zeros((0, 2), np.float32)},
        {"rows": np.zeros((5, 2))},
        {"slopes": np.ones(3)},
        {"slopes": np.ones(2, np.float32)},
        {"numbers": np.ones(3)},
        {"numbers": np.array([0.0, 1.0])},
        {"numbers": np.array([-1.0, 1.0])},
        {"numbers": np.array([np.nan, 1.0])},
    ],
)
def test_arrays_that_do_not_fit_are_refused(wrong):
    arrays = Neighbourhood.of(rows(30), SLOPES, 0).arrays()
    with pytest.raises(ValueError, match="training rows"):
        Neighbourhood.from_arrays({**arrays, **wrong}, 2)


@pytest.fixture(scope="module")
def line():
    """The default, after y = x was seen where x is standard normal."""
    X = np.random.default_rng(0).normal(size=(50, 1))
    return DVIPRegressor().fit(X, X[:, 0])


def test_intervals_far_away_are_wide_enough(line):
    """Of a straight line, which may go on or not."""
    far = np.array([[50.0], [-50.0]])
    lower, upper = line.predict_dist(far).interval(0.9)
    assert np.all((lower <= far[:, 0]) & (far[:, 0] <= upper))


def test_intervals_grow_with_the_distance(line):
    X = np.array([0.0, 4.0, 8.0, 16.0, 50.0, 200.0])[:, None]
    for sign in (1, -1):
        distribution = line.predict_dist(sign * X)
        widths = np.subtract(*distribution.interval(0.9)[::-1])
        assert np.all(np.diff(widths) > 0)
        assert np.all(np.diff(distribution.distance) > 0)
        np.testing.assert_array_equal(distribution.distance, line.distance(sign * X))
    near, far = line.distance([[0.0], [4.0]])
    assert near < 0.2 * far


def test_distances_have_no_unit(line):
    """They are the same for rows and targets in other units."""
    X = np.random.default_rng(0).normal(size=(50, 1))
    scaled = DVIPRegressor().fit(3 + 1e3 * X, 1e-3 * X[:, 0])
    at = np.array([[0.2], [3.0], [30.0]])
    np.testing.assert_allclose(scaled.distance(3 + 1e3 * at), line.distance(at), rtol=1e-2)
