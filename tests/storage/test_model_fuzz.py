"""Models and checkpoints that were changed and sealed again: refused in a line, or read plainly."""

import copy
import random
import shutil
import warnings

import jax
import numpy as np
import pandas as pd
import pytest
from examples import TINY, regression_data
from sealing import seal, unsealed
from typer.testing import CliRunner

from dvip import (
    BayesianNeuralNetwork,
    CheckpointError,
    DVIPClassifier,
    DVIPRegressor,
    ModelFileError,
    TableEncoder,
    load,
)
from dvip.__main__ import app
from dvip.estimators.scales import Standardiser

X, Y = regression_data(num_rows=30)
TABLE = pd.DataFrame(X.copy(), columns=["a", "b", "c"])
TABLE["c"] = np.where(TABLE["c"] > 5, "large", "small")
TABLE.loc[3, "a"] = None


def few_or_many(few, many):
    """As many seeds by default, and with `-m faults`."""
    return pytest.mark.parametrize(
        "seeds",
        [range(few), pytest.param(range(few, few + many), marks=pytest.mark.faults)],
        ids=[f"{few} times", f"{many} times"],
    )


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A regressor of two layers, a classifier with text labels, and one of a table with gaps."""
    folder = tmp_path_factory.mktemp("saved")
    labels = np.array(["low", "mid", "high"])[np.digitize(Y, [90, 110])]
    DVIPRegressor.paper(n_layers=2, **TINY).fit(X, Y).save(folder / "regressor")
    DVIPClassifier.paper(n_layers=1, **TINY).fit(X, labels).save(folder / "classifier")
    DVIPRegressor.paper(n_layers=1, **TINY).fit(TABLE, Y).save(folder / "table")
    return [(path, *unsealed(path)) for path in sorted(folder.iterdir())]


# What may be found in a manifest where something else belongs.


def nested(depth):
    value = 1
    for _ in range(depth):
        value = [value]
    return value


VALUES = [
    *(10**400, 10**13, 10**9, 2**31, 1000, 3, 2, 1, 0, -1, -(10**30)),
    *(0.5, -0.5, 1e308, float("nan"), float("inf"), float("-inf")),
    *(
        "",
        "x",
        "3",
        "../x",
        "float64",
        "bnn",
        "gp",
        "DVIPClassifier",
        "SIPRegressor",
        "<U999999999",
    ),
    *("O", "tuple", "value", "array", "texts", "times", "standardiser", "model", "encoder"),
    *(None, True, False, [], {}, [1] * 2000, ["a", "b", "c"], ["low", "low", "mid"], nested(400)),
    {"object": "os.system", "options": {"command": "true"}},
    {"object": "BayesianNeuralNetwork", "options": {"hidden": [10**9]}},
    {"own_object": "Mine", "looks": 3},
    {"kind": "value", "value": 3},
    {"kind": "tuple", "values": [2**40, 2**40]},
]
DTYPES = ["float64", "float16", "int32", "uint8", "bool", "int64"]


def places(tree, path=()):
    """All places of a JSON tree but its root."""
    entries = (
        tree.items()
        if isinstance(tree, dict)
        else enumerate(tree)
        if isinstance(tree, list)
        else ()
    )
    for key, value in entries:
        yield (*path, key)
        yield from places(value, (*path, key))


def changed_content(content, chance):
    """The content with one place changed, removed or renamed."""
    content = copy.deepcopy(content)
    *path, last = chance.choice(list(places(content)))
    parent = content
    for key in path:
        parent = parent[key]
    match chance.choice(["put", "put", "put", "put", "remove", "rename", "repeat"]):
        case "put":
            parent[last] = copy.deepcopy(chance.choice(VALUES))
        case "remove":
            del parent[last]
        case "rename" if isinstance(parent, dict):
            parent[chance.choice([f"{last}_", f"_{last}", "n_layers", "x_"])] = parent.pop(last)
        case _:
            parent[last] = [parent[last], parent[last]]
    return content


def changed_arrays(arrays, chance):
    """The arrays with one of them changed, removed, renamed or replaced."""
    arrays = {name: array.copy() for name, array in arrays.items()}
    name = chance.choice(sorted(arrays))
    array = arrays[name]
    flat = array.reshape(-1)
    match chance.randrange(13):
        case 0:
            del arrays[name]
        case 1:
            arrays[f"{name}x"] = arrays.pop(name)
        case 2:
            arrays["more"] = array
        case 3:
            arrays[name] = arrays[chance.choice(sorted(arrays))]
        case 4:
            arrays[name] = array[None]
        case 5:
            arrays[name] = flat[:-1]
        case 6:
            arrays[name] = array.T
        case 7:
            arrays[name] = array.astype(chance.choice(DTYPES))
        case 8 if array.dtype.kind == "f" and array.size:
            flat[chance.randrange(array.size)] = chance.choice([np.nan, np.inf, -np.inf])
        case 9:
            arrays[name] = np.zeros_like(array)
        case 10:
            arrays[name] = np.asarray(-array.astype(float)).astype(array.dtype)
        case 11:
            arrays[name] = np.asarray(array * 2, array.dtype)
        case _:
            arrays[name] = np.zeros((0, *array.shape), array.dtype)
    return arrays


def mutated(content, arrays, seed):
    """One change, or up to three."""
    chance = random.Random(seed)
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        if chance.random() < 0.6:
            content = changed_content(content, chance)
        else:
            arrays = changed_arrays(arrays, chance)
    return content, arrays


# The numbers of a file without any checks.


def plain_parameter(value):
    if isinstance(value, list):
        return tuple(map(plain_parameter, value))
    if isinstance(value, dict):
        options = {key: plain_parameter(entry) for key, entry in value["options"].items()}
        return BayesianNeuralNetwork(**options)
    return value


def plain_attribute(name, value, arrays):
    match value["kind"]:
        case "standardiser":
            return Standardiser(arrays[f"{name}.mean"], arrays[f"{name}.scale"])
        case "array":
            return arrays[name]
        case "texts":
            return np.array(value["values"], value["dtype"])
        case "tuple":
            return tuple(value["values"])
        case "value":
            return value["value"]
        case "encoder":
            return TableEncoder.from_json(value["content"])


def filled(name, tree, arrays):
    """The tree with these arrays for its own."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(tree)
    keys = [name + jax.tree_util.keystr(path) for path, _ in leaves]
    return jax.tree.unflatten(structure, [jax.numpy.asarray(arrays[key]) for key in keys])


