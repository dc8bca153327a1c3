"""Tables: what is read, what becomes of each column, and that damaged files are one error."""

import datetime
import gzip
import io
import json
import string

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from dvip.tables import (
    LeftOut,
    NumberColumn,
    Surprises,
    TableEncoder,
    TableError,
    TextColumn,
    check_table_output,
    choose_task,
    class_labels,
    read_blocks,
    read_table,
    table_writer,
    target_numbers,
    with_targets,
)
from dvip.tables.columns import MAX_CATEGORIES, choose_column

# One temporary folder serves all examples of a property: each writes its file anew.
SHARED_FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])

NUMBERS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False), st.integers(-(10**9), 10**9), st.none()
)
WORDS = st.sampled_from(["red", "grün", "a,b", 'say "x"', "1", "1.0", "01", "True", "-", "x y"])
TEXTS = st.one_of(WORDS, st.none(), st.text(max_size=5))
CELLS = st.sampled_from(
    [
        NUMBERS,
        st.one_of(WORDS, st.none()),
        TEXTS,
        st.booleans(),
        st.one_of(st.booleans(), st.none()),
        st.sampled_from(["1,234", "12 ", "7", None]),
        st.dates().map(str),
        st.just(4),
        st.none(),
    ]
)
NAMES = st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=5, unique_by=str.strip)


@st.composite
def frames(draw, names=NAMES):
    rows = draw(st.integers(1, 30))
    columns = {
        name: draw(st.lists(draw(CELLS), min_size=rows, max_size=rows)) for name in draw(names)
    }
    return pd.DataFrame(columns)


def fit_or_skip(frame):
    try:
        return TableEncoder.fit(frame)
    except TableError as error:
        message = str(error)
    assert "no column" in message or "infinite" in message
    return assume(False)


@given(frames())
def test_encoding_the_training_table_is_complete_and_unsurprising(frame):
    encoder = fit_or_skip(frame)
    surprises = Surprises()
    inputs = encoder.encode(frame, surprises)
    assert inputs.dtype == np.float64
    assert inputs.shape == (len(frame), len(encoder.feature_names))
    assert np.isfinite(inputs).all()
    assert surprises.lines() == []
    known = {column.name for column in (*encoder.columns, *encoder.left_out)}
    assert known == set(frame.columns)


@given(frames(), st.data())
def test_a_restored_encoder_encodes_any_rows_as_at_fit(frame, data):
    encoder = fit_or_skip(frame)
    restored = TableEncoder.from_json(json.loads(json.dumps(encoder.to_json())))
    assert restored == encoder
    rows = data.draw(st.lists(st.integers(0, len(frame) - 1), min_size=1, max_size=10))
    columns = data.draw(st.permutations(list(frame.columns)))
    again = restored.encode(frame[columns].iloc[rows])
    np.testing.assert_array_equal(again, encoder.encode(frame)[rows])


FILE_NAMES = st.lists(
    st.text(string.ascii_letters + string.digits + " äß'\"_-=", min_size=1, max_size=8).filter(
        str.strip
    ),
    min_size=1,
    max_size=4,
    unique_by=str.strip,
)


@SHARED_FOLDER
@given(frames(FILE_NAMES), st.integers(1, 7), st.sampled_from([".csv", ".tsv", ".csv.gz"]))
def test_blocks_of_a_text_file_are_encoded_as_the_whole(tmp_path, frame, rows, suffix):
    path = tmp_path / f"table{suffix}"
    frame.to_csv(path, index=False, sep="\t" if "tsv" in suffix else ",")
    try:
        whole = read_table(path)
    except TableError:  # a column of empty text makes blank lines, which are no rows
        assume(False)
    encoder = fit_or_skip(whole)
    blocks = list(read_blocks(path, encoder.text_columns, rows=rows))
    assert [len(block) for block in blocks[:-1]] == [rows] * (len(blocks) - 1)
    assert list(pd.concat(blocks).index) == list(range(len(whole)))
    in_blocks = np.concatenate([encoder.encode(block) for block in blocks])
    np.testing.assert_array_equal(in_blocks, encoder.encode(whole))


