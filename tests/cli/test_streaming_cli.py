"""`dvip fit` on streamed tables: the same decisions as in memory, and a model that is as good."""

import numpy as np
import pandas as pd
import pytest
from command_line import patients, refuse, succeed

from dvip import ExtrapolationWarning, load
from dvip.tables import RowSplit, num_numbers

QUICK = ("--inference", "vi", "--layers", "1", "--max-iter", "200", "--prior-samples", "5")
QUICK += ("--learning-rate", "0.05")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch, tmp_path):
    """Several blocks in a small table, and a cache of each test's own."""
    monkeypatch.setattr("dvip.tables.formats.read_blocks.__defaults__", ((), 50))
    monkeypatch.setattr("dvip.sources.source.TableSource.frames.__defaults__", (60,))
    monkeypatch.setenv("DVIP_ROW_CACHE", str(tmp_path / "cache"))


def test_fit_streams_a_folder(tmp_path):
    """Text, gaps and dates; the model learns, and predicts from folders."""
    frame = patients().sample(frac=1, random_state=0, ignore_index=True)
    frame.loc[:2, "target"] = None
    (tmp_path / "parts").mkdir()
    for number, rows in enumerate(np.array_split(np.arange(len(frame)), 3)):
        frame.iloc[rows].to_parquet(tmp_path / "parts" / f"{number}.parquet", index=False)
    streamed = succeed(
        "fit", tmp_path / "parts", "--out", tmp_path / "a", "--test-fraction", "0.2", "--target",
        "target", "--drop", "s1", *QUICK,
    )  # fmt: skip
    assert "Streaming" in streamed.stdout
    assert "442 rows, 15 columns" in streamed.stdout
    assert "Dropped 3 rows" in streamed.stdout
    assert "'visit' holds dates" in streamed.stdout
    assert "rows split off" in streamed.stdout
    assert "coverage_90" in streamed.stdout
    with pytest.warns(ExtrapolationWarning):  # of rows that were split off
        assert load(tmp_path / "a").score(frame[3:], frame["target"][3:]) > 0.3
    predict = ("predict", tmp_path / "a", tmp_path / "parts", "--out")
    assert "442 rows" in succeed(*predict, tmp_path / "p.parquet", "--samples", "7").stdout
    predicted = pd.read_parquet(tmp_path / "p.parquet")
    estimator = load(tmp_path / "a").set_params(n_predictive_samples=7)
    with pytest.warns(ExtrapolationWarning):
        np.testing.assert_allclose(predicted["mean"], estimator.predict(frame), rtol=1e-5)
    for index in range(3):
        part = ("--num-processes", 3, "--process-id", index, "--samples", 7)
        succeed(*predict, tmp_path / "part.parquet", *part)
    parts = sorted(tmp_path.glob("part*.parquet"))
    assert len(parts) == 3
    in_parts = pd.concat(map(pd.read_parquet, parts), ignore_index=True)
    pd.testing.assert_frame_equal(in_parts, predicted)
    told = succeed("evaluate", tmp_path / "a", tmp_path / "parts").stdout
    assert "439 rows" in " ".join(told.split())  # where lines break depends on the folder's name
    assert "in the folder that is read" in refuse(*predict, tmp_path / "parts" / "p.parquet")


def test_fit_streams_labels(tmp_path):
    """Whole numbers as labels; the one row of a class stays in the training part."""
    random = np.random.default_rng(0)
    frame = pd.DataFrame(random.normal(size=(400, 2)), columns=["a", "b"])
    frame["kind"] = np.where(frame["a"] > 0, 1, 3)
    test = RowSplit(0.3, 0).is_test(np.arange(400))
    frame.loc[np.flatnonzero(test)[5], "kind"] = 2
    frame.to_csv(tmp_path / "t.csv.gz", index=False)
    result = succeed(
        "fit", tmp_path / "t.csv.gz", "--target", "kind", "--task", "classification", "--stream",
        "--test-fraction", "0.3", "--out", tmp_path / "model", *QUICK,
    )  # fmt: skip
    assert "3 classes: 1, 2, 3" in result.stdout
    assert "accuracy" in result.stdout
    model = load(tmp_path / "model")
    assert model.classes_.tolist() == [1, 2, 3]
    assert model.n_samples_seen_ == 400 - test.sum() + 1
    with pytest.warns(ExtrapolationWarning):
        assert model.score(frame, frame["kind"]) > 0.85


