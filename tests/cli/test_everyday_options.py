"""Weights, columns that are kept, digits, silence, JSON, standard input, Excel, odd text files."""

import io
import json
import re

import numpy as np
import pandas as pd
import pytest
from command_line import QUICK, refuse, succeed
from typer.testing import CliRunner

from dvip import load
from dvip.__main__ import app
from dvip.tables import TableError, TableFile, TextFormat, read_table


@pytest.fixture(scope="module")
def expected(regression):
    """The rows to predict, as a CSV file, and what is predicted."""
    table, out = regression.folder / "rows.csv", regression.folder / "expected.csv"
    regression.frame[300:].to_csv(table, index=False)
    succeed("predict", regression.model, table, "--out", out)
    return table, out


def predicted(regression, table, *options):
    out = regression.folder / "out.csv"
    succeed("predict", regression.model, table, "--out", out, *options)
    return pd.read_csv(out)


def test_columns_are_kept_as_they_are(regression, expected):
    _, out = expected
    frame = regression.frame[300:].assign(code=[f"{row:05d}" for row in range(142)])
    kept = regression.folder / "codes.csv"
    frame.to_csv(kept, index=False)
    text = regression.folder / "kept.csv"
    options = ("--keep", "code", "--keep", "age")
    succeed("predict", regression.model, kept, "--out", text, *options)
    lines, without = text.read_text().splitlines(), out.read_text().splitlines()
    assert lines[0] == f"code,age,{without[0]}"
    ages = [line.split(",")[0] for line in kept.read_text().splitlines()[1:]]
    assert lines[1:] == [
        f"{row:05d},{age},{numbers}"
        for row, (age, numbers) in enumerate(zip(ages, without[1:], strict=True))
    ]
    parquet = regression.folder / "kept.parquet"
    succeed("predict", regression.model, kept, "--out", parquet, "--keep", "age")
    assert np.array_equal(pd.read_parquet(parquet)["age"], frame["age"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--keep", "nothing"), "no column 'nothing'"),
        (("--keep", "mean"), "two columns 'mean'"),
        (("--keep", "age", "--keep", "age"), "two columns 'age'"),
        (("--sep", "abc"), "one sign"),
        (("--decimal", ";"), "must be '.' or ','"),
        (("--sep", ",", "--decimal", ","), "both ','"),
        (("--decimal", ","), "say what separates them with --sep"),
        (("--encoding", "klingon"), "is not known"),
        (("--encoding", "utf-16"), "cannot be read|not text"),
    ],
)
def test_options_that_cannot_be(regression, options, message):
    table = regression.folder / "mean.csv"
    regression.frame[300:].assign(mean=1).to_csv(table, index=False)
    out = regression.folder / "refused.csv"
    refused = refuse("predict", regression.model, table, "--out", out, *options)
    assert re.search(message, refused)
    assert not out.exists()


def test_digits(regression, expected):
    table, out = expected
    cells = predicted(regression, table, "--precision", "3").to_numpy()
    np.testing.assert_allclose(cells, pd.read_csv(out).to_numpy(), rtol=6e-3)
    text = (regression.folder / "out.csv").read_text().replace(".", "").replace("-", "")
    numbers = [cell for line in text.splitlines()[1:] for cell in line.split(",")]
    assert max(len(cell.lstrip("0").split("e")[0]) for cell in numbers) == 3
    message = refuse(
        "predict",
        regression.model,
        table,
        "--out",
        regression.folder / "p.parquet",
        "--precision",
        3,
    )
    assert "Parquet keeps all digits" in message


def test_standard_input_and_output(regression, expected):
    table, out = expected
    arguments = ["predict", str(regression.model), "-", "--out", "-"]
    for content in (table.read_bytes(), regression.test.read_bytes()):  # also Parquet
        result = CliRunner().invoke(app, arguments, input=content)
        assert result.exit_code == 0, result.output
        written = pd.read_csv(io.StringIO(result.stdout))
        np.testing.assert_allclose(written, pd.read_csv(out), rtol=1e-5)
        assert "Wrote predictions for 142 rows" in result.stderr
    result = CliRunner().invoke(
        app, ["evaluate", str(regression.model), "-", "--json"], input=table.read_bytes()
    )
    assert json.loads(result.stdout)["rows"] == 142
    result = CliRunner().invoke(app, arguments, input=b"a,b\n1,2\n")
    assert result.exit_code == 1
    assert "standard input lacks columns" in result.stderr


def test_a_table_without_rows(regression, expected):
    table, out = expected
    names = out.read_text().splitlines()[0]
    for kind in ("csv", "parquet"):
        empty = regression.folder / f"empty.{kind}"
        getattr(pd.read_csv(table)[:0], f"to_{kind}")(empty, index=False)
        assert ",".join(predicted(regression, empty).columns) == names
    assert "no rows" in refuse("fit", empty, "--target", "target", "--out", regression.folder / "e")


