"""Tables with oddities, from the file to the prediction; and how the commands speak of them."""

import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
from command_line import QUICK, patients, refuse, run, succeed

from dvip import load
from dvip.cli.console import counted, reports_errors
from dvip.tables import RowSplit


def fit(table, model, *options, target="y"):
    return ("fit", table, "--target", target, "--out", model, *QUICK, *options)


@pytest.fixture
def shares(tmp_path):
    """A column of percentages, one of money, one with a huge value, one mostly of numbers."""
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"share": [f"{value:.1f}%" for value in random.normal(50, 9, size=80)]})
    frame["price"] = [f"${value:,.2f}" for value in random.normal(2000, 300, size=80)]
    frame["size"] = random.normal(size=80)
    frame.loc[40, "size"] = 1e12
    frame["depth"] = [str(value) for value in random.normal(size=80)]
    frame.loc[5:20, "depth"] = "unknown"
    frame["y"] = frame["share"].str.rstrip("%").astype(float) / 10
    frame.to_csv(tmp_path / "t.csv", index=False)
    return tmp_path / "t.csv", frame


@pytest.mark.parametrize("stream", ["--stream", "--no-stream"])
def test_percentages_money_and_a_value_that_decides_a_scale(shares, tmp_path, stream):
    table, frame = shares
    result = succeed(*fit(table, tmp_path / "m", stream))
    assert "Inputs: 3 columns as 3 numbers." in result.stdout
    assert "'share': numbers in %" in result.stdout
    assert "'price': numbers in $" in result.stdout
    assert "'depth' is mostly numbers, but row 6 of t.csv has 'unknown', and 15 more" in (
        result.stdout
    )
    (line,) = result.stderr.strip().splitlines()
    assert line.startswith("Warning: 'size' is 1e+12 in row 41 of t.csv, so far from all others")
    model = load(tmp_path / "m")
    succeed("predict", tmp_path / "m", table, "--out", tmp_path / "p.csv")
    predicted = pd.read_csv(tmp_path / "p.csv")["mean"]
    np.testing.assert_allclose(model.predict(frame), predicted, rtol=1e-6)
    shuffled = frame[frame.columns[::-1]].assign(extra="x")
    np.testing.assert_array_equal(model.predict(shuffled), model.predict(frame))
    frame["share"].str.rstrip("%").astype(float).to_frame().join(
        frame.drop(columns="share")
    ).to_csv(table, index=False)
    message = refuse("predict", tmp_path / "m", table, "--out", tmp_path / "q.csv")
    assert "'share' should hold numbers with the sign %, but row 1 of t.csv has" in message


@pytest.mark.parametrize("bad", ["3.1%", "broken"])
@pytest.mark.parametrize("stream", ["--stream", "--no-stream"])
def test_numbers_with_bad_cells_are_no_classification(tmp_path, bad, stream):
    """45 different values, of which a third of the rows is bad: it was 45 classes."""
    values = [f"{row % 44 / 8}" if row % 3 else bad for row in range(180)]
    pd.DataFrame({"x": range(180), "y": values}).to_csv(tmp_path / "t.csv", index=False)
    message = refuse(*fit(tmp_path / "t.csv", tmp_path / "m", stream))
    assert (
        f"'y' is mostly numbers, but row 1 of t.csv has {bad!r}, and 59 more such cells" in message
    )
    assert "--task classification" in message


def test_both_ways_to_read_a_table_split_off_the_same_rows(tmp_path, monkeypatch):
    monkeypatch.setattr("dvip.tables.formats.read_blocks.__defaults__", ((), 50))
    frame = patients().drop(columns="name")
    frame["kind"] = np.where(frame["bp"] > 95, "high", "low")
    frame.loc[7, "kind"] = None
    test = RowSplit(0.3, 5).is_test(np.arange(len(frame)))
    frame.loc[np.flatnonzero(test)[3], "kind"] = "lonely"
    frame.to_csv(tmp_path / "t.csv", index=False)
    ranges, told = [], []
    for stream in ("--stream", "--no-stream"):
        options = (stream, "--test-fraction", "0.3", "--seed", "5")
        result = succeed(*fit(tmp_path / "t.csv", tmp_path / "m", *options, target="kind"))
        told.append([line for line in result.stdout.splitlines() if line.startswith("On ")])
        model = load(tmp_path / "m")
        ranges.append((model.n_samples_seen_, model.encoder_.to_json(), model.classes_.tolist()))
    assert ranges[0] == ranges[1]
    assert told[0] == told[1] != []
    labelled = frame["kind"].notna().to_numpy()
    assert ranges[0][0] == (labelled & ~test).sum() + 1


