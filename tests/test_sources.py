"""Sources of rows: the same whatever holds them, read in order, shuffled, cached and checked."""

import errno
import fcntl
import os
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pooch
import pytest
from examples import TINY

from dvip import (
    ArraySource,
    Block,
    CheckpointError,
    DVIPClassifier,
    DVIPRegressor,
    Source,
    TrainingDiverged,
    load,
    open_source,
)
from dvip.batches import ALL, Part
from dvip.estimators.scales import Standardiser
from dvip.network import propagation_matrix
from dvip.sources import ColumnStatistics, LabelTargets, NumberTargets, StreamedRows, cached_rows
from dvip.sources.streamed_rows import Paging, ShuffledPages
from dvip.training import ArrayData, read_ahead

# One layer, and pieces of 200 steps: all trainings on tables share their compilation.
SETTINGS = {**TINY, "n_layers": 1, "max_iter": 200}
ROWS, INPUTS = 500, 3
NAMES = [f"x{index}" for index in range(INPUTS)]


@pytest.fixture(autouse=True)
def row_cache(tmp_path, monkeypatch):
    """A cache of each test's own."""
    monkeypatch.setenv("DVIP_ROW_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def table(num_rows=ROWS, seed=0):
    """Columns of very different scales, one of them sorted and far from zero, and a target."""
    random = np.random.default_rng(seed)
    frame = pd.DataFrame(random.normal(size=(num_rows, INPUTS)), columns=NAMES)
    frame["x1"] = 1.6e9 + np.sort(frame["x1"])
    frame["x2"] *= 1e-5
    frame["y"] = np.sin(2 * frame["x0"]) + 0.1 * random.normal(size=num_rows)
    return frame


def arrays():
    frame = table()
    return frame[NAMES].to_numpy(), frame["y"].to_numpy()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """One table in every kind of file."""
    folder, frame = tmp_path_factory.mktemp("files"), table()
    frame.to_parquet(folder / "t.parquet", row_group_size=70)
    (folder / "parts" / "deeper").mkdir(parents=True)
    frame[:200].to_parquet(folder / "parts" / "a.parquet")
    frame[200:].to_parquet(folder / "parts" / "deeper" / "b.parquet", row_group_size=40)
    (folder / "parts" / "_notes.parquet").write_text("of the program that wrote the folder")
    frame.to_csv(folder / "t.csv", index=False)
    frame.to_csv(folder / "t.csv.gz", index=False)
    np.save(folder / "X.npy", frame[NAMES].to_numpy())
    np.save(folder / "y.npy", frame["y"].to_numpy())
    return SimpleNamespace(folder=folder, frame=frame)


def sources(files):
    folder = files.folder
    arrays = ArraySource(files.frame[NAMES].to_numpy(), files.frame["y"].to_numpy())
    in_tables = ["t.parquet", "parts", "t.csv", "t.csv.gz"]
    return {
        "arrays": arrays,
        "npy": open_source(folder / "X.npy", target=folder / "y.npy"),
        **{name: open_source(folder / name, target="y") for name in in_tables},
    }


def small_blocks(monkeypatch, rows=64):
    monkeypatch.setattr("dvip.sources.table_source.TableSource.frames.__defaults__", (rows,))
    monkeypatch.setattr("dvip.sources.source.NUMBERS_AT_ONCE", rows * INPUTS)


def small_pages(monkeypatch, page_bytes=64, buffer_pages=4):
    monkeypatch.setattr("dvip.sources.streamed_rows.PAGE_BYTES", page_bytes)
    monkeypatch.setattr("dvip.sources.streamed_rows.BUFFER_PAGES", buffer_pages)
    monkeypatch.setattr("dvip.sources.streamed_rows.MIN_BUFFER_PAGES", buffer_pages)


def opened(path, content, classes=None):
    return StreamedRows(path, content, content.mean, content.std, 1e6, classes)


# What is read.


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


# The order of rows.


def in_pages(num_rows, pages=None):
    """Rows that are their numbers, in pages as `small_pages` makes them."""
    paging = Paging.of(num_rows, 8)

    def read(pages):
        return np.concatenate([np.arange(*np.cumsum(paging.rows_of(int(page)))) for page in pages])

    return ShuffledPages(paging, np.arange(paging.num_pages) if pages is None else pages, read)


@pytest.mark.parametrize("num_rows", [1, 7, 8, 200, 203])
def test_every_row_once_an_epoch(monkeypatch, num_rows):
    small_pages(monkeypatch)
    order = in_pages(num_rows)
    assert order.num_rows == num_rows
    epochs = np.concatenate(list(order.rows(3, 0, 3 * num_rows))).reshape(3, num_rows)
    assert np.array_equal(np.sort(epochs), np.tile(np.arange(num_rows), (3, 1)))
    assert len(np.unique(epochs, axis=0)) == 3 or num_rows == 1


def test_order_depends_on_seed_and_position_alone(monkeypatch):
    small_pages(monkeypatch)
    whole = np.concatenate(list(in_pages(203).rows(3, 0, 500)))
    order = in_pages(203)
    for start, count in ((490, 10), (0, 1), (30, 60), (195, 20), (0, 500)):
        again = np.concatenate(list(order.rows(3, start, count)))
        assert np.array_equal(again, whole[start : start + count])
    other = np.concatenate(list(order.rows(4, 0, 500)))
    assert not np.array_equal(other, whole)


def test_neighbours_of_the_file_are_spread():
    """With pages and buffers of the real size, a sorted file gives batches like a random order."""
    num_rows, batch = 400_000, 100
    paging = Paging.of(num_rows, 116)
    order = ShuffledPages(
        paging,
        np.arange(paging.num_pages),
        lambda pages: np.concatenate(
            [np.arange(*np.cumsum(paging.rows_of(int(page)))) for page in pages]
        ),
    )
    rows = np.concatenate(list(order.rows(0, 0, num_rows))).reshape(-1, batch) / num_rows
    # The variance of a batch's mean is that of independent rows, within a few per cent.
    assert np.var(rows.mean(axis=1)) == pytest.approx(1 / 12 / batch, rel=0.1)
    means = rows.mean(axis=1)
    assert abs(np.corrcoef(means[1:], means[:-1])[0, 1]) < 0.07


def test_batches_of_a_file(files, monkeypatch):
    small_pages(monkeypatch)
    source = sources(files)["t.parquet"]
    with cached_rows(source, NumberTargets(), "float64") as (path, content):
        data = opened(path, content)
        whole = data.batches(5, 0, 60, 16)
        assert whole.inputs.shape == (60, 16, INPUTS)
        assert whole.targets.shape == (60, 16, 1)
        assert (whole.weights == 1).all()
        for first, count in ((0, 1), (31, 9), (59, 1)):
            part = data.batches(5, first, count, 16)
            assert np.array_equal(part.inputs, whole.inputs[first : first + count])
            assert np.array_equal(part.targets, whole.targets[first : first + count])
        every = data.rows(0, 0, ROWS).inputs[:, 1]
        parts = [Part(index, 3) for index in range(3)]
        # Far more than an epoch of each: the rows that it ever has.
        seen = [set(data.rows(0, 0, ROWS, part).inputs[:, 1].tolist()) for part in parts]
        assert set.union(*seen) == set(every.tolist())
        assert sum(map(len, seen)) == len(set(every.tolist()))  # no row in two parts
        assert data.batches(5, 2, 4, 12, parts[1]).inputs.shape == (4, 4, INPUTS)
        again = opened(path, content)
        assert data.fingerprint() == again.fingerprint()
        again.close()
        data.close()


def test_rows_in_memory_remember_their_epoch():
    """The order is drawn once an epoch, not for every piece of it."""
    drawn = []

    def order(num_rows, seed, epoch):
        drawn.append(epoch)
        return np.random.default_rng((seed, epoch)).permutation(num_rows)

    arrays = (np.zeros((100, 1)), np.zeros((100, 1)), np.ones(100))
    fresh = ArrayData(*arrays)
    assert fresh.order(9, 0, 0) is fresh.order(9, 0, 0)
    ArrayData(*arrays, order=order).batches(0, 0, 15, 10)
    assert drawn == [0, 1]


# Reading ahead.


def test_pieces_come_in_order_and_not_too_far_ahead():
    begun = []

    def read(piece):
        begun.append(piece)
        return 10 * piece

    reader = read_ahead(read, range(9))
    assert next(reader) == 0
    time.sleep(0.05)
    assert len(begun) <= 4
    assert list(reader) == [10 * piece for piece in range(1, 9)]
    assert begun == list(range(9))


def test_errors_of_the_reading_thread_are_raised_as_they_are():
    def read(piece):
        if piece == 3:
            raise KeyError("gone")
        return piece

    reader = read_ahead(read, range(9))
    assert [next(reader) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(KeyError, match="gone"):
        next(reader)
    assert not readers()


def readers():
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name.startswith("dvip-read-ahead")]


class Failing(ArrayData):
    """Data that cannot be read from some step on."""

    def batches(self, seed, step, num_steps, batch_size, part=ALL):
        if step >= 400:
            raise OSError("the disk is gone")
        return super().batches(seed, step, num_steps, batch_size, part)


def test_training_ends_with_the_error_and_without_a_thread(monkeypatch):
    monkeypatch.setattr("dvip.estimators.base.ArrayData", Failing)
    with pytest.raises(OSError, match="the disk is gone"):
        DVIPRegressor(**{**SETTINGS, "max_iter": 1000}).fit(*arrays())
    assert not readers()


def test_no_thread_outlives_a_training_that_diverged():
    model = DVIPRegressor(**{**SETTINGS, "max_iter": 1000, "learning_rate": 1e6})
    with pytest.raises(TrainingDiverged):
        model.fit(*arrays())
    assert not readers()


# What cannot be read.


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_bad_number_is_reported_with_file_and_row(tmp_path, monkeypatch, value):
    small_blocks(monkeypatch)
    frame = table()
    frame.loc[321, "x2"] = value
    (tmp_path / "parts").mkdir()
    frame[:300].to_parquet(tmp_path / "parts" / "a.parquet")
    frame[300:].reset_index(drop=True).to_parquet(tmp_path / "parts" / "b.parquet")
    with pytest.raises(ValueError, match=r"'x2' .* row 22 of b.parquet"):
        DVIPRegressor(**SETTINGS).fit(open_source(tmp_path / "parts", target="y"))
    np.save(tmp_path / "X.npy", frame[NAMES])
    np.save(tmp_path / "y.npy", frame["y"])
    source = open_source(tmp_path / "X.npy", target=tmp_path / "y.npy")
    with pytest.raises(ValueError, match=r"Input 3 is (nan|inf) in row 322 of X.npy"):
        DVIPRegressor(**SETTINGS).fit(source)
    assert not kept(tmp_path / "cache")


def test_what_is_no_number_is_reported_with_file_and_row(tmp_path, monkeypatch):
    small_blocks(monkeypatch)
    frame = table().astype({"x0": object, "y": object})
    frame.loc[100, "x0"] = "abc"
    frame.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(ValueError, match=r"'x0' should hold numbers, but row 101 of t.csv"):
        DVIPRegressor(**SETTINGS).fit(open_source(tmp_path / "t.csv", target="y"))
    table().astype({"y": object}).assign(y=lambda t: t["y"].where(t.index != 7)).to_csv(
        tmp_path / "t.csv", index=False
    )
    with pytest.raises(ValueError, match=r"'y' has a gap in row 8 of t.csv"):
        DVIPRegressor(**SETTINGS).fit(open_source(tmp_path / "t.csv", target="y"))
    table().astype({"y": object}).assign(y=lambda t: t["y"].where(t.index != 70, "no")).to_csv(
        tmp_path / "t.csv", index=False
    )
    with pytest.raises(ValueError, match=r"target of row 71 of t.csv is no number: 'no'"):
        DVIPRegressor(**SETTINGS).fit(open_source(tmp_path / "t.csv", target="y"))


def test_mistakes_with_sources(files, tmp_path):
    source = sources(files)["t.parquet"]
    with pytest.raises(ValueError, match="leave out y"):
        DVIPRegressor(**SETTINGS).fit(source, files.frame["y"])
    with pytest.raises(ValueError, match="requires y to be passed"):
        DVIPRegressor(**SETTINGS).fit(files.frame[NAMES])
    with pytest.raises(ValueError, match="no column 'z'"):
        open_source(files.folder / "t.csv", target="z")
    with pytest.raises(ValueError, match="no file"):
        open_source(files.folder / "absent.npy", target="y.npy")
    with pytest.raises(ValueError, match="500 rows, but y has 499"):
        ArraySource(files.frame[NAMES].to_numpy(), np.zeros(499))
    with pytest.raises(ValueError, match="no rows"):
        DVIPRegressor(**SETTINGS).fit(ArraySource(np.zeros((0, 2)), np.zeros(0)))
    with pytest.raises(ValueError, match="expected <= 2"):
        DVIPRegressor(**SETTINGS).fit(ArraySource(np.zeros((5, 2, 2)), np.zeros(5)))
    with pytest.raises(ValueError, match=r"row 2 .* -1"):
        DVIPRegressor(**SETTINGS).fit(ArraySource(np.eye(3), np.arange(3), np.array([1, -1, 1])))
    with pytest.raises(ValueError, match="one class only"):
        DVIPClassifier(**SETTINGS).fit(ArraySource(np.eye(3), np.ones(3, int)))
    with pytest.raises(ValueError, match=r"Unknown label type: row 1 has 0\.5"):
        DVIPClassifier(**SETTINGS).fit(ArraySource(np.eye(3), np.array([0.5, 1, 2])))
    times = np.array(["2020-01-01", "2021-01-01", "2022-01-01"], dtype="datetime64[ns]")
    with pytest.raises(ValueError, match="cannot be times"):
        DVIPClassifier(**SETTINGS).fit(ArraySource(np.eye(3), times))
    blocks = [Block(np.eye(2), np.array(["a", "b"])), Block(np.eye(2), np.array([1, 2]))]
    with pytest.raises(ValueError, match="several types"):
        DVIPClassifier(**SETTINGS).fit(Own(blocks))


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


# The cache.


def built(source, dtype="float32"):
    """How many rows were read to open a source, and where its file is."""
    read = []
    with cached_rows(source, NumberTargets(), dtype, read.append) as (path, _):
        return sum(read), path


def test_rows_are_read_once_and_again_when_the_file_changes(files, tmp_path):
    path = tmp_path / "t.parquet"
    shutil.copy(files.folder / "t.parquet", path)
    assert built(open_source(path, target="y"))[0] == ROWS
    assert built(open_source(path, target="y"))[0] == 0
    assert built(open_source(path, target="y"), "float64")[0] == ROWS
    assert built(open_source(path, target="y", columns=["x0"]))[0] == ROWS
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert built(open_source(path, target="y"))[0] == ROWS


def test_parts_of_a_mapped_file_are_told_apart(files):
    X, y = (np.load(files.folder / name, mmap_mode="r") for name in ("X.npy", "y.npy"))
    first, second = ArraySource(X[:100], y[:100]), ArraySource(X[100:200], y[100:200])
    assert first.fingerprint() != second.fingerprint()
    assert ArraySource(np.array(X), y).fingerprint() is None
    inputs = np.concatenate([block.inputs for block in second.blocks()])
    assert np.array_equal(inputs, files.frame[NAMES][100:200])


@pytest.mark.parametrize("damage", ["truncated", "flipped", "no content", "no JSON"])
def test_a_damaged_cache_is_made_again(files, damage):
    source = sources(files)["t.parquet"]
    _, path = built(source)
    content = bytearray(path.read_bytes())
    if damage == "truncated":
        path.write_bytes(content[:-4])
    elif damage == "flipped":
        content[1000] ^= 1
        path.write_bytes(content)
    else:
        path.with_suffix(".json").write_text("{}" if damage == "no content" else "{")
    assert built(source) == (ROWS, path)
    assert built(source)[0] == 0


def test_of_two_processes_one_makes_the_cache(files):
    """The other waits, and reads no rows."""
    source, other = sources(files)["t.parquet"], sources(files)["t.parquet"]
    with ThreadPoolExecutor() as pool:
        later = []

        def started(rows):
            later.append(pool.submit(built, other))
            time.sleep(0.2)
            assert not later[0].done()

        with cached_rows(source, NumberTargets(), "float32", started) as (path, _):
            assert later[0].result() == (0, path)


@pytest.mark.parametrize("without_locks", ["file system", "operating system"])
def test_without_locks_the_quicker_makes_the_cache(files, monkeypatch, without_locks):
    """The one that is later uses what the other has made, which may be open already."""
    if without_locks == "file system":

        def flock(*_):
            raise OSError(errno.ENOLCK, "No locks available")

        monkeypatch.setattr(fcntl, "flock", flock)
    else:
        monkeypatch.setattr("dvip.files.fcntl", None)
    source, other = sources(files)["t.parquet"], sources(files)["t.parquet"]
    inodes = []

    def overtaken(rows):
        inodes.append(built(other)[1].stat().st_ino)

    with cached_rows(source, NumberTargets(), "float32", overtaken) as (path, content):
        assert path.stat().st_ino == inodes[0]
        assert content.num_rows == ROWS


def kept(row_cache):
    return [path for path in row_cache.iterdir() if path.name != ".locks"]


def test_few_caches_are_kept(files, row_cache, monkeypatch):
    source = sources(files)["arrays"]
    for number in range(5):
        monkeypatch.setattr(source, "fingerprint", lambda number=number: number, raising=False)
        built(source)
    left = row_cache / ".making-killed"
    left.mkdir()
    os.utime(left, (0, 0))
    monkeypatch.setattr(source, "fingerprint", lambda: "last", raising=False)
    built(source)
    assert len(kept(row_cache)) == 3
    monkeypatch.setattr(source, "fingerprint", lambda: 4, raising=False)
    assert built(source)[0] == 0


def test_a_temporary_cache_leaves_nothing(files, row_cache, monkeypatch):
    _, path = built(sources(files)["arrays"])
    assert not path.exists()
    monkeypatch.setenv("DVIP_ROW_CACHE", "off")
    _, path = built(sources(files)["t.csv"])
    assert not path.exists()
    assert not row_cache.exists()


def test_a_cache_folder_that_cannot_be_made(files, tmp_path, monkeypatch):
    """That of the user is done without; one that was named is an error."""
    source = sources(files)["t.parquet"]
    (tmp_path / "file").touch()
    monkeypatch.setenv("DVIP_ROW_CACHE", str(tmp_path / "file" / "rows"))
    with pytest.raises(OSError, match=r"DVIP_ROW_CACHE names .* DVIP_ROW_CACHE=off"):
        built(source)
    monkeypatch.delenv("DVIP_ROW_CACHE")
    monkeypatch.setattr(pooch, "os_cache", lambda project: tmp_path / "file" / project)
    rows, path = built(source)
    assert rows == ROWS
    assert not path.exists()


def test_a_cache_folder_that_can_only_be_read(files, monkeypatch):
    source = sources(files)["t.parquet"]
    built(source)
    monkeypatch.setattr("dvip.sources.record_cache.why_not_writable", lambda folder: "Read-only.")
    assert built(source)[0] == 0


def test_a_file_that_changes_while_it_is_read(files, row_cache, tmp_path):
    path = tmp_path / "t.parquet"
    shutil.copy(files.folder / "t.parquet", path)
    source = open_source(path, target="y")
    with (
        pytest.raises(ValueError, match="changed while they were read"),
        cached_rows(source, NumberTargets(), "float32", lambda rows: path.touch()),
    ):
        pass
    assert not kept(row_cache)


def test_a_full_disk_is_told(files, row_cache, monkeypatch):
    source = sources(files)["t.parquet"]
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=1000))
        with pytest.raises(OSError, match=r"take 0.0 GB .* DVIP_ROW_CACHE"):
            built(source)

    def full(rows):
        raise OSError(28, "No space left on device")

    with (
        pytest.raises(OSError, match=r"No space left on device\) after .* make room"),
        cached_rows(source, NumberTargets(), "float32", full),
    ):
        pass
    assert not kept(row_cache)


