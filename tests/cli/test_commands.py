"""What the commands write and print."""

import json

import numpy as np
import pandas as pd
import pytest
from command_line import QUICK, patients, refuse, succeed
from sklearn.datasets import load_diabetes, load_iris

from dvip import DeepGPRegressor, DVIPClassifier, DVIPRegressor, SIPRegressor, load, metrics
from dvip.registry import ESTIMATORS, MODELS
from dvip.tables import RowSplit

QUANTILES = ["q05", "q25", "q50", "q75", "q95"]


def test_fit_tells_what_it_reads_and_does(regression):
    told = regression.result.stdout
    num_test = RowSplit(0.2, 0).is_test(np.arange(3, 300)).sum()
    assert "300 rows, 15 columns" in told
    assert "Dropped 3 rows without a value in target" in told
    assert "Task: regression" in told
    assert "--task classification" in told
    assert "'visit' holds dates" in told
    assert f"'name' is text with {297 - num_test} different values" in told
    assert "'note' is empty" in told
    assert f"{num_test} rows split off" in told
    for metric in ("nll", "rmse", "crps", "coverage_50", "coverage_90", "coverage_95"):
        assert metric in told
    assert f"dvip predict {regression.model}" in told


def test_fit_stores_how_the_table_is_encoded(regression):
    model = load(regression.model)
    assert model.target_names_ == ("target",)
    names = set(model.encoder_.get_feature_names_out())
    assert {"bmi is missing", "sex = female"} <= names
    assert not {"s1", "target"} & names


def test_predictions_are_those_of_the_model_in_the_order_of_the_rows(regression):
    out = regression.folder / "predictions.csv"
    result = succeed("predict", regression.model, regression.test, "--out", out)
    assert "142 rows" in result.stdout
    predicted = pd.read_csv(out)
    assert list(predicted.columns) == ["mean", "std", *QUANTILES]
    mean, std = load(regression.model).predict(regression.frame[300:], return_std=True)
    np.testing.assert_allclose(predicted["mean"], mean, rtol=1e-5)
    np.testing.assert_allclose(predicted["std"], std, rtol=1e-5)
    quantiles = predicted[QUANTILES].to_numpy()
    assert (np.diff(quantiles, axis=1) > 0).all()


def test_blocks_change_nothing_and_formats_agree(regression, monkeypatch):
    rows = regression.frame[300:].drop(columns="target")
    rows.to_csv(regression.folder / "new.csv", index=False)
    outs = [regression.folder / name for name in ("whole.parquet", "blocks.csv.gz")]
    options = ("--quantiles", "0.5, 0.025")
    succeed("predict", regression.model, regression.test, "--out", outs[0], *options)
    monkeypatch.setattr("dvip.tables.formats.read_blocks.__defaults__", ((), 17))
    succeed("predict", regression.model, regression.folder / "new.csv", "--out", outs[1], *options)
    whole, blocks = pd.read_parquet(outs[0]), pd.read_csv(outs[1])
    assert list(whole.columns) == ["mean", "std", "q02.5", "q50"]
    pd.testing.assert_frame_equal(whole, blocks, rtol=1e-5)


def test_evaluate_prints_json_that_agrees_with_the_metrics(regression, monkeypatch):
    monkeypatch.setattr("dvip.tables.formats.read_blocks.__defaults__", ((), 50))
    result = succeed("evaluate", regression.model, regression.test, "--json")
    found = json.loads(result.stdout)
    rows = regression.frame[300:]
    distribution = load(regression.model).predict_dist(rows)
    expected = metrics.regression_metrics(distribution, rows["target"].to_numpy())
    assert found == pytest.approx({"rows": 142, **expected}, rel=1e-5)
    assert "rmse" in succeed("evaluate", regression.model, regression.test).stdout


def test_rows_without_a_target_do_not_count_in_an_evaluation(regression):
    result = succeed("evaluate", regression.model, regression.train, "--json")
    assert json.loads(result.stdout)["rows"] == 297
    assert "3 rows have no value in target" in result.stderr


def test_classification_of_text_labels(classification):
    assert "3 classes: setosa, versicolor, virginica" in classification.result.stdout
    out = classification.folder / "predictions.parquet"
    succeed("predict", classification.model, classification.table, "--out", out)
    predicted = pd.read_parquet(out)
    probabilities = predicted[["p_setosa", "p_versicolor", "p_virginica"]]
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-6)
    most_probable = probabilities.idxmax(axis=1).str.removeprefix("p_")
    assert predicted["prediction"].tolist() == most_probable.tolist()
    accuracy = np.mean(predicted["prediction"] == classification.frame["kind"])
    result = succeed("evaluate", classification.model, classification.table, "--json")
    assert json.loads(result.stdout)["accuracy"] == pytest.approx(accuracy)
    assert accuracy > 0.8


