"""The cache of rows: made once, checked, shared, kept small."""

import errno
import fcntl
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pooch
import pytest
from rows_in_files import (
    NAMES,
    ROWS,
    built,
    kept,
    sources,
)

from dvip import ArraySource, open_source
from dvip.sources import NumberTargets, cached_rows


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
