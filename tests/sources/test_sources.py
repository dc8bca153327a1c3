"""Sources of rows: the same whatever holds them, and what cannot be read."""

import numpy as np
import pytest
from rows_in_files import NAMES, ROWS, SETTINGS, kept, opened, small_blocks, sources, table

from dvip import ArraySource, Block, DVIPClassifier, DVIPRegressor, Source, open_source
from dvip.estimators.scales import Standardiser
from dvip.sources import ColumnStatistics, NumberTargets, cached_rows


def test_all_kinds_of_files_hold_the_same_rows(files, monkeypatch):
    small_blocks(monkeypatch)
    for name, source in sources(files).items():
        blocks = list(source.blocks())
        assert len(blocks) > 5
        inputs = np.concatenate([block.inputs for block in blocks])
        targets = np.concatenate([block.targets for block in blocks])
        # Text holds as many digits as are needed.
        np.testing.assert_array_equal(inputs, files.frame[NAMES], err_msg=name)
        np.testing.assert_array_equal(targets, files.frame["y"])
        assert source.num_rows in (None, ROWS)
        assert list(source.feature_names or NAMES) == NAMES


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_scales_in_one_pass_are_those_of_the_whole(files, monkeypatch, dtype):
    """Mean and deviation of single precision columns near 1.6e9 with a deviation of 1."""
    small_blocks(monkeypatch)
    values = files.frame[[*NAMES, "y"]].to_numpy()
    exact = Standardiser.fit(values, np.ones(ROWS))
    for source in sources(files).values():
        with cached_rows(source, NumberTargets(), dtype) as (path, content):
            scaler = Standardiser.of_moments(content.mean, content.std, content.largest)
            np.testing.assert_allclose(scaler.mean, exact.mean, rtol=1e-14, atol=1e-16)
            np.testing.assert_allclose(scaler.scale, exact.scale, rtol=1e-8)
            np.testing.assert_allclose(content.largest, np.abs(values).max(axis=0), rtol=1e-15)
            data = opened(path, content)
            epoch = data.rows(0, 0, ROWS)
            data.close()
        z = np.hstack([epoch.inputs, epoch.targets])
        expected = exact.transform(values)
        order = z[:, 1].argsort()  # x1 is sorted, with distinct values
        np.testing.assert_allclose(z[order], expected, atol=5e-6 if dtype == "float32" else 1e-7)


@pytest.mark.parametrize("name", ["t.parquet", "t.csv"])
def test_only_columns_that_are_used_are_read(files, name):
    source = open_source(files.folder / name, target="y", columns=["x2", "x0"], weight="x1")
    (frame,) = source.frames()
    assert set(frame.columns) == {"x0", "x1", "x2", "y"}
    (block,) = source.blocks()
    assert np.array_equal(block.inputs, files.frame[["x2", "x0"]])
    assert np.array_equal(block.weights, files.frame["x1"])
    (frame,) = open_source(files.folder / name, target="y", columns=["x2"]).frames()
    assert set(frame.columns) == {"x2", "y"}


def test_statistics_merge_in_any_grouping():
    random = np.random.default_rng(0)
    values = 1e8 + random.normal(size=(300, 2)) * [1, 1e-3]
    weights = random.uniform(size=300) * (random.random(300) < 0.9)
    parts = [
        ColumnStatistics.of(values[rows], weights[rows])
        for rows in np.array_split(np.arange(300), 7)
    ]
    left = parts[0]
    for part in parts[1:]:
        left = left.merged(part)
    right = parts[-1]
    for part in parts[-2::-1]:
        right = part.merged(right)
    mean = np.average(values, axis=0, weights=weights)
    std = np.sqrt(np.average(np.square(values - mean), axis=0, weights=weights))
    for both in (left, right):
        np.testing.assert_allclose(both.mean, mean, rtol=1e-15)
        np.testing.assert_allclose(both.std, std, rtol=1e-6)
        assert np.array_equal(both.low, values[weights > 0].min(axis=0))
    constant = ColumnStatistics.of(np.full((9, 1), 0.1), np.ones(9))
    assert constant.merged(constant).std == 0


def test_channels_share_their_scale():
    """Pooled moments are those of all columns of a channel together."""
    random = np.random.default_rng(0)
    values = random.normal(size=(40, 6)) * np.arange(1, 7) + np.arange(6)
    exact = Standardiser.fit(values, np.ones(40), num_channels=2)
    moments = (values.mean(axis=0), values.std(axis=0), np.abs(values).max(axis=0))
    pooled = Standardiser.of_moments(*moments, num_channels=2)
    np.testing.assert_allclose(pooled.mean, exact.mean)
    np.testing.assert_allclose(pooled.scale, exact.scale)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_bad_number_is_reported_with_file_and_row(tmp_path, monkeypatch, value):
    small_blocks(monkeypatch)
    frame = table()
    frame.loc[321, "x2"] = value
    (tmp_path / "parts").mkdir()
    frame[:300].to_parquet(tmp_path / "parts" / "a.parquet")
    frame[300:].reset_index(drop=True).to_parquet(tmp_path / "parts" / "b.parquet")
    with pytest.raises(ValueError, match=r"'x2' .* row 22 of b.parquet"):
        DVIPRegressor.paper(**SETTINGS).fit(open_source(tmp_path / "parts", target="y"))
    np.save(tmp_path / "X.npy", frame[NAMES])
    np.save(tmp_path / "y.npy", frame["y"])
    source = open_source(tmp_path / "X.npy", target=tmp_path / "y.npy")
    with pytest.raises(ValueError, match=r"Input 3 is (nan|inf) in row 322 of X.npy"):
        DVIPRegressor.paper(**SETTINGS).fit(source)
    assert not kept(tmp_path / "cache")


