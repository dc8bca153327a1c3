"""Checkpoints: a training that goes on ends bit-equal, and nothing else is ever resumed."""

import errno
import os
import signal
import threading
from contextlib import nullcontext

import numpy as np
import pytest
from examples import TINY, RandomWaves, regression_data

from dvip import (
    BayesianNeuralNetwork,
    CheckpointError,
    CheckpointWarning,
    DVIPClassifier,
    DVIPRegressor,
)
from dvip.training import checkpoints as checkpoints_module
from dvip.training.checkpoints import CheckpointFolder, HeldBackSignals, steps_of

X, Y = regression_data()
# Five pieces of 180 steps.
LONG = {**TINY, "n_layers": 2, "max_iter": 900}


class Stopped(Exception):
    """The end of a training that is cut off."""


def fit(folder=None, y=Y, cls=DVIPRegressor, inputs=X, sample_weight=None, **options):
    keywords = {"checkpoint_every": 1, **options.pop("fit", {})} if folder is not None else {}
    estimator = cls(**{**LONG, **options})
    return estimator.fit(inputs, y, sample_weight, checkpoint_dir=folder, **keywords)


def cut_off(monkeypatch, folder, at, **options):
    """A training that ends without ceremony right after the checkpoint of that step."""
    original = CheckpointFolder.write

    def write(self, checkpoint):
        original(self, checkpoint)
        if checkpoint.step == at:
            raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr(CheckpointFolder, "write", write)
        with pytest.raises(Stopped):
            fit(folder, **options)


def resume(folder, **options):
    return fit(folder, fit={"resume": True}, **options)


def assert_same(first, second):
    for attribute in ("predict_proba", "predict"):
        if hasattr(first, attribute):
            a, b = (getattr(model, attribute)(X) for model in (first, second))
            assert np.array_equal(a, b)
    assert np.array_equal(first.bound_history_, second.bound_history_)
    assert first.n_iter_ == second.n_iter_


