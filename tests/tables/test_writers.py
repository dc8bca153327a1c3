"""Tables that are written: whole or not there, with all their digits."""

import numpy as np
import pandas as pd
import pytest

from dvip.tables import TableError, check_table_output, read_table, table_writer


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
        with pytest.raises((TableError, OSError), match=reason):
            check_table_output(tmp_path / name, table)
    check_table_output(tmp_path / "new" / "out.csv", table)
    assert not (tmp_path / "new").exists()
