"""What becomes of each column of a table, and why."""

import datetime

import numpy as np
import pandas as pd
import pytest

from dvip.tables import LeftOut, NumberColumn, TableEncoder, TableError, TableWarning, TextColumn
from dvip.tables.columns import MAX_CATEGORIES, ColumnSurvey, deciding_value


def choose(column, name="x"):
    """What is decided on a column that is there as a whole."""
    survey = ColumnSurvey()
    survey.add(column, np.zeros(len(column), np.uint64), 0)
    return survey.choose(name)


def test_numbers_and_truth_values_are_used_as_they_are():
    frame = pd.DataFrame({"x": [1, 2, 4], "b": [True, False, True]})
    encoder = TableEncoder().fit(frame)
    assert list(encoder.get_feature_names_out()) == ["x", "b"]
    np.testing.assert_array_equal(encoder.transform(frame), [[1, 1], [2, 0], [4, 1]])


def test_gaps_in_numbers_become_the_median_and_an_indicator():
    frame = pd.DataFrame({"x": [1.0, None, 3.0, 5.0]})
    encoder = TableEncoder().fit(frame)
    assert list(encoder.get_feature_names_out()) == ["x", "x is missing"]
    np.testing.assert_array_equal(encoder.transform(frame), [[1, 0], [3, 1], [3, 0], [5, 0]])


def test_text_becomes_an_indicator_for_each_category_and_for_gaps():
    frame = pd.DataFrame({"c": ["b", "a", None, " b "]})
    encoder = TableEncoder().fit(frame)
    assert list(encoder.get_feature_names_out()) == ["c = a", "c = b", "c is missing"]
    expected = [[0, 1, 0], [1, 0, 0], [0, 0, 1], [0, 1, 0]]
    np.testing.assert_array_equal(encoder.transform(frame), expected)


def test_text_that_is_all_numbers_is_numbers():
    column = choose(pd.Series(["1,234", " 12 ", None, "-7.5e1"]))
    assert column == NumberColumn("x", fill=12.0, had_gaps=True)


@pytest.mark.parametrize("text", ["0,123", "1,5", "1,23,456", "1_000", "0x10", "nano"])
def test_text_that_is_not_clearly_a_number_stays_text(text):
    column = choose(pd.Series(["1", text, "1"]))
    assert isinstance(column, TextColumn)


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        (pd.date_range("2020-01-01", periods=3), "dates"),
        (pd.to_timedelta([1, 2, 3], unit="h"), "dates"),
        ([datetime.date(2020, 1, 1), None, datetime.date(2021, 1, 1)], "dates"),
        (["2020-01-01", "2020-01-01 10:00", None], "dates"),
        (["1/2/2020", "3/4/2020 5:06 pm", "3/4/2020"], "dates"),
        (["10:15", "10:15", "11:30:59"], "dates"),
        ([None, None, None], "empty"),
        (["", " ", None], "empty"),
        ([2.5, 2.5, 2.5], "same value"),
        (["a", "a", "a"], "same value"),
        (["a", "b", "c"], "differs in every row"),
        ([[1], [2], [1]], "type list"),
        ([b"a", b"b", b"a"], "type bytes"),
        ([{"a": 1}, None, 3], "type dict"),
        ([1j, 2j, 3j], "type complex"),
    ],
)
def test_columns_that_cannot_be_used_are_left_out_with_the_reason(cells, reason):
    column = choose(pd.Series(cells))
    assert isinstance(column, LeftOut)
    assert reason in column.reason


@pytest.mark.parametrize("name", ["Unnamed: 0", "", "  ", "__index_level_0__"])
def test_columns_without_a_name_are_left_out(name):
    assert isinstance(choose(pd.Series([1, 2, 3]), name), LeftOut)


def test_text_with_many_values_is_left_out():
    few = [f"c{i}" for i in range(MAX_CATEGORIES)] * 2
    assert isinstance(choose(pd.Series(few)), TextColumn)
    many = [f"c{i}" for i in range(MAX_CATEGORIES + 1)] * 2
    assert f"{MAX_CATEGORIES + 1} different values" in choose(pd.Series(many)).reason