def plainly_read(content, arrays):
    cls = {"DVIPRegressor": DVIPRegressor, "DVIPClassifier": DVIPClassifier}[content["estimator"]]
    parameters = {name: plain_parameter(value) for name, value in content["parameters"].items()}
    estimator = cls(**parameters)
    for name, value in content["attributes"].items():
        if value["kind"] != "model" and name.endswith("_") and not name.startswith("_"):
            setattr(estimator, name, plain_attribute(name, value, arrays))
    inputs = np.zeros((1, len(estimator.input_scaler_.mean)), "float32")
    model = estimator.build_model(inputs)
    estimator.model_ = filled("model_", model, arrays)
    return estimator


def numbers_of(estimator):
    with warnings.catch_warnings():  # of rows outside the range of training
        warnings.simplefilter("ignore")
        inputs = TABLE if hasattr(estimator, "encoder_") else X
        if hasattr(estimator, "predict_proba"):
            return [estimator.predict_proba(inputs), estimator.predict(inputs)]
        return estimator.predict(inputs, return_std=True)


def assert_short(error, folder):
    told = str(error).replace(str(folder), "")
    assert len(told) < 450, told
    assert len(told.splitlines()) <= 2, told


@few_or_many(100, 1_000)
def test_changed_models(saved, tmp_path, seeds):
    refused = 0
    for seed in seeds:
        _, original, arrays = saved[seed % 3]
        content, arrays = mutated(original, arrays, seed)
        folder = tmp_path / str(seed)
        folder.mkdir()
        seal(folder, content, arrays)
        if content.get("arrays") != original["arrays"]:
            seal(folder, content)  # what it says of the file was changed, too
        try:
            estimator = load(folder)
        except ModelFileError as error:
            assert_short(error, folder)
            refused += 1
            continue
        found = numbers_of(estimator)
        for ours, theirs in zip(found, numbers_of(plainly_read(content, arrays)), strict=True):
            assert ours.dtype.kind != "f" or np.isfinite(ours).all(), seed
            assert np.array_equal(ours, theirs), seed
    assert 0.5 * len(seeds) < refused < len(seeds)


@few_or_many(5, 50)
def test_changed_models_on_the_command_line(saved, tmp_path, seeds):
    table, out = tmp_path / "t.csv", tmp_path / "out.csv"
    for seed in seeds:
        (TABLE if seed % 3 == 2 else pd.DataFrame(X)).to_csv(table, index=False)
        _, content, arrays = saved[seed % 3]
        folder = tmp_path / str(seed)
        folder.mkdir()
        seal(folder, *mutated(content, arrays, seed))
        result = CliRunner().invoke(app, ["predict", str(folder), str(table), "--out", str(out)])
        assert result.exit_code in (0, 1), result
        assert "Traceback" not in result.output
        assert out.exists() == (result.exit_code == 0)
        if result.exit_code == 1:
            assert result.stderr.startswith("Error: ")
            assert_short(result.stderr, folder)
        else:
            assert np.isfinite(pd.read_csv(out).select_dtypes("number")).all(axis=None)
            out.unlink()


# Checkpoints.


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The last checkpoint of a training."""
    folder = tmp_path_factory.mktemp("finished")
    train(folder)
    (path,) = folder.iterdir()
    return path, *unsealed(path, "checkpoint")


def train(folder, **options):
    estimator = DVIPRegressor.paper(n_layers=1, **TINY)
    return estimator.fit(X, Y, checkpoint_dir=folder, **options)


@few_or_many(20, 200)
def test_changed_checkpoints(finished, tmp_path, seeds):
    """Nothing is left to train: the model is that of the checkpoint."""
    path, content, arrays = finished
    for seed in seeds:
        folder = tmp_path / str(seed)
        shutil.copytree(path, folder / path.name)
        changed, numbers = mutated(content, arrays, seed)
        seal(folder / path.name, changed, numbers, "checkpoint")
        try:
            estimator = train(folder, resume=True)
        except CheckpointError as error:
            told = str(error).replace(str(folder), "")
            assert len(told) < 1_000, told
            assert "\n" not in told
            continue
        expected = copy.copy(estimator)
        leaves = {key: jax.numpy.asarray(array) for key, array in numbers.items()}
        places, structure = jax.tree_util.tree_flatten_with_path(estimator.model_)
        names = [jax.tree_util.keystr(place) for place, _ in places]
        expected.model_ = jax.tree.unflatten(
            structure,
            [leaves.get(f"state.parameters{name}", leaves.get(f"fixed{name}")) for name in names],
        )
        for ours, theirs in zip(numbers_of(estimator), numbers_of(expected), strict=True):
            assert np.isfinite(ours).all(), seed
            assert np.array_equal(ours, theirs), seed
