"""Tables, figures and the page of results, from results that the tests write."""

import math
import re
import shutil
import subprocess
from itertools import pairwise

import numpy as np
import pytest
from matplotlib.image import imread
from typer.testing import CliRunner

from dvip.__main__ import app
from dvip.paper.execution import class_calibration
from dvip.paper.figures import figures, scores_figure
from dvip.paper.grids import EXPERIMENTS
from dvip.paper.page import html_report, write_experiment
from dvip.paper.reproduction import print_table
from dvip.paper.results import Results, Run
from dvip.paper.summaries import (
    agreement,
    markdown,
    paper_estimate,
    summarise,
    summarise_all,
    tables,
)

UCI = EXPERIMENTS["uci"]
SCRIPT = "<script>alert(1)</script>"


def store(folder, run, metrics, **parts):
    """A whole result with the given metrics and other parts."""
    result = {
        **vars(run),
        "error": None,
        "seconds": 10.0,
        "cpu_seconds": 15.0,
        "metrics": metrics,
        "train_metrics": metrics,
        "rows": {"train": 900, "test": 100},
        "calibration": {"pit": [5] * 20, "coverage": [0.05 * k for k in range(1, 20)]},
    }
    Results(folder).write(run, result | parts)


def write(folder, dataset, method, nlls, **parts):
    for split, nll in enumerate(nlls):
        metrics = {"nll": nll, "rmse": 1 + nll, "crps": 0.5}
        run = Run(dataset, method, split)
        store(folder, run, metrics, cpu_seconds=15.0 + split, **parts)


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
    assert paper_estimate("uci", "kin8nm", ("DVIP 3", ""), "nll").stderr == 0
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


def test_an_error_of_zero_counts_as_half_of_the_last_digit(tmp_path):
    write(tmp_path, "kin8nm", "dvip-3", [-1.125, -1.125])  # paper -1.13 ± 0.00
    write(tmp_path, "kin8nm", "dvip-2", [-0.98, -0.98])  # paper -1.00 ± 0.00
    summary = summarise(UCI, Results(tmp_path))
    assert summary.cells["kin8nm", "dvip-3"].agrees("nll") is True
    assert summary.cells["kin8nm", "dvip-2"].agrees("nll") is False
    assert "| -1.13 ± 0.00 |" in markdown(summary)  # as printed


def test_what_cannot_be_compared_is_not(tmp_path):
    write(tmp_path, "naval", "dvip-3", [-6.0, -6.1])
    cell = summarise(UCI, Results(tmp_path)).cells["naval", "dvip-3"]
    assert cell.paper("rmse").mean == 0  # as printed
    assert cell.agrees("rmse") is None
    assert cell.agrees("nll") is True
    write(tmp_path, "kin8nm", "dvip-3", [-1.0, -1.1])
    gp_prior = summarise(EXPERIMENTS["gp-prior"], Results(tmp_path)).cells["kin8nm", "dvip-3"]
    assert gp_prior.paper("cpu_seconds") is not None
    assert gp_prior.agrees("cpu_seconds") is None  # of other machines


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


def test_the_papers_best_are_bold_whether_we_have_run_them_or_not(results):
    """Energy: DVIP 3 and DVIP 4 have 0.70, of which we have the first. Boston: DVIP 3 is best."""
    nll = markdown(summarise(UCI, results)).split("## ")[1]
    assert nll.count("**0.70 ± 0.01**") == 1
    write(results.folder, "energy", "dvip-4", [0.9])
    write(results.folder, "kin8nm", "dgp-3", [-1.0])  # DGP 4 is the best there
    nll = markdown(summarise(UCI, results)).split("## ")[1]
    assert nll.count("**0.70 ± 0.01**") == 2
    assert "| -1.32 ± 0.00 |" in nll


def test_the_papers_figures_are_there_without_ours(results):
    """SGP on boston was not run."""
    assert "2.62 ± 0.05" in markdown(summarise(UCI, results))


