"""Verdicts on what the paper says of its neighbours, from results that the tests write."""

import numpy as np
import pytest

from dvip.paper.figures import figures
from dvip.paper.grids import EXPERIMENTS, METHODS
from dvip.paper.page import html_report, write_experiment
from dvip.paper.results import Results, Run
from dvip.paper.summaries import summarise
from dvip.paper.verdicts import FAILS, HOLDS, PARTLY, UNDECIDED, verdicts

NEIGHBOURS = EXPERIMENTS["neighbours"]
DKL, COVERS, FIXED, SIP, DEEP = range(5)


def store(folder, dataset, method, nlls, coverage=0.95, seconds=10.0, **parts):
    for split, nll in enumerate(nlls):
        run = Run(dataset, method, split, max_iter=NEIGHBOURS.max_iter)
        metrics = {"nll": nll, "rmse": float(np.exp(nll)), "crps": 0.5, "coverage_95": coverage}
        result = {
            **vars(run),
            "error": None,
            "seconds": seconds,
            "cpu_seconds": seconds,
            "metrics": metrics,
            "train_metrics": metrics,
            "rows": {"train": 90, "test": 10},
            "calibration": {"pit": [5] * 20, "coverage": [0.05 * k for k in range(1, 20)]},
            "finished": "2026-11-16T12:00:00+00:00",
        }
        Results(folder).write(run, result | parts)


def judged(folder):
    return verdicts(summarise(NEIGHBOURS, Results(folder)))


def shifted(difference):
    """Scores of five splits, and others that differ by about that."""
    base = np.array([1.0, 1.4, 0.9, 1.1, 1.3])
    return base, base + difference + np.array([0.01, -0.01, 0.02, 0.0, -0.02])


@pytest.mark.parametrize(("difference", "verdict"), [(-0.2, HOLDS), (0.2, FAILS), (0.0, UNDECIDED)])
def test_differences_are_of_the_same_splits(tmp_path, difference, verdict):
    """The spread over splits is ten times that of the differences."""
    base, other = shifted(difference)
    for method in ("sip", "dvip-2"):
        store(tmp_path, "energy", method, base)
    store(tmp_path, "energy", "sip-2", [*other, 9.0])  # the last split has no partner
    claim = judged(tmp_path)[SIP]
    assert claim.verdict == verdict
    assert f"SIP: {difference:+.3f} ± 0.007 (5 runs of 1 set)" in claim.numbers


@pytest.mark.parametrize(
    ("coverage", "verdict"), [((0.85, 0.95), HOLDS), ((0.95, 0.95), FAILS), ((0.90, 0.80), FAILS)]
)
def test_over_confidence(tmp_path, coverage, verdict):
    for dataset in ("energy", "energy-gap"):
        for method, share in zip(("deep-kernel", "sgp"), coverage, strict=True):
            store(tmp_path, dataset, method, [1.0, 1.1], coverage=share)
    claim = judged(tmp_path)[DKL]
    assert claim.verdict == verdict
    assert f"on UCI sets (energy) 95 % intervals hold {coverage[0]:.1%}" in claim.numbers


def test_over_confidence_in_gaps_alone(tmp_path):
    store(tmp_path, "boston", "sgp", [1.0], coverage=0.5)  # without a partner
    for dataset, share in (("energy", 0.95), ("energy-gap", 0.5)):
        store(tmp_path, dataset, "deep-kernel", [1.0], coverage=share)
        store(tmp_path, dataset, "sgp", [1.0], coverage=0.95)
    assert judged(tmp_path)[DKL].verdict == PARTLY


@pytest.mark.parametrize(
    ("fitted", "learned", "verdict"),
    [
        ((0.3, 0.2), 0.0, HOLDS),
        ((0.3, 0.2), -0.2, PARTLY),  # a prior that is learned is no better
        ((0.3, 0.0), 0.0, PARTLY),
        ((0.0, 0.0), 0.0, UNDECIDED),
        ((-0.3, 0.0), -0.2, FAILS),
        ((-0.3, -0.2), 0.0, FAILS),
    ],
)
def test_priors_that_cannot_learn(tmp_path, fitted, learned, verdict):
    """What a fixed prior costs, beside one that is fitted and one that is learned along."""
    base = shifted(0)[0]
    methods = {"fbnn": "fbnn-bnn", "fvi": "fvi-fixed"}
    for (method, fixed), difference in zip(methods.items(), fitted, strict=True):
        store(tmp_path, "energy", fixed, base)
        store(tmp_path, "energy", method, shifted(-difference)[1])
    store(tmp_path, "energy", "vip", shifted(-learned)[1])
    assert judged(tmp_path)[FIXED].verdict == verdict


