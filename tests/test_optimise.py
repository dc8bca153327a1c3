"""Bayesian optimisation: spaces, improvements against quadrature, records, mistakes."""

import json

import numpy as np
import pandas as pd
import pytest
from examples import TINY
from scipy.stats import norm

from dvip import DVIPClassifier, DVIPRegressor
from dvip.optimise import Category, Integer, Optimisation, Real, _Improvement, _log_h
from dvip.search_space import Space

MIXED = {
    "x": (-2.0, 2.0),
    "rate": Real(1e-4, 1.0, log=True),
    "n": Integer(1, 6),
    "kind": ["a", "b", "c"],
}


def cost(rows):
    """Least at x = 0.5, rate = 0.01, n = 4, kind = b."""
    return (
        (rows["x"] - 0.5) ** 2
        + 0.3 * np.log10(rows["rate"] / 0.01) ** 2
        + 0.2 * (rows["n"] - 4) ** 2
        + np.where(rows["kind"] == "b", 0.0, 1.0)
    )


def test_rows_become_points_and_come_back():
    space = Space(MIXED)
    rows = pd.DataFrame(
        {"kind": ["c", "a"], "n": [1, 6], "rate": [0.01, 1.0], "x": [-2.0, 1.0]}, index=[7, 3]
    )
    points = space.encoded(rows)
    np.testing.assert_allclose(points, [[0, 0.5, 0, 0, 0, 1], [0.75, 1, 1, 1, 0, 0]], atol=1e-12)
    back = space.decoded(points)
    assert list(back.columns) == list(MIXED)
    pd.testing.assert_frame_equal(back, rows.reset_index(drop=True)[list(MIXED)])
    moved = space.snapped(points + 0.09)
    np.testing.assert_allclose(moved[:, 2], [0, 1])  # steps are of 0.2
    nearby = space.neighbours(points[0])
    assert {(row["n"], row["kind"]) for _, row in space.decoded(nearby).iterrows()} == {
        (2, "c"), (1, "a"), (1, "b"), (1, "c")
    }  # fmt: skip
    again = Space.from_json(json.loads(json.dumps(space.to_json())))
    assert again.dimensions == space.dimensions


def test_expected_improvements_and_their_slope():
    z = np.array([-400.0, -20.0, -5.0, -1.001, -0.999, 0.0, 3.0])
    wide = np.linspace(-40, 40, 800_001)
    for value, found in zip(z[2:], _log_h(z)[2:], strict=True):
        density = norm.pdf(wide, loc=value)
        expected = np.sum(np.maximum(wide, 0) * density) * (wide[1] - wide[0])
        np.testing.assert_allclose(found, np.log(expected), rtol=1e-6)
    np.testing.assert_allclose(_log_h(z)[0], norm.logpdf(400) - 2 * np.log(400), rtol=1e-6)
    X = np.random.default_rng(0).uniform(size=(12, 2))
    model = DVIPRegressor(inference="exact", precision="float64").fit(X, np.sin(4 * X[:, 0]))
    functions = model.sample_functions(50, random_state=0)
    improvement = _Improvement(functions, functions(X).min(axis=1))
    for point in X + 0.05:
        loss, slope = improvement.loss(point)
        np.testing.assert_allclose(-loss, improvement(point[None])[0])
        moves = 1e-5 * np.eye(2)
        changes = [improvement.loss(point + e)[0] - improvement.loss(point - e)[0] for e in moves]
        np.testing.assert_allclose(slope, np.array(changes) / 2e-5, rtol=2e-3, atol=1e-3)


@pytest.fixture(scope="module")
def search():
    made = Optimisation(MIXED, seed=3)
    while len(made.y) < 25:
        rows = made.suggest(5)
        made.observe(rows, cost(rows))
    return made


def test_it_finds_numbers_whole_numbers_and_categories(search):
    best = search.best
    assert (best.row["kind"], best.row["n"]) == ("b", 4)
    assert abs(best.row["x"] - 0.5) < 0.3
    assert best.value < 0.15
    np.testing.assert_allclose(cost(search.X), search.y)
    assert set(search.X["kind"]) == {"a", "b", "c"}  # of the start


def test_a_record_goes_on_as_if_there_had_been_no_break(search, tmp_path):
    search.save(tmp_path / "search.json")
    again = Optimisation.load(tmp_path / "search.json")
    assert again.best == search.best
    first, second = search.suggest(2), again.suggest(2)
    pd.testing.assert_frame_equal(first, second)
    assert not first.duplicated().any()
    again.save(tmp_path / "waiting.json")  # suggested, not observed
    more = [each.suggest() for each in (again, Optimisation.load(tmp_path / "waiting.json"))]
    pd.testing.assert_frame_equal(*more)


