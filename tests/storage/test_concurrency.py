"""Several processes at one folder: nothing is lost, and whoever reads finds something whole."""

import json
import multiprocessing
import os
import time

import numpy as np
import pytest
from examples import TINY, regression_data

import dvip.files
from dvip import CheckpointError, DVIPRegressor, ModelFileError, load, open_source
from dvip.files import ABANDONED_AFTER, Hold, lock
from dvip.persistence import arrays_of_tree
from dvip.sources import NumberTargets, cached_rows
from dvip.training.checkpoints import CheckpointFolder, check_usable, steps_of

X, Y = regression_data()
SAVES_IN_A_ROUND = 3
SECONDS = 120


@pytest.fixture(scope="module")
def models():
    """Two models that are told apart by the arrays of either."""
    options = {**TINY, "n_layers": 1}
    return [DVIPRegressor.paper(**options, random_state=seed).fit(X, Y) for seed in (0, 1)]


def assert_whole(loaded, models):
    """It is one of the models in all its parts."""
    model = models[loaded.random_state]
    ours, theirs = (arrays_of_tree("", m.model_) for m in (loaded, model))
    assert all(np.array_equal(ours[name], array) for name, array in theirs.items())
    assert loaded.seed_ == model.seed_


def save_often(own, shared, times, barrier, with_locks):
    """A process that saves its model whenever the others are ready."""
    if not with_locks:
        dvip.files.fcntl = None
    model = load(own)
    for _ in range(times):
        barrier.wait(SECONDS)
        for _ in range(SAVES_IN_A_ROUND):
            model.save(shared)
        barrier.wait(SECONDS)


@pytest.mark.parametrize(
    ("times", "with_locks"),
    [
        pytest.param(3, True, id="3 times"),
        pytest.param(300, True, id="300 times", marks=pytest.mark.faults),
        pytest.param(300, False, id="300 times, without locks", marks=pytest.mark.faults),
    ],
)
def test_two_processes_save_and_a_third_loads(models, tmp_path, times, with_locks):
    shared = tmp_path / "shared"
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(3)
    processes = []
    for number, model in enumerate(models):
        model.save(tmp_path / str(number))
        arguments = (tmp_path / str(number), shared, times, barrier, with_locks)
        processes.append(context.Process(target=save_often, args=arguments))
    for process in processes:
        process.start()
    seen = set()
    try:
        models[0].save(shared)
        for _ in range(times):
            barrier.wait(SECONDS)
            for _ in range(SAVES_IN_A_ROUND):
                assert_whole(load(shared), models)
            barrier.wait(SECONDS)
            last = load(shared)
            assert_whole(last, models)
            seen.add(last.random_state)
            assert not list(shared.glob("*.tmp"))
            if with_locks:
                assert len(list(shared.iterdir())) == 2
    except BaseException:  # else some might still be on their way out of the last barrier
        barrier.abort()
        raise
    finally:
        for process in processes:
            process.join(SECONDS)
    assert [process.exitcode for process in processes] == [0, 0]
    assert seen == {0, 1} or times < 100


def test_arrays_of_a_save_under_way_stay_where_there_are_no_locks(models, tmp_path, monkeypatch):
    """Another process is about to write the manifest that names them."""
    monkeypatch.setattr("dvip.files.fcntl", None)
    models[0].save(tmp_path / "model")
    young, old = (tmp_path / "model" / f"arrays-{name}.safetensors" for name in ("young", "old"))
    left = tmp_path / "model" / ".model.json.1-0.tmp"
    for path in (young, old, left):
        path.touch()
    long_ago = time.time() - ABANDONED_AFTER - 10
    for path in (old, left):
        os.utime(path, (long_ago, long_ago))
    models[1].save(tmp_path / "model")
    assert young.exists()
    assert not old.exists()
    assert not left.exists()
    assert_whole(load(tmp_path / "model"), models)


