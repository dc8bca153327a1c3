"""The paper's experiments as grids: what is run, what is stored, and what happens when it stops."""

import csv
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from dvip import DVIPRegressor
from dvip.cli import app, reproducing
from dvip.data import DATASETS, load_split
from dvip.experiments import runner, runs
from dvip.experiments.calibration import LEVELS, class_calibration, interval_calibration
from dvip.experiments.curves import with_prior
from dvip.experiments.grids import EXPERIMENTS
from dvip.experiments.methods import DVIP, METHODS, Method
from dvip.experiments.results import Results
from dvip.experiments.runner import parse_shard, run_all, shard
from dvip.experiments.runs import Run
from dvip.metrics import regression_metrics

STEPS = 20
# The paper's columns that are not a depth of ours: the best of several.
NOT_METHODS = {"DGP best"}


def command(*arguments):
    return CliRunner().invoke(app, ["reproduce", *map(str, arguments)])


def toy_runs(*splits):
    return EXPERIMENTS["prior-constraint"].runs(["toy"], ["vip-elbo"], splits, max_iter=STEPS)


@pytest.fixture(scope="module")
def toy_results(tmp_path_factory):
    """Three finished runs of a generated dataset."""
    folder = tmp_path_factory.mktemp("results")
    outcomes = run_all(toy_runs(0, 1, 2), folder)
    assert [outcome.state for outcome in outcomes] == ["done"] * 3
    return folder


def stored(folder):
    """Every result below a folder, without what differs from run to run."""
    results = {}
    for path in folder.rglob("*.json"):
        result = json.loads(path.read_text())
        for name in ("seconds", "cpu_seconds", "scoring_seconds", "finished"):
            del result[name]
        results[path.relative_to(folder)] = result
    return results


# ------------------------------------------------------------------------------------------ grids


def test_every_figure_of_the_paper_has_a_run():
    text = files("dvip.experiments").joinpath("paper_results.csv").read_text("utf-8")
    for row in csv.DictReader(text.splitlines()):
        if row["method"] in NOT_METHODS:
            continue
        experiment = EXPERIMENTS[row["experiment"]]
        assert (row["method"], row["variant"]) in experiment.methods.values(), row
        assert row["dataset"] in experiment.datasets
        assert row["metric"] in (*experiment.metrics, "cpu_seconds")


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=lambda e: e.name)
def test_grids_name_what_there_is(experiment):
    runs = experiment.runs()
    assert len(set(runs)) == len(runs)
    assert {run.dataset for run in runs} == set(experiment.datasets) <= set(DATASETS)
    assert {run.method for run in runs} == set(experiment.methods) <= set(METHODS)
    for run in runs:
        assert DATASETS[run.dataset].task in METHODS[run.method].estimators


def test_order_is_by_split_first():
    splits = [run.split for run in EXPERIMENTS["uci"].runs()]
    assert splits == sorted(splits)


def test_filters():
    runs = EXPERIMENTS["uci"].runs(["energy"], ["dvip-3", "sgp"], [4, 2], max_iter=7)
    assert set(runs) == {
        Run("energy", method, split, 0, 7) for method in ("dvip-3", "sgp") for split in (2, 4)
    }
    assert [run.seed for run in EXPERIMENTS["images"].runs(["mnist"], ["sgp"])] == list(range(10))


def test_splits_have_prior_functions_of_their_own():
    states = [run.random_state for run in EXPERIMENTS["uci"].runs(["boston"], ["vip"])]
    assert len(set(states)) == 20


def test_datasets_without_a_split_are_left_out_unless_named():
    runs = EXPERIMENTS["uci"].runs(methods=["sgp"], splits=[5])  # protein has five
    assert {run.dataset for run in runs} == set(EXPERIMENTS["uci"].datasets) - {"protein"}
    with pytest.raises(ValueError, match="protein has no split 5: its last is 4"):
        EXPERIMENTS["uci"].runs(["protein", "energy"], splits=[5])
    with pytest.raises(ValueError, match="No dataset of uci has a split 20"):
        EXPERIMENTS["uci"].runs(splits=[20])


def test_a_shard_has_some_of_all_methods():
    runs = EXPERIMENTS["uci"].runs()
    for part in (1, 12):
        chosen = shard(runs, part, 12)
        assert {run.method for run in chosen} == set(EXPERIMENTS["uci"].methods)
        assert chosen == sorted(chosen, key=runs.index)


@given(st.integers(1, 30), st.integers(0, 50))
def test_shards_are_a_partition(parts, number):
    runs = [Run("toy", "vip", split) for split in range(number)]
    pieces = [shard(runs, part, parts) for part in range(1, parts + 1)]
    assert sorted(run for piece in pieces for run in piece) == sorted(runs)
    assert max(map(len, pieces)) - min(map(len, pieces)) <= 1


