"""The demonstration: its data, its comparison, and the files that it leaves."""

import matplotlib.image
import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from dvip import load
from dvip.cli import app
from dvip.cli.demo import GAP_KM, demo_metrics, demo_model, load_profile
from dvip.tables import read_table


@pytest.fixture(scope="module")
def demonstration(tmp_path_factory):
    """The files of `dvip demo` and what it printed, after a short training."""
    out = tmp_path_factory.mktemp("demo") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo_model, "__defaults__", (100, False))
        result = CliRunner().invoke(app, ["demo", "--out", str(out)])
    assert result.exit_code == 0, result.output
    return out, result.stdout


def test_the_profile_is_split_without_loss_and_with_a_gap():
    profile = load_profile()
    line = pd.concat([profile.measured, profile.unseen]).sort_values("km")
    assert np.diff(line["km"]) == pytest.approx(np.full(len(line) - 1, 0.0743), abs=0.001)
    assert not profile.measured["km"].between(*GAP_KM).any()
    assert profile.unseen["km"].between(*GAP_KM).sum() > 10
    assert line["height"].between(200, 1_200).all()


def test_the_demonstration_compares_with_a_baseline_and_says_what_is_next(demonstration):
    out, told = demonstration
    for word in ("DVIP", "exact GP", "nll", "coverage_90"):
        assert word in told
    for command in ("evaluate", "predict", "fit"):
        assert f"dvip {command} {out}" in told


def test_the_figure_is_a_picture_in_several_colours(demonstration):
    out, _ = demonstration
    picture = matplotlib.image.imread(out / "figure.png")
    assert picture.shape[0] > 500
    assert picture.shape[1] > 1_000
    colours = (255 * picture[..., :3]).astype(int) @ [2**16, 2**8, 1]
    assert len(np.unique(colours)) > 100


def test_the_commands_that_it_offers_work(demonstration, tmp_path):
    out, _ = demonstration
    predicted = tmp_path / "predictions.csv"
    for arguments in (
        ["evaluate", out / "model", out / "unseen.csv"],
        ["predict", out / "model", out / "unseen.csv", "--out", predicted],
    ):
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        assert result.exit_code == 0, result.output
    assert len(read_table(predicted)) == len(load_profile().unseen)


def test_the_baseline_is_judged_on_the_same_rows(demonstration):
    out, _ = demonstration
    profile = load_profile()
    metrics = demo_metrics(load(out / "model"), profile)
    height = profile.unseen["height"].to_numpy()
    # Both are better than the mean of what was measured.
    naive = np.sqrt(np.mean((height - profile.measured["height"].mean()) ** 2))
    assert metrics["exact GP"]["rmse"] < 0.8 * naive
    assert metrics["DVIP"]["rmse"] < naive