def test_a_column_of_numbers_with_one_bad_cell_names_it():
    cells = [str(number) for number in range(50)] + ["abc"]
    reason = "is mostly numbers, but row 51 has 'abc' (correct or empty these cells to use it)"
    assert choose(pd.Series(cells)).reason == reason
    cells = [str(number) for number in range(49)] + ["unknown"] * 40
    reason = choose(pd.Series(cells)).reason
    assert reason.startswith("is mostly numbers, but row 50 has 'unknown', and 39 more such cells")


def test_numeric_categories_of_a_categorical_column_stay_categories():
    frame = pd.DataFrame({"c": pd.Categorical([1, 2, None, 1])})
    assert list(TableEncoder().fit(frame).get_feature_names_out()) == [
        "c = 1",
        "c = 2",
        "c is missing",
    ]


@pytest.mark.parametrize("cells", [[1.0, 2.0, np.inf], ["1", "2", "-inf"], ["1", "2", "1e400"]])
def test_an_infinite_value_names_column_and_row(cells):
    frame = pd.DataFrame({"speed": cells})
    with pytest.raises(TableError, match="'speed' is infinite in row 3"):
        TableEncoder().fit(frame)
    encoder = TableEncoder().fit(pd.DataFrame({"speed": [1, 2]}))
    block = frame.set_index(pd.RangeIndex(100, 103))
    with pytest.raises(TableError, match="'speed' is infinite in row 103"):
        encoder.transform(block)


def test_a_whole_number_beyond_all_floats_is_infinite():
    with pytest.raises(TableError, match="'x' is infinite in row 2"):
        choose(pd.Series([1, 10**400], dtype=object))


def test_text_in_a_column_of_numbers_names_column_row_and_value():
    encoder = TableEncoder().fit(pd.DataFrame({"age": [1, 2]}))
    with pytest.raises(TableError, match="'age' should hold numbers, but row 2 has 'old'"):
        encoder.transform(pd.DataFrame({"age": ["3", "old"]}))


@pytest.mark.parametrize(
    ("cells", "values", "unit"),
    [
        (["3.1%", "-4 %", "1e1%"], [3.1, -4, 10], "%"),
        (["$1,200", "-$5", "$0.5"], [1200, -5, 0.5], "$"),
        (["5 €", "€7", "-€1.5"], [5, 7, -1.5], "€"),
    ],
)
def test_text_of_one_unit_is_numbers(cells, values, unit):
    frame = pd.DataFrame({"x": [*cells, None]})
    encoder = TableEncoder().fit(frame)
    (column,) = encoder.columns_
    assert column == NumberColumn("x", fill=sorted(values)[1], had_gaps=True, unit=unit)
    assert encoder.transform(frame)[:3, 0].tolist() == values
    for other in (["1" + unit, "1"], ["1" + unit, "£1"]):
        with pytest.raises(TableError, match=r"numbers with the sign ., but row 2 has"):
            encoder.transform(pd.DataFrame({"x": other}))
    with pytest.raises(TableError, match="'x' should hold numbers with the sign"):
        encoder.transform(pd.DataFrame({"x": [1.0]}))
    assert encoder.transform(pd.DataFrame({"x": [None, np.nan]})).tolist() == [[column.fill, 1]] * 2


def test_numbers_in_several_units_are_left_out():
    cells = [f"{number}%" if number % 2 else f"{number}" for number in range(60)]
    assert "is mostly numbers, but row 2 has '1%'" in choose(pd.Series(cells)).reason
    survey = ColumnSurvey()
    for block in ([f"{number}%" for number in range(30)], [f"{number}" for number in range(30)]):
        survey.add(pd.Series(block), np.zeros(30, np.uint64), 0)
    assert survey.choose("x").reason.startswith("has numbers without a unit and with %")