@SHARED_FOLDER
@given(frames(), st.integers(1, 7))
def test_blocks_of_a_parquet_file_are_encoded_as_the_whole(tmp_path, frame, rows):
    path = tmp_path / "table.parquet"
    try:
        frame.to_parquet(path, index=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError):  # numbers and text in one column
        assume(False)
    except UnicodeEncodeError:  # lone surrogates
        assume(False)
    whole = read_table(path)
    encoder = fit_or_skip(whole)
    in_blocks = [encoder.encode(block) for block in read_blocks(path, rows=rows)]
    np.testing.assert_array_equal(np.concatenate(in_blocks), encoder.encode(whole))


@SHARED_FOLDER
@given(
    st.binary(max_size=300),
    st.sampled_from([".csv", ".tsv", ".csv.gz", ".parquet", ".pq"]),
)
@example(b"", ".csv")
@example(b"\x00", ".csv")
@example(b'"', ".csv")
@example(b"a,b\n1,2,3\n", ".csv")
@example(b"a\n1\n2,3\n", ".csv")
@example(b"PAR1PAR1", ".parquet")
def test_random_bytes_are_a_table_or_a_table_error(tmp_path, content, suffix):
    check_file_of(tmp_path, content, suffix)


@SHARED_FOLDER
@given(st.text(alphabet='ab,;"\n\r\t 1.?é\x00', max_size=40))
def test_random_text_is_a_table_or_a_table_error(tmp_path, content):
    check_file_of(tmp_path, content.encode(), ".csv")


@SHARED_FOLDER
@given(st.integers(0, 10_000), st.integers(0, 255), st.booleans())
def test_a_damaged_parquet_file_is_a_table_or_a_table_error(tmp_path, position, byte, truncated):
    content = bytearray(parquet_bytes())
    position %= len(content)
    content[position] = byte
    check_file_of(tmp_path, bytes(content[:position] if truncated else content), ".parquet")


def parquet_bytes():
    buffer = io.BytesIO()
    pd.DataFrame({"x": [1.0, 2.0], "t": ["a", None]}).to_parquet(buffer)
    return buffer.getvalue()


def check_file_of(folder, content, suffix):
    path = folder / f"table{suffix}"
    path.write_bytes(content)
    for read in (read_table, lambda path: pd.concat(read_blocks(path, rows=3))):
        try:
            frame, message = read(path), None
        except TableError as error:
            frame, message = None, str(error)
        if frame is None:
            assert str(path) in message
            assert "\n" not in message
        else:
            assert len(frame) > 0
            assert frame.columns.is_unique


def test_numbers_and_truth_values_are_used_as_they_are():
    frame = pd.DataFrame({"x": [1, 2, 4], "b": [True, False, True]})
    encoder = TableEncoder.fit(frame)
    assert encoder.feature_names == ["x", "b"]
    np.testing.assert_array_equal(encoder.encode(frame), [[1, 1], [2, 0], [4, 1]])


def test_gaps_in_numbers_become_the_median_and_an_indicator():
    frame = pd.DataFrame({"x": [1.0, None, 3.0, 5.0]})
    encoder = TableEncoder.fit(frame)
    assert encoder.feature_names == ["x", "x is missing"]
    np.testing.assert_array_equal(encoder.encode(frame), [[1, 0], [3, 1], [3, 0], [5, 0]])


def test_text_becomes_an_indicator_for_each_category_and_for_gaps():
    frame = pd.DataFrame({"c": ["b", "a", None, " b "]})
    encoder = TableEncoder.fit(frame)
    assert encoder.feature_names == ["c = a", "c = b", "c is missing"]
    expected = [[0, 1, 0], [1, 0, 0], [0, 0, 1], [0, 1, 0]]
    np.testing.assert_array_equal(encoder.encode(frame), expected)