def everything(folder):
    """All files below a folder, with their content."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def undisturbed():
    return fit()


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "checkpoints"


@pytest.fixture
def stopped(monkeypatch, folder):
    """The checkpoints of a training that was cut off at step 540 of 900."""
    cut_off(monkeypatch, folder, 540)
    return folder


@pytest.mark.parametrize("at", [180, 540, 900])
def test_resumed_training_ends_bit_equal(undisturbed, monkeypatch, folder, at):
    cut_off(monkeypatch, folder, at)
    assert steps_of(folder) == list(range(at, 0, -180))[:3]
    assert_same(resume(folder), undisturbed)
    assert steps_of(folder) == [900, 720, 540]


def test_classifier_with_an_own_prior_that_is_drawn_anew(monkeypatch, folder):
    options = dict(
        cls=DVIPClassifier,
        y=np.where(Y > 100, "high", "low"),
        sample_weight=np.arange(1.0, 61.0),
        prior=RandomWaves(),
        fresh_noise=True,
        precision="float64",
        n_layers=1,
        max_iter=300,
    )
    cut_off(monkeypatch, folder, 150, **options)
    with pytest.raises(CheckpointError, match=r"prior.looks was 'RandomWaves\("):
        resume(folder, **{**options, "prior": RandomWaves(num_waves=5)})
    assert_same(resume(folder, **options), fit(**options))


def test_nothing_to_resume_is_a_start(undisturbed, folder):
    assert_same(resume(folder), undisturbed)


def test_a_finished_training_is_not_repeated(undisturbed, monkeypatch, folder):
    resume(folder)
    before = everything(folder)
    monkeypatch.setattr(CheckpointFolder, "write", lambda *_: pytest.fail("a step was made"))
    assert_same(resume(folder), undisturbed)
    assert everything(folder) == before


def test_any_seed_will_do(monkeypatch, folder):
    """Without a seed, the one that was drawn is part of the checkpoint."""
    cut_off(monkeypatch, folder, 540, random_state=None)
    resumed = resume(folder, random_state=None)
    seed = CheckpointFolder(folder, resume=True).resumed.training["seed"]
    assert resumed.seed_ == seed != fit().seed_


def test_by_the_clock(undisturbed, monkeypatch, folder):
    """Without a number of steps there is one a minute, and one at the end."""
    fit(folder, fit={"checkpoint_every": None})
    assert steps_of(folder) == [900]
    monkeypatch.setattr(checkpoints_module, "DEFAULT_SECONDS", 0.0)
    assert_same(fit(folder / "more", fit={"checkpoint_every": None}), undisturbed)
    assert steps_of(folder / "more") == [900, 720, 540]


def test_number_of_steps_between(folder):
    fit(folder, fit={"checkpoint_every": 300})
    assert steps_of(folder) == [900, 720, 360]


# What is not resumed.


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (dict(learning_rate=0.06), "learning_rate was 0.05 and is 0.06"),
        (dict(max_iter=1000), "max_iter was 900 and is 1000"),
        (dict(random_state=1), "the seed differs"),
        (dict(n_layers=1), "n_layers was 2 and is 1"),
        (
            dict(prior=BayesianNeuralNetwork((8,), activation="relu")),
            "prior.options.activation was 'tanh' and is 'relu'",
        ),
        (dict(y=Y + 1e-3), "the data differ"),
        (dict(inputs=X[:, ::-1]), "the data differ"),
        (dict(inputs=X[:-1], y=Y[:-1]), "the data differ"),
        (dict(sample_weight=np.full(60, 2.0)), "the data differ"),
        (dict(cls=DVIPClassifier, y=Y > 100), "estimator was 'DVIPRegressor'"),
    ],
    ids=str,
)
def test_another_training(stopped, changes, told):
    before = everything(stopped)
    with pytest.raises(CheckpointError, match="another training") as caught:
        resume(stopped, **changes)
    assert told in str(caught.value)
    assert everything(stopped) == before


def test_what_the_training_does_not_depend_on(stopped):
    assert resume(stopped, n_predictive_samples=3, verbose=True).n_iter_ == 900


def test_a_new_training_does_not_replace_checkpoints(stopped):
    before = everything(stopped)
    with pytest.raises(CheckpointError, match=r"up to step 540: resume"):
        fit(stopped)
    assert everything(stopped) == before


def test_other_files_in_the_folder_stay(folder):
    folder.mkdir()
    mine = folder / "step-by-step" / "notes.txt"
    mine.parent.mkdir()
    mine.write_text("mine")
    fit(folder)
    assert mine.read_text() == "mine"


def test_arguments(folder):
    with pytest.raises(ValueError, match="need the folder"):
        DVIPRegressor.paper(**LONG).fit(X, Y, resume=True)
    with pytest.raises(ValueError, match="need the folder"):
        DVIPRegressor.paper(**LONG).fit(X, Y, checkpoint_every=100)
    for wrong in (0, -3):
        with pytest.raises(ValueError, match="checkpoint_every"):
            fit(folder, fit={"checkpoint_every": wrong})


def test_folders_that_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="is a file"):
        fit(tmp_path / "file")
    with pytest.raises(CheckpointError, match="Nothing can be written"):
        fit(tmp_path / "file" / "below")
    (tmp_path / "fixed").mkdir()

    def read_only(**_):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("tempfile.TemporaryFile", read_only)
    with pytest.raises(CheckpointError, match="Read-only file system"):
        fit(tmp_path / "fixed")


# Damaged checkpoints, and those that cannot be written.


def damage(folder, step):
    (path,) = (folder / f"step-{step:09d}").glob("*.safetensors")
    path.write_bytes(path.read_bytes()[:-1])


def test_a_damaged_newest_is_skipped(undisturbed, stopped):
    damage(stopped, 540)
    with pytest.warns(CheckpointWarning, match=r"damaged.* The checkpoint before it.*step 360"):
        resumed = resume(stopped)
    assert_same(resumed, undisturbed)


def test_all_damaged(stopped):
    for step in steps_of(stopped):
        damage(stopped, step)
    before = everything(stopped)
    with pytest.raises(CheckpointError, match=r"No checkpoint in .* can be used.*damaged"):
        resume(stopped)
    assert everything(stopped) == before


def test_a_write_that_was_cut_off_is_no_checkpoint(undisturbed, stopped):
    (stopped / "step-000000540" / "checkpoint.json").unlink()
    assert steps_of(stopped) == [360, 180]
    assert_same(resume(stopped), undisturbed)


def full_disk(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("function", ["replace", "fsync", "mkdir"])
def test_full_disk(undisturbed, stopped, monkeypatch, function):
    """The training goes on without checkpoints, and those that there are stay."""
    before = everything(stopped)
    with monkeypatch.context() as patch:
        patch.setattr(os, function, full_disk)
        with pytest.warns(CheckpointWarning, match="No space left on device") as caught:
            assert_same(resume(stopped), undisturbed)
        assert len(caught) == 2  # of steps 720 and 900
    assert everything(stopped) == before
    assert_same(resume(stopped), undisturbed)
    assert steps_of(stopped) == [900, 720, 540]


# Signals.


@pytest.fixture
def handlers(heeded_ctrl_c):
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(number) for number in numbers]
    yield
    assert [signal.getsignal(number) for number in numbers] == before


def test_ctrl_c_leaves_a_checkpoint(handlers, undisturbed, monkeypatch, folder):
    def interrupts(self, step):
        if step == 360:
            signal.raise_signal(signal.SIGINT)
        return False

    with monkeypatch.context() as patch:
        patch.setattr(CheckpointFolder, "due", interrupts)
        with pytest.raises(KeyboardInterrupt):
            fit(folder)
    assert steps_of(folder)[0] in (360, 540)
    assert_same(resume(folder), undisturbed)


def test_ctrl_c_without_checkpoints_waits_for_what_is_under_way(handlers, monkeypatch):
    heard = []

    def interrupts(steps, bound):
        heard.append(steps)
        if len(heard) == 1:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(
        "dvip.estimators.callbacks.progress_bar", lambda *_, **__: nullcontext(interrupts)
    )
    with pytest.raises(KeyboardInterrupt):
        fit(None)
    assert len(heard) == 2  # of five pieces


def test_a_second_signal_is_not_held_back(handlers):
    with HeldBackSignals(signal.SIGINT) as signals:
        signal.raise_signal(signal.SIGINT)
        assert signals.noted == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_signals_that_someone_else_handles(handlers):
    """They reach their handler, and the training goes on if that lets it."""
    heard = []
    before = signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
    try:
        with HeldBackSignals(signal.SIGTERM) as signals:
            for times in (1, 2):
                signal.raise_signal(signal.SIGTERM)
                assert len(heard) == times - 1
                signals.deliver()
                assert len(heard) == times
            signal.raise_signal(signal.SIGTERM)
        assert len(heard) == 3
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with HeldBackSignals(signal.SIGTERM) as signals:
            signal.raise_signal(signal.SIGTERM)
            assert signals.noted is None
    finally:
        signal.signal(signal.SIGTERM, before)


def test_other_threads_have_no_signals(handlers, undisturbed, folder):
    models = []
    thread = threading.Thread(target=lambda: models.append(fit(folder)))
    thread.start()
    thread.join()
    assert_same(models[0], undisturbed)
