"""Tables, figures and the page of results, from results that the tests write."""

import math
import re
import shutil
import subprocess

import numpy as np
import pytest
from matplotlib.image import imread
from typer.testing import CliRunner

from dvip.cli import app
from dvip.experiments.calibration import class_calibration
from dvip.experiments.figures import figures, scores_figure
from dvip.experiments.grids import EXPERIMENTS
from dvip.experiments.paper import paper_estimate
from dvip.experiments.report import html_report
from dvip.experiments.results import Results
from dvip.experiments.runs import Run
from dvip.experiments.summaries import summarise
from dvip.experiments.tables import agreement, markdown

UCI = EXPERIMENTS["uci"]
SCRIPT = "<script>alert(1)</script>"


def write(folder, dataset, method, nlls, error=None):
    for split, nll in enumerate(nlls):
        run = Run(dataset, method, split)
        metrics = {"nll": nll, "rmse": 1 + nll, "crps": 0.5}
        result = {**vars(run), "error": error, "seconds": 10.0, "cpu_seconds": 15.0 + split}
        if error is None:
            calibration = {"pit": [5] * 20, "coverage": [0.05 * k for k in range(1, 20)]}
            result |= {"metrics": metrics, "train_metrics": metrics, "calibration": calibration}
            result["rows"] = {"train": 900, "test": 100}
        Results(folder).write(run, result)


@pytest.fixture
def results(tmp_path):
    folder = tmp_path / "results"
    write(folder, "energy", "dvip-3", [0.6, 0.8, 0.7])
    write(folder, "energy", "sgp", [1.9, 2.1])
    write(folder, "boston", "dvip-3", [2.5])
    return Results(folder)


def test_the_paper_is_read():
    assert paper_estimate("uci", "energy", ("DVIP 3", ""), "nll") == (0.70, 0.01)
    assert paper_estimate("uci", "kin8nm", ("DGP 5", ""), "nll").mean == -1.30
    assert paper_estimate("uci", "kin8nm", ("DVIP 3", ""), "nll").stderr == 0.005  # printed as 0.00
    mnist = paper_estimate("images", "mnist", ("DVIP 2", "conv first layer"), "accuracy")
    assert mnist.mean == pytest.approx(0.9839)
    assert paper_estimate("uci", "yacht", ("DVIP 3", ""), "nll") is None


def test_means_and_standard_errors(results):
    cell = summarise(UCI, results).cells["energy", "dvip-3"]
    ours = cell.ours("nll")
    assert ours.mean == pytest.approx(0.7)
    assert ours.stderr == pytest.approx(0.1 / math.sqrt(3))
    assert cell.ours("rmse").mean == pytest.approx(1.7)
    assert cell.ours("nll_train").mean == pytest.approx(0.7)
    assert cell.ours("cpu_seconds").mean == 16.0
    assert cell.ours("accuracy") is None
    single = summarise(UCI, results).cells["boston", "dvip-3"].ours("nll")
    assert single.mean == 2.5
    assert math.isnan(single.stderr)


@pytest.mark.parametrize(
    ("nlls", "agrees"),
    [
        ([0.70, 0.72], True),  # paper 0.70 ± 0.01
        ([0.1, 0.1001], True),  # better
        ([0.735, 0.7351], False),  # by more than two errors of 0.01
        ([0.6, 0.9], True),  # wide errors of our own
        ([0.9], None),  # no error is known of one run
    ],
)
def test_agreement_with_the_paper(tmp_path, nlls, agrees):
    write(tmp_path, "energy", "dvip-3", nlls)
    assert summarise(UCI, Results(tmp_path)).cells["energy", "dvip-3"].agrees("nll") is agrees


def test_agreement_in_words(results):
    words = agreement(summarise(UCI, results), "nll")
    assert words.startswith("1 of 2 cells")  # boston is of one run, energy's SGP is 1.54 there
    assert words.endswith("Of DVIP's: 1 of 1.")