# Estimators.


@pytest.fixture(scope="module")
def in_memory(files):
    settings = {**SETTINGS, "max_iter": 800}
    return settings, DVIPRegressor(**settings).fit(files.frame[NAMES], files.frame["y"])


def rmse(model, frame):
    return np.sqrt(np.mean(np.square(model.predict(frame[NAMES]) - frame["y"])))


def test_a_streamed_fit_is_as_good_as_one_in_memory(files, in_memory, tmp_path):
    settings, whole = in_memory
    streamed = DVIPRegressor(**settings).fit(sources(files)["parts"])
    test = table(seed=1)
    assert rmse(whole, test) < 0.75 * test["y"].std()
    assert rmse(streamed, test) == pytest.approx(rmse(whole, test), rel=0.1)
    assert streamed.n_samples_seen_ == ROWS
    assert list(streamed.feature_names_in_) == NAMES
    streamed.save(tmp_path / "model")
    again = load(tmp_path / "model").predict(test[NAMES])
    assert np.array_equal(again, streamed.predict(test[NAMES]))


def test_the_same_rows_give_the_same_model(files, row_cache):
    """As they are read, from the cache, and from a cache made anew, bit for bit."""
    predictions = []
    for _ in range(3):
        model = DVIPRegressor(**SETTINGS).fit(sources(files)["t.parquet"])
        predictions.append(model.predict_dist(files.frame[NAMES]).means)
        if len(predictions) == 2:
            shutil.rmtree(row_cache)
    assert np.array_equal(predictions[0], predictions[1])
    assert np.array_equal(predictions[0], predictions[2])


