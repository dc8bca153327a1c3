"""The programs in `examples` run, are short, and show what they say."""

import runpy
from pathlib import Path

import pytest

PROGRAMS = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_it_is_short(path):
    assert len(path.read_text().splitlines()) < 60


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_rows_that_are_asked_for_tell_more_than_others(capsys):
    path = next(path for path in PROGRAMS if path.stem == "choose_measurements")
    runpy.run_path(str(path))
    asked_for, at_random = (
        [float(error) for error in line.split()[2:]]
        for line in capsys.readouterr().out.splitlines()
    )
    assert asked_for[-1] < 0.5 * at_random[-1]


@pytest.mark.slow
def test_rows_that_were_taken_in_make_predictions_better(capsys):
    path = next(path for path in PROGRAMS if path.stem == "take_in_new_rows")
    runpy.run_path(str(path))
    lines = capsys.readouterr().out.splitlines()
    errors = [float(line.split("error ")[1].split(",")[0]) for line in lines]
    assert errors[3] < errors[0]
