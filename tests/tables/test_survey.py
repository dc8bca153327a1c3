"""Surveys of tables: the same decisions in blocks as on the whole, and rows split by number."""

import numpy as np
import pandas as pd
import pytest

from dvip.tables import RowSplit, TableEncoder, TableError, TableSurvey, read_table, survey_table
from dvip.tables.encoder import row_ranks


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Several blocks in a small table."""
    monkeypatch.setattr("dvip.tables.formats.read_blocks.__defaults__", ((), 50))


def patients():
    """Numbers, text, gaps, dates, names, and an empty column."""
    random = np.random.default_rng(0)
    frame = pd.DataFrame(random.normal(size=(442, 3)), columns=["age", "s1", "target"])
    frame["sex"] = random.choice(["male", "female", None], len(frame))
    frame.loc[random.random(len(frame)) < 0.1, "age"] = None
    frame["smoker"] = random.random(len(frame)) < 0.3
    frame["visit"] = pd.date_range("2020-01-01", periods=len(frame)).astype(str)
    frame["name"] = [f"P{row:04d}" for row in range(len(frame))]
    frame["note"] = None
    return frame


def encoders(path, targets, drop=()):
    """How a table is encoded when it is streamed, and when it is read as a whole."""
    survey = survey_table(path, targets, drop)
    whole = read_table(path).drop(columns=[*targets, *drop])
    return survey.encoder, TableEncoder().fit(whole)


def test_a_stream_is_encoded_as_the_table_in_memory(tmp_path):
    frame = patients()
    frame["mixed"] = [f"{row % 4}.0" if row < 300 else f"g{row % 3}" for row in range(len(frame))]
    frame["mostly"] = [str(row) if row != 333 else "?!" for row in range(len(frame))]
    frame["same"] = 3.5
    frame["late gap"] = np.where(frame.index < 430, frame["age"], np.nan)
    for name, write in (("t.csv", frame.to_csv), ("t.parquet", frame.to_parquet)):
        write(tmp_path / name, index=False)
        streamed, whole = encoders(tmp_path / name, ["target"], ["s1"])
        assert streamed.to_json() == whole.to_json()
    reasons = {column.name: column.reason for column in streamed.left_out_}
    assert reasons["mostly"].startswith("is mostly numbers, but row 334 of t.parquet has '?!'")
    assert reasons["same"] == "has the same value in every row"
    assert set(reasons) == {"mostly", "same", "name", "note", "visit"}


def test_medians_of_a_long_table_are_those_of_a_sample(tmp_path, monkeypatch):
    monkeypatch.setattr("dvip.tables.encoder.MAX_SAMPLED_ROWS", 200)
    values = np.random.default_rng(0).permutation(5000)
    pd.DataFrame({"x": values, "y": values}).to_parquet(tmp_path / "t.parquet")
    survey = survey_table(tmp_path / "t.parquet", ["y"])
    sampled = sum(len(ranks) for ranks, _ in survey.encoder._surveys["x"].sampled)
    assert 200 <= sampled <= 400
    # The standard error of the median of 200 of them is 5000 / (2 √200) = 177.
    assert survey.encoder.columns_[0].fill == pytest.approx(2500, abs=550)


def test_rows_are_split_by_their_number():
    rows = np.arange(100_000)
    ranks = row_ranks(rows, 0) / 2.0**64
    assert len(np.unique(ranks)) == len(ranks)
    assert abs(np.corrcoef(ranks[1:], ranks[:-1])[0, 1]) < 0.02
    for fraction in (0.01, 0.3):
        test = RowSplit(fraction, 1).is_test(rows)
        assert test.mean() == pytest.approx(fraction, rel=0.05)
        assert np.array_equal(test[500:900], RowSplit(fraction, 1).is_test(rows[500:900]))
        assert not np.array_equal(test, RowSplit(fraction, 2).is_test(rows))


def test_lonely_labels_stay_in_the_training_part():
    """In whichever way a label is written; and no row is in both parts or in none."""
    split = RowSplit(0.5, 0)
    test = split.is_test(np.arange(40))
    labels = np.where(np.arange(40) % 2, "1", "2.0")
    labels[np.flatnonzero(test)[:2]] = ["3", "3.0"]
    frame = pd.DataFrame({"x": np.arange(40.0), "y": labels})
    frame.loc[5, "y"] = None
    survey = TableSurvey(("y",), split=split)
    survey.add(frame)
    rows = np.arange(40)
    parts = [survey.is_in_part(rows, frame, "classification", test=part) for part in (False, True)]
    assert not (parts[0] & parts[1]).any()
    assert (parts[0] | parts[1]).sum() == survey.num_labelled == 39
    assert parts[1].sum() == survey.num_test("classification")
    assert set(survey.read_targets(frame[parts[0]], "classification")) == {1, 2, 3}
    assert set(survey.read_targets(frame[parts[1]], "classification")) == {1, 2}
    assert survey.num_test("regression") == survey.num_test("classification") + 2


def test_files_that_lack_columns_are_named(tmp_path):
    patients()[:50].to_parquet(tmp_path / "a.parquet")
    for lacking in ("age", "target", "s1"):
        patients()[50:].drop(columns=lacking).to_parquet(tmp_path / "b.parquet")
        match = f"b.parquet lacks columns of the rows before it: '{lacking}'"
        with pytest.raises(TableError, match=match):
            survey_table(tmp_path, ["target"], ["s1"])