def test_markdown(results):
    text = markdown(summarise(UCI, results))
    assert "`dvip reproduce uci`" in text
    nll = text.split("## ")[1]
    lines = {
        line.split("|")[1].strip() + line.split("|")[2].strip(): line
        for line in nll.splitlines()
        if line.startswith("|")
    }
    assert "| **0.70 ± 0.06 (3)** |" in lines["DVIP 3dvip"]
    assert "| 2.50 (1) |" in lines["DVIP 3dvip"]
    assert "2.00 ± 0.10 (2)" in lines["SGPdvip"]
    assert "**2.00" not in lines["SGPdvip"]
    assert "**0.70 ± 0.01**" in nll  # the paper's own, and its best of the two


def test_other_budgets_are_kept_apart(results):
    run = Run("energy", "dvip-3", 0, 0, 50)
    other = {"error": None, "seconds": 1.0, "cpu_seconds": 1.0, "metrics": {"nll": 99.0}}
    Results(results.folder).write(run, {**vars(run), **other})
    assert summarise(UCI, results).cells["energy", "dvip-3"].ours("nll").mean < 1
    assert summarise(UCI, results, 50).cells["energy", "dvip-3"].ours("nll").mean == 99


def test_runs_that_diverged_are_counted(tmp_path):
    write(tmp_path, "energy", "dvip-3", [0.6, 0.8])
    write(tmp_path, "energy", "sgp", [0.0], error="the bound is not finite")
    text = markdown(summarise(UCI, Results(tmp_path)))
    assert "(0, 1 diverged)" in text


def test_the_best_coverage_is_the_honest_one(tmp_path):
    for method, coverage in (("dvip-2", 0.96), ("dgp-2", 0.99), ("sgp", 0.80)):
        run = Run("co2", method)
        result = {**vars(run), "error": None, "seconds": 1.0, "cpu_seconds": 1.0}
        Results(tmp_path).write(run, {**result, "metrics": {"coverage_95": coverage}})
    text = markdown(summarise(EXPERIMENTS["co2"], Results(tmp_path)))
    assert "**0.960 (1)**" in text
    assert "**0.990" not in text


def test_figure_shows_the_numbers(results):
    figure = scores_figure(summarise(UCI, results), "nll")
    boston, energy = figure.axes
    assert [axes.get_title("left") for axes in figure.axes] == ["boston", "energy"]
    assert [label.get_text() for label in boston.get_yticklabels()] == ["SGP", "DVIP 3"]
    shown = sorted(float(line.get_xdata()[0]) for line in energy.lines if line.get_marker() in "oD")
    np.testing.assert_allclose(shown, [0.70, 0.70, 1.54, 2.0])


def test_a_value_far_away_is_written_at_the_edge(tmp_path):
    for method, nll in (("dvip-2", 0.7), ("dvip-3", 0.71), ("dvip-4", 0.72), ("sgp", 5_000.0)):
        write(tmp_path, "energy", method, [nll, nll + 0.01])
    (axes,) = scores_figure(summarise(UCI, Results(tmp_path)), "nll").axes
    assert axes.get_xlim()[1] < 10
    assert "5e+03" in [text.get_text() for text in axes.texts]


def test_values_that_differ_a_little_all_stay(tmp_path):
    for method, nll in (("dvip-2", 0.7), ("dvip-3", 0.7001), ("dvip-4", 0.7002), ("sgp", 0.69)):
        write(tmp_path, "concrete", method, [nll])  # a better one is never at the edge
    (axes,) = scores_figure(summarise(UCI, Results(tmp_path)), "nll").axes
    assert not axes.texts
    assert axes.get_xlim()[0] < 0.69


def test_calibration_is_drawn(results):
    drawn = figures(summarise(UCI, results))
    assert set(drawn) == {"scores", "times", "calibration"}
    top = drawn["calibration"].axes[0]
    np.testing.assert_allclose(top.lines[1].get_ydata(), [0.05 * k for k in range(1, 20)])


def write_classes(folder, method, confidence, correct):
    run = Run("mnist", method, max_iter=EXPERIMENTS["images"].max_iter)
    metrics = {"accuracy": 0.98, "log_likelihood": -0.1}
    calibration = class_calibration(np.array(confidence), np.array(correct))
    result = {**vars(run), "error": None, "seconds": 1.0, "cpu_seconds": 1.0, "metrics": metrics}
    Results(folder).write(run, {**result, "calibration": calibration})