def test_one_of_a_thing_is_not_several(tmp_path):
    assert counted(1, "row") == "1 row"
    assert counted(2_000, "row") == "2,000 rows"
    assert counted(1, "class", "classes") == "1 class"
    frame = pd.DataFrame({"x": np.arange(30.0), "y": np.arange(30.0) ** 2})
    frame.loc[3, "y"] = None
    frame.to_csv(tmp_path / "t.csv", index=False)
    told = succeed(*fit(tmp_path / "t.csv", tmp_path / "m")).stdout
    assert "Dropped 1 row without" in told
    assert "Inputs: 1 column as 1 number." in told
    assert "Training 1 layer on 29 rows." in told
    frame[:1].to_csv(tmp_path / "one.csv", index=False)
    written = succeed("predict", tmp_path / "m", tmp_path / "one.csv", "--out", tmp_path / "p.csv")
    assert "Wrote predictions for 1 row to" in written.stdout
    assert "1 row has no value in y and does not" in (
        succeed("evaluate", tmp_path / "m", tmp_path / "t.csv").stderr
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--prior", "rbf"), "prior='rbf' is not known: use one of additive, bnn"),
        (("--likelihood", "cauchy-like"), "likelihood='cauchy-like' is not known"),
        (("--likelihood", "probit", "--task", "regression"), "is for classification"),
        (("--learning-rate", "-1"), "must be a positive number"),
    ],
)
def test_options_are_refused_before_the_table_is_read(tmp_path, options, message):
    assert message in refuse(*fit(tmp_path / "absent.csv", tmp_path / "m", *options))


def test_a_likelihood_by_name(tmp_path):
    frame = pd.DataFrame({"x": np.arange(30.0), "y": np.arange(30) % 2})
    frame.to_csv(tmp_path / "t.csv", index=False)
    succeed(*fit(tmp_path / "t.csv", tmp_path / "m", "--likelihood", "robustmax"))
    assert load(tmp_path / "m").likelihood == "robustmax"
    assert "is for regression" in refuse(
        *fit(tmp_path / "t.csv", tmp_path / "n", "--likelihood", "gaussian")
    )


def test_rows_outside_the_range_of_the_training_are_told_once(tmp_path, monkeypatch):
    monkeypatch.setattr("dvip.tables.formats.read_blocks.__defaults__", ((), 10))
    frame = pd.DataFrame({"a": np.arange(30.0), "b": np.arange(30.0) % 7})
    frame["y"] = frame["a"] + frame["b"]
    frame.to_csv(tmp_path / "t.csv", index=False)
    succeed(*fit(tmp_path / "t.csv", tmp_path / "m", "--no-stream"))
    frame.assign(a=frame["a"] + 25).to_csv(tmp_path / "far.csv", index=False)
    result = succeed("predict", tmp_path / "m", tmp_path / "far.csv", "--out", tmp_path / "p.csv")
    (line,) = result.stderr.strip().splitlines()
    assert line.startswith("Warning: 18 of 30 rows lie far outside the range")
    assert "'a'" in line


def test_warnings_are_a_line_without_a_path(capsys):
    @reports_errors
    def command():
        warnings.warn("of two\n  lines", UserWarning, stacklevel=1)

    command()
    assert capsys.readouterr().err == "Warning: of two lines\n"


@pytest.mark.parametrize(
    "arguments", ["datasets", pytest.param("datasets --json", marks=pytest.mark.slow)]
)
def test_a_reader_that_has_seen_enough_is_no_error(arguments):
    """`dvip ... | head -1`, and a pipe that is closed before anything is written."""
    program = f"{sys.executable} -m dvip {arguments}"
    for reader in ("head -1", "true"):
        done = subprocess.run(
            f"({program}; echo code $? >&2) | {reader}",
            shell=True,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.stderr in ("code 0\n", "code 141\n")


def test_a_quote_that_is_not_closed_is_refused(tmp_path):
    (tmp_path / "t.csv").write_text("x,t,y\n" + '1,"a",2\n' * 5 + '1,"a,2\n' + '3,"b",4\n' * 5)
    message = refuse(*fit(tmp_path / "t.csv", tmp_path / "m"))
    assert "t.csv has a quote in line 7 that is not closed" in message


def test_a_table_of_odd_columns_runs_through(tmp_path):
    """Dates before 1970, nullable types, one category, columns twice, whole numbers beyond 2^63."""
    rows = 40
    frame = pd.DataFrame(
        {
            "born": pd.date_range("1930-01-01", periods=rows),
            "text date": ["1066-10-14"] * rows,
            "maybe": pd.array([True, None] * (rows // 2), dtype="boolean"),
            "count": pd.array([1, 2, None, 4] * (rows // 4), dtype="Int64"),
            "one": pd.Categorical(["only"] * rows),
            "two": pd.Categorical(["u", "v"] * (rows // 2)),
            "x": np.linspace(0, 1, rows),
            "x again": np.linspace(0, 1, rows),
            "huge": np.array([2**63 + row for row in range(rows)], dtype=np.uint64),
            "y": np.linspace(-1, 1, rows),
        }
    )
    frame.to_parquet(tmp_path / "t.parquet")
    told = succeed(*fit(tmp_path / "t.parquet", tmp_path / "m")).stdout
    for reason in (
        "'born' holds dates or times",
        "'text date' holds dates or times",
        "'one' has the same value in every row",
        "'huge' has the same first 16 digits in every row",
    ):
        assert f"left out: {reason}" in told
    assert "Inputs: 5 columns as 8 numbers." in told
    result = run("evaluate", tmp_path / "m", tmp_path / "t.parquet", "--json")
    assert result.exit_code == 0
    assert result.stderr == ""
