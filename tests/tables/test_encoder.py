"""The encoder of tables: complete, the same block by block, restored as it was."""

import json
import pickle
import string
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.utils.estimator_checks import parametrize_with_checks

from dvip.tables import Surprises, TableEncoder, TableError, TableWarning, read_blocks, read_table

# One temporary folder serves all examples of a property: each writes its file anew.
SHARED_FOLDER = settings(
    max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

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
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TableWarning)  # of a number that is far from the others
            return TableEncoder().fit(frame)
    except TableError as error:
        message = str(error)
    assert "no column" in message or "infinite" in message
    return assume(False)


@settings(max_examples=50)
@given(frames())
def test_encoding_the_training_table_is_complete_and_unsurprising(frame):
    encoder = fit_or_skip(frame)
    surprises = Surprises()
    inputs = encoder.transform(frame, surprises)
    assert inputs.dtype == np.float64
    assert inputs.shape == (len(frame), len(list(encoder.get_feature_names_out())))
    assert np.isfinite(inputs).all()
    assert surprises.lines() == []
    known = {column.name for column in (*encoder.columns_, *encoder.left_out_)}
    assert known == set(frame.columns)


@settings(max_examples=50)
@given(frames(), st.data())
def test_a_restored_encoder_encodes_any_rows_as_at_fit(frame, data):
    encoder = fit_or_skip(frame)
    restored = TableEncoder.from_json(json.loads(json.dumps(encoder.to_json())))
    assert restored.to_json() == encoder.to_json()
    rows = data.draw(st.lists(st.integers(0, len(frame) - 1), min_size=1, max_size=10))
    columns = data.draw(st.permutations(list(frame.columns)))
    again = restored.transform(frame[columns].iloc[rows])
    np.testing.assert_array_equal(again, encoder.transform(frame)[rows])


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
    in_blocks = np.concatenate([encoder.transform(block) for block in blocks])
    np.testing.assert_array_equal(in_blocks, encoder.transform(whole))


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
    in_blocks = [encoder.transform(block) for block in read_blocks(path, rows=rows)]
    np.testing.assert_array_equal(np.concatenate(in_blocks), encoder.transform(whole))


def test_missing_columns_are_named_and_extra_ones_ignored():
    encoder = TableEncoder().fit(pd.DataFrame({"a": [1, 2], "b": [3, 4], "c": [5, 6]}))
    with pytest.raises(TableError, match="needs: 'a', 'c'"):
        encoder.transform(pd.DataFrame({"b": [1], "d": [2]}))
    extra = pd.DataFrame({"d": [0], "c": [7], "b": [8], "a": [9]})
    np.testing.assert_array_equal(encoder.transform(extra), [[9, 8, 7]])


def test_new_categories_are_no_known_category_and_told_once_over_blocks():
    encoder = TableEncoder().fit(pd.DataFrame({"c": ["a", "b", "a"]}))
    surprises = Surprises()
    for cells in (["a", "new"], ["new", *(f"other{i}" for i in range(20))]):
        inputs = encoder.transform(pd.DataFrame({"c": cells}), surprises)
        assert inputs[1:].sum() == 0
    (line,) = surprises.lines()
    assert "'c'" in line
    assert "'new'" in line
    assert "13 more" in line


@pytest.mark.parametrize(
    ("cells", "expected"), [([1, 2, 4], [[2.0], [4.0]]), (["a", "b", "a"], [[0, 0], [1, 0]])]
)
def test_gaps_where_there_were_none_are_filled_and_told(cells, expected):
    encoder = TableEncoder().fit(pd.DataFrame({"x": cells}))
    surprises = Surprises()
    inputs = encoder.transform(pd.DataFrame({"x": [None, cells[2]]}), surprises)
    np.testing.assert_array_equal(inputs, expected)
    (line,) = surprises.lines()
    assert "'x' has 1 gap" in line


def test_without_a_stand_in_a_gap_is_an_error():
    encoder = TableEncoder.of_numbers(["x"])
    with pytest.raises(TableError, match="'x' has a gap in row 2"):
        encoder.transform(pd.DataFrame({"x": [1.0, None]}))


@pytest.mark.parametrize("content", [{}, {"columns": [{"kind": "odd"}]}, {"columns": [{}]}])
def test_a_damaged_description_is_a_table_error(content):
    with pytest.raises(TableError):
        TableEncoder.from_json(content)


# The encoder as a transformer of scikit-learn's.

BY_NAME = "columns are found by name, and others are ignored"


@parametrize_with_checks(
    [TableEncoder()],
    expected_failed_checks=lambda encoder: {
        "check_dataframe_column_names_consistency": BY_NAME,
        "check_fit2d_1sample": "one row is refused as having no column that varies",
    },
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def mixed_table(rows=60):
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"x": random.normal(size=rows), "kind": random.choice(list("abc"), rows)})
    frame.loc[3, "x"] = frame.loc[50, "kind"] = None
    frame["share"] = [f"{number}%" for number in range(rows)]
    frame["name"] = [f"n{number}" for number in range(rows)]
    return frame


@pytest.mark.parametrize("rows", [1, 7, 60])
def test_blocks_are_fitted_as_the_whole(rows):
    frame = mixed_table()
    whole, in_blocks = TableEncoder().fit(frame), TableEncoder()
    for start in range(0, len(frame), rows):
        in_blocks.partial_fit(frame[start : start + rows])
    assert in_blocks.to_json() == whole.to_json()
    assert in_blocks.fit(frame[:30]).to_json() == TableEncoder().fit(frame[:30]).to_json()


def test_it_is_cloned_pickled_and_part_of_a_pipeline():
    frame = mixed_table()
    encoder = TableEncoder().fit(frame)
    assert not hasattr(clone(encoder), "n_features_in_")
    again = pickle.loads(pickle.dumps(encoder))
    np.testing.assert_array_equal(again.transform(frame), encoder.transform(frame))
    columns = make_column_transformer((TableEncoder(), ["x", "kind"]))
    np.testing.assert_array_equal(columns.fit_transform(frame), encoder.transform(frame)[:, :-1])
    named = TableEncoder().set_output(transform="pandas").fit_transform(frame)
    assert list(named.columns) == list(encoder.get_feature_names_out())


def test_a_loaded_encoder_knows_its_table_and_sees_no_more_rows():
    frame = mixed_table()
    encoder = TableEncoder.from_json(json.loads(json.dumps(TableEncoder().fit(frame).to_json())))
    assert list(encoder.feature_names_in_) == list(frame.columns)
    assert encoder.n_features_in_ == 4
    with pytest.raises(TableError, match="loaded cannot see more rows"):
        encoder.partial_fit(frame)
    assert encoder.fit(frame[["x"]]).n_features_in_ == 1


def test_surprises_are_warned_of_in_python():
    encoder = TableEncoder().fit(pd.DataFrame({"c": ["a", "b", "a"]}))
    with pytest.warns(TableWarning, match="'c' has categories that the model has not seen"):
        encoder.transform(pd.DataFrame({"c": ["z"]}))
    gathered = Surprises()
    with gathered.gathering():
        for cells in (["y"], ["z", None]):
            encoder.transform(pd.DataFrame({"c": cells}))
    assert [line[:4] for line in gathered.lines()] == ["'c' "] * 2
