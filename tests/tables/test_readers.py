"""Files as tables: what is understood, and that damaged ones are one error."""

import gzip
import io

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dvip.tables import TableError, read_blocks, read_table, target_numbers

# One temporary folder serves all examples of a property: each writes its file anew.
SHARED_FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


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
    (tmp_path / "sheet.ods").write_text("")
    reasons = {
        "no_rows.csv": "has no rows",
        "no_rows.parquet": "has no rows",
        "empty.csv": "is empty",
        "latin.csv": "UTF-8",
        "cut.csv.gz": "damaged",
        "wide.csv": "more values than its first line",
        "folder.csv": "is a folder",
        "sheet.ods": "unknown type",
        "absent.csv": "There is no file",
    }
    for name, reason in reasons.items():
        for read in (read_table, lambda path: list(read_blocks(path))):
            with pytest.raises(TableError, match=reason):
                read(tmp_path / name)


QUOTES = {
    "swallows": ('a,t\n1,"x,2\n3,"y"\n4,z\n', 2),
    "to the end": ('a,t\n1,x\n2,"y\n3,z\n', 3),
    "in the header": ('a,"t\n1,x\n2,y\n', 1),
    "after a text of two lines": ('a,t\n1,"x\ny"\n2,"z\n3,"w"\n', 4),
    "two of them": ('a,t\n1,"x\n2,"y\n3,z\n', 2),
}


@pytest.mark.parametrize("case", QUOTES)
@pytest.mark.parametrize("rows", [None, 1])
def test_a_quote_that_is_not_closed_names_its_line(tmp_path, case, rows):
    content, line = QUOTES[case]
    (tmp_path / "t.csv").write_text(content)
    with pytest.raises(TableError, match=f"t.csv has a quote in line {line} that is not closed"):
        list(read_blocks(tmp_path / "t.csv", rows=rows))


@pytest.mark.parametrize(
    ("content", "cells"),
    [
        ('a;t\n1;"x\ny;""z"""\n2;w\n', ['x\ny;"z"', "w"]),
        ('a,t\n1,5" pipe\n2,6" pipe\n', ['5" pipe', '6" pipe']),
        ('a,t\n1, "x, y" \n2,"z"\n', ["x, y ", "z"]),
        ('a,t\n1,""\n2,""""\n', [None, '"']),
        ('a,t\n1,"x"y\n2,"z\n\n\nw"\n', ["xy", "z\n\n\nw"]),
    ],
)
def test_quotes_that_are_closed_are_understood(tmp_path, content, cells):
    (tmp_path / "t.csv").write_text(content)
    for frame in whole_and_in_blocks(tmp_path / "t.csv"):
        found = [None if pd.isna(cell) else cell for cell in frame["t"]]
        assert found == cells
