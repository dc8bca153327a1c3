"""Several processes on loopback train as one does, and none outlives the others for long."""

import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
from examples import regression_data
from typer.testing import CliRunner

from dvip import load
from dvip.batches import Part
from dvip.cli import app
from dvip.cli.long_runs import rows_of_part
from dvip.tables import TableError
from dvip.training import ArrayData
from dvip.training.checkpoints import steps_of

X, Y = regression_data(num_rows=200)
FRAME = pd.DataFrame(X, columns=["a", "b", "c"])
FIT = ["--inference", "vi", "--target", "y", "--layers", "2", "--prior-samples", "5"]
FIT += ["--batch-size", "40"]


def run(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "table.csv"
    FRAME.assign(y=Y).to_csv(path, index=False)
    return path


class Processes:
    """The same command in several processes that find each other."""

    def __init__(self, number, *arguments):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        options = ["--coordinator", f"127.0.0.1:{port}", "--num-processes", str(number)]
        program = [sys.executable, "-m", "dvip"]
        self.processes = [
            subprocess.Popen(
                [*program, *map(str, arguments), *options, "--process-id", str(index)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for index in range(number)
        ]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.communicate()

    def results(self, timeout=120):
        """Exit code, stdout and stderr of each."""
        texts = [process.communicate(timeout=timeout) for process in self.processes]
        return [(p.returncode, *text) for p, text in zip(self.processes, texts, strict=True)]

    def wait_for_checkpoints(self, folder, number):
        while len(steps_of(folder)) < number:
            assert all(p.poll() is None for p in self.processes), self.results()
            time.sleep(0.02)


@pytest.fixture(scope="module")
def alone(table, tmp_path_factory):
    """The predictions of a model that one process trained."""
    out = tmp_path_factory.mktemp("alone") / "model"
    result = run("fit", table, "--out", out, *FIT, "--max-iter", 300)
    assert result.exit_code == 0, result.output
    return load(out).predict(FRAME, return_std=True)


def assert_close(model, alone):
    """To rounding, which 300 steps in single precision have made larger."""
    for ours, theirs in zip(load(model).predict(FRAME, return_std=True), alone, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=2e-3 * Y.std())


@pytest.mark.slow
def test_two_processes_train_as_one(table, alone, tmp_path):
    out, checkpoints = tmp_path / "model", tmp_path / "checkpoints"
    command = ["fit", table, "--out", out, *FIT, "--max-iter", 300, "--checkpoint", checkpoints]
    with Processes(2, *command) as processes:
        first, second = processes.results()
    assert first[0] == second[0] == 0, (first, second)
    assert "Saved to" in first[1]
    assert "Saved to" not in second[1]
    assert_close(out, alone)
    # What two processes left, one can use.
    again = run(*command[:3], tmp_path / "again", *command[4:], "--resume")
    assert again.exit_code == 0, again.output
    assert_close(tmp_path / "again", alone)


@pytest.mark.slow
def test_two_processes_train_an_ensemble(table, tmp_path):
    """Its members one after the other, and resumed by one process."""
    options = [*FIT, "--max-iter", 100, "--members", 2, "--calibrate"]
    alone = run("fit", table, "--out", tmp_path / "alone", *options)
    assert alone.exit_code == 0, alone.output
    expected = load(tmp_path / "alone")
    checkpoints = ["--checkpoint", tmp_path / "checkpoints"]
    with Processes(2, "fit", table, "--out", tmp_path / "two", *options, *checkpoints) as processes:
        first, second = processes.results()
    assert first[0] == second[0] == 0, (first, second)
    assert_close(tmp_path / "two", expected.predict(FRAME, return_std=True))
    again = run("fit", table, "--out", tmp_path / "again", *options, *checkpoints, "--resume")
    assert again.exit_code == 0, again.output
    assert_close(tmp_path / "again", load(tmp_path / "two").predict(FRAME, return_std=True))


@pytest.mark.faults
@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_process_ends_the_others(table, tmp_path, victim):
    """With an error, soon; the training goes on with another number of processes."""
    out, checkpoints = tmp_path / "model", tmp_path / "checkpoints"
    command = ["fit", table, "--out", out, *FIT, "--checkpoint", checkpoints, "--resume"]
    command += ["--checkpoint-every", 200, "--max-iter", 5_000]
    with Processes(2, *command) as processes:
        processes.wait_for_checkpoints(checkpoints, 2)
        processes.processes[victim].send_signal(signal.SIGKILL)
        killed = time.monotonic()
        other = processes.results(timeout=60)[1 - victim]
    assert time.monotonic() - killed < 45
    assert other[0] != 0
    assert "Another process" in other[2] or "another task died" in other[2]
    last = steps_of(checkpoints)[0]
    resumed = run(*command)
    assert resumed.exit_code == 0, resumed.output
    assert steps_of(checkpoints)[0] == 5_000 > last
    undisturbed = tmp_path / "undisturbed"
    assert run("fit", table, "--out", undisturbed, *FIT, "--max-iter", 5_000).exit_code == 0
    ours, theirs = (load(path).bound_history_ for path in (out, undisturbed))
    # Rounding grows from step to step: only the first of 25 pieces can be compared.
    np.testing.assert_allclose(ours[:4], theirs[:4], rtol=0.01)
    assert len(ours) == len(theirs) == 25


@pytest.mark.faults
@pytest.mark.parametrize("told", [0, 1])
def test_a_process_that_is_told_to_stop_stops_all(table, tmp_path, told):
    checkpoints = tmp_path / "checkpoints"
    command = ["fit", table, "--out", tmp_path / "model", *FIT, "--checkpoint", checkpoints]
    with Processes(2, *command, "--max-iter", 200_000, "--checkpoint-every", 10_000) as processes:
        processes.wait_for_checkpoints(checkpoints, 1)
        processes.processes[told].send_signal(signal.SIGTERM)
        results = processes.results(timeout=60)
    assert results[told][0] == 143
    assert results[1 - told][0] == 1
    assert "another of its processes was told to" in results[1 - told][2]
    assert steps_of(checkpoints)[0] % 10_000 != 0  # written at the stop
    assert not (tmp_path / "model").exists()


# What processes share among themselves.


def test_each_process_reads_its_part_of_every_batch():
    rows = np.arange(50.0)
    data = ArrayData(rows[:, None], 10 * rows[:, None], 100 * rows)
    whole = data.batches(3, 7, 5, 12)
    parts = [data.batches(3, 7, 5, 12, Part(index, 3)) for index in range(3)]
    for array, *of_parts in zip(whole, *parts, strict=True):
        assert all(part.shape[:2] == (5, 4) for part in of_parts)
        assert np.array_equal(np.concatenate(of_parts, axis=1), array)


def test_parts_of_a_table():
    for total, number in ((10, 3), (7, 7), (100, 1)):
        rows = [rows_of_part(Part(index, number), total) for index in range(number)]
        assert [row for part in rows for row in part] == list(range(total))
        assert max(map(len, rows)) - min(map(len, rows)) <= 1
    with pytest.raises(TableError, match="too few"):
        rows_of_part(Part(0, 3), 2)


def test_predictions_in_parts(table, tmp_path):
    model, options = tmp_path / "model", ("--layers", 1, "--max-iter", 60)
    assert run("fit", table, "--out", model, *FIT, *options).exit_code == 0
    assert run("predict", model, table, "--out", tmp_path / "p.csv").exit_code == 0
    for index in range(3):
        part = ("--num-processes", 3, "--process-id", index)
        assert run("predict", model, table, "--out", tmp_path / "p.csv", *part).exit_code == 0
    files = [tmp_path / f"p-{index:05d}-of-00003.csv" for index in range(3)]
    parts = pd.concat(map(pd.read_csv, files), ignore_index=True)
    pd.testing.assert_frame_equal(parts, pd.read_csv(tmp_path / "p.csv"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--num-processes", 2, "--process-id", 0], "belong together"),
        (["--coordinator", "localhost:1234"], "belong together"),
        (["--distributed"], "Slurm, Open MPI and Kubernetes"),
    ],
)
def test_options_that_do_not_say_who_the_others_are(table, tmp_path, options, message):
    result = run("fit", table, "--out", tmp_path / "model", *FIT, *options)
    assert result.exit_code in (1, 2)
    assert message in " ".join(result.stderr.replace("│", "").split())
    assert "Traceback" not in result.stderr