def test_text_that_is_all_numbers_is_numbers():
    column = choose_column("x", pd.Series(["1,234", " 12 ", None, "-7.5e1"]))
    assert column == NumberColumn("x", fill=12.0, had_gaps=True)


@pytest.mark.parametrize("text", ["0,123", "1,5", "1,23,456", "1_000", "0x10", "nano"])
def test_text_that_is_not_clearly_a_number_stays_text(text):
    column = choose_column("x", pd.Series(["1", text, "1"]))
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
    column = choose_column("x", pd.Series(cells))
    assert isinstance(column, LeftOut)
    assert reason in column.reason


@pytest.mark.parametrize("name", ["Unnamed: 0", "", "  ", "__index_level_0__"])
def test_columns_without_a_name_are_left_out(name):
    assert isinstance(choose_column(name, pd.Series([1, 2, 3])), LeftOut)


def test_text_with_many_values_is_left_out():
    few = [f"c{i}" for i in range(MAX_CATEGORIES)] * 2
    assert isinstance(choose_column("x", pd.Series(few)), TextColumn)
    many = [f"c{i}" for i in range(MAX_CATEGORIES + 1)] * 2
    assert f"{MAX_CATEGORIES + 1} different values" in choose_column("x", pd.Series(many)).reason


def test_a_column_of_numbers_with_one_bad_cell_names_it():
    cells = [str(number) for number in range(50)] + ["abc"]
    assert choose_column("x", pd.Series(cells)).reason == "is mostly numbers, but row 51 has 'abc'"


def test_numeric_categories_of_a_categorical_column_stay_categories():
    frame = pd.DataFrame({"c": pd.Categorical([1, 2, None, 1])})
    assert TableEncoder.fit(frame).feature_names == ["c = 1", "c = 2", "c is missing"]


@pytest.mark.parametrize("cells", [[1.0, 2.0, np.inf], ["1", "2", "-inf"], ["1", "2", "1e400"]])
def test_an_infinite_value_names_column_and_row(cells):
    frame = pd.DataFrame({"speed": cells})
    with pytest.raises(TableError, match="'speed' is infinite in row 3"):
        TableEncoder.fit(frame)
    encoder = TableEncoder.fit(pd.DataFrame({"speed": [1, 2]}))
    block = frame.set_index(pd.RangeIndex(100, 103))
    with pytest.raises(TableError, match="'speed' is infinite in row 103"):
        encoder.encode(block)


def test_a_whole_number_beyond_all_floats_is_infinite():
    with pytest.raises(TableError, match="'x' is infinite in row 2"):
        choose_column("x", pd.Series([1, 10**400], dtype=object))


def test_text_in_a_column_of_numbers_names_column_row_and_value():
    encoder = TableEncoder.fit(pd.DataFrame({"age": [1, 2]}))
    with pytest.raises(TableError, match="'age' should hold numbers, but row 2 has 'old'"):
        encoder.encode(pd.DataFrame({"age": ["3", "old"]}))


def test_missing_columns_are_named_and_extra_ones_ignored():
    encoder = TableEncoder.fit(pd.DataFrame({"a": [1, 2], "b": [3, 4], "c": [5, 6]}))
    with pytest.raises(TableError, match="needs: 'a', 'c'"):
        encoder.encode(pd.DataFrame({"b": [1], "d": [2]}))
    extra = pd.DataFrame({"d": [0], "c": [7], "b": [8], "a": [9]})
    np.testing.assert_array_equal(encoder.encode(extra), [[9, 8, 7]])


def test_new_categories_are_no_known_category_and_told_once_over_blocks():
    encoder = TableEncoder.fit(pd.DataFrame({"c": ["a", "b", "a"]}))
    surprises = Surprises()
    for cells in (["a", "new"], ["new", *(f"other{i}" for i in range(20))]):
        inputs = encoder.encode(pd.DataFrame({"c": cells}), surprises)
        assert inputs[1:].sum() == 0
    (line,) = surprises.lines()
    assert "'c'" in line
    assert "'new'" in line
    assert "13 more" in line


