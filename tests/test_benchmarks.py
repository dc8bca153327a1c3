"""The benchmarks' own parts: results that are kept, summaries, the page and plots, the ensemble."""

import json
import sys

import numpy as np
import pytest

import classification
import default
import neighbour_times
import objective
import optimisation
import random_tables
import run
from contestants import DEEP_GP, DVIP, NGBOOST, make
from contestants.sklearn_gp import negative_evidence
from report import FILES, comparison, write_report
from report.summaries import Mean, qualities, round_ratios, time_to_quality
from results_file import ResultsFile
from tables import PAPER_NLL


def quality_entry(contestant, settings, split, nll):
    scores = {"nll": nll, "rmse": 0.5, "crps": 0.3, "coverage_90": 0.8 + 0.1 * split}
    key = {"dataset": "energy", "contestant": contestant, "settings": settings, "split": split}
    return {**key, "seconds": 10.0, "test_rows": 100 + 100 * split, **scores}


@pytest.fixture
def results_folder(tmp_path):
    """Results as small as they can be, for each measurement."""
    steps = [
        {"contestant": name, "layers": depth, "round": number, "seconds": seconds * (number + 1)}
        for number in range(3)
        for depth in (1, 3)
        for name, seconds in ((DVIP, 1e-4 * depth), (DEEP_GP, 5e-3 * depth))
    ]
    qualities = [
        quality_entry(name, settings, split, nll + 0.01 * split)
        for split in range(2)
        for name, settings, nll in (
            (DVIP, {"max_iter": 20_000}, 0.69),
            (DVIP, {"max_iter": 5_000}, 0.9),
            (NGBOOST, {}, 5.0),
        )
    ]
    alphas = [
        {"prior": "constrained", "inputs": 4, "layers": 3, "objective": objective, "round": number}
        | {"seconds": seconds * (number + 1), "processor_seconds": 0.9 * seconds}
        for number in range(3)
        for objective, seconds in (("ELBO", 1e-3), ("α = 1", 1.5e-3))
    ]
    files = {
        "step": steps,
        "alpha": alphas,
        "members": [{"members": number, "round": 0, "seconds": 2.0 * number} for number in (1, 5)],
        "compile": [{"layers": 5, "cache": "cold", "round": 0, "seconds": 6.5}],
        "prediction": [
            {"contestant": DVIP, "rows": 10_000, "samples": 100, "round": 0, "seconds": 5e-5}
        ],
        "memory": [
            {"contestant": DVIP, "round": 0, "megabytes": 412.0, "megabytes_imports": 200.0}
        ],
        "quality": qualities,
    }
    for name, entries in files.items():
        (tmp_path / FILES[name]).write_text(json.dumps(entries))
    return tmp_path


def test_report_says_what_the_results_say(results_folder):
    page = write_report(results_folder)
    assert page == (results_folder / "results.md").read_text()
    # Both got slower from round to round; the ratio within a round did not change.
    assert "| dvip | 3 | 0.600 (0.450 - 0.750) | 30.000 (22.500 - 37.500) | 50 (50 - 50) |" in page
    assert (
        "| constrained | 4 | 3 | 2.000 (1.500 - 2.500) | 3.000 (2.250 - 3.750) "
        "| 1.50 (1.50 - 1.50) | 1.50 (1.50 - 1.50) |" in page
    )
    assert "| cold | 6.50 (6.50 - 6.50) |" in page
    assert "| dvip | 10,000 | 100 | 20,000 (20,000 - 20,000) | 2.000 (2.000 - 2.000) |" in page
    assert "| dvip | 412 (412 - 412) | 200 |" in page
    assert "| energy | 0.70 | 20,000 | 10.0 | 0.695 ± 0.005 |" in page
    # 80 % of 100 rows and 90 % of 200.
    assert (
        "| energy | NGBoost | 2 | 10.0 | 5.005 ± 0.005 | 0.500 ± 0.000 | 0.300 ± 0.000 | 86.7 % |"
        in page
    )
    for picture in ("step.png", "quality.png"):
        assert f"]({picture})" in page
        assert (results_folder / picture).read_bytes().startswith(b"\x89PNG")