@pytest.mark.parametrize("stream", ["--stream", "--no-stream"])
def test_one_bad_cell_does_not_make_labels_of_a_target(tmp_path, stream):
    frame = patients()[["age", "target"]].astype({"target": object})
    frame.loc[333, "target"] = "$100.1"
    frame.to_csv(tmp_path / "t.csv", index=False)
    fit = ("fit", tmp_path / "t.csv", "--target", "target", "--out", tmp_path / "model", stream)
    assert "is mostly numbers, but row 334 of t.csv has '$100.1'" in refuse(*fit)
    assert "not a number in row 334 of t.csv" in refuse(*fit, "--task", "regression", *QUICK)


@pytest.mark.parametrize("stream", ["--stream", "--no-stream"])
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_labels_that_are_numbers_are_the_same_however_written(tmp_path, stream, suffix):
    frame = pd.DataFrame({"x": np.arange(120.0), "y": [1.0] * 60 + [2.5] * 60})
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    frame.astype({"y": str}).to_parquet(tmp_path / "text.parquet")
    told = succeed(
        "fit", tmp_path / f"t.{suffix}", "--target", "y", "--out", tmp_path / "m", stream,
        "--test-fraction", "0.2", *QUICK[:4], "--max-iter", "20",
    ).stdout  # fmt: skip
    assert "2 classes: 1, 2.5" in told
    assert "(chosen from the values of y; --task regression changes it)" in told
    for name in ("t.csv", "t.parquet", "text.parquet"):
        assert (
            '"rows": 120' in succeed("evaluate", tmp_path / "m", tmp_path / name, "--json").stdout
        )


@pytest.mark.parametrize("stream", ["--stream", "--no-stream"])
def test_words_that_are_taken_for_gaps_are_named(tmp_path, stream):
    rows = ["x;kind", *(f"{x};{'high' if x > 60 else 'low'}" for x in range(120)), "7;None", "8;?"]
    fit = ("--target", "kind", "--out", tmp_path / "m", stream, *QUICK[:4], "--max-iter", "20")
    (tmp_path / "t.csv").write_text("\n".join(rows))
    told = succeed("fit", tmp_path / "t.csv", *fit).stdout
    assert "Dropped 2 rows without a value in kind ('?' or 'None')." in told
    (tmp_path / "t.csv").write_text("\n".join([*rows, "9;"]))
    told = succeed("fit", tmp_path / "t.csv", *fit).stdout
    assert "Dropped 3 rows without a value in kind (empty or '?' or 'None')." in told
    warned = succeed("evaluate", tmp_path / "m", tmp_path / "t.csv").stderr
    assert "3 rows have no value in kind (empty or '?' or 'None') and do not count" in warned


def test_large_tables_stream_by_themselves(tmp_path, monkeypatch):
    frame = patients()[["age", "bmi", "target"]]
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    assert num_numbers(tmp_path / "t.parquet") == 3 * len(frame)
    assert 800 < num_numbers(tmp_path / "t.csv") < 2500
    monkeypatch.setattr("dvip.cli.fit.MAX_NUMBERS_IN_MEMORY", 800)
    out = ("--target", "target", "--out", tmp_path / "model", *QUICK)
    for name in ("t.csv", "t.parquet"):
        assert "Streaming" in succeed("fit", tmp_path / name, *out).stdout
    assert "Streaming" not in succeed("fit", tmp_path / "t.csv", "--no-stream", *out).stdout


def test_what_a_stream_cannot_use(tmp_path):
    frame = patients()
    frame.loc[300, "age"] = np.inf
    frame[:250].to_parquet(tmp_path / "a.parquet")
    (tmp_path / "parts").mkdir()
    frame[:250].to_parquet(tmp_path / "parts" / "a.parquet", index=False)
    frame[250:].to_parquet(tmp_path / "parts" / "b.parquet", index=False)
    fit = ("fit", tmp_path / "parts", "--out", tmp_path / "model", "--target")
    assert "'age' is infinite in row 51 of b.parquet" in refuse(*fit, "target")
    assert "no column 'goal'" in refuse(*fit, "goal")
    assert "given twice" in refuse(*fit, "target", "--target", "target")
    assert "one target only" in refuse(*fit, "target", "--target", "bp", "--task", "classification")
    frame[250:].drop(columns="bp").to_parquet(tmp_path / "parts" / "b.parquet", index=False)
    assert "b.parquet lacks columns of the rows before it: 'bp'" in refuse(*fit, "target")