@pytest.mark.parametrize("text", ["0/3", "4/3", "3", "a/b", "-1/3", "1/0", ""])
def test_bad_shards(text):
    with pytest.raises(ValueError, match="3/20"):
        parse_shard(text)


# ------------------------------------------------------------------------------------------- runs


def test_a_result_says_what_was_done(toy_results):
    run = toy_runs(1)[0]
    result = json.loads((toy_results / run.path).read_text())
    assert result["settings"]["random_state"] == 1
    assert result["settings"]["max_iter"] == result["steps"] == STEPS
    assert result["rows"] == {"train": 100, "test": 500}
    assert {"dvip", "jax"} <= set(result["versions"])
    assert result["cpu_seconds"] > 0
    assert result["error"] is None

    split = load_split("toy", 1)
    model = DVIPRegressor(n_layers=1, max_iter=STEPS, random_state=1).fit(
        split.inputs, split.targets
    )
    expected = regression_metrics(model.predict_dist(split.test_inputs), split.test_targets)
    assert result["metrics"] == pytest.approx(expected, rel=1e-5)
    on_train = regression_metrics(model.predict_dist(split.inputs), split.targets)
    assert result["train_metrics"] == pytest.approx(on_train, rel=1e-5)


def test_timed_runs_are_trained_before(toy_results, tmp_path, monkeypatch):
    """Their times are of a second training; what it gives is what it gives otherwise."""
    fits, original = [], runs.fit

    def fit(*arguments):
        fits.append(original(*arguments))
        return fits[-1]

    run = replace(toy_runs(0)[0], timed=True)
    monkeypatch.setattr(runs, "fit", fit)
    assert [outcome.state for outcome in run_all([run], tmp_path)] == ["done"]
    result = json.loads((tmp_path / run.path).read_text())
    assert len(fits) == 2
    assert result["seconds"] == fits[1]["seconds"]
    other = json.loads((toy_results / toy_runs(0)[0].path).read_text())
    assert result["metrics"] == other["metrics"]


def test_curves_of_one_input(toy_results):
    result = json.loads((toy_results / toy_runs(0)[0].path).read_text())
    curve = result["curve"]
    assert (np.diff(curve["grid"]) > 0).all()
    assert (np.array(curve["lower"]) < curve["mean"]).all()
    assert (np.array(curve["upper"]) > curve["mean"]).all()
    assert np.shape(curve["prior_draws"]) == (8, len(curve["grid"]))
    np.testing.assert_allclose(curve["test_y"], load_split("toy", 0).test_targets, atol=1e-5)


def test_prior_draws_have_the_moments_of_the_learned_prior():
    split = load_split("toy", 0)
    model = DVIPRegressor(n_layers=1, max_iter=STEPS).fit(split.inputs, split.targets)
    X = np.array([[-1.0], [2.0]])
    draws = with_prior(model).sample_functions(4_000, random_state=0)(X)
    layer = model.model_.network.blocks[0].layer
    mean, features = layer.features(jnp.asarray(model.input_scaler_.transform(X).T, jnp.float32))
    scale = split.targets.std()
    expected = split.targets.mean() + scale * np.asarray(mean[0])
    variance = scale**2 * np.square(features[0]).sum(axis=0)
    assert (np.abs(draws.mean(axis=0) - expected) < 5 * np.sqrt(variance / 4_000)).all()
    np.testing.assert_allclose(draws.var(axis=0), variance, rtol=0.15)
    assert model.model_.network.blocks[0].layer is layer  # the model itself is as it was


def test_a_second_call_skips_and_force_repeats(toy_results):
    before = stored(toy_results)
    runs = toy_runs(0, 1)
    path = toy_results / runs[0].path
    written = path.stat().st_mtime_ns
    assert [o.state for o in run_all(runs, toy_results)] == ["skipped"] * 2
    assert path.stat().st_mtime_ns == written
    assert [o.state for o in run_all(runs[:1], toy_results, force=True)] == ["done"]
    assert path.stat().st_mtime_ns != written
    assert stored(toy_results) == before


def test_what_another_process_is_doing_is_left_to_it(tmp_path):
    run = toy_runs(0)[0]
    program = (
        "import sys, time; from pathlib import Path; from dvip.experiments.results import Results\n"
        "from dvip.experiments.runs import Run\n"
        f"with Results(Path({str(tmp_path)!r})).claim(Run{tuple(vars(run).values())!r}) as ours:\n"
        "    print(ours, flush=True); time.sleep(600)"
    )
    other = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert other.stdout.readline() == "True\n"
    assert [o.state for o in run_all([run], tmp_path)] == ["elsewhere"]
    other.kill()  # what it claimed is free again, however it ended
    other.communicate()
    assert [o.state for o in run_all([run], tmp_path)] == ["done"]