@pytest.mark.parametrize(
    ("cells", "expected"), [([1, 2, 4], [[2.0], [4.0]]), (["a", "b", "a"], [[0, 0], [1, 0]])]
)
def test_gaps_where_there_were_none_are_filled_and_told(cells, expected):
    encoder = TableEncoder.fit(pd.DataFrame({"x": cells}))
    surprises = Surprises()
    inputs = encoder.encode(pd.DataFrame({"x": [None, cells[2]]}), surprises)
    np.testing.assert_array_equal(inputs, expected)
    (line,) = surprises.lines()
    assert "'x' has 1 gap" in line


def test_without_a_stand_in_a_gap_is_an_error():
    encoder = TableEncoder.of_numbers(["x"])
    with pytest.raises(TableError, match="'x' has a gap in row 2"):
        encoder.encode(pd.DataFrame({"x": [1.0, None]}))


def test_targets_and_dropped_columns_are_no_inputs():
    frame = pd.DataFrame({"a": [1, 2], "b": [3, 4], "y": [5, 6]})
    assert TableEncoder.fit(frame, targets=["y"], drop=["b"]).feature_names == ["a"]
    with pytest.raises(TableError, match="none is left"):
        TableEncoder.fit(frame, targets=["y"], drop=["a", "b"])


def test_an_unknown_column_offers_similar_names():
    frame = pd.DataFrame({"Price": [1, 2], "area": [1, 2]})
    with pytest.raises(TableError, match=r"no column 'price'\. Did you mean 'Price'\?"):
        with_targets(frame, ["price"])
    with pytest.raises(TableError, match="It has 'Price', 'area'"):
        with_targets(frame, ["zzz"])


@pytest.mark.parametrize("content", [{}, {"columns": [{"kind": "odd"}]}, {"columns": [{}]}])
def test_a_damaged_description_is_a_table_error(content):
    with pytest.raises(TableError):
        TableEncoder.from_json(content)


def test_semicolons_tabs_and_a_byte_order_mark_are_understood(tmp_path):
    for separator in (",", ";", "\t"):
        path = tmp_path / "table.csv"
        path.write_text(f"\ufeffa{separator} b \n1{separator} x\n", encoding="utf-8")
        frame = read_table(path)
        assert list(frame.columns) == ["a", "b"]
        assert frame.iloc[0].tolist() == [1, "x"]


def test_separators_in_quoted_names_do_not_count(tmp_path):
    for quoted in ('"Length, mm";"Width, mm, in";y', '"Length; mm";"Width\tin";y'):
        (tmp_path / "t.csv").write_text(f"{quoted}\n1;2;3\n")
        frame = read_table(tmp_path / "t.csv")
        assert frame.iloc[0].tolist() == [1, 2, 3]
        assert all(f'"{name}"' in quoted for name in frame.columns[:2])


def whole_and_in_blocks(path, text_columns=()):
    """A table as it is read at once, and a row at a time."""
    return read_table(path), pd.concat(read_blocks(path, text_columns, rows=1))


@pytest.mark.parametrize(("name", "separator"), [("t.csv", ";"), ("t.tsv", "\t")])
def test_decimal_commas_are_understood(tmp_path, name, separator):
    lines = ["a;b;t;y", "101,260;0,8;x;20,256", "102,500;;1,5;-1,5e1", "7;,25;x;1"]
    path = tmp_path / name
    path.write_text("\n".join(lines).replace(";", separator))
    for frame in whole_and_in_blocks(path, ("t",)):
        numbers = target_numbers(frame.fillna({"b": 0.5}), ["a", "b", "y"])
        expected = [[101.26, 0.8, 20.256], [102.5, 0.5, -15], [7, 0.25, 1]]
        np.testing.assert_array_equal(numbers, expected)
        assert frame["t"].tolist() == ["x", "1.5", "x"]
    as_text = pd.concat(read_blocks(path, ("a",)))
    assert as_text["a"].tolist() == ["101.260", "102.500", "7"]


