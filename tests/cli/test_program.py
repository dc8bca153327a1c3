"""The program: its help, its options, its end."""

import inspect
import json
import signal
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from command_line import QUICK, dvip_process, run, succeed

from dvip import DeepGPRegressor, DVIPRegressor, GaussianProcess, SIPRegressor, __version__, load
from dvip.cli.app import fit as fit_command
from dvip.registry import LIKELIHOODS, PRIORS


def test_defaults_of_the_command_are_those_of_the_estimator():
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(fit_command).parameters.items()
    }
    assert defaults["seed"] == DVIPRegressor.paper().random_state == SIPRegressor().random_state
    # The others are left to the estimator, and the help tells what they are.
    told = _help_of_fit()
    dvip, sip = DVIPRegressor.paper().get_params(), SIPRegressor().get_params()
    for name in ("layers", "prior_samples", "prior", "alpha", "max_iter", "learning_rate"):
        assert defaults[name] is None
    assert f"{dvip['n_prior_samples']} by default, {sip['n_prior_samples']} for sip." in told
    for name in ("n_layers", "alpha"):
        with_vi = f"by default chosen, {dvip[name]:g} with --inference vi and for deep-gp"
        assert f"{with_vi}, {sip[name]:g} for sip." in told
    assert dvip["prior"] == sip["prior"]
    assert f"by default chosen, {dvip['prior']} with --inference vi and for sip." in told
    chosen = DVIPRegressor().get_params()
    assert all(chosen[name] is None for name in ("n_layers", "prior", "alpha", "max_iter"))
    assert chosen["inference"] == "auto"
    assert "auto, the default" in told
    deep_gp = DeepGPRegressor().get_params()
    assert all(deep_gp[name] == dvip[name] for name in ("n_layers", "alpha", "random_state"))


def _help_of_fit():
    """In one line, without the frames around it."""
    words = " ".join(succeed("fit", "--help").stdout.replace("│", " ").split())
    return words.replace("- ", "-")  # a name that was broken at its hyphen


def test_priors_by_name(tmp_path):
    told = _help_of_fit()
    assert all(f" {name}" in told for name in (*PRIORS, *LIKELIHOODS))
    frame = pd.DataFrame({"x": np.arange(30.0), "y": np.sin(np.arange(30.0))})
    frame.to_csv(tmp_path / "t.csv", index=False)
    fit = ("fit", tmp_path / "t.csv", "--target", "y", "--out", tmp_path / "m", *QUICK)
    succeed(*fit, "--prior", "gp")
    model = load(tmp_path / "m")
    assert isinstance(model.model_.network.stages[0].layer.process, GaussianProcess)


@pytest.mark.parametrize("command", ["fit", "predict", "evaluate", "demo", "datasets"])
def test_help_shows_examples(command):
    assert f"dvip {command}" in succeed("--help").stdout
    told = succeed(command, "--help").stdout
    examples = told.partition("Examples:\n")[2].partition("Options:")[0]
    assert f"      dvip {command}".strip() in examples
    assert "\n" in examples.strip()


def test_the_version_is_that_of_the_package():
    assert succeed("--version").stdout == f"dvip {__version__}\n"


def test_the_program_as_a_module():
    command = [sys.executable, "-m", "dvip", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert __version__ in done.stdout


def test_the_program_in_a_process_of_its_own(regression):
    process = dvip_process("evaluate", regression.model, regression.test, "--json")
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 0
    assert json.loads(stdout)["rows"] == 142
    assert stderr == ""


def test_ctrl_c_after_the_training_says_where_the_model_is(regression, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("dvip.cli.fit.scores", stop)
    out = regression.folder / "not scored"
    arguments = ("fit", regression.train, "--target", "target", "--out", out, *QUICK)
    result = run(*arguments, "--test-fraction", "0.2", "--drop", "s1")
    assert result.exit_code == 130
    assert result.stderr.splitlines()[-1] == f"Stopped. The model is in {out}, not scored yet."
    models = (out, regression.model)
    first, second = (succeed("evaluate", model, regression.test, "--json") for model in models)
    assert first.stdout == second.stdout


def test_ctrl_c_prints_a_line_and_leaves_nothing(regression):
    out = regression.folder / "interrupted"
    arguments = ("fit", regression.train, "--target", "target", "--out", out)
    process = dvip_process(*arguments, "--max-iter", "100000000")
    try:
        while not process.stdout.readline().startswith("Training"):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 130
    assert stderr == "Stopped. Nothing was written.\n"
    assert not out.exists()
