"""Rows in every kind of file, for the tests of sources."""

import numpy as np
import pandas as pd
from examples import TINY

from dvip import ArraySource, open_source
from dvip.sources import NumberTargets, StreamedRows, cached_rows

# One layer, and pieces of 200 steps: all trainings on tables share their compilation.
SETTINGS = {**TINY, "n_layers": 1, "max_iter": 200}
ROWS, INPUTS = 500, 3
NAMES = [f"x{index}" for index in range(INPUTS)]


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
    monkeypatch.setattr("dvip.sources.source.TableSource.frames.__defaults__", (rows,))
    monkeypatch.setattr("dvip.sources.source.NUMBERS_AT_ONCE", rows * INPUTS)


def small_pages(monkeypatch, page_bytes=64, buffer_pages=4):
    monkeypatch.setattr("dvip.sources.streamed_rows.PAGE_BYTES", page_bytes)
    monkeypatch.setattr("dvip.sources.streamed_rows.BUFFER_PAGES", buffer_pages)
    monkeypatch.setattr("dvip.sources.streamed_rows.MIN_BUFFER_PAGES", buffer_pages)


def opened(path, content, classes=None):
    return StreamedRows(path, content, content.mean, content.std, 1e6, classes)


def built(source, dtype="float32"):
    """How many rows were read to open a source, and where its file is."""
    read = []
    with cached_rows(source, NumberTargets(), dtype, read.append) as (path, _):
        return sum(read), path


def kept(row_cache):
    return [path for path in row_cache.iterdir() if path.name != ".locks"]