def test_a_bad_cell_leaves_decimal_commas_what_they_are(tmp_path):
    (tmp_path / "t.csv").write_text("a;y\n0,5;101,260\n0,6;-\n0,7;102,5\n")
    for frame in whole_and_in_blocks(tmp_path / "t.csv"):
        with pytest.raises(TableError, match=r"'y' is not a number in row 2 of t.csv: '-'"):
            target_numbers(frame.set_axis(range(3)), ["y"])


def test_with_decimal_points_a_comma_separates_thousands(tmp_path):
    (tmp_path / "t.csv").write_text("a;y\n1,234;0.5\n12;1.5\n")
    for frame in whole_and_in_blocks(tmp_path / "t.csv"):
        np.testing.assert_array_equal(target_numbers(frame, ["a"]), [1234, 12])
    (tmp_path / "t.csv").write_text("a;c\n1,234,567;x\n1,234;y\n")
    for frame in whole_and_in_blocks(tmp_path / "t.csv"):
        np.testing.assert_array_equal(target_numbers(frame, ["a"]), [1234567, 1234])
    (tmp_path / "t.csv").write_text("codes;y\n1,3;0.5\n2;1.5\n")
    assert read_table(tmp_path / "t.csv")["codes"].tolist() == ["1,3", "2"]


@pytest.mark.parametrize(
    ("rows", "cell"),
    [
        (["1,234;5", "2,345;6"], "1,234"),
        (["1.234;0,5", "2;0,6"], "1.234"),
        (["1,234;0,5", "2;0.6"], "1,234"),
        (["1;2"] * 2000 + ["1,234;5"], "1,234"),
    ],
)
def test_commas_that_may_be_either_are_an_error(tmp_path, rows, cell):
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["a;b", *rows]))
    for read in (read_table, lambda path: list(read_blocks(path, rows=100))):
        with pytest.raises(TableError, match=f"t.csv has the number '{cell}'.*decimal point"):
            read(path)


def test_names_of_folders_that_say_a_value_are_columns(tmp_path):
    values = {"grp=u%20v": "u v", "grp=w": "w", "grp=__HIVE_DEFAULT_PARTITION__": None}
    for number, folder in enumerate(values):
        (tmp_path / folder / "year=2020").mkdir(parents=True)
        part = pd.DataFrame({"x": [number, number]})
        part.to_parquet(tmp_path / folder / "year=2020" / "0.parquet", index=False)
    for frame in whole_and_in_blocks(tmp_path):
        assert list(frame.columns) == ["x", "grp", "year"]
        assert set(frame["year"]) == {"2020"}
        for number, value in enumerate(values.values()):
            found = frame["grp"][frame["x"] == number]
            assert len(found) == 2
            assert found.isna().all() if value is None else (found == value).all()
    frame = pd.concat(read_blocks(tmp_path, columns=["x", "year"]))
    assert list(frame.columns) == ["x", "year"]


def test_duplicate_names_are_an_error(tmp_path):
    (tmp_path / "a.csv").write_text("x, y,x\n1,2,3\n")
    table = pa.table([pa.array([1]), pa.array([2])], names=["x", "x"])
    pq.write_table(table, tmp_path / "a.parquet")
    for name in ("a.csv", "a.parquet"):
        for read in (read_table, lambda path: list(read_blocks(path))):
            with pytest.raises(TableError, match="several columns named 'x'"):
                read(tmp_path / name)


def test_files_that_are_no_tables(tmp_path):
    (tmp_path / "no_rows.csv").write_text("a,b\n")
    pd.DataFrame({"a": []}).to_parquet(tmp_path / "no_rows.parquet")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "latin.csv").write_bytes("ä,b\n1,2\n".encode("latin-1"))
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(b"a,b\n1,2\n" * 100)[:30])
    (tmp_path / "wide.csv").write_text("a,b\n1,2,3\n4,5,6\n")
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "sheet.xlsx").write_text("")
    reasons = {
        "no_rows.csv": "has no rows",
        "no_rows.parquet": "has no rows",
        "empty.csv": "is empty",
        "latin.csv": "UTF-8",
        "cut.csv.gz": "damaged",
        "wide.csv": "more values than its first line",
        "folder.csv": "is a folder",
        "sheet.xlsx": "unknown type",
        "absent.csv": "There is no file",
    }
    for name, reason in reasons.items():
        for read in (read_table, lambda path: list(read_blocks(path))):
            with pytest.raises(TableError, match=reason):
                read(tmp_path / name)


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
    assert choose_task(pd.DataFrame({"y": cells}), ["y"]) == task