@pytest.mark.parametrize(
    ("written", "options"),
    [
        ({"sep": "|"}, ("--sep", "pipe")),
        ({"sep": ";", "decimal": ",", "encoding": "latin-1"}, ("--encoding", "latin-1")),
        ({"sep": "\t", "decimal": ","}, ("--sep", "tab", "--decimal", ",")),
        ({"sep": ";", "encoding": "utf-16"}, ("--encoding", "utf-16", "--sep", ";")),
    ],
)
def test_text_files_of_other_kinds(regression, expected, written, options):
    table, out = expected
    other = regression.folder / "other.csv"
    frame = pd.read_csv(table, keep_default_na=False).assign(name='Zoë, "M|"')
    numbers = frame.columns.drop(["sex", "smoker", "visit", "name", "note"])
    frame[numbers] = frame[numbers].apply(pd.to_numeric)
    frame.to_csv(other, index=False, **written)
    found = predicted(regression, other, *options)
    np.testing.assert_allclose(found, pd.read_csv(out), rtol=1e-6)


def test_the_decimal_mark_decides_what_is_unclear(tmp_path):
    table = tmp_path / "unclear.csv"
    table.write_text("a;b\n1,234;2,345\n")
    with pytest.raises(TableError, match="not clear"):
        read_table(table)
    comma = TableFile(table, format=TextFormat(decimal=","))
    assert read_table(comma).to_numpy().tolist() == [[1.234, 2.345]]
    point = TableFile(table, format=TextFormat(decimal="."))
    assert read_table(point).to_numpy().tolist() == [["1,234", "2,345"]]


def test_excel_files(regression, expected):
    pytest.importorskip("openpyxl", reason="needs the extra excel")
    _, out = expected
    sheet = regression.folder / "rows.xlsx"
    regression.frame[300:].to_excel(sheet, index=False)
    np.testing.assert_allclose(predicted(regression, sheet), pd.read_csv(out), rtol=1e-6)
    pd.DataFrame([["a", "a"], [1, 2]]).to_excel(sheet, index=False, header=False)
    assert "several columns named 'a'" in refuse("predict", regression.model, sheet, "--out", out)
    sheet.write_bytes(b"no sheet")
    assert "cannot be read" in refuse("predict", regression.model, sheet, "--out", out)
    assert "CSV or Parquet" in refuse("predict", regression.model, out, "--out", sheet)


def test_excel_without_the_extra(regression, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    sheet = regression.folder / "any.xlsx"
    sheet.write_bytes(b"PK")
    out = regression.folder / "any.csv"
    message = refuse("predict", regression.model, sheet, "--out", out)
    assert 'pip install "dvip[excel]"' in message


def test_weights_are_how_many_times_rows_count(tmp_path):
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"x": random.normal(size=40), "w": random.integers(0, 4, size=40)})
    frame["y"] = frame["x"] + 0.1 * random.normal(size=40)
    frame.to_csv(tmp_path / "weighted.csv", index=False)
    repeated = frame.loc[frame.index.repeat(frame["w"])].drop(columns="w")
    repeated.to_csv(tmp_path / "repeated.csv", index=False)
    for name, options in (("weighted", ("--weight", "w")), ("repeated", ())):
        table = tmp_path / f"{name}.csv"
        succeed("fit", table, "--target", "y", "--out", tmp_path / name, *QUICK, *options)
    weighted, plain = load(tmp_path / "weighted"), load(tmp_path / "repeated")
    assert list(weighted.encoder_.get_feature_names_out()) == ["x"]
    np.testing.assert_allclose(weighted.predict(frame[["x"]]), plain.predict(frame[["x"]]), 1e-4)


@pytest.mark.parametrize("bad", [-1, "heavy", None, "inf"])
def test_weights_that_are_none(tmp_path, bad):
    frame = pd.DataFrame({"x": [1.0, 2.0, 3.0], "w": [1, bad, 2], "y": [1.0, 2.0, 4.0]})
    table = tmp_path / "t.csv"
    frame.to_csv(table, index=False)
    message = refuse("fit", table, "--target", "y", "--weight", "w", "--out", tmp_path / "m")
    assert "'w' has" in message
    assert "row 2" in message
    message = refuse("fit", table, "--target", "y", "--weight", "y", "--out", tmp_path / "m")
    assert "has another use" in message