def test_what_is_no_number_is_reported_with_file_and_row(tmp_path, monkeypatch):
    small_blocks(monkeypatch)
    frame = table().astype({"x0": object, "y": object})
    frame.loc[100, "x0"] = "abc"
    frame.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(ValueError, match=r"'x0' should hold numbers, but row 101 of t.csv"):
        DVIPRegressor.paper(**SETTINGS).fit(open_source(tmp_path / "t.csv", target="y"))
    table().astype({"y": object}).assign(y=lambda t: t["y"].where(t.index != 7)).to_csv(
        tmp_path / "t.csv", index=False
    )
    with pytest.raises(ValueError, match=r"'y' has a gap in row 8 of t.csv"):
        DVIPRegressor.paper(**SETTINGS).fit(open_source(tmp_path / "t.csv", target="y"))
    table().astype({"y": object}).assign(y=lambda t: t["y"].where(t.index != 70, "no")).to_csv(
        tmp_path / "t.csv", index=False
    )
    with pytest.raises(ValueError, match=r"target of row 71 of t.csv is no number: 'no'"):
        DVIPRegressor.paper(**SETTINGS).fit(open_source(tmp_path / "t.csv", target="y"))


def test_mistakes_with_sources(files, tmp_path):
    source = sources(files)["t.parquet"]
    with pytest.raises(ValueError, match="leave out y"):
        DVIPRegressor.paper(**SETTINGS).fit(source, files.frame["y"])
    with pytest.raises(ValueError, match="requires y to be passed"):
        DVIPRegressor.paper(**SETTINGS).fit(files.frame[NAMES])
    with pytest.raises(ValueError, match="no column 'z'"):
        open_source(files.folder / "t.csv", target="z")
    with pytest.raises(ValueError, match="no file"):
        open_source(files.folder / "absent.npy", target="y.npy")
    with pytest.raises(ValueError, match="500 rows, but y has 499"):
        ArraySource(files.frame[NAMES].to_numpy(), np.zeros(499))
    with pytest.raises(ValueError, match="no rows"):
        DVIPRegressor.paper(**SETTINGS).fit(ArraySource(np.zeros((0, 2)), np.zeros(0)))
    with pytest.raises(ValueError, match="expected <= 2"):
        DVIPRegressor.paper(**SETTINGS).fit(ArraySource(np.zeros((5, 2, 2)), np.zeros(5)))
    with pytest.raises(ValueError, match=r"row 2 .* -1"):
        DVIPRegressor.paper(**SETTINGS).fit(
            ArraySource(np.eye(3), np.arange(3), np.array([1, -1, 1]))
        )
    with pytest.raises(ValueError, match="one class only"):
        DVIPClassifier.paper(**SETTINGS).fit(ArraySource(np.eye(3), np.ones(3, int)))
    with pytest.raises(ValueError, match=r"Unknown label type: row 1 has 0\.5"):
        DVIPClassifier.paper(**SETTINGS).fit(ArraySource(np.eye(3), np.array([0.5, 1, 2])))
    times = np.array(["2020-01-01", "2021-01-01", "2022-01-01"], dtype="datetime64[ns]")
    with pytest.raises(ValueError, match="cannot be times"):
        DVIPClassifier.paper(**SETTINGS).fit(ArraySource(np.eye(3), times))
    blocks = [Block(np.eye(2), np.array(["a", "b"])), Block(np.eye(2), np.array([1, 2]))]
    with pytest.raises(ValueError, match="several types"):
        DVIPClassifier.paper(**SETTINGS).fit(Own(blocks))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": 3}, r"target=3 must be a name, or a list of names"),
        ({"target": None}, r"target=None must be"),
        ({"target": [0]}, r"target=\[0\] must be"),
        ({"target": []}, "target has no name"),
        ({"target": ["y", "y"]}, "target has the column 'y' twice"),
        ({"columns": "x0"}, r"columns='x0' must be a list of names"),
        ({"columns": 3}, r"columns=3 must be a list of names"),
        ({"columns": ["x0", 1]}, r"columns=.* must be a list of names"),
        ({"columns": ["x0", "x1", "x0"]}, "columns has the column 'x0' twice"),
        ({"columns": ["x0", "y"]}, "'y' is in target and in columns"),
        ({"columns": ["x0", "x1"], "weight": "x1"}, "'x1' is in columns and in weight"),
        ({"weight": "y"}, "'y' is in target and in weight"),
        ({"weight": 3}, "weight=3 must be the name of one column"),
    ],
    ids=str,
)
def test_columns_that_cannot_be_meant(files, options, message):
    with pytest.raises(ValueError, match=message):
        open_source(files.folder / "t.parquet", **{"target": "y", **options})


def test_files_that_cannot_be_meant(files):
    X, y = files.folder / "X.npy", files.folder / "y.npy"
    with pytest.raises(ValueError, match=r"target=3 must be the path of a \.npy file"):
        open_source(X, target=3)
    with pytest.raises(ValueError, match=r"weight=3 must be the path of a \.npy file"):
        open_source(X, target=y, weight=3)


class Own(Source):
    """A user's own source."""

    def __init__(self, blocks):
        self.given = blocks

    def blocks(self):
        return iter(self.given)
