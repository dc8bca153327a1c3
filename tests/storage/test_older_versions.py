"""What version 0.1.0 wrote is read as it was meant."""

import hashlib
import io
import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sealing import unsealed
from typer.testing import CliRunner

from dvip import BayesianNeuralNetwork, CheckpointError, DVIPRegressor, ModelFileError, load
from dvip.__main__ import app

FOLDER = Path(__file__).parent / "version-0.1.0"
EXPECTED = json.loads((FOLDER / "expected.json").read_text())
X, Y = np.array(EXPECTED["inputs"]), np.array(EXPECTED["targets"])
# The tests compile with other options than a user does, and rounding differs.
CLOSE = dict(rtol=1e-4, atol=1e-6)


def test_a_regressor():
    mean, std = load(FOLDER / "regressor").predict(X[:8], return_std=True)
    np.testing.assert_allclose(mean, EXPECTED["regressor"]["mean"], **CLOSE)
    np.testing.assert_allclose(std, EXPECTED["regressor"]["std"], **CLOSE)


def test_a_classifier_with_text_labels():
    model = load(FOLDER / "classifier")
    assert model.predict(X[:8]).tolist() == EXPECTED["classifier"]["labels"]
    probabilities = EXPECTED["classifier"]["probabilities"]
    np.testing.assert_allclose(model.predict_proba(X[:8]), probabilities, **CLOSE)


def table():
    return pd.read_csv(io.StringIO(EXPECTED["table"]["csv"]))


def assert_predictions(frame):
    expected = pd.read_csv(io.StringIO(EXPECTED["table"]["predictions"]))
    pd.testing.assert_frame_equal(frame[list(expected.columns)], expected, **CLOSE)


def test_the_program_predicts_as_before(tmp_path):
    table().to_csv(tmp_path / "t.csv", index=False)
    arguments = ["predict", FOLDER / "table", tmp_path / "t.csv", "--out", tmp_path / "out.csv"]
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == 0, result.output
    assert_predictions(pd.read_csv(tmp_path / "out.csv"))


def test_a_model_of_the_program_in_python(tmp_path):
    model = load(FOLDER / "table")
    assert model.target_names_ == ("price",)
    mean, std = model.predict(table()[["weight", "colour", "size"]], return_std=True)
    expected = pd.read_csv(io.StringIO(EXPECTED["table"]["predictions"]))
    np.testing.assert_allclose(mean, expected["mean"], **CLOSE)
    np.testing.assert_allclose(std, expected["std"], **CLOSE)
    model.save(tmp_path / "again")
    again = load(tmp_path / "again")
    assert again.target_names_ == ("price",)
    assert np.array_equal(again.predict(table()), mean)


@pytest.mark.parametrize("name", ["regressor", "classifier", "table"])
def test_saved_again_it_is_of_this_version(name, tmp_path):
    load(FOLDER / name).save(tmp_path / "new")
    assert json.loads((tmp_path / "new" / "model.json").read_text())["version"] == 2
    before, now = unsealed(FOLDER / name)[1], unsealed(tmp_path / "new")[1]
    before = {key.replace(".blocks[", ".stages["): array for key, array in before.items()}
    assert before.keys() == now.keys()
    assert all(np.array_equal(before[key], array) for key, array in now.items())
    assert type(load(tmp_path / "new")) is type(load(FOLDER / name))


def fit(folder):
    prior = BayesianNeuralNetwork(hidden=(3,))
    estimator = DVIPRegressor.paper(
        n_layers=1,
        prior=prior,
        n_prior_samples=4,
        max_iter=300,
        batch_size=16,
        learning_rate=0.05,
        n_predictive_samples=5,
    )
    return estimator.fit(X, Y, checkpoint_dir=folder, resume=True)


def test_a_training_goes_on(tmp_path):
    shutil.copytree(FOLDER / "checkpoints", tmp_path / "checkpoints")
    model = fit(tmp_path / "checkpoints")
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == [
        "step-000000150",
        "step-000000300",
    ]
    expected = EXPECTED["checkpoints"]["mean"]
    np.testing.assert_allclose(model.predict(X[:8]), expected, rtol=1e-3, atol=1e-3)


def rewritten(folder, name, change):
    """Changes the content of what version 0.1.0 wrote, and makes the checksum right."""
    path = folder / f"{name}.json"
    manifest = json.loads(path.read_text())
    change(manifest["content"])
    canonical = json.dumps(manifest["content"], sort_keys=True).encode()
    manifest["sha256"] = hashlib.sha256(canonical).hexdigest()
    path.write_text(json.dumps(manifest))


@pytest.mark.parametrize("table", [3, "x", [], {}, {"targets": 3}, {"targets": []}], ids=str)
def test_tables_that_were_tampered_with(tmp_path, table):
    shutil.copytree(FOLDER / "table", tmp_path / "model")
    rewritten(tmp_path / "model", "model", lambda content: content.update(table=table))
    with pytest.raises(ModelFileError):
        load(tmp_path / "model")


def test_checkpoints_without_a_training(tmp_path):
    shutil.copytree(FOLDER / "checkpoints", tmp_path / "checkpoints")
    folder = tmp_path / "checkpoints" / "step-000000150"
    rewritten(folder, "checkpoint", lambda content: content.pop("training"))
    with pytest.raises(CheckpointError, match=r"No checkpoint in .* Choose another folder"):
        fit(tmp_path / "checkpoints")