def test_labels_that_look_like_numbers_stay_text_in_every_block(tmp_path, monkeypatch):
    frame = pd.DataFrame({"x": np.arange(40.0), "y": ["1.0"] * 20 + ["b"] * 20})
    frame.to_csv(tmp_path / "t.csv", index=False)
    succeed("fit", tmp_path / "t.csv", "--target", "y", "--out", tmp_path / "m", *QUICK)
    monkeypatch.setattr("dvip.tables.formats.read_blocks.__defaults__", ((), 20))
    result = succeed("evaluate", tmp_path / "m", tmp_path / "t.csv", "--json")
    assert set(json.loads(result.stdout)) == {"rows", "accuracy", "log_likelihood", "ece", "auc"}


def test_two_classes_seen_only_one_has_no_auc(tmp_path):
    frame = pd.DataFrame({"x": np.arange(40.0), "y": [False, True] * 20})
    frame.to_parquet(tmp_path / "t.parquet")
    succeed("fit", tmp_path / "t.parquet", "--target", "y", "--out", tmp_path / "m", *QUICK)
    frame[frame["y"]].to_csv(tmp_path / "one.csv", index=False)
    result = succeed("evaluate", tmp_path / "m", tmp_path / "one.csv", "--json")
    assert json.loads(result.stdout)["auc"] is None
    assert load(tmp_path / "m").classes_.tolist() == [False, True]


def test_deep_gp(tmp_path):
    table = tmp_path / "t.csv"
    patients()[["age", "bp", "s5", "target"]].to_csv(table, index=False)
    quick = ("--layers", "1", "--max-iter", "60", "--model", "deep-gp")
    succeed("fit", table, "--target", "target", "--out", tmp_path / "m", *quick)
    assert isinstance(load(tmp_path / "m"), DeepGPRegressor)
    succeed("predict", tmp_path / "m", table, "--out", tmp_path / "p.csv")
    assert np.isfinite(pd.read_csv(tmp_path / "p.csv")).all(axis=None)


def test_several_targets(tmp_path):
    table = tmp_path / "t.csv"
    frame = patients()[["age", "bp", "s5", "target"]]
    frame.to_csv(table, index=False)
    options = ("--target", "target", "--target", "bp", "--out", tmp_path / "m")
    succeed("fit", table, *options, *QUICK, "--test-fraction", "0.5")
    succeed("predict", tmp_path / "m", table, "--out", tmp_path / "p.csv", "--quantiles", "0.5")
    predicted = pd.read_csv(tmp_path / "p.csv")
    names = ["target_mean", "target_std", "target_q50", "bp_mean", "bp_std", "bp_q50"]
    assert list(predicted.columns) == names
    assert predicted["target_mean"].mean() == pytest.approx(frame["target"].mean(), rel=0.2)
    assert predicted["bp_mean"].mean() == pytest.approx(frame["bp"].mean(), rel=0.2)
    assert json.loads(succeed("evaluate", tmp_path / "m", table, "--json").stdout)["rows"] == 442
    message = refuse("fit", table, *options, "--task", "classification")
    assert "one target only" in message


def test_the_test_part_does_not_leak_into_the_encoding(tmp_path):
    frame = pd.DataFrame({"x": np.arange(100.0), "y": np.arange(100.0) % 7})
    frame["row"] = np.where(frame["x"] < 50, "low", "high")
    frame.loc[::3, "x"] = None
    frame.to_csv(tmp_path / "t.csv", index=False)
    fit = ("fit", tmp_path / "t.csv", "--target", "y", *QUICK, "--seed", "3")
    succeed(*fit, "--out", tmp_path / "all")
    succeed(*fit, "--out", tmp_path / "part", "--test-fraction", "0.6")
    whole, part = (load(tmp_path / name).encoder_.columns_[0] for name in ("all", "part"))
    assert whole.fill == frame["x"].quantile(0.5, interpolation="lower")
    assert part.fill != whole.fill


def test_models_that_python_saved_with_column_names(regression, tmp_path):
    columns = ["bp", "age"]
    model = DVIPRegressor.paper(n_layers=1, n_prior_samples=5, max_iter=60)
    model.fit(regression.frame[3:][columns], regression.frame["target"][3:])
    model.save(tmp_path / "m")
    succeed("predict", tmp_path / "m", regression.test, "--out", tmp_path / "p.csv")
    expected = model.predict(regression.frame[300:][columns])
    np.testing.assert_allclose(pd.read_csv(tmp_path / "p.csv")["mean"], expected, rtol=1e-6)
    assert "--target" in refuse("evaluate", tmp_path / "m", regression.test)
    result = succeed("evaluate", tmp_path / "m", regression.test, "--target", "target", "--json")
    assert json.loads(result.stdout)["rows"] == 142