def test_whole_numbers_beyond_floats():
    near = [2**63 + number for number in range(4)]
    for column in (pd.Series(near, dtype="uint64"), pd.Series(near, dtype=object)):
        assert choose(column).reason == "has the same first 16 digits in every row"
    column = choose(pd.Series([2**64 * number for number in range(5)], dtype=object))
    assert column == NumberColumn("x", fill=2.0**65, had_gaps=False)


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (pd.array([1, None, 3], dtype="Int64"), [[1, 0], [1, 1], [3, 0]]),
        (pd.array([True, pd.NA, False], dtype="boolean"), [[1, 0], [0, 1], [0, 0]]),
        (pd.array([0.5, pd.NA, 1.5], dtype="Float64"), [[0.5, 0], [0.5, 1], [1.5, 0]]),
        (pd.array(["a", pd.NA, "a"], dtype="string"), [[1, 0], [0, 1], [1, 0]]),
        (pd.Categorical(["b", None, "b"], categories=["a", "b"]), [[1, 0], [0, 1], [1, 0]]),
        (pd.Series([1, pd.NA, "2"], dtype=object), [[1, 0], [1, 1], [2, 0]]),
    ],
    ids=lambda cells: str(getattr(cells, "dtype", "")),
)
def test_types_that_know_gaps(cells, expected):
    frame = pd.DataFrame({"x": cells})
    np.testing.assert_array_equal(TableEncoder().fit(frame).transform(frame), expected)


@pytest.mark.parametrize(
    "cells",
    [
        ["1969-07-20", "1066-10-14", "0001-01-01"],
        pd.to_datetime(["1969-07-20", "1900-01-01", None]),
        [datetime.date(1066, 10, 14), datetime.date(1, 1, 1), None],
        pd.period_range("1950", periods=3, freq="Y"),
    ],
)
def test_dates_before_1970(cells):
    assert choose(pd.Series(cells)).reason == "holds dates or times"


def test_columns_twice_are_used_twice_or_refused_by_name():
    frame = pd.DataFrame({"a": [1, 2], "b": [1, 2]})
    assert TableEncoder().fit(frame).transform(frame).tolist() == [[1, 1], [2, 2]]
    with pytest.raises(TableError, match="several columns named 'a'"):
        TableEncoder().fit(frame.set_axis(["a", "a"], axis=1))


# A row that decides a scale.


@pytest.mark.parametrize("value", [1e12, -1e12, 1e300])
def test_a_value_that_decides_the_scale_is_warned_of(value):
    ages = np.random.default_rng(0).normal(40, 10, size=300)
    ages[123] = value
    with pytest.warns(TableWarning, match="'age' is .*1e.* in row 124, so far from all"):
        encoder = TableEncoder().fit(pd.DataFrame({"age": ages}))
    assert len(encoder.warnings_) == 1
    assert TableEncoder.from_json(encoder.to_json()).warnings_ == ()
    assert deciding_value(ages) == value
    assert deciding_value(ages / value) == pytest.approx(1)


@pytest.mark.parametrize("shape", ["normal", "cauchy", "rare", "constant", "two", "counts", "huge"])
def test_ordinary_columns_have_no_such_value(shape):
    random = np.random.default_rng(0)
    values = {
        "normal": random.normal(size=1000),
        "cauchy": random.standard_t(2, size=1000),
        "rare": np.eye(1000)[5],
        "constant": np.full(1000, 7.0),
        "two": np.array([1.0, 1e12]),
        "counts": random.poisson(0.05, size=1000).astype(float),
        "huge": 1e300 * random.normal(size=1000),
    }[shape]
    assert deciding_value(values) is None


def test_an_outlier_that_is_not_in_the_sample_is_found(monkeypatch):
    monkeypatch.setattr("dvip.tables.encoder.MAX_SAMPLED_ROWS", 100)
    encoder = TableEncoder()
    for start in range(0, 5000, 500):
        values = np.random.default_rng(start).normal(size=500)
        values[7] = 1e9 if start == 2000 else values[7]
        encoder.partial_fit(pd.DataFrame({"x": values}, pd.RangeIndex(start, start + 500)))
    (line,) = encoder.warnings_
    assert "'x' is 1e+09 in row 2008" in line
