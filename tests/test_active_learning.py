"""Rows to measure next: against exact conditioning, and what a user would expect."""

import numpy as np
import pandas as pd
import pytest
from examples import TINY
from typer.testing import CliRunner

from dvip import DVIPClassifier, DVIPRegressor
from dvip.__main__ import app
from dvip.active_learning import most_telling


def test_reductions_are_those_of_gaussian_conditioning():
    random = np.random.default_rng(0)
    mixing = random.normal(size=(8, 8))
    draws = random.normal(size=(4_000, 8)) @ mixing
    covariance = np.cov(draws, rowvar=False)
    noise = random.uniform(0.5, 2, size=8)
    rows, reductions = most_telling([draws], [noise], 3)
    assert len(set(rows)) == 3
    before = np.trace(covariance)
    for row, reduction in zip(rows, reductions, strict=True):
        after = [
            covariance - np.outer(covariance[i], covariance[i]) / (covariance[i, i] + noise[i])
            for i in range(8)
        ]
        traces = np.array([np.trace(each) for each in after])
        traces[rows[: rows.index(row)]] = np.inf
        assert row == np.argmin(traces)
        gained = (np.trace(covariance) - traces[row]) / before
        np.testing.assert_allclose(reduction, gained, rtol=1e-10)
        covariance = after[row]
    assert sum(reductions) < 1


@pytest.fixture(scope="module")
def model():
    X = np.linspace(0, 4, 30)[:, None]
    return DVIPRegressor(inference="exact").fit(X, np.sin(X[:, 0]) + 0.01 * np.cos(40 * X[:, 0]))


def test_it_chooses_no_twins_and_nothing_known(model):
    gap = np.array([6.0, 6.001, 6.002, -2.0, 1.0, 2.0, 3.0])[:, None]
    found, again = model.suggest_rows(gap, 4), model.suggest_rows(gap, 4)
    assert found.rows[0] in (0, 1, 2, 3)
    assert {3} < set(found.rows[:2].tolist())
    assert found.reductions[1] > 10 * found.reductions[2]
    assert (np.diff(found.reductions) <= 1e-12).all()
    np.testing.assert_array_equal(found.rows, again.rows)
    taught = model.condition_on(gap[found.rows[:1]], [0.0])
    first, then = (
        np.mean(each.predict_dist(gap).variance_parts().function) for each in (model, taught)
    )
    # What was promised is what conditioning on the row does, but for the luck of the draws.
    np.testing.assert_allclose(1 - then / first, found.reductions[0], rtol=0.25)


def test_several_targets_count_alike():
    random = np.random.default_rng(0)
    X = random.uniform(size=(30, 2))
    model = DVIPRegressor(inference="exact").fit(X, np.stack([X[:, 0], 1e6 * X[:, 1] ** 2], axis=1))
    found = model.suggest_rows(random.uniform(size=(10, 2)), 2)
    assert (found.reductions > 0).all()


@pytest.mark.parametrize("k", [0, 8, 1.5, "two"])
def test_bad_numbers(model, k):
    with pytest.raises(ValueError, match=r"k=.* must be a whole number from 1 to 7"):
        model.suggest_rows(np.zeros((7, 1)), k)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    random = np.random.default_rng(1)
    folder = tmp_path_factory.mktemp("suggest")
    table = pd.DataFrame({"a": random.uniform(size=40), "kind": random.choice(["u", "v"], 40)})
    table["y"] = np.sin(5 * table["a"]) + (table["kind"] == "u")
    table.to_csv(folder / "rows.csv", index=False)
    fitted = DVIPRegressor(inference="exact").fit(table[["a", "kind"]], table["y"])
    fitted.save(folder / "model")
    candidates = pd.DataFrame({"a": [0.1, 1.6, 0.5, 1.6], "kind": list("uvuu"), "id": range(4)})
    candidates.to_csv(folder / "new.csv", index=False)
    return folder


def test_the_command_writes_the_rows_in_order(folder):
    out = folder / "next.csv"
    arguments = ["suggest", str(folder / "model"), str(folder / "new.csv")]
    done = CliRunner().invoke(app, [*arguments, "--number", "3", "--out", str(out)])
    assert done.exit_code == 0, done.output
    written = pd.read_csv(out)
    assert list(written.columns) == ["row", "reduction", "a", "kind", "id"]
    assert len(written) == 3
    assert set(written["id"][:2]) == {1, 3}
    np.testing.assert_array_equal(written["row"], written["id"] + 1)
    assert written["reduction"].is_monotonic_decreasing
    shown = CliRunner().invoke(app, arguments)
    assert shown.exit_code == 0
    assert "row" in shown.output
    assert "reduc" in shown.output


def test_mistakes_of_the_command(folder, tmp_path):
    new = str(folder / "new.csv")

    def told(*arguments):
        done = CliRunner().invoke(app, ["suggest", *arguments])
        assert done.exit_code != 0
        assert "Traceback" not in done.output
        return done.output

    assert "4 rows" in told(str(folder / "model"), new, "--number", "9")
    assert "nothing" in told(str(folder / "nothing"), new)
    assert "choose another name" in told(str(folder / "model"), new, "--out", new)
    classifier = DVIPClassifier(**{**TINY, "max_iter": 50}, n_layers=1)
    classifier.fit(np.arange(8.0)[:, None], np.arange(8) > 3).save(tmp_path / "classes")
    assert "regression" in told(str(tmp_path / "classes"), new)