def test_report_of_a_run_without_peers(results_folder):
    alone = [e for e in ResultsFile(results_folder / FILES["step"]) if e["contestant"] == DVIP]
    (results_folder / FILES["step"]).write_text(json.dumps(alone))
    (results_folder / FILES["quality"]).unlink()
    page = write_report(results_folder)
    assert "| 1 | 0.200 (0.150 - 0.250) |  |  |" in page
    assert "Quality" not in page


def test_ratio_is_that_of_the_same_round():
    entries = [
        {"contestant": name, "round": number, "seconds": seconds}
        for name, times in (("slow", [10.0, 100.0, 30.0]), ("fast", [1.0, 10.0]))
        for number, seconds in enumerate(times)
    ]
    ratios = round_ratios(entries, {"contestant": "slow"}, {"contestant": "fast"})
    assert (ratios.low, ratios.median, ratios.high) == (10.0, 10.0, 10.0)


@pytest.mark.parametrize(("excess", "reached"), [(-0.5, True), (1.9, True), (2.1, False)])
def test_quality_is_reached_within_two_standard_errors(excess, reached):
    # Two splits that differ by 2 have a standard error of 1.
    nll = PAPER_NLL["energy"] + excess
    runs = [quality_entry(DVIP, {"max_iter": 10}, split, nll + 2 * split - 1) for split in (0, 1)]
    (quality,) = qualities(runs, "energy")
    assert quality.nll.error == pytest.approx(1.0)
    assert (time_to_quality([quality]) is quality) == reached


def test_standard_error_of_the_mean():
    assert Mean.of([1.0, 2.0, 3.0, 6.0]) == Mean(3.0, pytest.approx(np.sqrt(14 / 3) / 2))
    assert np.isnan(Mean.of([1.0]).error)


