"""The examples of the folder `examples/` run, are short, and show what they say."""

import importlib
import runpy
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "examples"


@pytest.fixture
def example(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.chdir(tmp_path)  # where their figures go
    yield importlib.import_module
    for path in FOLDER.glob("*.py"):
        sys.modules.pop(path.stem, None)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_examples_are_short_and_say_how_they_are_run(path):
    text = path.read_text()
    assert len(text.splitlines()) < 60
    assert f"python examples/{path.name}" in text


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_season_fills_gaps(example):
    scores = example("co2_season").main()
    season, plain = (scores[name] for name in ("linear + periodic(period=1) + gp", "bnn"))
    assert season[0] < 0.35 * plain[0]
    assert season[1] > 0.75


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["damped_oscillator", "predators_and_prey", "growth_curves"])
def test_a_program_knows_more(example, name):
    scores = example(name).main()
    program, *others = scores.values()
    assert program < min(others) / 2.5


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("first_regression", "of the variance is doubt"),
        ("first_classifier", "sets that hold the label"),
        ("look_at_a_model", "shuffling bmi"),
        ("counts", "negative-binomial: CRPS"),
        ("measurement_errors", "errors are known"),
        ("own_prior", ""),
        ("stream_a_folder", "90 % intervals hold"),
        ("stop_and_resume", "predictions are those of a training without a break: True"),
        ("take_in_new_rows", "300 more rows taken in"),
        ("choose_measurements", "asked for"),
    ],
)
def test_an_example_runs(name, says, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    assert says in capsys.readouterr().out