def test_models_that_python_saved_without_column_names(tmp_path):
    iris = load_iris(as_frame=True)
    model = DVIPClassifier.paper(n_layers=1, n_prior_samples=5, max_iter=60)
    model.fit(iris.data.to_numpy(), iris.target)
    model.save(tmp_path / "m")
    iris.data.assign(note="x").to_csv(tmp_path / "t.csv", index=False)
    succeed("predict", tmp_path / "m", tmp_path / "t.csv", "--out", tmp_path / "p.csv")
    expected = model.predict(iris.data.to_numpy())
    assert pd.read_csv(tmp_path / "p.csv")["prediction"].tolist() == expected.tolist()
    iris.frame.to_csv(tmp_path / "more.csv", index=False)
    message = refuse("predict", tmp_path / "m", tmp_path / "more.csv", "--out", tmp_path / "q.csv")
    assert "has 4 inputs" in message
    assert "5 numeric columns" in message
    evaluated = succeed("evaluate", tmp_path / "m", tmp_path / "more.csv", "--target", "target")
    assert "accuracy" in evaluated.stdout


QUICKLY = {name: () if name == "dropout" else pytest.mark.slow for name in MODELS}


@pytest.mark.parametrize("name", [pytest.param(name, marks=mark) for name, mark in QUICKLY.items()])
def test_every_model_by_its_name(name, tmp_path):
    frame = load_diabetes(as_frame=True).frame[:60]
    frame.to_csv(tmp_path / "t.csv", index=False)
    options = ("--model", name, "--max-iter", 60, "--out", tmp_path / "m")
    succeed("fit", tmp_path / "t.csv", "--target", "target", *options)
    assert type(load(tmp_path / "m")) is ESTIMATORS[MODELS[name]["regression"]]
    result = succeed("evaluate", tmp_path / "m", tmp_path / "t.csv", "--json")
    assert json.loads(result.stdout)["rows"] == 60


@pytest.mark.slow
def test_sparse_implicit_process(tmp_path):
    frame = load_diabetes(as_frame=True).frame[:60]
    frame.to_csv(tmp_path / "t.csv", index=False)
    options = (*QUICK[2:], "--model", "sip", "--out", tmp_path / "m")
    succeed("fit", tmp_path / "t.csv", "--target", "target", *options)
    assert load(tmp_path / "m").n_layers == 1
    assert type(load(tmp_path / "m")) is SIPRegressor
    result = succeed("evaluate", tmp_path / "m", tmp_path / "t.csv", "--json")
    assert json.loads(result.stdout)["rows"] == 60
    message = refuse(
        "fit", tmp_path / "t.csv", "--target", "target", *options, "--task", "classification"
    )
    assert "--model sip is for regression only" in message


def test_a_wide_table_with_inner_layers_that_narrow(tmp_path):
    random = np.random.default_rng(0)
    frame = pd.DataFrame(random.normal(size=(50, 36))).rename(columns=str)
    frame.to_csv(tmp_path / "t.csv", index=False)
    options = (*QUICK, "--layers", "2", "--out", tmp_path / "m")
    succeed("fit", tmp_path / "t.csv", "--target", "0", *options)
    result = succeed("evaluate", tmp_path / "m", tmp_path / "t.csv", "--json")
    assert json.loads(result.stdout)["rows"] == 50


def test_evaluate_draws_the_calibration(regression, classification, tmp_path):
    for model, table in (
        (regression.model, regression.test),
        (classification.model, classification.table),
    ):
        picture = tmp_path / f"{table.stem}.png"
        result = succeed("evaluate", model, table, "--plot", picture)
        assert str(picture) in " ".join(result.stdout.split("\n"))
        assert picture.read_bytes().startswith(b"\x89PNG")
        quiet = succeed("evaluate", model, table, "--plot", tmp_path / "again.svg", "--json")
        assert json.loads(quiet.stdout)["rows"] > 0
    assert {path.name for path in tmp_path.iterdir()} == {"test.png", "iris.png", "again.svg"}


def test_pictures_that_cannot_be_written_are_told_before_anything_is_read(tmp_path):
    for name, message in (("p.jpg", "must end in"), ("nowhere/p.png", "no folder")):
        told = refuse("evaluate", "no-model", "no-table", "--plot", tmp_path / name)
        assert message in told
