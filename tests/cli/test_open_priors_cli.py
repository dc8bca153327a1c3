"""Priors in the command line: text that is parsed, files of curves, and pictures of functions."""

import numpy as np
import pandas as pd
import pytest
from command_line import QUICK, refuse, run, succeed

from dvip import CurvePrior, PriorSum, load


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table with a season, and a file of curves."""
    folder = tmp_path_factory.mktemp("priors")
    random = np.random.default_rng(0)
    years = np.linspace(2000, 2008, 90)
    frame = pd.DataFrame(
        {
            "year": years,
            "lab": random.choice(["a", "b"], 90),
            "ppm": 300 + years - 2000 + np.sin(2 * np.pi * years),
        }
    )
    frame.to_csv(folder / "table.csv", index=False)
    curves = {f"curve {k}": 300 + k * np.linspace(0, 1, 5) for k in range(6)}
    pd.DataFrame({"year": np.linspace(2000, 2008, 5), **curves}).to_csv(
        folder / "past curves.csv", index=False
    )
    return folder


def test_a_prior_of_several_names_and_a_file(folder):
    text = f"linear + periodic(period=1, on='year') + curves({folder}/past curves.csv).on('year')"
    out = folder / "model"
    fit = ("fit", folder / "table.csv", "--target", "ppm", "--out", out, *QUICK)
    succeed(*fit, "--prior", text)
    (folder / "past curves.csv").rename(folder / "gone.csv")
    try:
        model = load(out)  # without the file
    finally:
        (folder / "gone.csv").rename(folder / "past curves.csv")
    assert isinstance(model.prior, PriorSum)
    assert isinstance(model.prior.processes[2].process, CurvePrior)
    succeed("predict", out, folder / "table.csv", "--out", folder / "predicted.csv")
    assert np.isfinite(pd.read_csv(folder / "predicted.csv")["mean"]).all()


def test_a_picture_of_a_prior(folder):
    out = folder / "prior.png"
    look = ("prior", folder / "table.csv", "--target", "ppm", "--out", out)
    told = succeed(*look, "--prior", "linear + periodic(period=1, on='year')")
    assert "25 functions" in told.stdout
    assert "Warning" not in told.stderr
    assert out.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_a_picture_without_a_target(folder):
    out = folder / "plain.pdf"
    succeed("prior", folder / "table.csv", "--out", out, "--drop", "ppm", "--drop", "lab")
    assert out.read_bytes().startswith(b"%PDF")


def test_a_prior_that_cannot_reach_the_data_is_told(folder):
    out = folder / "far.svg"
    look = ("prior", folder / "table.csv", "--target", "ppm", "--out", out, "--drop", "lab")
    told = run(*look, "--prior", f"curves('{folder}/past curves.csv')")
    assert told.exit_code == 0
    assert "does not reach" in told.stderr
    assert "at year from 200" in told.stderr
    assert out.read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("prior", "message"),
    [
        ("magic", "prior='magic' is not known"),
        ("gp + magic", "prior='magic' is not known"),
        ("gp(", "cannot be read"),
        ("open('/etc/passwd')", "prior='open' is not known"),
        ("gp.on('yaer')", "on='yaer': there is no such column. The inputs are 'year'"),
        ("periodic(period=0)", "period=0: give a positive number"),
        ("curves(none.csv)", "There is no file none.csv with curves"),
    ],
)
def test_priors_that_are_refused(folder, prior, message):
    table, out = folder / "table.csv", folder / "none"
    fit = ("fit", table, "--target", "ppm", "--out", out, *QUICK)
    picture = ("prior", table, "--target", "ppm", "--out", folder / "none.png")
    assert message in refuse(*picture, "--prior", prior)
    if "yaer" in prior:  # which only the table can tell
        return
    assert message in refuse(*fit, "--prior", prior)
    assert not out.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--target", "ppb", "--out", "x.png"), "no column 'ppb'; it has year, lab, ppm"),
        (("--drop", "no", "--out", "x.png"), "no column 'no'"),
        (("--out", "x.txt"), "must end in .png, .pdf or .svg"),
        (("--drop", "year", "--drop", "ppm", "--out", "x.png"), "no column of numbers"),
    ],
)
def test_pictures_that_cannot_be(folder, options, message, monkeypatch):
    monkeypatch.chdir(folder)
    assert message in refuse("prior", folder / "table.csv", *options)
