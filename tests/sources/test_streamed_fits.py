"""Estimators on sources and on batches that the user brings."""

import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from examples import TINY
from rows_in_files import INPUTS, NAMES, ROWS, SETTINGS, arrays, small_blocks, sources, table

from dvip import (
    ArraySource,
    CheckpointError,
    DVIPClassifier,
    DVIPRegressor,
    TrainingDiverged,
    load,
    open_source,
)
from dvip.estimators.scales import Standardiser
from dvip.network import propagation_matrix
from dvip.sources import LabelTargets, StreamedRows, cached_rows


@pytest.fixture(scope="module")
def in_memory(files):
    settings = {**SETTINGS, "max_iter": 800}
    return settings, DVIPRegressor.paper(**settings).fit(files.frame[NAMES], files.frame["y"])


def rmse(model, frame):
    return np.sqrt(np.mean(np.square(model.predict(frame[NAMES]) - frame["y"])))


def test_a_streamed_fit_is_as_good_as_one_in_memory(files, in_memory, tmp_path):
    settings, whole = in_memory
    streamed = DVIPRegressor.paper(**settings).fit(sources(files)["parts"])
    test = table(seed=1)
    assert rmse(whole, test) < 0.75 * test["y"].std()
    assert rmse(streamed, test) == pytest.approx(rmse(whole, test), rel=0.1)
    assert streamed.n_samples_seen_ == ROWS
    assert list(streamed.feature_names_in_) == NAMES
    streamed.save(tmp_path / "model")
    again = load(tmp_path / "model").predict(test[NAMES])
    assert np.array_equal(again, streamed.predict(test[NAMES]))


def test_the_same_rows_give_the_same_model(files, row_cache):
    """As they are read, from the cache, and from a cache made anew, bit for bit."""
    predictions = []
    for _ in range(3):
        model = DVIPRegressor.paper(**SETTINGS).fit(sources(files)["t.parquet"])
        predictions.append(model.predict_dist(files.frame[NAMES]).means)
        if len(predictions) == 2:
            shutil.rmtree(row_cache)
    assert np.array_equal(predictions[0], predictions[1])
    assert np.array_equal(predictions[0], predictions[2])