def test_arrays_larger_is_better_and_failures():
    search = Optimisation([(0, 1), (0, 1)], maximise=True, num_starting=5)
    rows = search.suggest(5)
    assert rows.shape == (5, 2)
    search.observe(rows, np.full(5, np.nan))
    with pytest.raises(ValueError, match="No value was observed"):
        search.best  # noqa: B018
    for _ in range(11):
        row = search.suggest()
        value = -np.square(row - [0.7, 0.2]).sum(axis=1)
        search.observe(row, np.where(row[:, 0] > 0.9, np.nan, value))
    assert search.best.value > -0.02
    assert np.isnan(search.y[:5]).all()
    np.testing.assert_array_equal(search.best.row, search.X[np.nanargmax(search.y)])


@pytest.mark.slow
def test_any_regression_may_be_the_model():
    model = DVIPRegressor(**{**TINY, "max_iter": 50}, n_layers=1)
    search = Optimisation([(0.0, 1.0)], model=model, num_starting=0)
    search.observe(np.linspace(0, 1, 12)[:, None], np.square(np.linspace(0, 1, 12) - 0.4))
    assert 0 <= search.suggest().item() <= 1


@pytest.mark.parametrize(
    ("space", "words"),
    [
        ({"x": (1, 0)}, "x: bounds .* lower one first"),
        ({"x": (0, np.inf)}, "finite"),
        ({"x": (0, np.nan)}, "finite"),
        ({"x": "red"}, "no dimension"),
        ({"x": ["only"]}, "two or more"),
        ({"x": 3}, "no dimension"),
        ([["a", "b"]], "need names"),
        ({}, "A space is"),
        (7, "A space is"),
    ],
)
def test_bad_spaces(space, words):
    with pytest.raises(ValueError, match=words):
        Optimisation(space)


def test_bad_dimensions():
    for make, words in (
        (lambda: Integer(0.5, 2), "whole"),
        (lambda: Integer(3, 3), "lower one first"),
        (lambda: Real(0, 1, log=True), "positive"),
        (lambda: Category(["a", "a"]), "different"),
        (lambda: Category([None, "a"]), "texts or numbers"),
    ):
        with pytest.raises(ValueError, match=words):
            make()


def test_bad_observations():
    row = {"x": 0.0, "rate": 0.1, "n": 2, "kind": "a"}
    search = Optimisation(MIXED)
    for changed, words in (
        ({"x": 3.0}, "column 'x': 3.0 in row 0 is not from -2 to 2"),
        ({"x": np.nan}, "nan in row 0"),
        ({"x": "far"}, "must hold numbers"),
        ({"n": 2.5}, "a whole number from 1 to 6"),
        ({"kind": "d"}, "'d' in row 0 is not one of 'a', 'b', 'c'"),
        ({"other": 1}, "expected"),
    ):
        with pytest.raises(ValueError, match=words):
            search.observe(pd.DataFrame([{**row, **changed}]), [1.0])
    for y, words in (
        ([1.0, 2.0], "shape"),
        (["a"], "numbers"),
        ([np.inf], "NaN"),
    ):
        with pytest.raises(ValueError, match=words):
            search.observe([row], y)
    assert len(search.y) == 0
    box = Optimisation([(0, 1)])
    for X in ([[1.0, 2.0]], [0.5], [[2.0]]):
        with pytest.raises(ValueError, match=r"expected|column 0"):
            box.observe(X, [1.0])
    for k in (0, 1.5, "all"):
        with pytest.raises(ValueError, match="whole number"):
            box.suggest(k)
    with pytest.raises(ValueError, match="seed"):
        Optimisation([(0, 1)], seed=-1)
    with pytest.raises(ValueError, match="draws no functions"):
        Optimisation([(0, 1)], model=object())
    with pytest.raises(ValueError, match="regress"):
        Optimisation([(0, 1)], model=DVIPClassifier())


def test_records_that_are_none(tmp_path):
    path = tmp_path / "record.json"
    search = Optimisation([(0, 1)]).observe([[0.5]], [1.0])
    search.save(path)
    content = json.loads(path.read_text())
    for changed in (
        "no JSON",
        "[]",
        json.dumps({**content, "format": 9}),
        json.dumps({**content, "values": []}),
        json.dumps({**content, "points": [[7.0]]}),
        json.dumps({key: value for key, value in content.items() if key != "space"}),
    ):
        path.write_text(changed)
        with pytest.raises(ValueError, match="is no record of an optimisation"):
            Optimisation.load(path)
    with pytest.raises(FileNotFoundError):
        Optimisation.load(tmp_path / "nothing.json")
