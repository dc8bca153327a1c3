"""`--noise-column`: the known errors of rows, from training to predictions."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from command_line import QUICK, refuse, succeed

from dvip import DVIPRegressor, load

RANDOM = np.random.default_rng(0)


def table(num_rows=150):
    frame = pd.DataFrame({"x": RANDOM.uniform(-2, 2, num_rows)})
    frame["kind"] = RANDOM.choice(["a", "b"], num_rows)
    frame["error"] = RANDOM.choice([0.05, 1.0], num_rows)
    frame["y"] = np.sin(2 * frame["x"]) + frame["error"] * RANDOM.normal(size=num_rows)
    return frame


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("errors")
    table().to_csv(folder / "train.csv", index=False)
    table().to_csv(folder / "new.csv", index=False)
    known = ("--target", "y", "--noise-column", "error", "--out", folder / "model")
    result = succeed("fit", folder / "train.csv", *known, *QUICK, "--test-fraction", "0.2")
    return folder, result.output


def test_the_column_is_no_input(trained):
    folder, output = trained
    assert "Known errors of the rows: error." in output
    assert "Inputs: 2 columns" in output
    model = load(folder / "model")
    assert model.known_errors_
    assert model.noise_names_ == ("error",)
    assert list(model.feature_names_in_) == ["x", "kind"]


def test_predictions_add_the_errors_of_the_table(trained):
    folder, _ = trained
    frame = pd.read_csv(folder / "new.csv")
    succeed("predict", folder / "model", folder / "new.csv", "--out", folder / "with.csv")
    frame.drop(columns="error").to_csv(folder / "bare.csv", index=False)
    result = succeed("predict", folder / "model", folder / "bare.csv", "--out", folder / "p.csv")
    assert "no column 'error': predictions are without the errors of measurements" in result.output
    with_errors, without = pd.read_csv(folder / "with.csv"), pd.read_csv(folder / "p.csv")
    np.testing.assert_allclose(with_errors["mean"], without["mean"])
    np.testing.assert_allclose(with_errors["std"], np.hypot(without["std"], frame["error"]))
    model = load(folder / "model")
    np.testing.assert_allclose(with_errors["std"], model.predict_dist(frame, frame["error"]).std)


def test_evaluations_need_the_errors(trained):
    folder, _ = trained
    frame = pd.read_csv(folder / "new.csv")
    result = succeed("evaluate", folder / "model", folder / "new.csv", "--json")
    distribution = load(folder / "model").predict_dist(frame, frame["error"])
    expected = -np.mean(distribution.log_prob(frame["y"].to_numpy()))
    assert json.loads(result.stdout)["nll"] == pytest.approx(expected)
    frame.drop(columns="error").to_csv(folder / "bare.csv", index=False)
    assert "no column 'error'" in refuse("evaluate", folder / "model", folder / "bare.csv")
    other = ("--noise-column", "x")
    message = refuse("evaluate", folder / "model", folder / "new.csv", *other)
    assert "omit --noise-column" in message


def test_streams_and_several_targets(trained, tmp_path, monkeypatch):
    monkeypatch.setenv("DVIP_ROW_CACHE", str(tmp_path / "cache"))
    frame = pd.read_csv(trained[0] / "train.csv").assign(z=lambda t: t["y"] * 10, z_error=5.0)
    frame.to_csv(tmp_path / "t.csv", index=False)
    columns = ("--target", "y", "--target", "z", "--noise-column", "error")
    known = (*columns, "--noise-column", "z_error", "--out", tmp_path / "model")
    output = succeed("fit", tmp_path / "t.csv", *known, *QUICK, "--stream").output
    assert "Inputs: 2 columns" in output
    model = load(tmp_path / "model")
    std = model.predict_dist(frame).std
    succeed("predict", tmp_path / "model", tmp_path / "t.csv", "--out", tmp_path / "p.csv")
    predicted = pd.read_csv(tmp_path / "p.csv")
    np.testing.assert_allclose(predicted["z_std"], np.hypot(std[:, 1], 5.0), rtol=1e-6)
    np.testing.assert_allclose(predicted["y_std"], np.hypot(std[:, 0], frame["error"]), rtol=1e-6)


def test_models_that_python_saved(tmp_path):
    frame = table()
    X, y, errors = (frame[name].to_numpy() for name in ("x", "y", "error"))
    settings = dict(n_layers=1, max_iter=60, n_prior_samples=5, learning_rate=0.05)
    DVIPRegressor.paper(**settings).fit(X[:, None], y, noise_std=errors).save(tmp_path / "model")
    frame[["x", "y", "error"]].to_csv(tmp_path / "t.csv", index=False)
    judged = ("evaluate", tmp_path / "model", tmp_path / "t.csv", "--target", "y")
    assert "with --noise-column" in refuse(*judged)
    succeed(*judged, "--noise-column", "error")
    frame[["x"]].to_csv(tmp_path / "x.csv", index=False)
    result = succeed("predict", tmp_path / "model", tmp_path / "x.csv", "--out", tmp_path / "p.csv")
    assert "predictions are without the errors of measurements" in result.output


MISTAKES = {
    "missing": (("y", "nope"), "no column 'nope'"),
    "text": (("y", "kind"), r"'kind' has [ab] in row 1"),
    "negative": (("y", "x"), "'x' has -"),
    "the target": (("y", "y"), "'y' is a target"),
    "of labels": (("kind", "error"), "--noise-column is for a regression"),
    "gap": (("y", "gap"), "'gap' has a gap in row 3"),
    "zero in the test part": (("y", "zero"), "'zero' has 0.0 in row 150"),
    "two for one": (("y", "error", "x"), "name one for each"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes_are_told_before_the_training(case, trained, tmp_path):
    (target, *columns), message = MISTAKES[case]
    frame = pd.read_csv(trained[0] / "train.csv")
    frame["gap"] = frame["error"].where(frame.index != 2)
    frame["zero"] = frame["error"].where(frame.index != 149, 0.0)
    frame.to_csv(tmp_path / "t.csv", index=False)
    options = [option for name in columns for option in ("--noise-column", name)]
    fit = ("fit", tmp_path / "t.csv", "--target", target, "--out", tmp_path / "model")
    told = refuse(*fit, *options, "--test-fraction", "0.5")
    assert re.search(message, told), told
    assert not (tmp_path / "model").exists()
