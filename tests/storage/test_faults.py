"""Faults, tried for real: killed processes, damaged files, full disks, files that change.

The default run has a short version of each; `pytest -m faults` tries them many times.
"""

import os
import random
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time
import warnings
from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest
from examples import regression_data
from typer.testing import CliRunner

from dvip import CheckpointError, CheckpointWarning, DVIPRegressor, ModelFileError, load
from dvip.cli import app
from dvip.training.checkpoints import CheckpointFolder, steps_of

X, Y = regression_data()

# Half of the time of this training is spent with writing checkpoints.
NUM_STEPS = 20_000
OPTIONS = ["--inference", "vi", "--layers", "1", "--prior-samples", "5"]
OPTIONS += ["--max-iter", str(NUM_STEPS)]


def often(few, many):
    """A test that is made a few times by default, and many times with `-m faults`."""
    return pytest.mark.parametrize(
        "times", [few, pytest.param(many, marks=pytest.mark.faults)], ids="{} times".format
    )


# Processes that are killed.


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "table.csv"
    pd.DataFrame(X).assign(y=Y).to_csv(path, index=False)
    return path


def fit_command(table, out, checkpoints=None, every=200):
    """The arguments of `dvip`."""
    command = ["fit", str(table), "--target", "y", "--out", str(out), *OPTIONS]
    if checkpoints is not None:
        command += ["--checkpoint", str(checkpoints), "--checkpoint-every", str(every)]
    return command


def start(arguments):
    # A shell that runs tests in the background may have it ignore Ctrl-C.
    heeding = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    code = f"{heeding}; from dvip.__main__ import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(arguments):
    """The command in this process."""
    return CliRunner().invoke(app, arguments)


def stop(arguments, number, delay, checkpoints=None):
    """Sends a signal so long after the training began, or after its next checkpoint."""
    process = start(arguments)
    while "Training" not in process.stdout.readline():
        assert process.poll() is None, process.stderr.read()
    before = steps_of(checkpoints) if checkpoints else []
    while checkpoints and steps_of(checkpoints) == before and process.poll() is None:
        time.sleep(0.01)
    time.sleep(delay)
    process.send_signal(number)
    process.errors = process.communicate(timeout=60)[1]
    return process


def model_files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def undisturbed(table, tmp_path_factory):
    """The files of a model that was trained without checkpoints."""
    out = tmp_path_factory.mktemp("undisturbed") / "model"
    assert run(fit_command(table, out)).exit_code == 0
    return model_files(out)


@pytest.mark.faults
def test_killed_twice(table, undisturbed, tmp_path):
    out, checkpoints = tmp_path / "model", tmp_path / "checkpoints"
    command = [*fit_command(table, out, checkpoints), "--resume"]
    for _ in range(2):
        killed = stop(command, signal.SIGKILL, 0.05, checkpoints)
        assert killed.returncode == -signal.SIGKILL
    assert run(command).exit_code == 0
    assert model_files(out) == undisturbed


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, 143), pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow)],
)
@pytest.mark.usefixtures("heeded_ctrl_c")
def test_stopped_by_a_signal(table, undisturbed, tmp_path, monkeypatch, number, code):
    """The command that is shown ends with the same model."""
    out, checkpoints = tmp_path / "model", tmp_path / "checkpoints"
    command = fit_command(table, out, checkpoints, every=NUM_STEPS)

    def due(self, step):
        if step == 1_000:
            signal.raise_signal(number)
        return step == 600

    with monkeypatch.context() as patch:
        patch.setattr(CheckpointFolder, "due", due)
        patch.setattr(sys, "argv", ["dvip", *command])
        stopped = run(command)
    assert_stopped(stopped.exit_code, stopped.stderr, code, checkpoints)
    assert not out.exists()
    assert run(shown_command(stopped.stderr)).exit_code == 0
    assert model_files(out) == undisturbed


def assert_stopped(exit_code, errors, code, checkpoints):
    assert exit_code == code, errors
    last = steps_of(checkpoints)[0]
    assert f"Stopped; the last checkpoint is of step {last:,}. To go on:\n" in errors
    assert "Traceback" not in errors