@pytest.mark.parametrize(
    ("few", "many", "verdict"), [(0.9, 0.4, HOLDS), (0.9, 0.7, FAILS), (0.4, 0.4, FAILS)]
)
def test_points_that_cover_the_inputs(tmp_path, few, many, verdict):
    """Of gaps with few inputs and with many, the share of rows that intervals hold."""
    for dataset, share in (("yacht-gap", few), ("boston-gap", many)):
        store(tmp_path, dataset, "fbnn-rows", [1.0, 1.1], coverage=0.5)
        store(tmp_path, dataset, "fbnn", [1.0, 1.1], coverage=share)
    claim = judged(tmp_path)[COVERS]
    assert claim.verdict == verdict
    assert f"{few - 0.5:+.3f} ± 0.000 (2 runs of 1 set) in gaps of 6 to 8 inputs" in claim.numbers


@pytest.mark.parametrize(
    ("seconds", "difference", "verdict"),
    [(5, 0.0, HOLDS), (20, 0.0, PARTLY), (5, 0.3, PARTLY), (20, 0.3, FAILS)],
)
def test_cost_of_deep_models(tmp_path, seconds, difference, verdict):
    base, other = shifted(difference)
    store(tmp_path, "energy", "dgp-2", base)
    for method in ("dvip-2", "dvip-2-gp"):
        for split, nll in enumerate(other):
            store(tmp_path, "energy", method, [*other[:split], nll], seconds=seconds)
    claim = judged(tmp_path)[DEEP]
    assert claim.verdict == verdict


def test_times_of_different_days_are_not_compared(tmp_path):
    """A machine has quick and slow days; scores do not depend on them."""
    base, other = shifted(0.3)
    store(tmp_path, "energy", "dgp-2", base)
    store(tmp_path, "energy", "dvip-2", other, seconds=5, finished="2026-11-18T12:00:00+00:00")
    claim = judged(tmp_path)[DEEP]
    assert "NLL of DVIP 2 minus DGP 2: +0.300 ± 0.007 (5 runs of 1 set)" in claim.numbers
    assert "(runs of one day) of DVIP 2 minus DGP 2: no runs" in claim.numbers
    assert claim.verdict == FAILS


def test_without_runs_nothing_is_decided(tmp_path):
    store(tmp_path, "energy", "fbnn", [1.0])
    assert {claim.verdict for claim in judged(tmp_path)} == {UNDECIDED}
    assert verdicts(summarise(EXPERIMENTS["uci"], Results(tmp_path))) == []


def test_pages_have_them(tmp_path):
    base, other = shifted(-0.2)
    for method, nlls in (("sip", base), ("dvip-2", base), ("sip-2", other)):
        store(tmp_path, "energy", method, nlls)
    summary = summarise(NEIGHBOURS, Results(tmp_path))
    page = html_report([summary])
    assert "SIP&#x27;s layers in a deep model" in page
    assert f"<b>{HOLDS}</b>" in page
    text = write_experiment(summary, tmp_path)[0].read_text()
    assert f"| **{HOLDS}** |" in text


def test_curves_of_many_methods_are_side_by_side(tmp_path):
    numbers = [0.0, 1.0, 2.0]
    curve = {name: numbers for name in ("grid", "mean", "x", "y", "test_x", "test_y")}
    curve |= {"lower": [-1.0] * 3, "upper": [3.0] * 3, "draws": [numbers] * 8}
    methods = ["mean-field", "fbnn", "fvi", "vip", "dgp-2"]
    for method in methods:
        store(tmp_path, "toy", method, [1.0], curve=curve)
    figure = figures(summarise(NEIGHBOURS, Results(tmp_path)))["side-by-side-toy"]
    titles = {axes.get_title(loc="left") for axes in figure.axes}
    assert titles >= {METHODS[method].label for method in methods}
