"""The paper's experiments as grids: which runs there are, filtered, ordered and shared out."""

import csv
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dvip.batches import Part
from dvip.data import DATASETS
from dvip.paper.grids import EXPERIMENTS, METHODS, SMALL
from dvip.paper.reproduction import parse_part, part_of
from dvip.paper.results import Run

# The paper's columns that are not a depth of ours: the best of several.
NOT_METHODS = {"DGP best"}


def test_every_figure_of_the_paper_has_a_run():
    text = files("dvip.paper").joinpath("paper_results.csv").read_text("utf-8")
    for row in csv.DictReader(text.splitlines()):
        if row["method"] in NOT_METHODS:
            continue
        experiment = EXPERIMENTS[row["experiment"]]
        assert (row["method"], row["variant"]) in experiment.methods.values(), row
        assert row["dataset"] in experiment.datasets
        assert row["metric"] in (*experiment.metrics, "cpu_seconds")


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=lambda e: e.name)
def test_grids_name_what_there_is(experiment):
    runs = experiment.runs()
    assert len(set(runs)) == len(runs)
    assert {run.dataset for run in runs} == set(experiment.datasets) <= set(DATASETS)
    assert {run.method for run in runs} == set(experiment.methods) <= set(METHODS)
    for run in runs:
        assert DATASETS[run.dataset].task in METHODS[run.method].estimators


def test_order_is_by_split_first():
    splits = [run.split for run in EXPERIMENTS["uci"].runs()]
    assert splits == sorted(splits)


def test_filters():
    runs = EXPERIMENTS["uci"].runs(["energy"], ["dvip-3", "sgp"], [4, 2], max_iter=7)
    assert set(runs) == {
        Run("energy", method, split, 0, 7) for method in ("dvip-3", "sgp") for split in (2, 4)
    }
    assert [run.seed for run in EXPERIMENTS["images"].runs(["mnist"], ["sgp"])] == list(range(10))


def test_variants_are_run_where_their_verdict_looks_unless_datasets_are_named():
    neighbours = EXPERIMENTS["neighbours"]
    assert {run.dataset for run in neighbours.runs(methods=["sip-2"])} == {*SMALL, "toy"}
    named = neighbours.runs(["power"], ["sip-2"])
    assert {(run.dataset, run.method) for run in named} == {("power", "sip-2")}
    assert {run.dataset for run in neighbours.runs(methods=["fbnn"])} == set(neighbours.datasets)
    for experiment in EXPERIMENTS.values():
        for method, datasets in experiment.datasets_of.items():
            assert method in experiment.methods
            assert set(datasets) <= set(experiment.datasets)


def test_splits_have_prior_functions_of_their_own():
    states = [run.random_state for run in EXPERIMENTS["uci"].runs(["boston"], ["vip"])]
    assert len(set(states)) == 20


def test_datasets_without_a_split_are_left_out_unless_named():
    runs = EXPERIMENTS["uci"].runs(methods=["sgp"], splits=[5])  # protein has five
    assert {run.dataset for run in runs} == set(EXPERIMENTS["uci"].datasets) - {"protein"}
    with pytest.raises(ValueError, match="protein has no split 5: its last is 4"):
        EXPERIMENTS["uci"].runs(["protein", "energy"], splits=[5])
    with pytest.raises(ValueError, match="No dataset of uci has a split 20"):
        EXPERIMENTS["uci"].runs(splits=[20])


def test_a_part_has_some_of_all_methods():
    runs = EXPERIMENTS["uci"].runs()
    for index in (0, 11):
        chosen = part_of(runs, Part(index, 12))
        assert {run.method for run in chosen} == set(EXPERIMENTS["uci"].methods)
        assert chosen == sorted(chosen, key=runs.index)


@given(st.integers(1, 30), st.integers(0, 50))
def test_parts_are_a_partition(number_of_parts, number):
    runs = [Run("toy", "vip", split) for split in range(number)]
    pieces = [part_of(runs, Part(index, number_of_parts)) for index in range(number_of_parts)]
    assert sorted(run for piece in pieces for run in piece) == sorted(runs)
    assert max(map(len, pieces)) - min(map(len, pieces)) <= 1


def test_a_part_is_counted_from_one_by_people():
    assert parse_part("3/20") == Part(2, 20)


@pytest.mark.parametrize("text", ["0/3", "4/3", "3", "a/b", "-1/3", "1/0", ""])
def test_bad_parts(text):
    with pytest.raises(ValueError, match="3/20"):
        parse_part(text)
