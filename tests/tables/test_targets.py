"""Targets of a table: the task, numbers, labels, rows without one."""

import numpy as np
import pandas as pd
import pytest

from dvip.tables import TableError, TableSurvey, has_targets, target_numbers


def surveyed(frame, targets=("y",)):
    survey = TableSurvey(tuple(targets))
    survey.add(frame)
    return survey


def choose_task(frame):
    return surveyed(frame.assign(x=range(len(frame)))).choose_task()


def class_labels(column):
    survey = surveyed(pd.DataFrame({"y": column, "x": range(len(column))}))
    survey.choose_task("classification")
    return survey.read_targets(pd.DataFrame({"y": column}), "classification")


def test_an_unknown_column_offers_similar_names():
    frame = pd.DataFrame({"Price": [1, 2], "area": [1, 2]})
    with pytest.raises(TableError, match=r"no column 'price'\. Did you mean 'Price'\?"):
        has_targets(frame, ["price"])
    with pytest.raises(TableError, match="It has 'Price', 'area'"):
        has_targets(frame, ["zzz"])


@pytest.mark.parametrize(
    ("cells", "task"),
    [
        (["a", "b", "a"], "classification"),
        ([True, False, True], "classification"),
        ([1, 7, 1], "classification"),
        (pd.Categorical([1, 2, 3]), "classification"),
        ([1, 2, 3], "regression"),
        (["1,000", "2", "3"], "regression"),
        ([5, 5, 5], "regression"),
    ],
)
def test_the_task_follows_from_the_target(cells, task):
    assert choose_task(pd.DataFrame({"y": cells})) == task


@pytest.mark.parametrize("bad", ["-", "missing", "$100.1"])
def test_bad_cells_do_not_make_labels_of_numbers(bad):
    cells = [str(number / 7) for number in range(30)]
    for few in (cells[:4], cells, ["1", "2", "3"] * 5):
        frame = pd.DataFrame({"y": [*few, bad]})
        match = rf"'y' is mostly numbers, but row {len(frame)} has .*--task classification"
        with pytest.raises(TableError, match=match) as caught:
            choose_task(frame)
        assert repr(bad) in str(caught.value)


@pytest.mark.parametrize(
    "cells",
    [
        ["1", "2", "x", "y"],
        pd.Categorical([1, 2, 3, "x"]),
        ["a", "b", "1", "c"] * 3,
        ["10%", "20%"],
    ],
)
def test_labels_of_which_some_are_numbers_are_labels(cells):
    assert choose_task(pd.DataFrame({"y": cells})) == "classification"


@pytest.mark.parametrize(
    ("cells", "labels"),
    [
        ([1.0, 0.0], [1, 0]),
        (["1", "02"], [1, 2]),
        ([True, False], [True, False]),
        (["b", " a"], ["b", "a"]),
        ([0.5, 1.0], ["0.5", "1"]),
        (["0.50", "1.0"], ["0.5", "1"]),
        (["1.0", "b"], ["1.0", "b"]),
        ([1e300, 2], [str(int(1e300)), "2"]),
    ],
)
def test_labels_are_whole_numbers_truth_values_or_text(cells, labels):
    found = class_labels(pd.Series(cells))
    assert found.tolist() == labels
    assert type(found.tolist()[0]) is type(labels[0])


def test_unusable_targets_are_named():
    frame = pd.DataFrame(
        {"text": ["1", "two"], "date": ["2020-01-01", "2020-01-02"], "large": [1.0, np.inf]}
    )
    with pytest.raises(TableError, match="'text' is not a number in row 2: 'two'"):
        target_numbers(frame, ["text"])
    with pytest.raises(TableError, match="'large' is infinite in row 2"):
        target_numbers(frame, ["large"])
    for use in (lambda: target_numbers(frame, ["date"]), lambda: class_labels(frame["date"])):
        with pytest.raises(TableError, match="dates"):
            use()
    with pytest.raises(TableError, match="1,000 different values"):
        class_labels(pd.Series(range(1000)))


def test_rows_without_a_target_are_dropped():
    frame = pd.DataFrame({"x": [1, 2, 3, 4], "y": [1.0, None, 3.0, 4.0], "z": ["a", "b", " ", "c"]})
    assert has_targets(frame, ["y", "z"]).tolist() == [True, False, False, True]


def test_bad_cells_are_counted_and_percentages_among_them_are_numbers():
    """Of 100 cells, 30 are words and 40 have another unit: it is still no classification."""
    cells = [str(number / 7) for number in range(30)] + ["3.1%"] * 40 + ["broken"] * 30
    match = r"row 31 has '3.1%', and 69 more such cells: .* --task classification if"
    with pytest.raises(TableError, match=match):
        choose_task(pd.DataFrame({"y": cells}))


def test_a_target_in_one_unit_is_a_number():
    frame = pd.DataFrame({"y": ["$1,200", "-$3.50", "$ 7"], "x": [1, 2, 3]})
    survey = surveyed(frame)
    assert survey.choose_task() == "regression"
    assert survey.read_targets(frame, "regression").tolist() == [1200, -3.5, 7]
    with pytest.raises(TableError, match=r"has numbers with \$ and with € before row 1"):
        survey.read_targets(pd.DataFrame({"y": ["€5", "6 €"]}), "regression")
    survey.add(pd.DataFrame({"y": [1.0, 2.0, 3.0], "x": [1, 2, 3]}))
    with pytest.raises(TableError, match=r"'y' has numbers without a unit and with \$: correct"):
        survey.choose_task()
