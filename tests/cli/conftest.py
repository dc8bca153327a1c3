"""Models that `dvip fit` trained, for the tests of the commands."""

from types import SimpleNamespace

import pytest
from command_line import QUICK, patients, succeed
from sklearn.datasets import load_iris


@pytest.fixture(autouse=True, scope="module")
def _short_chains(short_chains):
    return short_chains


@pytest.fixture(scope="module")
def regression(tmp_path_factory):
    """A model that `dvip fit` trained, and the tables around it."""
    folder = tmp_path_factory.mktemp("regression")
    frame = patients()
    frame.loc[:2, "target"] = None
    train, test = folder / "train.csv", folder / "test.parquet"
    frame[:300].to_csv(train, index=False)
    frame[300:].to_parquet(test)
    result = succeed(
        "fit", train, "--target", "target", "--out", folder / "model", *QUICK,
        "--test-fraction", "0.2", "--drop", "s1",
    )  # fmt: skip
    return SimpleNamespace(
        folder=folder, model=folder / "model", train=train, test=test, frame=frame, result=result
    )


@pytest.fixture(scope="module")
def classification(tmp_path_factory):
    folder = tmp_path_factory.mktemp("classification")
    iris = load_iris(as_frame=True)
    frame = iris.frame.drop(columns="target")
    frame["kind"] = iris.target_names[iris.target]
    frame = frame.sample(frac=1, random_state=0, ignore_index=True)
    table = folder / "iris.csv"
    frame.to_csv(table, index=False)
    result = succeed("fit", table, "--target", "kind", "--out", folder / "model", *QUICK)
    return SimpleNamespace(
        folder=folder, model=folder / "model", table=table, frame=frame, result=result
    )
