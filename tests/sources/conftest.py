"""One table in every kind of file, and a cache of each test's own."""

from types import SimpleNamespace

import numpy as np
import pytest
from rows_in_files import NAMES, table


@pytest.fixture(autouse=True)
def row_cache(tmp_path, monkeypatch):
    """A cache of each test's own."""
    monkeypatch.setenv("DVIP_ROW_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


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