def test_reliability_of_classes_is_drawn(tmp_path):
    write_classes(tmp_path, "vip-conv", [0.91, 0.91, 0.5, 0.5], [True, True, True, False])
    write_classes(tmp_path, "dvip-2-conv", [0.99, 0.99], [True, False])
    summary = summarise(EXPERIMENTS["images"], Results(tmp_path))
    drawn = figures(summary)
    assert set(drawn) == {"scores", "times", "reliability"}
    vip, dvip = (axes.collections[0].get_offsets() for axes in drawn["reliability"].axes)
    np.testing.assert_allclose(vip, [[0.5, 0.5], [0.91, 1.0]])
    np.testing.assert_allclose(dvip, [[0.99, 0.5]])
    page = html_report(Results(tmp_path))
    assert "How often the predicted class was right" in page
    # Ten classes have no area under the curve: no table, and no number of runs without a value.
    assert "ROC" not in markdown(summary)


def test_times_have_neither_scores_nor_calibration(tmp_path):
    timing = EXPERIMENTS["timing"]
    for method, seconds in (("sgp", 2.0), ("vip", 1.0)):
        (run,) = timing.runs(["energy"], [method])
        result = {**vars(run), "error": None, "seconds": seconds, "cpu_seconds": seconds}
        Results(tmp_path).write(run, {**result, "calibration": {"pit": [1], "coverage": [1]}})
    assert set(figures(summarise(timing, Results(tmp_path)))) == {"times"}
    # The same number of steps without a training before it is another result.
    untimed = Run("energy", "sgp", max_iter=timing.max_iter)
    Results(tmp_path).write(untimed, {**vars(untimed), "error": None, "seconds": 9.0})
    cell = summarise(timing, Results(tmp_path)).cells["energy", "sgp"]
    assert cell.ours("seconds").mean == 2.0


def test_page_is_self_contained_and_escaped(results):
    write(results.folder, "energy", "vip", [0.0], error=SCRIPT)
    page = html_report(results)
    assert SCRIPT not in page
    assert "&lt;script&gt;" in page
    assert not re.findall(r'(?:src|href)="(?!data:|#)', page)
    assert "@import" not in page
    assert "0.70 ± 0.06 (3)" in page
    assert html_report(results) == page  # the same results give the same page


def test_report_command(results, tmp_path):
    out = tmp_path / "pages" / "report.html"
    result = CliRunner().invoke(app, ["report", str(results.folder), "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert out.read_text().startswith("<!doctype html>")
    assert not (results.folder / "uci.md").exists()
    with_tables = ["report", str(results.folder), "--out", str(out), "--tables"]
    assert CliRunner().invoke(app, with_tables).exit_code == 0
    assert "0.70 ± 0.06 (3)" in (results.folder / "uci.md").read_text()
    assert (results.folder / "figures" / "uci-scores.png").exists()


@pytest.mark.parametrize(
    ("folder", "out", "words"),
    [
        ("nowhere", "report.html", "There is no folder"),
        ("empty", "report.html", "has no results"),
        ("results", "empty", "is a folder"),
    ],
)
def test_report_refuses(results, tmp_path, folder, out, words):
    (tmp_path / "empty").mkdir()
    result = CliRunner().invoke(
        app, ["report", str(tmp_path / folder), "--out", str(tmp_path / out)]
    )
    assert result.exit_code == 1
    assert words in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))),
                None)  # fmt: skip


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed to open the page with")
@pytest.mark.parametrize("width", [1280, 500])  # 500 is the least that a window can have
def test_page_in_a_browser(results, tmp_path, width):
    """It draws, and nothing but tables and figures in their frames is wider than the window."""
    page = html_report(results)
    measure = "<script>document.title = document.documentElement.scrollWidth</script>"
    path = tmp_path / "report.html"
    path.write_text(page.replace("</body>", f"{measure}</body>"))
    picture = tmp_path / "page.png"
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--window-size={width},900"]
    folder = f"--user-data-dir={tmp_path / 'profile'}"
    for what in ("--dump-dom", f"--screenshot={picture}"):
        done = subprocess.run(
            [CHROMIUM, *options, folder, what, path.as_uri()],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        if what == "--dump-dom":
            title = re.search(r"<title>(\d+)</title>", done.stdout)
            assert title is not None
            assert int(title[1]) <= width
    pixels = imread(picture)
    assert pixels.shape[1] == width
    assert pixels[..., :3].std() > 0.05  # not an empty page