def test_a_folder_that_another_process_is_making(models, tmp_path):
    """Its arrays are there already, its manifest is not; nor if it was killed."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "arrays-0123456789abcdef.safetensors").touch()
    (tmp_path / "model" / ".model.json.7-ab.tmp").touch()
    models[0].save(tmp_path / "model")
    assert_whole(load(tmp_path / "model"), models)
    assert len(list((tmp_path / "model").iterdir())) == 2


def test_a_reader_whose_arrays_are_gone_reads_again(models, tmp_path, monkeypatch):
    models[0].save(tmp_path / "model")
    original, replaced = dvip.persistence._read_manifest, []

    def read_and_replace(*arguments):
        found = original(*arguments)
        if len(replaced) < 3:
            replaced.append(found)
            models[len(replaced) % 2].save(tmp_path / "model")
        return found

    monkeypatch.setattr("dvip.persistence._read_manifest", read_and_replace)
    assert_whole(load(tmp_path / "model"), models)
    assert len(replaced) == 3


def test_arrays_that_stay_away_are_an_error_soon(models, tmp_path):
    models[0].save(tmp_path / "model")
    next((tmp_path / "model").glob("arrays-*")).unlink()
    start = time.monotonic()
    with pytest.raises(ModelFileError, match="No such file"):
        load(tmp_path / "model")
    assert time.monotonic() - start < 2


# Locks.


def test_a_lock_is_for_one(tmp_path):
    with lock(tmp_path, wait=False) as first, lock(tmp_path, wait=False) as second:
        assert (first, second) == (Hold.OURS, Hold.TAKEN)
        assert first
        assert not second
    with lock(tmp_path, wait=False) as again:
        assert again is Hold.OURS
    assert not list(tmp_path.iterdir())


# Checkpoints.

LONG = {**TINY, "n_layers": 1, "max_iter": 300}


def test_two_trainings_with_one_checkpoint_folder(tmp_path):
    folder = tmp_path / "checkpoints"
    with CheckpointFolder.opened(folder):
        for resume in (False, True):
            with pytest.raises(
                CheckpointError, match=r"in use by another training.*wait"
            ) as caught:
                DVIPRegressor.paper(**LONG).fit(X, Y, checkpoint_dir=folder, resume=resume)
            assert "\n" not in str(caught.value)
            with pytest.raises(CheckpointError, match="in use"):
                check_usable(folder, resume=resume)
    assert steps_of(folder) == []
    DVIPRegressor.paper(**LONG).fit(X, Y, checkpoint_dir=folder)
    assert steps_of(folder) == [300]


def test_a_training_that_failed_frees_its_folder(tmp_path):
    failed = DVIPRegressor.paper(**LONG)
    with pytest.raises(ValueError, match="sample_weight") as caught:
        failed.fit(X, Y, np.full(len(X), 1e300), checkpoint_dir=tmp_path)
    DVIPRegressor.paper(**LONG).fit(X, Y, checkpoint_dir=tmp_path)
    assert caught.value.__traceback__ is not None  # what it refers to was there all the time


def hold_until_killed(folder, ready):
    with CheckpointFolder.opened(folder):
        ready.set()
        time.sleep(SECONDS)


@pytest.mark.faults
def test_a_killed_training_frees_its_folder(tmp_path):
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    process = context.Process(target=hold_until_killed, args=(tmp_path, ready))
    process.start()
    assert ready.wait(SECONDS)
    with pytest.raises(CheckpointError, match="in use"):
        check_usable(tmp_path, resume=True)
    process.kill()
    process.join()
    check_usable(tmp_path, resume=True)


# Caches of rows.


@pytest.fixture
def source(tmp_path, monkeypatch):
    monkeypatch.setenv("DVIP_ROW_CACHE", str(tmp_path / "rows"))
    path = tmp_path / "t.csv"
    np.savetxt(path, np.column_stack([X, Y]), delimiter=",", header="a,b,c,y", comments="")
    return open_source(path, target="y")


def rows_of(source):
    """The records of a source, and how many rows had to be read for them."""
    read = []
    with cached_rows(source, NumberTargets(), "float32", read.append) as (path, content):
        return path.read_bytes(), content.mean.tolist(), sum(read)


def other_version(text):
    """What version 0.1.0 wrote: no checksum before it."""
    return text.partition("\n")[2]


DAMAGES = {
    "a digit": lambda text: text.replace('"num_inputs": 3', '"num_inputs": 2'),
    "nothing": lambda text: "",
    "a number": lambda text: "3",
    "deep": lambda text: "[" * 100_000,
    "other version": other_version,
    "no text": lambda text: "\udcff",
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_damaged_caches_are_made_again(source, tmp_path, damage):
    *expected, read = rows_of(source)
    assert read == len(X)
    assert rows_of(source) == (*expected, 0)
    (path,) = (tmp_path / "rows").glob("*/rows.json")
    text = path.read_text()
    json.loads(text.partition("\n")[2])
    assert damage(text) != text
    path.write_bytes(damage(text).encode(errors="surrogateescape"))
    assert rows_of(source) == (*expected, len(X))
    assert rows_of(source) == (*expected, 0)


def make_rows(path, barrier, results):
    source = open_source(path, target="y")
    barrier.wait(SECONDS)
    results.put(rows_of(source))


@pytest.mark.faults
def test_two_processes_with_one_cache(source, tmp_path):
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(2), context.Queue()
    arguments = (tmp_path / "t.csv", barrier, results)
    processes = [context.Process(target=make_rows, args=arguments) for _ in range(2)]
    for process in processes:
        process.start()
    found = [results.get(timeout=SECONDS) for _ in processes]
    for process in processes:
        process.join(SECONDS)
    assert found[0][:2] == found[1][:2]
    assert sorted(read for *_, read in found) == [0, len(X)]
