"""`dvip reproduce`: what it writes, refuses, shows, and leaves behind when it is stopped."""

import json
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from toy_experiment import STEPS, stored, toy_runs, wait_until
from typer.testing import CliRunner

from dvip.__main__ import app
from dvip.files import lock
from dvip.paper import reproduction
from dvip.paper.grids import EXPERIMENTS
from dvip.paper.results import LOCKS
from dvip.paper.runs import Outcome
from dvip.paper.summaries import summarise

ALL_SPLITS = [word for split in range(3) for word in ("--split", str(split))]


def command(*arguments):
    return CliRunner().invoke(app, ["reproduce", *map(str, arguments)])


def toy_command(out, *more):
    arguments = ["prior-constraint", "--dataset", "toy", "--method", "vip-elbo", "--out", str(out)]
    return [*arguments, "--max-iter", str(STEPS), *more]


def test_the_program_starts_without_what_computes():
    """Everyday commands first, then the paper's, and no wait for a library to list them."""
    program = (
        "import sys, dvip.__main__; assert not {'jax', 'numpy', 'matplotlib'} & set(sys.modules); "
        "dvip.__main__.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "--help"], capture_output=True, text=True, check=True
    )
    listed = re.findall(r"^  (\w+)  ", done.stdout.partition("Commands:")[2], flags=re.MULTILINE)
    everyday = ["fit", "predict", "suggest", "demo", "evaluate", "compare", "prior"]
    assert listed == [*everyday, "reproduce", "report", "datasets"]


def test_command_writes_tables_and_figures(toy_results, tmp_path):
    out = tmp_path / "new" / "results"
    result = command(*toy_command(out, "--split", "0", "--split", "1"))
    assert result.exit_code == 0, result.output
    assert "2 runs: 2 done." in result.stdout
    table = (out / f"prior-constraint-max-iter-{STEPS}.md").read_text()
    assert f"--max-iter {STEPS}" in table
    assert "(2)" in table
    figure = out / "figures" / f"prior-constraint-max-iter-{STEPS}-curves-toy.png"
    assert figure.stat().st_size > 10_000
    again = command(*toy_command(out, "--split", "0", "--split", "1"))
    assert "2 runs: 2 were there." in again.stdout


def test_tables_have_the_results_of_all_processes(toy_results, tmp_path, monkeypatch):
    """Results are read and tables written by one process at a time: none has less than before."""
    out, read = tmp_path / "results", []
    shutil.copytree(toy_results, out)

    def summarise_alone(*arguments):
        with lock(out / LOCKS / "tables", wait=False) as free:
            read.append(free)
        return summarise(*arguments)

    monkeypatch.setattr(reproduction, "summarise", summarise_alone)
    assert command(*toy_command(out, "--split", "0")).exit_code == 0
    assert read == [False]
    assert "(3)" in (out / f"prior-constraint-max-iter-{STEPS}.md").read_text()


def test_command_lists_experiments():
    result = command()
    assert result.exit_code == 0
    for experiment in EXPERIMENTS.values():
        assert experiment.title in result.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["uic"], "no experiment 'uic'; choose from uci, co2"),
        (["uci", "--dataset", "bosston"], "choose from boston"),
        (["uci", "--method", "dvip-9"], "choose from sgp"),
        (["uci", "--dataset", "boston", "--split", "20"], "its last is 19"),
        (["uci", "--split", "20"], "No dataset of uci has a split 20"),
        (["uci", "--shard", "5/4"], "such as 3/20"),
    ],
)
def test_command_refuses(arguments, words, tmp_path):
    result = command(*arguments, "--out", tmp_path / "results")
    assert result.exit_code == 1
    assert words in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "results").exists()


def test_results_are_a_folder(tmp_path):
    (tmp_path / "file").write_text("mine")
    result = command(*toy_command(tmp_path / "file"))
    assert result.exit_code == 1
    assert "is a file" in result.stderr
    assert (tmp_path / "file").read_text() == "mine"


def test_missing_data_fails_with_the_address(tmp_path, empty_cache, monkeypatch):
    monkeypatch.setattr("socket.socket.connect", _no_network)
    arguments = ["--dataset", "airline", "--method", "sgp", "--seed", "0", "--seed", "1"]
    result = command("large-regression", *arguments, "--out", tmp_path / "results")
    assert result.exit_code == 1
    assert "2 failed" in result.stdout
    assert "(and 1 more)" in result.stderr
    assert "airline.csv" in result.stderr


def _no_network(*_):
    raise OSError("no network in this test")


def reproduce_process(out, *more, stderr=subprocess.DEVNULL):
    arguments = ["reproduce", *toy_command(out, *ALL_SPLITS, *more)]
    return subprocess.Popen(
        [sys.executable, "-m", "dvip", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=stderr,
    )


def kill(out, process):
    process.send_signal(signal.SIGKILL)
    process.wait()
    for path in out.rglob("*.json"):
        json.loads(path.read_text())  # whole


def finish_and_compare(out, expected):
    result = command(*toy_command(out, *ALL_SPLITS))
    assert result.exit_code == 0, result.output
    assert stored(out) == stored(expected)


# From outside, a quick machine would be done before it is killed.
KILLED_AFTER_A_RUN = """
import os, signal
from dvip.__main__ import main
from dvip.paper.results import Results

write = Results.write

def write_and_die(*result):
    write(*result)
    os.kill(os.getpid(), signal.SIGKILL)

Results.write = write_and_die
main()
"""


def test_killed_and_finished(toy_results, tmp_path):
    arguments = ["reproduce", *toy_command(tmp_path, *ALL_SPLITS)]
    ended = subprocess.run(
        [sys.executable, "-c", KILLED_AFTER_A_RUN, *map(str, arguments)],
        capture_output=True,
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert len(stored(tmp_path)) == 1
    finish_and_compare(tmp_path, toy_results)


@pytest.mark.faults
def test_killed_ten_times_and_finished(toy_results, tmp_path):
    moments = random.Random(0)
    for _ in range(10):
        process = reproduce_process(tmp_path)
        time.sleep(moments.uniform(0.5, 8.0))
        kill(tmp_path, process)
    finish_and_compare(tmp_path, toy_results)


def test_progress_estimates_the_time_left(capsys, monkeypatch):
    """A run of a minute in all, of which training took 5 s, and two are left."""
    clock = iter([0.0, 60.0])
    monkeypatch.setattr(reproduction, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    first, second, _ = toy_runs(0, 1, 2)
    with reproduction.Display(total=4, jobs=1) as display:
        display.end(Outcome(second, "skipped"))
        display.start(first)
        assert "1 of 4 done, 1 running, 2 left" in str(display._text())
        display.end(Outcome(first, "done", 5.0))
    assert capsys.readouterr().err == f"[2/4] {first}: 5 s, about 2 min left\n"


def test_ctrl_c_says_that_it_goes_on(tmp_path, heeded_ctrl_c):
    more = [word for split in range(3, 20) for word in ("--split", str(split))]
    process = reproduce_process(tmp_path, *more, stderr=subprocess.PIPE)
    wait_until(lambda: list(tmp_path.rglob("*.json")))
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=100)
    assert process.returncode == 130
    assert re.search(rb"Stopped after \d+ of 20 runs; the same command goes on.\n$", stderr)
    assert b"Traceback" not in stderr