def test_the_figure_over_alpha_is_drawn_from_kept_results(tmp_path):
    random = np.random.default_rng(0)
    entries = [
        {"table": table, "prior": prior, "alpha": alpha, "seed": seed}
        | dict(zip(objective.SCORES, random.uniform(size=4), strict=True))
        for table in ("one", "another")
        for prior in objective.PRIORS
        for alpha in objective.ALPHAS
        for seed in range(2)
    ]
    objective.draw(entries, tmp_path / "figures" / "objective.png")
    assert (tmp_path / "figures" / "objective.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("names", ["", "a,b,target\n"])
def test_tables_of_the_figure_have_the_rows_of_the_first_fold_left_out(tmp_path, names):
    (tmp_path / "toy.csv").write_text(names + "1,2,3\n4,5,6\n7,8,9\n")
    np.savetxt(tmp_path / "toy-test-mask.csv.gz", [[0, 1], [1, 0], [0, 0]], delimiter=",")
    table, left_out = objective.read_table(tmp_path, "toy")
    np.testing.assert_array_equal(table, [[1, 2, 3], [4, 5, 6], [7, 8, 9]])
    np.testing.assert_array_equal(left_out, [False, True, False])


def test_results_are_kept_and_replaced(tmp_path):
    path = tmp_path / "results.json"
    results = ResultsFile(path)
    results.add({"contestant": "a", "round": 0}, {"seconds": 1.0})
    results.add({"contestant": "a", "round": 1}, {"seconds": 2.0})
    results.add({"contestant": "a", "round": 0}, {"seconds": 3.0})
    again = ResultsFile(path)
    assert {"contestant": "a", "round": 1} in again
    assert {"contestant": "b", "round": 1} not in again
    assert sorted(entry["seconds"] for entry in again) == [2.0, 3.0]


def test_missing_data_are_left_out_with_a_word(tmp_path, monkeypatch, capsys, empty_cache):
    monkeypatch.setenv("DVIP_DATA", str(tmp_path))
    arguments = ["--only", "quality", "--no-peers", "--datasets", "energy"]
    monkeypatch.setattr(sys, "argv", ["run.py", *arguments, "--out", str(tmp_path / "out")])
    run.main()
    assert "energy is left out: set DVIP_DATA" in capsys.readouterr().out
    assert not (tmp_path / "out" / FILES["quality"]).exists()


def test_deep_ensemble_learns_the_mean_and_the_noise():
    random = np.random.default_rng(0)
    X = random.uniform(-2, 2, (600, 1))
    noise = np.where(X[:, 0] > 0, 3.0, 0.5)
    y = 100 + 20 * X[:, 0] + noise * random.standard_normal(600)
    ensemble = make("MLP ensemble", {"n_members": 3, "max_iter": 1_000}).fit(X, y)
    distribution = ensemble.predict_dist(np.array([[-1.0], [1.0]]))
    assert distribution.means.shape == (2, 3)
    assert len(set(distribution.means[0])) == 3
    np.testing.assert_allclose(distribution.mean, [80.0, 120.0], atol=1.5)
    np.testing.assert_allclose(distribution.std, [0.5, 3.0], rtol=0.4)


def test_classes_are_measured_once_and_what_is_missing_is_left_out(
    tmp_path, monkeypatch, capsys, empty_cache
):
    fits = []
    logistic = classification.CONTESTANTS["logistic regression"]
    contestants = {"logistic regression": lambda: fits.append(1) or logistic(), "CatBoost": None}
    monkeypatch.setattr(classification, "CONTESTANTS", contestants)
    monkeypatch.setattr(classification, "find_spec", lambda name: None)
    arguments = ["--splits", "2", "--datasets", "wine", "higgs-subset"]
    out = tmp_path / "classes.json"
    monkeypatch.setattr(sys, "argv", ["classification.py", *arguments, "--out", str(out)])
    classification.main()
    classification.main()
    said = capsys.readouterr().out
    assert len(fits) == 2
    assert "CatBoost is left out" in said
    assert "higgs-subset is left out" in said
    (row,) = out.with_suffix(".md").read_text().splitlines()[2:]
    assert row.startswith("| wine | logistic regression | 2 | -0.0")


def scored(table, split, method, nll, **others):
    scores = {"rmse": 0.5, "crps": 0.0004, "coverage_90": 0.9, "coverage_50": 0.5}
    key = {"part": "arena", "table": table, "split": split, "method": method}
    return {**key, "nll": nll, **scores, "test_rows": 10, "processor_seconds": 1.0, **others}


def test_ranks_are_over_tables_and_splits_that_all_methods_have():
    entries = [
        *(scored("a", 0, name, nll) for name, nll in (("x", 1.0), ("y", 2.0), ("z", 2.0))),
        *(scored("b", 0, name, nll) for name, nll in (("x", 3.0), ("y", 2.0), ("z", 1.0))),
        scored("b", 1, "x", -9.0),
        {"table": "b", "split": 1, "method": "y", "failed": "ValueError: no"},
        scored("b", 1, "z", 0.0),
    ]
    ranks = comparison.ranks(entries, "nll", ["x", "y", "z"])
    assert {name: rank.mean for name, rank in ranks.items()} == {"x": 2.0, "y": 2.25, "z": 1.75}
    assert comparison.ranks(entries, "nll", ["x", "missing"]) == {}
    assert comparison.worst_difference(entries, "nll", "x", "z") == (2.0, "b", 0)
    assert comparison.worst_difference(entries, "nll", "z", "x") == (9.0, "b", 1)
    assert comparison.worst_difference(entries, "nll", "x", "missing") is None


def test_page_of_the_default_says_what_the_results_say():
    entries = [
        scored("naval", split, name, nll + split)
        for name, nll in (("exact GP", 1.0), ("dvip", 0.5))
        for split in range(2)
    ]
    failed = {"table": "naval", "split": 2, "method": "dvip", "failed": "ValueError: no"}
    random = scored("random", 7, "dvip", 1.0, normal_nll=1.25, rows=20, inputs=3)
    random |= {"function": "step", "noise": "skewed", "troubles": ["outliers"]}
    parts = {"arena": [*entries, failed], "gaps": entries, "random": [random], "times": []}
    page = comparison.page(parts, ["dvip", "exact GP"])
    assert (
        "| naval | dvip | 2 | 1.000 ± 0.500 | 0.500 ± 0.000 | 0.000400 ± 0.000000 "
        "| 90.0% | 50.0% | 1.0 |" in page
    )
    assert "| dvip | 1.000 ± 0.000 | 1.500 ± 0.000 | -0.500 (naval, 0) |" in page
    assert "Failed: dvip on naval, 2 (ValueError: no)." in page
    assert "| naval | 1 | 1.500, 90.0% | 2.000, 90.0% |" in page
    assert "| function: step | 1 | -0.250 | -0.250 | 0.0% | 0.0% | -0.250 |" in page
    assert "7 (20 rows, 3 inputs, step, skewed, outliers) -0.250" in page
    assert "Times" not in page


def test_coverage_is_pooled_over_rows_and_told_of_tables_with_enough_of_them():
    entries = [
        scored("a", 0, "dvip", 1.0, test_rows=300, coverage_90=0.8),
        scored("b", 0, "dvip", 1.0, test_rows=60, coverage_90=0.9),
        scored("b", 1, "dvip", 1.0, test_rows=40, coverage_90=1.0),
        scored("c", 0, "dvip", 1.0, test_rows=10, coverage_90=0.1),
        {"table": "a", "split": 0, "method": "other", "failed": "ValueError: no"},
    ]
    page = comparison.page({"published": entries}, ["dvip", "other"])
    assert "| dvip | 81.7% | 80.0% (a) | 94.0% (b) |" in page
    assert "| other |" not in page


def test_random_tables_are_the_same_and_of_all_kinds():
    tables = [random_tables.random_table(number) for number in range(200)]
    for first, second in zip(tables[7].split, random_tables.random_table(7).split, strict=True):
        np.testing.assert_array_equal(first, second)
    assert {table.function for table in tables} == set(random_tables.FUNCTIONS)
    assert {table.noise for table in tables} == set(random_tables.NOISES)
    assert {name for table in tables for name in table.troubles} == set(random_tables.TROUBLES)
    for table in tables:
        split = table.split
        assert 10 <= len(split.inputs) <= 500
        assert 1 <= split.inputs.shape[1] <= 30
        assert len(split.test_targets) == random_tables.TEST_ROWS
        assert split.inputs.shape[1] == split.test_inputs.shape[1]
        assert all(np.isfinite(part).all() for part in split)
        inputs = np.concatenate([split.inputs, split.test_inputs])
        columns = {tuple(column) for column in inputs.T}
        duplicated = random_tables.DUPLICATED in table.troubles
        assert len(columns) == inputs.shape[1] - duplicated
        constant = random_tables.CONSTANT in table.troubles
        assert np.sum(np.ptp(inputs, axis=0) == 0) == constant
        categories = random_tables.CATEGORIES in table.troubles
        assert (inputs == np.round(inputs)).all(axis=0).any() == categories


def test_what_a_normal_distribution_knows_is_beside_the_score_of_a_random_table(monkeypatch):
    scores = {"nll": 1.0}
    monkeypatch.setattr(default, "fit_and_score", lambda split, method: scores)
    entry = default.score_random("random", 3, "dvip")
    made = random_tables.random_table(3)
    z = (made.split.test_targets - made.split.targets.mean()) / made.split.targets.std()
    nll = np.mean(0.5 * z**2) + np.log(made.split.targets.std() * np.sqrt(2 * np.pi))
    assert entry["normal_nll"] == pytest.approx(nll)
    assert (entry["nll"], entry["rows"]) == (1.0, len(made.split.inputs))
    monkeypatch.setattr(default, "fit_and_score", lambda split, method: 1 / 0)
    assert default.score_random("random", 3, "dvip")["failed"].startswith("ZeroDivisionError")


def test_runs_of_the_default_are_chosen_kept_and_repeated_on_demand(tmp_path, monkeypatch):
    measured = []

    def measure(table, split, method):
        measured.append((split, table, method))
        return scored(table, split, method, 1.0)

    part = default.Part({"a": range(3), "b": range(3)}, ("dvip", "deep GP"), measure)
    monkeypatch.setattr(default, "PARTS", {"arena": part})
    arguments = ["--parts", "arena", "--splits", "0-1", "--out", str(tmp_path)]
    for more in ([], ["--tables", "b"], ["--again", "--methods", "dvip", "--tables", "a"]):
        monkeypatch.setattr(sys, "argv", ["default.py", *arguments, *more])
        default.main()
    once = [(split, table) for split in range(2) for table in "ab"]
    assert measured[:4] == [(*run, "dvip") for run in once]
    assert measured[4:8] == [(*run, "deep GP") for run in once]
    assert measured[8:] == [(0, "a", "dvip"), (1, "a", "dvip")]
    assert len(ResultsFile(tmp_path / "default_arena.json").entries) == 8
    assert "| b | deep GP | 2 |" in (tmp_path / "default.md").read_text()


def test_two_processes_may_write_one_file(tmp_path):
    first, second = (ResultsFile(tmp_path / "results.json") for _ in range(2))
    first.add({"round": 0}, {"seconds": 1.0})
    second.add({"round": 1}, {"seconds": 2.0})
    assert len(ResultsFile(tmp_path / "results.json").entries) == 2


def test_evidence_of_the_exact_gp_is_that_of_scikit_learn():
    random = np.random.default_rng(0)
    X, y = random.normal(size=(40, 3)), random.normal(size=40)
    model = make("scikit-learn GP", {"optimise": False}).fit(X, y)
    theta = random.normal(size=5)
    value, gradient = model.model_.log_marginal_likelihood(theta, eval_gradient=True)
    scaled = model.scaler_.transform(X), (y - y.mean()) / y.std()
    ours, our_gradient = negative_evidence(*scaled, theta)
    assert ours == pytest.approx(-value)
    np.testing.assert_allclose(our_gradient, -gradient)


def test_times_of_neighbours_are_kept_and_told(tmp_path, monkeypatch):
    monkeypatch.setattr(neighbour_times, "OUT", tmp_path)
    monkeypatch.setattr(
        neighbour_times,
        "fitted_in_new_process",
        lambda method: {"seconds": 70.0, "cpu_seconds": 90.0, "cores": 2, "nll": -0.5},
    )
    monkeypatch.setattr(sys, "argv", ["neighbour_times.py", "fvi"])
    neighbour_times.main()
    page = (tmp_path / "neighbour_times.md").read_text()
    assert "| FVI | 2 | 70.0 | 90.0 | **no** | -0.50 |" in page
    assert "dropout" not in page
    monkeypatch.setattr(sys, "argv", ["neighbour_times.py", "nothing"])
    with pytest.raises(SystemExit, match="No method 'nothing': choose from dvip, vip"):
        neighbour_times.main()


def test_functions_to_minimise_have_their_minima_and_regrets_a_page(tmp_path):
    places = {
        "Branin": [np.pi, 2.275],
        "Hartmann 6": [0.20169, 0.150011, 0.476874, 0.275332, 0.311652, 0.6573],
        "Ackley 5": [0.0] * 5,
    }
    results = ResultsFile(tmp_path / "optimisation.json")
    for name, problem in optimisation.PROBLEMS.items():
        rows = problem.scaled(np.random.default_rng(0).uniform(size=(500, len(problem.bounds))))
        assert problem.function(rows).min() > problem.minimum
        found = problem.function(np.array([places[name]]))[0]
        np.testing.assert_allclose(found, problem.minimum, atol=1e-5)
        for seed in range(2):
            key = {"problem": name, "method": optimisation.RANDOM, "seed": seed}
            results.add(key, optimisation.measure(problem, optimisation.RANDOM, seed))
    page = optimisation.page(results)
    regrets = [entry["regret"] for entry in results if entry["problem"] == "Branin"]
    assert f"| Branin | random search | 2 | {np.mean(regrets):.3g} ±" in page
    optimisation.draw(results, tmp_path / "regret.png")
    assert (tmp_path / "regret.png").stat().st_size > 10_000
