"""Files that are not what was saved: one clear error, and nothing is executed."""

import hashlib
import json
import shutil

import numpy as np
import pytest
from examples import TINY, regression_data
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save as safetensors_bytes

from dvip import DVIPRegressor, ModelFileError, load

X, Y = regression_data()


def equal(first, second):
    return np.array_equal(first.predict(X, return_std=True), second.predict(X, return_std=True))


@pytest.fixture(scope="module")
def model():
    return DVIPRegressor.paper(**TINY, n_layers=2).fit(X, Y)


@pytest.fixture
def saved(model, tmp_path):
    model.save(tmp_path / "model")
    return tmp_path / "model"


def manifest_of(folder):
    return json.loads((folder / "model.json").read_text())


def arrays_of(folder):
    (path,) = folder.glob("*.safetensors")
    return path


def refuse(folder, match=None):
    with pytest.raises(ModelFileError, match=match) as caught:
        load(folder)
    assert len(str(caught.value)) < 500 + len(str(folder))


def test_missing(saved, tmp_path):
    refuse(tmp_path / "nothing", "no model")
    (tmp_path / "empty").mkdir()
    refuse(tmp_path / "empty", "no model")
    refuse(saved / "model.json", "no model")
    arrays_of(saved).unlink()
    refuse(saved)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"dvip-model"',
        b"<html></html>",
        b"\x80\x04\x95pickle",
        b"\xff\xfe\x00",
        b'{"format": "onnx", "version": 1}',
        b'{"format": "dvip-model", "version": 1}',
        b'{"format": "dvip-model", "version": 1, "sha256": null, "content": {}}',
        b"[" * 100_000,
        b'{"a": ' * 100_000,
        b"1" * 10_000,
    ],
    ids=lambda content: content[:20],
)
def test_foreign_manifests(saved, content):
    (saved / "model.json").write_bytes(content)
    refuse(saved)


@pytest.mark.parametrize("content", [b"", b"x" * 100, safetensors_bytes({"a": np.zeros(3)})])
def test_foreign_arrays(saved, content):
    arrays_of(saved).write_bytes(content)
    refuse(saved)


def test_newer_version(saved):
    manifest = manifest_of(saved)
    for version in (3, 0, 2.0, True, "2", None):
        (saved / "model.json").write_text(json.dumps({**manifest, "version": version}))
        refuse(saved, rf"version {version!r}, this dvip reads 1 to 2.*newer")


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
@pytest.mark.parametrize("which", ["manifest", "arrays"])
def test_truncated(saved, which, share):
    path = saved / "model.json" if which == "manifest" else arrays_of(saved)
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])
    refuse(saved)


@pytest.fixture(scope="module")
def victim(model, tmp_path_factory):
    """A saved model whose files each example damages and puts back."""
    folder = tmp_path_factory.mktemp("victim") / "model"
    model.save(folder)
    return folder


@settings(max_examples=150)
@given(in_manifest=st.booleans(), position=st.integers(0, 10**6), bit=st.integers(0, 7))
def test_flipped_bits(model, victim, in_manifest, position, bit):
    """Every one is noticed, or harmless."""
    path = victim / "model.json" if in_manifest else arrays_of(victim)
    intact = path.read_bytes()
    damaged = bytearray(intact)
    damaged[position % len(intact)] ^= 1 << bit
    try:
        path.write_bytes(damaged)
        try:
            loaded = load(victim)
        except ModelFileError:
            return
        assert in_manifest  # where 1e-5 and 1E-5 are the same; no bit of the arrays is without use
        assert equal(loaded, model)
    finally:
        path.write_bytes(intact)


# Files with a valid checksum: written by someone else on purpose. Nothing is executed.


def rewrite(folder, change):
    """Changes the content of a saved model and signs it again."""
    manifest = manifest_of(folder)
    change(manifest["content"])
    canonical = json.dumps(manifest["content"], sort_keys=True).encode()
    manifest["sha256"] = hashlib.sha256(canonical).hexdigest()
    (folder / "model.json").write_text(json.dumps(manifest))


def put(*keys_and_value):
    *keys, last, value = keys_and_value

    def change(content):
        for key in keys:
            content = content[key]
        content[last] = value

    return change


CHANGES = {
    "class that is no estimator": put("estimator", "os.system"),
    "estimator that is no name": put("estimator", ["DVIPRegressor"]),
    "path up": put("arrays", "file", "../model/arrays.safetensors"),
    "absolute path": put("arrays", "file", "/etc/passwd"),
    "folder": put("arrays", "file", ".."),
    "no path": put("arrays", "file", "a\0b"),
    "number for a path": put("arrays", "file", 3),
    "list for a mapping": put("arrays", []),
    "object of another class": put(
        "parameters", "prior", {"object": "subprocess.Popen", "options": {"args": "true"}}
    ),
    "unknown option": put(
        "parameters", "prior", {"object": "BayesianNeuralNetwork", "options": {"code": "1"}}
    ),
    "unknown parameter": put("parameters", "code", "1"),
    "other width": put("parameters", "n_units", 7),
    "other depth": put("parameters", "n_layers", 3),
    "other precision": put("parameters", "precision", "float64"),
    "no precision": put("parameters", "precision", "float"),
    "unknown kind": put("attributes", "seed_", {"kind": "pickle", "value": "gASV"}),
    "no kind": put("attributes", "seed_", {}),
    "huge": put("attributes", "n_features_in_", {"kind": "value", "value": 10**13}),
    "no seed": lambda content: content["attributes"].pop("seed_"),
    "no parameters": put("parameters", None),
    "no attributes": put("attributes", []),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_tampered_and_signed(saved, change):
    rewrite(saved, change)
    refuse(saved)


def test_no_file_outside_the_folder_is_read(saved, tmp_path):
    """Not even the right one, with the right checksum."""
    shutil.move(arrays_of(saved), tmp_path / "arrays.safetensors")
    for name in ("../arrays.safetensors", str(tmp_path / "arrays.safetensors")):
        rewrite(saved, put("arrays", "file", name))
        refuse(saved, "outside its folder")


def test_attributes_cannot_replace_methods(saved, model):
    for name in ("predict", "__class__", "_scaled", "__reduce__"):
        rewrite(saved, put("attributes", name, {"kind": "value", "value": "code"}))
    assert equal(load(saved), model)


def test_rewriting_alone_changes_nothing(saved, model):
    """The tests above refuse the changes, not the signature."""
    rewrite(saved, lambda content: None)
    assert equal(load(saved), model)