def shown_command(errors):
    """The arguments of the command in the last line of a message."""
    name, *command = shlex.split(errors.splitlines()[-1])
    assert name == "dvip"
    return command


@pytest.mark.faults
def test_a_chain_of_stops_ends_bit_equal(table, undisturbed, tmp_path):
    """Killed, terminated, interrupted, and each time continued by the command that was shown."""
    out, checkpoints = tmp_path / "model", tmp_path / "checkpoints"
    command = fit_command(table, out, checkpoints)
    assert stop(command, signal.SIGKILL, 0.1, checkpoints).returncode == -signal.SIGKILL
    command += ["--resume"]
    for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
        stopped = stop(command, number, 0.1, checkpoints)
        assert_stopped(stopped.returncode, stopped.errors, code, checkpoints)
        command = shown_command(stopped.errors)
    assert run(command).exit_code == 0
    assert model_files(out) == undisturbed


@pytest.mark.faults
@pytest.mark.parametrize("trial", range(20))
def test_killed_at_a_random_moment(table, undisturbed, tmp_path, trial):
    out, checkpoints = tmp_path / "model", tmp_path / "checkpoints"
    command = fit_command(table, out, checkpoints)
    if trial % 4:
        delay = random.Random(trial).uniform(0, 1)
        killed = stop(command, signal.SIGKILL, delay, checkpoints)
    else:  # while it compiles, or makes its first steps
        killed = stop(command, signal.SIGKILL, random.Random(trial).uniform(0, 2))
    assert killed.returncode == -signal.SIGKILL  # it had not ended
    assert run([*command, "--resume"]).exit_code == 0
    assert model_files(out) == undisturbed


# Files that are damaged.

SUSPICIOUS = {"pickle.find_class", "marshal.loads", "os.system", "subprocess.Popen", "os.exec"}
executed: list[str] | None = None


def _watch(event, _):
    if executed is not None and event in SUSPICIOUS | {"os.posix_spawn", "os.fork"}:
        executed.append(event)


@contextmanager
def nothing_is_executed():
    global executed
    executed = []
    try:
        yield
        assert executed == []
    finally:
        executed = None


@pytest.fixture(scope="module", autouse=True)
def watched():
    sys.addaudithook(_watch)  # for good: Python cannot remove one


def trained(**options):
    # The program that the command line compiled as well.
    estimator = DVIPRegressor.paper(n_layers=1, n_prior_samples=5, max_iter=1_000)
    return estimator.fit(X, Y, **options)


@pytest.fixture(scope="module")
def intact(tmp_path_factory):
    """A model, and three checkpoints of its training before the end; with its predictions."""
    folder = tmp_path_factory.mktemp("intact")
    model = trained()
    model.save(folder / "model")
    original = CheckpointFolder.write

    def write(self, checkpoint):
        if checkpoint.step > 600:
            raise KeyboardInterrupt
        original(self, checkpoint)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CheckpointFolder, "write", write)
        with pytest.raises(KeyboardInterrupt):
            trained(checkpoint_dir=folder / "checkpoints", checkpoint_every=1)
    assert steps_of(folder / "checkpoints") == [600, 400, 200]
    return folder, model.predict(X)


def damage(path, chance):
    """Cuts a file, flips a bit of it, writes over it, or empties it."""
    data = bytearray(path.read_bytes())
    position = chance.randrange(len(data))
    match chance.choice(["cut", "flip", "flip", "overwrite", "zeros"]):
        case "cut":
            data = data[:position]
        case "flip":
            data[position] ^= 1 << chance.randrange(8)
        case "overwrite":  # a pickle that would call os.system
            payload = b"cos\nsystem\n(S'true'\ntR."
            data[position : position + len(payload)] = payload
        case "zeros":
            data[position:] = bytes(len(data) - position)
    path.write_bytes(data)


