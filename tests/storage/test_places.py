"""Where files go: the home folder, places that cannot be written, files in the way."""

import errno
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from examples import TINY, regression_data
from sealing import seal, unsealed
from typer.testing import CliRunner

from dvip import CheckpointError, DVIPRegressor, ModelFileError, load
from dvip.__main__ import app
from dvip.files import expanded
from dvip.training.checkpoints import steps_of

X, Y = regression_data()


@pytest.fixture(scope="module")
def model():
    return DVIPRegressor.paper(**TINY, n_layers=1).fit(X, Y)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The home folder, beside the folder that programs run in."""
    for name in ("home", "here"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("USERPROFILE", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "here")
    yield tmp_path / "home"
    assert not list((tmp_path / "here").iterdir())


def test_the_home_folder(model, home):
    model.save("~/models/m")
    assert (home / "models" / "m" / "model.json").is_file()
    assert np.array_equal(load("~/models/m").predict(X), model.predict(X))
    assert np.array_equal(load(Path("~/models/m")).predict(X), model.predict(X))
    model.fit(X, Y, checkpoint_dir="~/checkpoints")
    assert steps_of(home / "checkpoints") == [200]
    with pytest.raises(CheckpointError, match="holds checkpoints up to step 200"):
        model.fit(X, Y, checkpoint_dir=Path("~/checkpoints"))
    assert expanded("~") == home
    assert expanded("a/~") == Path("a/~")
    assert expanded("~nobody-of-that-name/x") == Path("~nobody-of-that-name/x")


def run(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def test_the_home_folder_on_the_command_line(home):
    """Where no shell has put it in, as after `--out=`."""
    pd.DataFrame(X, columns=["a", "b", "c"]).assign(y=Y).to_csv(home / "t.csv", index=False)
    small = ["--inference", "vi", "--layers", 1, "--prior-samples", 5, "--max-iter", 60]
    places = ["--out=~/m", "--checkpoint=~/c"]
    fitted = run("fit", "~/t.csv", "--target", "y", *places, *small)
    assert fitted.exit_code == 0, fitted.output
    assert steps_of(home / "c") == [60]
    predicted = run("predict", "~/m", "~/t.csv", "--out=~/p.csv")
    assert predicted.exit_code == 0, predicted.output
    assert len(pd.read_csv(home / "p.csv")) == len(X)
    evaluated = run("evaluate", "~/m", "~/t.csv")
    assert evaluated.exit_code == 0, evaluated.output


# Places that cannot be written.


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EDQUOT])
@pytest.mark.parametrize("function", ["mkdir", "fsync", "replace"])
def test_saving_where_nothing_can_be_written(model, tmp_path, monkeypatch, function, number):
    def fails(*_, **__):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, function, fails)
    with pytest.raises(OSError, match=os.strerror(number)) as caught:
        model.save(tmp_path / "new" / "model")
    told = str(caught.value)
    assert told.startswith("The model could not be saved to ")
    assert "choose another folder" in told
    assert "\n" not in told
    monkeypatch.undo()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    model.save(tmp_path / "new" / "model")


def test_a_file_in_the_way(model, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError, match="is a file; a model is a folder"):
        model.save(tmp_path / "file")
    with pytest.raises(OSError, match=r"could not be saved to .*: Not a directory"):
        model.save(tmp_path / "file" / "below")
    (tmp_path / "model" / "model.json").mkdir(parents=True)
    with pytest.raises(OSError, match=r"could not be saved to .*: Is a directory"):
        model.save(tmp_path / "model")
    assert not list((tmp_path / "model").glob("arrays-*"))


# Places that a manifest names.


@pytest.fixture
def saved(model, tmp_path):
    model.save(tmp_path / "model")
    return tmp_path / "model"


def arrays_of(folder):
    (path,) = folder.glob("arrays-*")
    return path


def test_links_do_not_lead_out_of_the_folder(saved, tmp_path):
    path = arrays_of(saved)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ModelFileError, match="outside its folder"):
        load(saved)


def test_a_linked_folder_is_a_folder(saved, model, tmp_path):
    (tmp_path / "link").symlink_to(saved)
    assert np.array_equal(load(tmp_path / "link").predict(X), model.predict(X))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes")
def test_nobody_waits_for_a_pipe(saved):
    path = arrays_of(saved)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ModelFileError, match="is not a file"):
        load(saved)
    (saved / "model.json").unlink()
    os.mkfifo(saved / "model.json")
    with pytest.raises(ModelFileError, match="no model"):
        load(saved)


@pytest.mark.parametrize(
    "name", ["..", ".", "", "/", "../x", "a/b", "x" * 5_000, "\0", 3, None, []]
)
def test_names_that_are_none(saved, name):
    content, _ = unsealed(saved)
    content["arrays"]["file"] = name
    seal(saved, content)
    with pytest.raises(ModelFileError) as caught:
        load(saved)
    assert len(str(caught.value)) < 500 + len(str(saved))
