"""The command line as a stranger uses it: what it writes, what it prints, how it refuses."""

import inspect
import json
import os
import shutil
import signal
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_diabetes, load_iris
from typer.testing import CliRunner

from dvip import (
    DeepGPRegressor,
    DVIPClassifier,
    DVIPRegressor,
    GaussianProcess,
    SIPRegressor,
    __version__,
    load,
    metrics,
)
from dvip.cli import app
from dvip.cli.app import fit as fit_command
from dvip.estimators.serialisation import load_with_table
from dvip.registry import PRIORS
from dvip.tables import TableEncoder

QUICK = ("--layers", "1", "--max-iter", "60", "--prior-samples", "5", "--learning-rate", "0.05")
QUANTILES = ["q05", "q25", "q50", "q75", "q95"]


def run(*arguments):
    """The command in this process, with stdout and stderr apart."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def succeed(*arguments):
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result


def refuse(*arguments, code=1):
    """The message of a command that fails as it should: a line or two, no traceback."""
    result = run(*arguments)
    assert result.exit_code == code, result.output
    assert isinstance(result.exception, SystemExit)
    lines = result.stderr.strip().splitlines()
    message = lines[-1]
    assert message.startswith("Error: ")
    assert "Traceback" not in result.stderr
    if code == 1:
        assert len(lines) == 1
    return message


def patients():
    """Diabetes patients with text, gaps, dates, names, and an empty column."""
    frame = load_diabetes(as_frame=True, scaled=False).frame
    random = np.random.default_rng(0)
    frame["sex"] = frame["sex"].map({1: "male", 2: "female"})
    frame.loc[random.random(len(frame)) < 0.1, "bmi"] = None
    frame.loc[random.random(len(frame)) < 0.1, "sex"] = None
    frame["smoker"] = random.random(len(frame)) < 0.3
    frame["visit"] = pd.date_range("2020-01-01", periods=len(frame)).astype(str)
    frame["name"] = [f"P{row:04d}" for row in range(len(frame))]
    frame["note"] = None
    return frame


@pytest.fixture(scope="module")
def regression(tmp_path_factory):
    """A model that `dvip fit` trained, and the tables around it."""
    folder = tmp_path_factory.mktemp("regression")
    frame = patients()
    frame.loc[:2, "target"] = None
    train, test = folder / "train.csv", folder / "test.parquet"
    frame[:300].to_csv(train, index=False)
    frame[300:].to_parquet(test)
    result = succeed(
        "fit", train, "--target", "target", "--out", folder / "model", *QUICK,
        "--test-fraction", "0.2", "--drop", "s1",
    )  # fmt: skip
    return SimpleNamespace(
        folder=folder, model=folder / "model", train=train, test=test, frame=frame, result=result
    )


@pytest.fixture(scope="module")
def classification(tmp_path_factory):
    folder = tmp_path_factory.mktemp("classification")
    iris = load_iris(as_frame=True)
    frame = iris.frame.drop(columns="target")
    frame["kind"] = iris.target_names[iris.target]
    frame = frame.sample(frac=1, random_state=0, ignore_index=True)
    table = folder / "iris.csv"
    frame.to_csv(table, index=False)
    result = succeed("fit", table, "--target", "kind", "--out", folder / "model", *QUICK)
    return SimpleNamespace(
        folder=folder, model=folder / "model", table=table, frame=frame, result=result
    )


def test_fit_tells_what_it_reads_and_does(regression):
    told = regression.result.stdout
    assert "300 rows, 15 columns" in told
    assert "Dropped 3 rows without a value in target" in told
    assert "Task: regression" in told
    assert "--task classification" in told
    assert "'visit' holds dates" in told
    assert "'name' is text with 238 different values" in told
    assert "'note' is empty" in told
    assert "59 rows split off" in told
    for metric in ("nll", "rmse", "crps", "coverage_50", "coverage_90", "coverage_95"):
        assert metric in told
    assert f"dvip predict {regression.model}" in told


def test_fit_stores_how_the_table_is_encoded(regression):
    encoder = TableEncoder.from_json(load_with_table(regression.model)[1])
    assert encoder.targets == ("target",)
    assert "bmi is missing" in encoder.feature_names
    assert "sex = female" in encoder.feature_names
    assert "s1" not in encoder.feature_names


def test_predictions_are_those_of_the_model_in_the_order_of_the_rows(regression):
    out = regression.folder / "predictions.csv"
    result = succeed("predict", regression.model, regression.test, "--out", out)
    assert "142 rows" in result.stdout
    predicted = pd.read_csv(out)
    assert list(predicted.columns) == ["mean", "std", *QUANTILES]
    estimator, table = load_with_table(regression.model)
    inputs = TableEncoder.from_json(table).encode(regression.frame[300:])
    mean, std = estimator.predict(inputs, return_std=True)
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
    monkeypatch.setattr("dvip.tables.readers.read_blocks.__defaults__", ((), 17))
    succeed("predict", regression.model, regression.folder / "new.csv", "--out", outs[1], *options)
    whole, blocks = pd.read_parquet(outs[0]), pd.read_csv(outs[1])
    assert list(whole.columns) == ["mean", "std", "q02.5", "q50"]
    pd.testing.assert_frame_equal(whole, blocks, rtol=1e-5)


def test_evaluate_prints_json_that_agrees_with_the_metrics(regression, monkeypatch):
    monkeypatch.setattr("dvip.tables.readers.read_blocks.__defaults__", ((), 50))
    result = succeed("evaluate", regression.model, regression.test, "--json")
    found = json.loads(result.stdout)
    estimator, table = load_with_table(regression.model)
    inputs = TableEncoder.from_json(table).encode(regression.frame[300:])
    expected = metrics.regression_metrics(
        estimator.predict_dist(inputs), regression.frame["target"][300:].to_numpy()
    )
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


def test_labels_that_the_model_does_not_know(classification):
    table = classification.folder / "unknown.csv"
    classification.frame.assign(kind="rosa").to_csv(table, index=False)
    message = refuse("evaluate", classification.model, table)
    assert "labels rosa are not among the classes" in message


def test_labels_that_look_like_numbers_stay_text_in_every_block(tmp_path, monkeypatch):
    frame = pd.DataFrame({"x": np.arange(40.0), "y": ["1.0"] * 20 + ["b"] * 20})
    frame.to_csv(tmp_path / "t.csv", index=False)
    succeed("fit", tmp_path / "t.csv", "--target", "y", "--out", tmp_path / "m", *QUICK)
    monkeypatch.setattr("dvip.tables.readers.read_blocks.__defaults__", ((), 20))
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


def test_surprises_in_a_new_table_are_told_and_do_not_stop(regression):
    new = regression.frame[300:].assign(sex="unknown", age=None)
    table = regression.folder / "surprising.csv"
    new.to_csv(table, index=False)
    out = regression.folder / "surprising_out.csv"
    result = succeed("predict", regression.model, table, "--out", out)
    warnings = result.stderr.strip().splitlines()
    assert len(warnings) == 2
    assert "'sex' has categories that the model has not seen" in warnings[0]
    assert "'unknown'" in warnings[0]
    assert "'age' has 142 gaps" in warnings[1]
    assert np.isfinite(pd.read_csv(out).to_numpy()).all()


def test_a_table_that_lacks_columns(regression):
    table = regression.folder / "narrow.csv"
    regression.frame.drop(columns=["bmi", "sex"]).to_csv(table, index=False)
    out = regression.folder / "narrow_out.csv"
    message = refuse("predict", regression.model, table, "--out", out)
    assert "lacks columns that the model needs: 'sex', 'bmi'" in message
    assert not out.exists()
    assert not list(regression.folder.glob(".*"))


def test_a_failing_block_leaves_no_half_of_a_file(regression, monkeypatch):
    table, out = regression.folder / "broken.csv", regression.folder / "broken_out.csv"
    frame = regression.frame.astype({"age": object})
    frame.loc[400, "age"] = "old"
    frame.to_csv(table, index=False)
    monkeypatch.setattr("dvip.tables.readers.read_blocks.__defaults__", ((), 100))
    message = refuse("predict", regression.model, table, "--out", out)
    assert "'age' should hold numbers, but row 401 of broken.csv has 'old'" in message
    assert not out.exists()
    assert not list(regression.folder.glob(".*"))


FIT = ("fit", "{train}", "--target", "target", "--out", "{folder}/new")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fit", "{train}", "--target", "Targt", "--out", "{folder}/new"), "mean 'target'?"),
        (("fit", "{folder}/no.csv", "--target", "y", "--out", "{folder}/new"), "There is no file"),
        (("fit", "{model}", "--target", "y", "--out", "{folder}/new"), "without Parquet files"),
        (("fit", "{train}", "--target", "note", "--out", "{folder}/new"), "No row of"),
        (("fit", "{train}", "--target", "visit", "--out", "{folder}/new"), "dates or times"),
        (("fit", "{train}", "--target", "name", "--out", "{folder}/new"), "300 different values"),
        ((*FIT, "--target", "target"), "given twice"),
        ((*FIT, "--drop", "nothing"), "no column 'nothing'"),
        ((*FIT, "--prior", "magic"), "prior='magic' is not known"),
        ((*FIT, "--model", "deep-gp", "--prior", "bnn"), "--prior is not an option"),
        ((*FIT, "--learning-rate", "-1"), "must be a positive number"),
        ((*FIT, "--test-fraction", "0.001"), "too few"),
        (("fit", "{train}", "--target", "target", "--out", "{train}"), "is a file"),
        (("fit", "{train}", "--target", "target", "--out", "{folder}"), "holds other files"),
        (("fit", "{train}", "--target", "target", "--out", "{train}/new"), "Nothing can be"),
        (("predict", "{folder}", "{test}", "--out", "{folder}/p.csv"), "There is no model"),
        (("predict", "{model}", "{test}", "--out", "{folder}/p.xls"), "unknown type"),
        (("predict", "{model}", "{test}", "--out", "{test}"), "is the table that is read"),
        (("predict", "{model}", "{folder}/no.csv", "--out", "{folder}/p.csv"), "no file"),
        (("evaluate", "{model}", "{test}", "--target", "age"), "predicts target"),
        (("demo", "--out", "{train}"), "is a file"),
        (("demo", "--out", "{train}/new"), "Nothing can be written"),
    ],
)
def test_mistakes_are_told_in_a_line(regression, arguments, message):
    given = [argument.format(**vars(regression)) for argument in arguments]
    assert message in refuse(*given)
    assert not (regression.folder / "new").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("fit", "t.csv", "--target", "y"),
        ("fit", "t.csv", "--target", "y", "--out", "m", "--layers", "0"),
        ("fit", "t.csv", "--target", "y", "--out", "m", "--alpha", "2"),
        ("fit", "t.csv", "--target", "y", "--out", "m", "--task", "guess"),
        ("predict", "m", "t.csv", "--out", "p.csv", "--quantiles", "0.5,1"),
        ("predict", "m", "t.csv", "--out", "p.csv", "--quantiles", "half"),
        ("evaluate", "m"),
        ("train",),
    ],
)
def test_wrong_usage_has_exit_code_2(arguments):
    refuse(*arguments, code=2)


def test_an_unwritable_folder_is_found_before_the_training(regression, monkeypatch):
    def deny(**options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", deny)
    monkeypatch.setattr(DVIPRegressor, "fit", None)
    out = regression.folder / "denied"
    message = refuse("fit", regression.train, "--target", "target", "--out", out)
    assert "Nothing can be written" in message
    assert "Permission denied" in message


@pytest.mark.parametrize("checkpoints", ["", "checkpoints"])
def test_checkpoints_inside_the_model_are_refused_before_the_training(regression, checkpoints):
    out = regression.folder / "run"
    arguments = ("fit", regression.train, "--target", "target", "--out", out, *QUICK)
    message = refuse(*arguments, "--checkpoint", out / checkpoints)
    assert "choose another --checkpoint" in message
    assert not out.exists()


def test_a_damaged_model_is_told_in_a_line(regression):
    damaged = regression.folder / "damaged"
    shutil.copytree(regression.model, damaged)
    arrays = next(damaged.glob("*.safetensors"))
    arrays.write_bytes(arrays.read_bytes()[:-1])
    message = refuse("evaluate", damaged, regression.test)
    assert "is damaged" in message


def test_a_diverged_training_is_told_in_a_line(regression):
    out = regression.folder / "diverged"
    options = (*QUICK, "--learning-rate", "1e30")
    message = refuse("fit", regression.train, "--target", "target", "--out", out, *options)
    assert "Training stopped at step" in message
    assert not out.exists()


def test_an_error_in_the_program_itself_is_not_hidden(regression, monkeypatch):
    def fail(self, X, y):
        raise RuntimeError("a bug")

    monkeypatch.setattr(DVIPRegressor, "fit", fail)
    result = run("fit", regression.train, "--target", "target", "--out", regression.folder / "bug")
    assert isinstance(result.exception, RuntimeError)


def test_the_test_part_does_not_leak_into_the_encoding(tmp_path):
    frame = pd.DataFrame({"x": np.arange(100.0), "y": np.arange(100.0) % 7})
    frame["row"] = np.where(frame["x"] < 50, "low", "high")
    frame.loc[::3, "x"] = None
    frame.to_csv(tmp_path / "t.csv", index=False)
    fit = ("fit", tmp_path / "t.csv", "--target", "y", *QUICK, "--seed", "3")
    succeed(*fit, "--out", tmp_path / "all")
    succeed(*fit, "--out", tmp_path / "part", "--test-fraction", "0.6")
    whole, part = (load_with_table(tmp_path / name)[1]["columns"][0] for name in ("all", "part"))
    assert whole["fill"] == frame["x"].quantile(0.5, interpolation="lower")
    assert part["fill"] != whole["fill"]


def test_models_that_python_saved_with_column_names(regression, tmp_path):
    columns = ["bp", "age"]
    model = DVIPRegressor(n_layers=1, n_prior_samples=5, max_iter=60)
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
    model = DVIPClassifier(n_layers=1, n_prior_samples=5, max_iter=60)
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


def test_defaults_of_the_command_are_those_of_the_estimator():
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(fit_command).parameters.items()
    }
    assert defaults["seed"] == DVIPRegressor().random_state == SIPRegressor().random_state
    # The others are left to the estimator, and the help tells what they are.
    told = _help_of_fit()
    dvip, sip = DVIPRegressor().get_params(), SIPRegressor().get_params()
    for name in ("layers", "prior_samples", "prior", "alpha", "max_iter", "learning_rate"):
        assert defaults[name] is None
    for name in ("n_layers", "n_prior_samples"):
        assert f"{dvip[name]} by default, {sip[name]} for sip." in told
    assert f"{dvip['alpha']:.0f}, the ELBO, by default, {sip['alpha']:g} for sip." in told
    assert f"{dvip['prior']} by default." in told
    deep_gp = DeepGPRegressor().get_params()
    assert all(deep_gp[name] == dvip[name] for name in ("n_layers", "alpha", "random_state"))


def _help_of_fit():
    """In one line, without the frames around it."""
    words = " ".join(succeed("fit", "--help").stdout.replace("│", " ").split())
    return words.replace("- ", "-")  # a name that was broken at its hyphen


def test_priors_by_name(tmp_path):
    told = _help_of_fit()
    assert all(f" {name}" in told for name in PRIORS)
    frame = pd.DataFrame({"x": np.arange(30.0), "y": np.sin(np.arange(30.0))})
    frame.to_csv(tmp_path / "t.csv", index=False)
    fit = ("fit", tmp_path / "t.csv", "--target", "y", "--out", tmp_path / "m", *QUICK)
    succeed(*fit, "--prior", "gp")
    model, _ = load_with_table(tmp_path / "m")
    assert isinstance(model.model_.network.stages[0].layer.process, GaussianProcess)


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


@pytest.mark.parametrize("command", ["fit", "predict", "evaluate", "demo", "datasets"])
def test_help_shows_examples(command):
    assert f"dvip {command}" in succeed("--help").stdout
    told = succeed(command, "--help").stdout
    examples = told.partition("Examples:\n")[2].partition("Options:")[0]
    assert f"      dvip {command}".strip() in examples
    assert "\n" in examples.strip()


def test_the_version_is_that_of_the_package():
    assert succeed("--version").stdout == f"dvip {__version__}\n"


def test_a_wide_table_with_inner_layers_that_narrow(tmp_path):
    random = np.random.default_rng(0)
    frame = pd.DataFrame(random.normal(size=(50, 36))).rename(columns=str)
    frame.to_csv(tmp_path / "t.csv", index=False)
    options = (*QUICK[2:], "--layers", "2", "--out", tmp_path / "m")
    succeed("fit", tmp_path / "t.csv", "--target", "0", *options)
    result = succeed("evaluate", tmp_path / "m", tmp_path / "t.csv", "--json")
    assert json.loads(result.stdout)["rows"] == 50


def dvip_process(*arguments):
    """The installed program, in a process of its own."""
    # A process that was started in the background may have been told to ignore Ctrl-C.
    heeding = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    program = [sys.executable, "-c", f"{heeding}; from dvip.__main__ import main; main()"]
    return subprocess.Popen(
        [*program, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )


def test_the_program_as_a_module():
    command = [sys.executable, "-m", "dvip", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert __version__ in done.stdout


def test_the_program_in_a_process_of_its_own(regression):
    process = dvip_process("evaluate", regression.model, regression.test, "--json")
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 0
    assert json.loads(stdout)["rows"] == 142
    assert stderr == ""


def test_ctrl_c_after_the_training_says_where_the_model_is(regression, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("dvip.cli.fit.scores", stop)
    out = regression.folder / "not scored"
    arguments = ("fit", regression.train, "--target", "target", "--out", out, *QUICK)
    result = run(*arguments, "--test-fraction", "0.2", "--drop", "s1")
    assert result.exit_code == 130
    assert result.stderr.splitlines()[-1] == f"Stopped. The model is in {out}, not scored yet."
    models = (out, regression.model)
    first, second = (succeed("evaluate", model, regression.test, "--json") for model in models)
    assert first.stdout == second.stdout


def test_ctrl_c_prints_a_line_and_leaves_nothing(regression):
    out = regression.folder / "interrupted"
    arguments = ("fit", regression.train, "--target", "target", "--out", out)
    process = dvip_process(*arguments, "--max-iter", "100000000")
    try:
        while not process.stdout.readline().startswith("Training"):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 130
    assert stderr == "Stopped. Nothing was written.\n"
    assert not out.exists()