@often(10, 100)
def test_damaged_models(intact, tmp_path, times):
    folder, expected = intact
    for trial in range(times):
        chance = random.Random(trial)
        victim = shutil.copytree(folder / "model", tmp_path / str(trial))
        damage(chance.choice(sorted(victim.iterdir())), chance)
        with nothing_is_executed():
            try:
                model = load(victim)
            except ModelFileError:
                continue
            assert np.array_equal(model.predict(X), expected)


@often(10, 100)
def test_damaged_checkpoints(intact, tmp_path, times):
    """One to six of the six files: the result is right, or there is none."""
    folder, expected = intact
    refused = 0
    for trial in range(times):
        chance = random.Random(trial)
        victim = shutil.copytree(folder / "checkpoints", tmp_path / str(trial))
        files = sorted(path for path in victim.rglob("*") if path.is_file())
        for path in chance.sample(files, chance.randint(1, len(files))):
            damage(path, chance)
        with nothing_is_executed(), warnings.catch_warnings():
            warnings.simplefilter("ignore", CheckpointWarning)
            try:
                model = trained(checkpoint_dir=victim, resume=True)
            except CheckpointError as error:
                assert "No checkpoint in" in str(error)  # noqa: PT017
                refused += 1
                continue
        assert np.array_equal(model.predict(X), expected)
    assert 0 < refused < times


# Disks that are full.


@contextmanager
def small_disk(folder, size):
    """A file system of that many bytes, if one can be mounted; else a limit of file sizes."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    mounted = os.geteuid() == 0 and subprocess.run(mount, capture_output=True).returncode == 0
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    if not mounted:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        if mounted:
            subprocess.run(["umount", str(folder)], check=True)


def test_full_disk(intact, tmp_path):
    """The training ends as it should, and the checkpoints that fitted are whole."""
    folder, expected = intact
    page = 4096
    pages = [-(-path.stat().st_size // page) for path in (folder / "checkpoints").rglob("*.*")]
    with small_disk(tmp_path / "disk", page * sum(pages) // 2):  # for one of the three
        checkpoints = tmp_path / "disk/checkpoints"
        with pytest.warns(CheckpointWarning, match=r"No checkpoint could be written"):
            model = trained(checkpoint_dir=checkpoints, checkpoint_every=1)
        assert np.array_equal(model.predict(X), expected)
        free = os.statvfs(tmp_path / "disk")
        if free.f_bavail < sum(pages):
            (tmp_path / "disk" / "ballast").write_bytes(bytes(free.f_bavail * free.f_frsize))
        with pytest.raises(OSError, match=r"space|large"):
            model.save(tmp_path / "disk" / "model")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CheckpointWarning)
            resumed = trained(checkpoint_dir=checkpoints, resume=True)
        assert np.array_equal(resumed.predict(X), expected)


# Input files that change or go away between a stop and the continuation.


def changed(table, how):
    match how:
        case "missing":
            table.unlink()
        case "cut":
            table.write_bytes(table.read_bytes()[:-400])
        case "binary":
            table.write_bytes(os.urandom(3_000))
        case "one digit":
            text = table.read_text()
            at = len(text) // 2
            at += next(i for i, c in enumerate(text[at:]) if c.isdecimal())
            table.write_text(text[:at] + str((int(text[at]) + 1) % 10) + text[at + 1 :])
        case "column":
            pd.read_csv(table).assign(new=np.arange(len(X))).to_csv(table, index=False)


@pytest.mark.parametrize("how", ["missing", "cut", "binary", "one digit", "column"])
def test_changed_tables(table, tmp_path, how):
    copy = shutil.copy(table, tmp_path / "table.csv")
    command = fit_command(copy, tmp_path / "model", tmp_path / "checkpoints")
    command[command.index(str(NUM_STEPS))] = "600"
    assert run(command).exit_code == 0
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    before.pop(tmp_path / "table.csv")
    changed(tmp_path / "table.csv", how)
    result = run([*command, "--resume"])
    assert result.exit_code == 1
    assert "Error:" in result.stderr
    assert "Traceback" not in result.stderr
    if how in ("one digit", "column", "cut"):
        assert "the data differ" in result.stderr
    assert all(path.read_bytes() == content for path, content in before.items())
