"""Options of `dvip fit` for ensembles, validation, calibration and time; with known errors, too."""

import json

import numpy as np
import pandas as pd
import pytest
from command_line import QUICK, refuse, run, succeed

from dvip import load


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"x": random.uniform(-2, 2, 120), "error": random.choice([0.1, 0.8], 120)})
    frame["y"] = np.sin(2 * frame["x"]) + frame["error"] * random.normal(size=120)
    path = tmp_path_factory.mktemp("options") / "t.csv"
    frame.to_csv(path, index=False)
    return path


def test_an_ensemble_that_is_calibrated_on_rows_with_known_errors(table, tmp_path):
    model = tmp_path / "model"
    options = ("--members", "2", "--calibrate", "--validation-fraction", "0.25")
    known = ("--target", "y", "--noise-column", "error", "--out", model)
    output = succeed("fit", table, *known, *QUICK, *options, "--max-seconds", "1000").output
    assert "Training 2 models of 1 layer" in output
    assert "Calibrated: widths are multiplied by" in output
    loaded = load(model)
    assert (loaded.n_members, loaded.validation_fraction, loaded.calibrate) == (2, 0.25, True)
    assert loaded.max_seconds == 1000
    assert loaded.known_errors_
    frame = pd.read_csv(table)
    with_errors = loaded.predict_dist(frame, frame["error"])
    variance = loaded.predict_dist(frame).std ** 2
    added = (loaded.calibration_.scale * frame["error"]) ** 2
    if loaded.calibration_.tail_weight == 0:
        np.testing.assert_allclose(with_errors.std**2, variance + added, rtol=1e-5)
    assert (with_errors.std**2 > variance).all()
    plot = tmp_path / "plot.png"
    result = succeed("evaluate", model, table, "--plot", plot, "--json")
    assert np.isfinite(json.loads(result.stdout)["nll"])
    assert plot.exists()


def test_no_calibration_is_the_default(table, tmp_path):
    fit = ("fit", table, "--target", "y", "--out", tmp_path / "model", *QUICK)
    assert "Calibrated" not in succeed(*fit, "--no-calibrate").output
    assert load(tmp_path / "model").calibrate is False


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--max-seconds", "-1"), "max_seconds=-1.0 must be a positive number"),
        (("--max-seconds", "nan"), "max_seconds=nan must be a positive number"),
        (("--members", "500", "--calibrate"), "members"),
    ],
)
def test_mistakes(options, message, table, tmp_path):
    told = refuse("fit", table, "--target", "y", "--out", tmp_path / "model", *QUICK, *options)
    assert message in told
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    "options", [("--members", "0"), ("--members", "2.5"), ("--validation-fraction", "1.5")]
)
def test_values_that_cannot_be(options, table, tmp_path):
    result = run("fit", table, "--target", "y", "--out", tmp_path / "model", *options)
    assert result.exit_code == 2
    assert options[0] in result.stderr