def test_weights_count(files):
    """A weight of zero for half of the rows is the scale of the other half."""
    frame = files.frame.assign(w=lambda t: (t.index % 2).astype(float))
    weighted = ArraySource(frame[NAMES].to_numpy(), frame["y"].to_numpy(), frame["w"].to_numpy())
    model = DVIPRegressor(**SETTINGS).fit(weighted)
    half = Standardiser.fit(frame[NAMES][1::2].to_numpy(), np.ones(ROWS // 2))
    np.testing.assert_allclose(model.input_scaler_.mean, half.mean, rtol=1e-12)
    np.testing.assert_allclose(model.input_scaler_.scale, half.scale, rtol=1e-6)


def test_labels_of_a_stream(files, tmp_path, monkeypatch):
    """Labels that appear late and out of order; their codes are those of the sorted classes."""
    small_blocks(monkeypatch)
    frame = files.frame.copy()
    frame["kind"] = np.where(frame["x0"] > 0.5, "high", np.where(frame["x0"] < -0.5, "a", "mid"))
    frame["kind"] = np.where(frame.index < 100, "mid", frame["kind"])
    frame[[*NAMES, "kind"]].to_parquet(tmp_path / "t.parquet")
    source = open_source(tmp_path / "t.parquet", target="kind")
    with cached_rows(source, LabelTargets(), "float32") as (path, content):
        classes = np.unique(content.labels)
        scales = (np.append(np.zeros(INPUTS), 0), np.append(np.ones(INPUTS), 1))
        data = StreamedRows(path, content, *scales, 1e12, classes)
        rows = data.rows(0, 0, ROWS)
        data.close()
    order = np.asarray(rows.inputs)[:, 0].argsort()
    expected = frame["kind"].to_numpy()[frame["x0"].argsort()]
    assert np.array_equal(classes[np.asarray(rows.targets)[order, 0].astype(int)], expected)


def test_a_model_starts_from_a_sample_of_the_rows(monkeypatch):
    """Principal directions of a random sample are those of all rows, if the file is sorted too."""
    random = np.random.default_rng(0)
    X = random.normal(size=(20_000, 6)) @ random.normal(size=(6, 6))
    X = X[X[:, 0].argsort()]
    samples = []
    monkeypatch.setattr("dvip.estimators.base.MAX_SAMPLED_ROWS", 5_000)
    monkeypatch.setattr(
        DVIPRegressor, "_train_on", lambda self, data, inputs, _: samples.append(inputs)
    )
    DVIPRegressor(**SETTINGS).fit(ArraySource(X, X[:, 0]))
    (sample,) = samples
    assert sample.shape == (5_000, 6)
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    ours, whole = propagation_matrix(sample, 2), propagation_matrix(scaled, 2)
    np.testing.assert_allclose(ours, whole, atol=0.05)


def test_a_streamed_fit_goes_on_where_it_was_stopped(files, tmp_path, monkeypatch):
    """Bit for bit, also when the rows have to be read again; not with other rows."""
    settings = {**SETTINGS, "max_iter": 600}
    kept = {"checkpoint_dir": tmp_path / "checkpoints", "checkpoint_every": 200}
    source = sources(files)["t.parquet"]
    undisturbed = DVIPRegressor(**settings).fit(source)
    batches = StreamedRows.batches

    def stopping(self, seed, step, *others):
        if step >= 400:
            raise KeyboardInterrupt
        return batches(self, seed, step, *others)

    with monkeypatch.context() as patch:
        patch.setattr(StreamedRows, "batches", stopping)
        with pytest.raises(KeyboardInterrupt):
            DVIPRegressor(**settings).fit(source, **kept)
    shutil.rmtree(tmp_path / "cache")
    resumed = DVIPRegressor(**settings).fit(source, **kept, resume=True)
    assert np.array_equal(resumed.bound_history_, undisturbed.bound_history_)
    frame = files.frame[NAMES]
    assert np.array_equal(resumed.predict(frame), undisturbed.predict(frame))
    with pytest.raises(CheckpointError, match="data"):
        DVIPRegressor(**settings).fit(sources(files)["npy"], **kept, resume=True)


# partial_fit.


def test_batches_of_the_user_train_a_regressor():
    random = np.random.default_rng(0)
    X = random.normal(size=(2000, INPUTS))
    y = np.sin(2 * X[:, 0]) + 0.1 * random.normal(size=2000)
    model = DVIPRegressor(**{**SETTINGS, "learning_rate": 0.02})
    for epoch in range(4):
        for start in range(0, 2000, 250 + epoch):  # sizes that differ
            model.partial_fit(X[start : start + 250 + epoch], y[start : start + 250 + epoch])
    assert model.n_samples_seen_ == 8000
    assert model.n_iter_ >= 8000 / TINY["batch_size"]
    np.testing.assert_allclose(model.input_scaler_.mean, X[:250].mean(axis=0))
    assert np.sqrt(np.mean(np.square(model.predict(X) - y))) < 0.75 * y.std()
    before = model.predict(X)
    model.partial_fit(X[:10], y[:10])
    assert not np.array_equal(model.predict(X), before)
    with pytest.raises(ValueError, match="shape"):
        model.partial_fit(X[:9], np.stack([y[:9], y[:9]], axis=1))


def test_rows_that_fill_up_a_batch_do_not_count():
    """Ten rows in batches of 16 make the steps of ten rows in batches of ten."""
    X, y = arrays()
    filled, exact = (
        DVIPRegressor(**{**SETTINGS, "batch_size": size, "precision": "float64"})
        for size in (16, 10)
    )
    for start in range(0, 40, 10):
        rows = slice(start, start + 10)
        for model in (filled, exact):
            model.partial_fit(X[rows], y[rows], sample_weight=np.linspace(0.5, 1.5, 10))
    assert filled.n_iter_ == exact.n_iter_ == 4
    np.testing.assert_allclose(filled.predict(X), exact.predict(X), rtol=1e-9)


def test_batches_of_the_user_train_a_classifier():
    X = np.random.default_rng(0).normal(size=(600, INPUTS))
    y = np.where(X[:, 0] > 0, "yes", "no")
    model = DVIPClassifier(**SETTINGS)
    with pytest.raises(ValueError, match="classes must be passed"):
        model.partial_fit(X, y)
    model.partial_fit(X[y == "yes"], y[y == "yes"], classes=["yes", "no"])
    for _ in range(6):
        model.partial_fit(X, y)
    assert model.score(X, y) > 0.85
    with pytest.raises(ValueError, match=r"none of the classes: .'perhaps'"):
        model.partial_fit(X[:2], ["yes", "perhaps"])


def test_partial_fit_goes_on_after_fit_and_after_divergence():
    X, y = arrays()
    model = DVIPRegressor(**SETTINGS).fit(X, y)
    rows, steps, scaler = model.n_samples_seen_, model.n_iter_, model.input_scaler_
    model.partial_fit(X, y)
    assert model.n_samples_seen_ == rows + len(X)
    assert model.n_iter_ == steps + -(-len(X) // TINY["batch_size"])
    assert model.input_scaler_ is scaler
    with pytest.raises(TrainingDiverged):
        model.set_params(learning_rate=1e6).partial_fit(X, y)
    assert np.isfinite(model.set_params(learning_rate=0.01).partial_fit(X, y).predict(X)).all()


# Memory.

MEMORY = """
import json, os, sys
import numpy as np
from dvip import DVIPRegressor, open_source
from pathlib import Path
import re

model = DVIPRegressor(n_layers=2, max_iter=2000, n_predictive_samples=10)
model.fit(open_source(sys.argv[1], target="y"))
status = Path("/proc/self/status").read_text()
print(int(re.search(r"VmHWM:\\s+(\\d+)", status)[1]) / 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="asks Linux for the memory")
def test_memory_does_not_grow_with_the_rows(tmp_path):
    """Ten times the rows, 28 numbers each: 60 MB and 600 MB in single precision."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def megabytes(name, num_rows):
        random = np.random.default_rng(0)
        names = [*(f"x{index}" for index in range(27)), "y"]
        writer = None
        for _ in range(0, num_rows, 100_000):
            values = random.normal(size=(28, 100_000)).astype(np.float32)
            block = pa.table(dict(zip(names, values, strict=True)))
            writer = writer or pq.ParquetWriter(tmp_path / name, block.schema)
            writer.write_table(block)
        writer.close()
        result = subprocess.run(
            [sys.executable, "-c", MEMORY, str(tmp_path / name)],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "DVIP_ROW_CACHE": str(tmp_path / "rows")},
        )
        return float(result.stdout)

    small, large = megabytes("small.parquet", 500_000), megabytes("large.parquet", 5_000_000)
    assert large < 1.15 * small
    assert large < 1500