def test_several_at_once_give_the_same(toy_results, tmp_path):
    outcomes = run_all(toy_runs(0, 1, 2), tmp_path, jobs=2)
    assert [outcome.state for outcome in outcomes] == ["done"] * 3
    assert stored(tmp_path) == stored(toy_results)


def test_a_training_that_diverges_is_a_result(tmp_path, monkeypatch):
    wild = Method("vip-elbo", "wild", DVIP, {"n_layers": 1, "learning_rate": 1e30})
    monkeypatch.setattr("dvip.experiments.runs.METHODS", {"vip-elbo": wild})
    (outcome,) = run_all(toy_runs(0), tmp_path)
    assert outcome.state == "diverged"
    (result,) = Results(tmp_path).find("toy", "vip-elbo", STEPS)
    assert "not finite" in result["error"]
    assert "metrics" not in result


def test_a_run_that_fails_leaves_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "execute", _no_memory_on_split_0)
    monkeypatch.setattr(Results, "write", lambda *_: None)
    first, second = run_all(toy_runs(0, 1), tmp_path)
    assert (first.state, second.state) == ("failed", "done")
    assert first.message.startswith("JaxRuntimeError: RESOURCE_EXHAUSTED")
    assert "\n" not in first.message


def _no_memory_on_split_0(run, data):
    if run.split == 0:
        jnp.zeros(10**15)
    return {"error": None, "seconds": 1.0}


def test_a_dataset_that_is_not_whole_is_refused(tmp_path, monkeypatch):
    toy = replace(DATASETS["toy"], rows=700)
    monkeypatch.setattr(runs, "DATASETS", {"toy": toy})
    (outcome,) = run_all(toy_runs(0), tmp_path)
    assert outcome.state == "failed"
    assert outcome.message.startswith("toy has 600 rows here and should have 700")


def test_scores_that_are_not_finite_are_a_divergence(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "judge", lambda *_: {"metrics": {"nll": np.inf, "rmse": 1.0}})
    (outcome,) = run_all(toy_runs(0), tmp_path)
    assert outcome.state == "diverged"
    text = (tmp_path / toy_runs(0)[0].path).read_text()
    assert json.loads(text)["error"] == "Not finite on the test part: nll."
    assert "Infinity" not in text


def test_a_process_that_dies_fails_its_run_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "do", _die_on_split_1)
    outcomes = run_all(toy_runs(0, 1, 2), tmp_path, jobs=2)
    states = {outcome.run.split: outcome.state for outcome in outcomes}
    assert states == {0: "done", 1: "failed", 2: "done"}
    assert len(outcomes) == 3
    assert all("killed" in o.message for o in outcomes if o.state == "failed")


def _die_on_split_1(run, folder, data, force):
    if run.split == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return runner.Outcome(run, "done", 1.0)


SLEEPING_RUNS = """
import os, sys, time
from pathlib import Path
from dvip.experiments import runner
from dvip.experiments.runs import Run

def do(run, folder, data, force):
    (folder / str(os.getpid())).touch()
    time.sleep(600)

if __name__ == "__main__":
    runner.do = do
    runner.run_all([Run("toy", "vip", 0), Run("toy", "vip", 1)], Path(sys.argv[1]), jobs=2)
"""


def test_no_process_outlives_the_first(tmp_path):
    program, folder = tmp_path / "sleeping_runs.py", tmp_path / "processes"
    program.write_text(SLEEPING_RUNS)
    folder.mkdir()
    first = subprocess.Popen([sys.executable, program, folder])
    wait_until(lambda: len(list(folder.iterdir())) == 2)
    first.kill()
    first.wait()
    wait_until(lambda: not any(is_running(int(path.name)) for path in folder.iterdir()))


def wait_until(happens, seconds=100):
    for _ in range(10 * seconds):
        if happens():
            return
        time.sleep(0.1)
    raise AssertionError("It did not happen.")


