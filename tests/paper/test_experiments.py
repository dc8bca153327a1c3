"""Runs of the experiments: what is stored, and what happens when one of them stops."""

import json
import os
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import stand_ins
from toy_experiment import STEPS, stored, toy_runs, wait_until

from dvip import DVIPRegressor
from dvip.data import DATASETS, load_split
from dvip.metrics import regression_metrics
from dvip.paper import execution, runs
from dvip.paper.execution import with_prior
from dvip.paper.grids import DVIP, Method
from dvip.paper.results import Results
from dvip.paper.runs import run_all


@contextmanager
def stand_in(name, folder):
    """A process that does something else in place of training, and does not outlive the test."""
    program = [sys.executable, stand_ins.__file__, name, str(folder)]
    process = subprocess.Popen(program, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


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
    model = DVIPRegressor.paper(n_layers=1, max_iter=STEPS, random_state=1).fit(
        split.inputs, split.targets
    )
    expected = regression_metrics(model.predict_dist(split.test_inputs), split.test_targets)
    assert result["metrics"] == pytest.approx(expected, rel=1e-5)
    on_train = regression_metrics(model.predict_dist(split.inputs), split.targets)
    assert result["train_metrics"] == pytest.approx(on_train, rel=1e-5)


def test_timed_runs_are_trained_before(toy_results, tmp_path, monkeypatch):
    """Their times are of a second training; what it gives is what it gives otherwise."""
    fits, original = [], execution.fit

    def fit(*arguments):
        fits.append(original(*arguments))
        return fits[-1]

    run = replace(toy_runs(0)[0], timed=True)
    monkeypatch.setattr(execution, "fit", fit)
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
    model = DVIPRegressor.paper(n_layers=1, max_iter=STEPS).fit(split.inputs, split.targets)
    X = np.array([[-1.0], [2.0]])
    draws = with_prior(model).sample_functions(4_000, random_state=0)(X)
    layer = model.model_.network.stages[0].layer
    mean, features = layer.features(jnp.asarray(model.input_scaler_.transform(X).T, jnp.float32))
    scale = split.targets.std()
    expected = split.targets.mean() + scale * np.asarray(mean[0])
    variance = scale**2 * np.square(features[0]).sum(axis=0)
    assert (np.abs(draws.mean(axis=0) - expected) < 5 * np.sqrt(variance / 4_000)).all()
    np.testing.assert_allclose(draws.var(axis=0), variance, rtol=0.15)
    assert model.model_.network.stages[0].layer is layer  # the model itself is as it was


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


def test_what_another_process_is_doing_is_left_to_it(tmp_path, monkeypatch):
    monkeypatch.setattr(execution, "execute", _no_memory_on_split_1)
    run = stand_ins.RUNS[0]
    with stand_in("hold_a_claim", tmp_path) as other:
        assert other.stdout.readline() == "True\n"
        assert [o.state for o in run_all([run], tmp_path)] == ["elsewhere"]
    # What was claimed is free again, though the process was killed.
    assert [o.state for o in run_all([run], tmp_path)] == ["done"]


def test_processes_on_one_folder_do_each_run_once(tmp_path):
    """Three at once, as `dvip reproduce` in three terminals: all is there, whole, done by one."""
    with ExitStack() as stack:
        processes = [stack.enter_context(stand_in("do_all", tmp_path)) for _ in range(3)]
        assert [process.stdout.readline() for process in processes] == ["ready\n"] * 3
        (tmp_path / "go").touch()
        assert [process.wait(timeout=60) for process in processes] == [0, 0, 0]
    by = {path: path.read_text().split() for path in tmp_path.glob("process-*")}
    assert len(by) > 1
    done = sorted(int(split) for splits in by.values() for split in splits)
    assert done == [run.split for run in stand_ins.RUNS]
    for run in stand_ins.RUNS:
        result = json.loads((tmp_path / run.path).read_text())
        assert str(run.split) in by[tmp_path / f"process-{result['by']}"]
    assert not list(tmp_path.rglob("*.tmp"))


@pytest.mark.slow
def test_several_at_once_give_the_same(toy_results, tmp_path):
    outcomes = run_all(toy_runs(0, 1), tmp_path, jobs=2)
    assert [outcome.state for outcome in outcomes] == ["done"] * 2
    expected = stored(toy_results)
    assert stored(tmp_path) == {run.path: expected[run.path] for run in toy_runs(0, 1)}


def test_a_training_that_diverges_is_a_result(tmp_path, monkeypatch):
    wild = Method("vip-elbo", "wild", DVIP, {"n_layers": 1, "learning_rate": 1e30})
    monkeypatch.setattr("dvip.paper.execution.METHODS", {"vip-elbo": wild})
    (outcome,) = run_all(toy_runs(0), tmp_path)
    assert outcome.state == "diverged"
    (result,) = Results(tmp_path).find("toy", "vip-elbo", STEPS)
    assert "not finite" in result["error"]
    assert "metrics" not in result


def test_a_run_that_fails_leaves_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr(execution, "execute", _no_memory_on_split_1)
    first, second, third = run_all(toy_runs(0, 1, 2), tmp_path)
    assert (first.state, second.state, third.state) == ("done", "failed", "done")
    assert second.message.startswith("JaxRuntimeError: RESOURCE_EXHAUSTED")
    assert "\n" not in second.message


def _no_memory_on_split_1(run, data):
    if run.split == 1:
        jnp.zeros(10**15)
    return {"error": None, "seconds": 1.0}


def test_a_dataset_that_is_not_whole_is_refused(tmp_path, monkeypatch):
    toy = replace(DATASETS["toy"], rows=700)
    monkeypatch.setattr(execution, "DATASETS", {"toy": toy})
    (outcome,) = run_all(toy_runs(0), tmp_path)
    assert outcome.state == "failed"
    assert outcome.message.startswith("toy has 600 rows here and should have 700")


def test_scores_that_are_not_finite_are_a_divergence(tmp_path, monkeypatch):
    monkeypatch.setattr(execution, "judge", lambda *_: {"metrics": {"nll": np.inf, "rmse": 1.0}})
    (outcome,) = run_all(toy_runs(0), tmp_path)
    assert outcome.state == "diverged"
    text = (tmp_path / toy_runs(0)[0].path).read_text()
    assert json.loads(text)["error"] == "Not finite on the test part: nll."
    assert "Infinity" not in text


def test_a_process_that_dies_fails_its_run_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "do", stand_ins.die_on_split_1)
    outcomes = run_all(toy_runs(0, 1, 2), tmp_path, jobs=2)
    states = {outcome.run.split: outcome.state for outcome in outcomes}
    assert states == {0: "done", 1: "failed", 2: "done"}
    assert len(outcomes) == 3
    assert all("killed" in o.message for o in outcomes if o.state == "failed")


def test_no_process_outlives_the_first(tmp_path):
    with stand_in("sleep_in_two_processes", tmp_path):
        wait_until(lambda: len(list(tmp_path.iterdir())) == 2)
    wait_until(lambda: not any(is_running(int(path.name)) for path in tmp_path.iterdir()))


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