@pytest.mark.parametrize(
    "different", [{"settings": {"learning_rate": 0.5}}, {"steps": 10_000}], ids=["rate", "steps"]
)
def test_mixed_settings_are_named(results, different):
    for split, steps in ((5, 20_000), (6, 20_010)):  # of a few rows more
        store(results.folder, Run("energy", "sgp", split), {"nll": 1.0}, steps=steps)
    given = {"settings": {"max_iter": 20_000, "random_state": 9}}
    store(results.folder, Run("energy", "sgp", 8), {"nll": 1.0}, steps=20_000, **given)
    assert "different settings" not in markdown(summarise(UCI, results))
    store(results.folder, Run("energy", "sgp", 7), {"nll": 1.0}, **different)
    words = "Runs of different settings are pooled in SGP on energy."
    assert words in markdown(summarise(UCI, results))
    assert words in html_report(summarise_all(results))


def test_a_model_that_chooses_its_steps_is_no_mixture(tmp_path):
    for split, steps in ((0, 750), (1, 1_500)):
        settings = {"inference": "auto", "random_state": split}
        store(tmp_path, Run("yacht", "dvip", split), {"nll": 1.0}, steps=steps, settings=settings)
    text = markdown(summarise(EXPERIMENTS["neighbours"], Results(tmp_path)))
    assert "1.00 ± 0.00 (2)" in text
    assert "different settings" not in text


def test_other_budgets_have_files_of_their_own(results):
    own = write_experiment(summarise(UCI, results), results.folder)
    store(results.folder, Run("energy", "dvip-3", max_iter=50), {"nll": 99.0})
    others = write_experiment(summarise(UCI, results, 50), results.folder)
    assert not set(own) & set(others)
    assert results.folder / "uci-max-iter-50.md" in others


def test_other_budgets_are_kept_apart(results):
    store(results.folder, Run("energy", "dvip-3", max_iter=50), {"nll": 99.0})
    assert summarise(UCI, results).cells["energy", "dvip-3"].ours("nll").mean < 1
    assert summarise(UCI, results, 50).cells["energy", "dvip-3"].ours("nll").mean == 99


def test_runs_that_diverged_are_counted(tmp_path):
    write(tmp_path, "energy", "dvip-3", [0.6, 0.8])
    write(tmp_path, "energy", "sgp", [0.0], error="the bound is not finite")
    text = markdown(summarise(UCI, Results(tmp_path)))
    assert "(0, 1 diverged)" in text


def test_the_best_coverage_is_the_honest_one(tmp_path):
    for method, coverage in (("dvip-2", 0.96), ("dgp-2", 0.99), ("sgp", 0.80)):
        store(tmp_path, Run("co2", method), {"coverage_95": coverage})
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
    calibration = class_calibration(np.array(confidence), np.array(correct))
    store(folder, run, {"accuracy": 0.98, "log_likelihood": -0.1}, calibration=calibration)


def test_reliability_of_classes_is_drawn(tmp_path):
    write_classes(tmp_path, "vip-conv", [0.91, 0.91, 0.5, 0.5], [True, True, True, False])
    write_classes(tmp_path, "dvip-2-conv", [0.99, 0.99], [True, False])
    summary = summarise(EXPERIMENTS["images"], Results(tmp_path))
    drawn = figures(summary)
    assert set(drawn) == {"scores", "times", "reliability"}
    vip, dvip = (axes.collections[0].get_offsets() for axes in drawn["reliability"].axes)
    np.testing.assert_allclose(vip, [[0.5, 0.5], [0.91, 1.0]])
    np.testing.assert_allclose(dvip, [[0.99, 0.5]])
    page = html_report(summarise_all(Results(tmp_path)))
    assert "How often the predicted class was right" in page
    # Ten classes have no area under the curve: no table, and no number of runs without a value.
    assert "ROC" not in markdown(summary)