def is_running(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{process}/stat")
    return not (stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z")


def damaged(folder, content):
    path = folder / toy_runs(0)[0].path
    path.parent.mkdir(parents=True)
    path.write_text(content)
    return path


DAMAGED = ["", '{"dataset": "toy"', "[]", "{}", "null"]
PARTS = ["error", "seconds", "metrics", "train_metrics", "rows", "calibration"]


@pytest.mark.parametrize("part", PARTS)
def test_results_with_a_part_missing_are_named(toy_results, tmp_path, part):
    result = json.loads((toy_results / toy_runs(0)[0].path).read_text())
    del result[part]
    path = damaged(tmp_path, json.dumps(result))
    with pytest.raises(ValueError, match=f"damaged .'{part}'.: delete it") as raised:
        Results(tmp_path).find("toy", "vip-elbo", STEPS)
    assert str(path) in str(raised.value)


@pytest.mark.parametrize("content", DAMAGED)
def test_damaged_results_are_named(tmp_path, content):
    path = damaged(tmp_path, content)
    with pytest.raises(ValueError, match="delete it, and run it again") as raised:
        Results(tmp_path).find("toy", "vip-elbo", STEPS)
    assert str(path) in str(raised.value)


def test_results_in_the_wrong_place_are_named(toy_results, tmp_path):
    source = toy_results / toy_runs(2)[0].path
    damaged(tmp_path, source.read_text())
    with pytest.raises(ValueError, match="split 2"):
        Results(tmp_path).find("toy", "vip-elbo", STEPS)


# ------------------------------------------------------------------------------ the command itself


def toy_command(out, *more):
    arguments = ["prior-constraint", "--dataset", "toy", "--method", "vip-elbo", "--out", str(out)]
    return [*arguments, "--max-iter", str(STEPS), *more]


def test_command_writes_tables_and_figures(toy_results, tmp_path):
    out = tmp_path / "new" / "results"
    result = command(*toy_command(out, "--split", "0", "--split", "1"))
    assert result.exit_code == 0, result.output
    assert "2 runs: 2 done." in result.stdout
    table = (out / f"prior-constraint-max-iter-{STEPS}.md").read_text()
    assert "--max-iter 20" in table
    assert "(2)" in table
    figure = out / "figures" / f"prior-constraint-max-iter-{STEPS}-curves-toy.png"
    assert figure.stat().st_size > 10_000
    again = command(*toy_command(out, "--split", "0", "--split", "1"))
    assert "2 runs: 2 were there." in again.stdout


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


def reproduce_process(out, stderr=subprocess.DEVNULL):
    splits = [word for split in range(3) for word in ("--split", str(split))]
    program = "from dvip.cli import main; main()"
    arguments = ["reproduce", *toy_command(out, *splits)]
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=stderr,
    )


def kill(out, process):
    process.send_signal(signal.SIGKILL)
    process.wait()
    for path in out.rglob("*.json"):
        json.loads(path.read_text())  # whole


def finish_and_compare(out, expected):
    process = reproduce_process(out)
    assert process.wait(timeout=300) == 0
    assert stored(out) == stored(expected)


def test_killed_and_finished(toy_results, tmp_path):
    """Killed after its first run, at the latest within its last."""
    process = reproduce_process(tmp_path)
    wait_until(lambda: list(tmp_path.rglob("*.json")))
    kill(tmp_path, process)
    assert len(stored(tmp_path)) < 3
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
    monkeypatch.setattr(reproducing, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    first, second, _ = toy_runs(0, 1, 2)
    with reproducing.Display(total=4, jobs=1) as display:
        display.end(runner.Outcome(second, "skipped"))
        display.start(first)
        assert "1 of 4 done, 1 running, 2 left" in str(display._text())
        display.end(runner.Outcome(first, "done", 5.0))
    assert capsys.readouterr().err == f"[2/4] {first}: 5 s, about 2 min left\n"


def test_ctrl_c_says_that_it_goes_on(tmp_path):
    process = reproduce_process(tmp_path, stderr=subprocess.PIPE)
    wait_until(lambda: list(tmp_path.rglob("*.json")))
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=100)
    assert process.returncode == 130
    assert re.search(rb"Stopped after [12] of 3 runs; the same command goes on.\n$", stderr)
    assert b"Traceback" not in stderr


# ------------------------------------------------------------------------------------ calibration


def test_uniform_cdfs_are_calibrated():
    cdf = (np.arange(2_000) + 0.5) / 2_000
    calibration = interval_calibration(cdf)
    assert calibration["pit"] == [100] * 20
    np.testing.assert_allclose(calibration["coverage"], LEVELS, atol=1e-9)


def test_overconfident_cdfs_are_seen():
    calibration = interval_calibration(np.array([0.0, 1.0, 0.5, 0.001]))
    assert calibration["coverage"][-1] == 0.25
    assert calibration["pit"][0] == 2


def test_calibration_of_classes():
    calibration = class_calibration(np.array([0.95, 0.99, 0.4]), np.array([True, False, True]))
    assert sum(calibration["rows"]) == 3
    assert calibration["correct"][-1] == 1
    assert calibration["confidence"][-1] == pytest.approx(1.94)
