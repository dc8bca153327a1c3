"""How the commands refuse: a line that says what is wrong, and nothing is left behind."""

import shutil

import numpy as np
import pandas as pd
import pytest
from command_line import QUICK, refuse, run, succeed

from dvip import DVIPRegressor


def test_labels_that_the_model_does_not_know(classification):
    table = classification.folder / "unknown.csv"
    classification.frame.assign(kind="rosa").to_csv(table, index=False)
    message = refuse("evaluate", classification.model, table)
    assert "labels rosa are not among the classes" in message


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
    monkeypatch.setattr("dvip.tables.formats.read_blocks.__defaults__", ((), 100))
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
    def fail(self, X, **options):
        raise RuntimeError("a bug")

    monkeypatch.setattr(DVIPRegressor, "fit", fail)
    result = run("fit", regression.train, "--target", "target", "--out", regression.folder / "bug")
    assert isinstance(result.exception, RuntimeError)