@pytest.mark.parametrize("longest", [200.0, 40_000.0])
def test_labels_of_times_do_not_overlap(tmp_path, longest):
    for method, seconds in (("vip-elbo", 10.0), ("vip-unconstrained", longest)):
        store(tmp_path, Run("toy", method), {"nll": 1.0}, cpu_seconds=seconds)
    summary = summarise(EXPERIMENTS["prior-constraint"], Results(tmp_path))
    figure = scores_figure(summary, "cpu_seconds", log=True)
    figure.canvas.draw()
    (axes,) = figure.axes
    low, high = axes.get_xlim()
    shown = [label for label in axes.get_xticklabels() if low <= label.get_position()[0] <= high]
    boxes = [label.get_window_extent() for label in shown if label.get_text()]
    assert len(boxes) >= 2
    assert all(left.x1 < right.x0 for left, right in pairwise(boxes))


def test_times_have_neither_scores_nor_calibration(tmp_path):
    timing = EXPERIMENTS["timing"]
    for method, seconds in (("sgp", 2.0), ("vip", 1.0)):
        (run,) = timing.runs(["energy"], [method])
        store(tmp_path, run, {"nll": 1.0}, seconds=seconds)
    assert set(figures(summarise(timing, Results(tmp_path)))) == {"times"}
    # The same number of steps without a training before it is another result.
    store(tmp_path, Run("energy", "sgp", max_iter=timing.max_iter), {"nll": 1.0}, seconds=9.0)
    cell = summarise(timing, Results(tmp_path)).cells["energy", "sgp"]
    assert cell.ours("seconds").mean == 2.0


def test_page_is_self_contained_and_escaped(results):
    write(results.folder, "energy", "vip", [0.0], error=SCRIPT)
    page = html_report(summarise_all(results))
    assert SCRIPT not in page
    assert "&lt;script&gt;" in page
    assert not re.findall(r'(?:src|href)="(?!data:|#)', page)
    assert "@import" not in page
    assert "0.70 ± 0.06 (3)" in page
    assert html_report(summarise_all(results)) == page  # the same results give the same page


def test_report_command(results, tmp_path):
    out = tmp_path / "pages" / "report.html"
    result = CliRunner().invoke(app, ["report", str(results.folder), "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert out.read_text().startswith("<!doctype html>")
    assert "0.70 ± 0.06 (3)" in out.read_text()
    assert not (results.folder / "uci.md").exists()


def test_report_of_another_budget(results, tmp_path):
    store(results.folder, Run("energy", "dvip-3", max_iter=50), {"nll": 99.0})
    out = tmp_path / "report.html"
    arguments = ["report", str(results.folder), "--out", str(out), "--max-iter", "50", "--tables"]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    page = out.read_text()
    assert "dvip reproduce uci --max-iter 50" in page
    assert "99.00 (1)" in page
    assert "0.70 ± 0.06 (3)" not in page
    assert "99.00 (1)" in (results.folder / "uci-max-iter-50.md").read_text()
    assert list((results.folder / "figures").glob("uci-max-iter-50-*.png"))


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
    page = html_report(summarise_all(results))
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


def test_tables_wider_than_the_terminal_are_printed_in_parts(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    for number, dataset in enumerate(UCI.datasets):
        for split in range(2):
            store(tmp_path, Run(dataset, "sgp", split), {"nll": number + 0.25 * split})
    store(tmp_path, Run("boston", "vip", 0), {"nll": 9.5})
    table = tables(summarise(UCI, Results(tmp_path)))[0]
    print_table(table)
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 60
    for row in table.rows:
        for text in row.texts:
            assert text in printed
    assert printed.count("┃ method") > 2
    assert printed.count("9.50") == 1
    assert all(name in printed for name in UCI.datasets)


def test_figures_whose_errors_are_not_known_are_compared_by_ours_alone(tmp_path):
    neighbours = EXPERIMENTS["neighbours"]
    for split, nll in enumerate((2.3, 2.6, 2.9)):
        run = Run("boston", "fbnn", split, max_iter=neighbours.max_iter)
        store(tmp_path, run, {"nll": nll, "rmse": 9.0 + 0.01 * nll})
    summary = summarise(neighbours, Results(tmp_path))
    assert agreement(summary, "nll").startswith("1 of 1 cells are better than their own paper's")
    assert agreement(summary, "rmse").startswith("0 of 1")
    assert "| **2.30** |" in markdown(summary)
    assert scores_figure(summary, "nll") is not None