def test_weights_count(files):
    """A weight of zero for half of the rows is the scale of the other half."""
    frame = files.frame.assign(w=lambda t: (t.index % 2).astype(float))
    weighted = ArraySource(frame[NAMES].to_numpy(), frame["y"].to_numpy(), frame["w"].to_numpy())
    model = DVIPRegressor.paper(**SETTINGS).fit(weighted)
    half = Standardiser.fit(frame[NAMES][1::2].to_numpy(), np.ones(ROWS // 2))
    np.testing.assert_allclose(model.input_scaler_.mean, half.mean, rtol=1e-12)
    np.testing.assert_allclose(model.input_scaler_.scale, half.scale, rtol=1e-6)


def test_labels_of_a_stream(files, tmp_path, monkeypatch):
    """Labels that appear late and out of order; their codes are those of the sorted classes."""
    small_blocks(monkeypatch)
    frame = files.frame.copy()
    frame["kind"] = np.where(frame["x0"] > 0.5, "high", np.where(frame["x0"] < -0.5, "a", "mid"))
    frame["kind"] = np.where(frame.index < 100, "mid", frame["kind"])
    frame[[*NAMES, "kind"]].to_parquet(tmp_path / "t.parquet")
    source = open_source(tmp_path / "t.parquet", target="kind")
    with cached_rows(source, LabelTargets(), "float32") as (path, content):
        classes = np.unique(content.labels)
        scales = (np.append(np.zeros(INPUTS), 0), np.append(np.ones(INPUTS), 1))
        data = StreamedRows(path, content, *scales, 1e12, classes)
        rows = data.rows(0, 0, ROWS)
        data.close()
    order = np.asarray(rows.inputs)[:, 0].argsort()
    expected = frame["kind"].to_numpy()[frame["x0"].argsort()]
    assert np.array_equal(classes[np.asarray(rows.targets)[order, 0].astype(int)], expected)


def test_a_model_starts_from_a_sample_of_the_rows(monkeypatch):
    """Principal directions of a random sample are those of all rows, if the file is sorted too."""
    random = np.random.default_rng(0)
    X = random.normal(size=(20_000, 6)) @ random.normal(size=(6, 6))
    X = X[X[:, 0].argsort()]
    samples = []
    monkeypatch.setattr("dvip.estimators.base.MAX_SAMPLED_ROWS", 5_000)
    monkeypatch.setattr(
        DVIPRegressor, "_train_on", lambda self, data, inputs, _: samples.append(inputs)
    )
    DVIPRegressor.paper(**SETTINGS).fit(ArraySource(X, X[:, 0]))
    (sample,) = samples
    assert sample.shape == (5_000, 6)
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    ours, whole = propagation_matrix(sample, 2), propagation_matrix(scaled, 2)
    np.testing.assert_allclose(ours, whole, atol=0.05)


def test_a_streamed_fit_goes_on_where_it_was_stopped(files, tmp_path, monkeypatch):
    """Bit for bit, also when the rows have to be read again; not with other rows."""
    settings = {**SETTINGS, "max_iter": 600}
    kept = {"checkpoint_dir": tmp_path / "checkpoints", "checkpoint_every": 200}
    source = sources(files)["t.parquet"]
    undisturbed = DVIPRegressor.paper(**settings).fit(source)
    batches = StreamedRows.batches

    def stopping(self, seed, step, *others):
        if step >= 400:
            raise KeyboardInterrupt
        return batches(self, seed, step, *others)

    with monkeypatch.context() as patch:
        patch.setattr(StreamedRows, "batches", stopping)
        with pytest.raises(KeyboardInterrupt):
            DVIPRegressor.paper(**settings).fit(source, **kept)
    shutil.rmtree(tmp_path / "cache")
    resumed = DVIPRegressor.paper(**settings).fit(source, **kept, resume=True)
    assert np.array_equal(resumed.bound_history_, undisturbed.bound_history_)
    frame = files.frame[NAMES]
    assert np.array_equal(resumed.predict(frame), undisturbed.predict(frame))
    with pytest.raises(CheckpointError, match="data"):
        DVIPRegressor.paper(**settings).fit(sources(files)["npy"], **kept, resume=True)


def test_batches_of_the_user_train_a_regressor():
    random = np.random.default_rng(0)
    X = random.normal(size=(2000, INPUTS))
    y = np.sin(2 * X[:, 0]) + 0.1 * random.normal(size=2000)
    model = DVIPRegressor.paper(**{**SETTINGS, "learning_rate": 0.02})
    for epoch in range(4):
        for start in range(0, 2000, 250 + epoch):  # sizes that differ
            model.partial_fit(X[start : start + 250 + epoch], y[start : start + 250 + epoch])
    assert model.n_samples_seen_ == 8000
    assert model.n_iter_ >= 8000 / TINY["batch_size"]
    np.testing.assert_allclose(model.input_scaler_.mean, X[:250].mean(axis=0))
    assert np.sqrt(np.mean(np.square(model.predict(X) - y))) < 0.75 * y.std()
    before = model.predict(X)
    model.partial_fit(X[:10], y[:10])
    assert not np.array_equal(model.predict(X), before)
    with pytest.raises(ValueError, match="shape"):
        model.partial_fit(X[:9], np.stack([y[:9], y[:9]], axis=1))


def test_rows_that_fill_up_a_batch_do_not_count():
    """Ten rows in batches of 16 make the steps of ten rows in batches of ten."""
    X, y = arrays()
    filled, exact = (
        DVIPRegressor.paper(**{**SETTINGS, "batch_size": size, "precision": "float64"})
        for size in (16, 10)
    )
    for start in range(0, 40, 10):
        rows = slice(start, start + 10)
        for model in (filled, exact):
            model.partial_fit(X[rows], y[rows], sample_weight=np.linspace(0.5, 1.5, 10))
    assert filled.n_iter_ == exact.n_iter_ == 4
    np.testing.assert_allclose(filled.predict(X), exact.predict(X), rtol=1e-9)


def test_batches_of_the_user_train_a_classifier():
    X = np.random.default_rng(0).normal(size=(600, INPUTS))
    y = np.where(X[:, 0] > 0, "yes", "no")
    model = DVIPClassifier.paper(**SETTINGS)
    with pytest.raises(ValueError, match="classes must be passed"):
        model.partial_fit(X, y)
    model.partial_fit(X[y == "yes"], y[y == "yes"], classes=["yes", "no"])
    for _ in range(6):
        model.partial_fit(X, y)
    assert model.score(X, y) > 0.85
    with pytest.raises(ValueError, match=r"none of the classes: .'perhaps'"):
        model.partial_fit(X[:2], ["yes", "perhaps"])


def test_partial_fit_goes_on_after_fit_and_after_divergence():
    X, y = arrays()
    model = DVIPRegressor.paper(**SETTINGS).fit(X, y)
    rows, steps, scaler = model.n_samples_seen_, model.n_iter_, model.input_scaler_
    model.partial_fit(X, y)
    assert model.n_samples_seen_ == rows + len(X)
    assert model.n_iter_ == steps + -(-len(X) // TINY["batch_size"])
    assert model.input_scaler_ is scaler
    with pytest.raises(TrainingDiverged):
        model.set_params(learning_rate=1e6).partial_fit(X, y)
    assert np.isfinite(model.set_params(learning_rate=0.01).partial_fit(X, y).predict(X)).all()


MEMORY = """
import json, os, sys
import numpy as np
from dvip import DVIPRegressor, open_source
from pathlib import Path
import re

model = DVIPRegressor.paper(n_layers=2, max_iter=2000, n_predictive_samples=10)
model.fit(open_source(sys.argv[1], target="y"))
status = Path("/proc/self/status").read_text()
print(int(re.search(r"VmHWM:\\s+(\\d+)", status)[1]) / 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="asks Linux for the memory")
def test_memory_does_not_grow_with_the_rows(tmp_path):
    """Ten times the rows, 28 numbers each: 60 MB and 600 MB in single precision."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def megabytes(name, num_rows):
        random = np.random.default_rng(0)
        names = [*(f"x{index}" for index in range(27)), "y"]
        writer = None
        for _ in range(0, num_rows, 100_000):
            values = random.normal(size=(28, 100_000)).astype(np.float32)
            block = pa.table(dict(zip(names, values, strict=True)))
            writer = writer or pq.ParquetWriter(tmp_path / name, block.schema)
            writer.write_table(block)
        writer.close()
        result = subprocess.run(
            [sys.executable, "-c", MEMORY, str(tmp_path / name)],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "DVIP_ROW_CACHE": str(tmp_path / "rows")},
        )
        return float(result.stdout)

    small, large = megabytes("small.parquet", 500_000), megabytes("large.parquet", 5_000_000)
    assert large < 1.15 * small
    assert large < 1500
