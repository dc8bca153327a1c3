"""Runs of the experiments: what is stored, and what happens when one of them stops."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from toy_experiment import STEPS, stored, toy_runs, wait_until

from dvip import DVIPRegressor
from dvip.data import DATASETS, load_split
from dvip.metrics import regression_metrics
from dvip.paper import runner, runs
from dvip.paper.methods import DVIP, Method
from dvip.paper.runner import run_all
from dvip.paper.runs import Results, with_prior


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


def test_what_another_process_is_doing_is_left_to_it(tmp_path):
    run = toy_runs(0)[0]
    program = (
        "import sys, time; from pathlib import Path; from dvip.paper.runs import Results\n"
        "from dvip.paper.runs import Run\n"
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
    monkeypatch.setattr("dvip.paper.runs.METHODS", {"vip-elbo": wild})
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
from dvip.paper import runner
from dvip.paper.runs import Run

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