def test_fit_tells_what_it_found_chose_and_how_good_it_is(regression, tmp_path):
    lines = regression.result.stdout.splitlines()
    found, chosen, good = (
        next(line for line in lines if line.startswith(word))
        for word in ("Found:", "Chosen:", "Good?")
    )
    assert "to learn from" in found
    assert "3 columns left out" in found
    assert "as the options say" in chosen
    assert "rmse" in good
    assert "split off" in good
    options = ("--target", "target", "--out", tmp_path / "m", *QUICK)
    told = succeed("fit", regression.train, *options, "--json")
    summary = json.loads(told.stdout)
    assert summary["task"] == "regression"
    assert summary["rows"] == {"training": 297, "test": 0, "in_table": 300}
    assert set(summary["left_out"]) == {"visit", "name", "note"}
    assert summary["metrics"] is None
    assert summary["parameters"]["n_layers"] == 1
    assert succeed("fit", regression.train, *options, "--quiet").stdout == ""


def test_how_good_the_default_is_on_rows_left_out(tmp_path):
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"x": random.normal(size=60)})
    frame["y"] = 3 * frame["x"] + random.normal(size=60)
    frame.to_csv(tmp_path / "t.csv", index=False)
    told = succeed("fit", tmp_path / "t.csv", "--target", "y", "--out", tmp_path / "m", "--json")
    summary = json.loads(told.stdout)
    assert [part["name"] for part in summary["chosen"]] == ["gp", "sampled gp", "constant"]
    metrics = summary["metrics"]
    assert 0.7 < metrics["rmse"] < 1.5
    assert 1.1 < metrics["nll"] < 1.9
    assert 0.8 <= metrics["coverage_90"] <= 1
    assert "left out" in summary["judged_by"]


def test_comparison(classification, tmp_path):
    methods = ("--method", "dvip paper", "--method", "logistic", "--method", "frequencies")
    options = ("--target", "kind", "--folds", "2", "--max-iter", "60", *methods)
    out = tmp_path / "scores.csv"
    told = succeed("compare", classification.table, *options, "--json", "--out", out)
    found = json.loads(told.stdout)
    assert found["rows"] == 150
    assert found["methods"][-1]["method"] == "frequencies"
    scores = pd.read_csv(out)
    assert len(scores) == 6
    for method in found["methods"]:
        rows = scores[scores["method"] == method["method"]]
        assert method["accuracy"]["mean"] == pytest.approx(rows["accuracy"].mean())
        assert method["accuracy"]["error"] == pytest.approx(rows["accuracy"].sem())
    of_logistic = next(each for each in found["methods"] if each["method"] == "logistic")
    assert of_logistic["accuracy"]["mean"] > 0.9


def test_comparison_of_numbers_and_mistakes(regression, classification):
    methods = ("--method", "mean of y", "--method", "linear")
    options = ("--target", "target", "--folds", "2", *methods, "--max-rows", "200")
    told = succeed("compare", regression.train, *options).stdout
    assert "300 rows, of which 197 are used" in told
    rows = [line for line in told.splitlines() if "│" in line]
    assert "mean of y" in rows[-1]
    assert "linear" in told
    assert "no method 'magic'" in refuse(
        "compare", regression.train, "--target", "target", "--method", "magic"
    )
    table = classification.folder / "few.csv"
    classification.frame[:8].to_csv(table, index=False)
    assert "too few for 5 folds" in refuse("compare", table, "--target", "kind")
    lonely = classification.frame.assign(kind=["lonely", *classification.frame["kind"][1:]])
    lonely.to_csv(table, index=False)
    assert "'lonely' has 1 row" in refuse("compare", table, "--target", "kind")


def test_a_page_for_a_model(regression, classification, tmp_path):
    out = tmp_path / "page.html"
    told = succeed("report", regression.model, regression.test, "--out", out).stdout
    assert "open it in a browser" in told
    text = out.read_text()
    assert "142 rows" in text
    assert "left out: holds dates" in text
    succeed("report", classification.model, classification.table, "--out", out)
    assert "setosa" in out.read_text()
    message = refuse("report", regression.model)
    assert "name a table to judge it by" in message
    assert "There is no model" in refuse("report", tmp_path, regression.test, "--out", out)
    assert ".html" in refuse("report", regression.model, regression.test, "--out", tmp_path / "p")
    message = refuse("report", regression.model, regression.test, "--out", out, "--tables")
    assert "are for results" in message
    unknown = classification.folder / "unknown_labels.csv"
    classification.frame.assign(kind="rosa").to_csv(unknown, index=False)
    assert "rosa" in refuse("report", classification.model, unknown, "--out", out)


def test_fit_writes_a_page_at_once(regression, tmp_path):
    out = tmp_path / "page.html"
    options = ("--target", "target", "--out", tmp_path / "m", *QUICK, "--report", out, "--json")
    summary = json.loads(succeed("fit", regression.train, *options).stdout)
    assert summary["rows"]["test"] > 30
    assert "trained on the same rows as the model" in out.read_text()
    message = refuse(
        "fit", regression.train, "--target", "target", "--out", tmp_path / "n", "--report", tmp_path
    )
    assert ".html" in message
    assert not (tmp_path / "n").exists()