@pytest.mark.parametrize("bad", ["-", "missing", "$100.1"])
def test_bad_cells_do_not_make_labels_of_numbers(bad):
    cells = [str(number / 7) for number in range(30)]
    for few in (cells[:4], cells):
        frame = pd.DataFrame({"y": [*few, bad]})
        match = rf"'y' is mostly numbers, but row {len(frame)} has .*--task classification"
        with pytest.raises(TableError, match=match) as caught:
            choose_task(frame, ["y"])
        assert repr(bad) in str(caught.value)


@pytest.mark.parametrize(
    "cells", [["1", "2", "3"] * 5 + ["other"], ["1", "2", "x", "y"], pd.Categorical([1, 2, 3, "x"])]
)
def test_labels_of_which_some_are_numbers_are_labels(cells):
    assert choose_task(pd.DataFrame({"y": cells}), ["y"]) == "classification"


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
    found = class_labels("y", pd.Series(cells))
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
    for use in (lambda: target_numbers(frame, ["date"]), lambda: class_labels("d", frame["date"])):
        with pytest.raises(TableError, match="dates"):
            use()
    with pytest.raises(TableError, match="1,000 different values"):
        class_labels("id", pd.Series(range(1000)))


def test_rows_without_a_target_are_dropped():
    frame = pd.DataFrame({"x": [1, 2, 3, 4], "y": [1.0, None, 3.0, 4.0], "z": ["a", "b", " ", "c"]})
    assert with_targets(frame, ["y", "z"])["x"].tolist() == [1, 4]


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".csv.gz", ".parquet"])
def test_blocks_are_written_as_one_table(tmp_path, suffix):
    path = tmp_path / "new" / f"table{suffix}"
    frame = pd.DataFrame({"x": [1.5, 2.5, 3.5], "t": ["a", "b,", 'c"']})
    with table_writer(path) as append:
        append(frame[:2])
        append(frame[2:])
        assert not path.exists()
    pd.testing.assert_frame_equal(read_table(path), frame, check_dtype=False)
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet"])
def test_numbers_are_written_with_all_their_digits(tmp_path, suffix):
    numbers = [1.7e12 + 0.125, 0.1, 1e-300, -1 / 3]
    with table_writer(tmp_path / f"t{suffix}") as append:
        append(pd.DataFrame({"x": numbers, "single": np.float32(numbers)}))
    written = read_table(tmp_path / f"t{suffix}")
    np.testing.assert_allclose(written["x"], numbers, rtol=3e-16)
    np.testing.assert_array_equal(np.float32(written["single"]), np.float32(numbers))


def test_a_table_that_is_not_completed_leaves_the_old_one(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("old")
    with pytest.raises(RuntimeError), table_writer(path) as append:  # noqa: PT012
        append(pd.DataFrame({"x": [1]}))
        raise RuntimeError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_outputs_that_cannot_be_written_are_errors(tmp_path):
    table = tmp_path / "table.csv"
    table.write_text("x\n1\n")
    (tmp_path / "folder.csv").mkdir()
    cases = {
        "table.csv": "is the table that is read",
        "folder.csv": "is a folder",
        "out.txt": "unknown type",
        "table.csv/out.csv": "Nothing can be written",
    }
    for name, reason in cases.items():
        with pytest.raises(TableError, match=reason):
            check_table_output(tmp_path / name, table)
    check_table_output(tmp_path / "new" / "out.csv", table)
    assert not (tmp_path / "new").exists()
