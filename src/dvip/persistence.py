"""Models and checkpoints on disk: a folder with a manifest and the safetensors file it names.

Nothing is executed on reading, everything is checksummed, and what is already there stays whole
until the new is complete: the manifest is replaced last, in one step.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as parse_arrays
from safetensors.numpy import save as serialise_arrays

from dvip.files import replace_file, settle

__all__ = [
    "CHECKPOINT",
    "MODEL",
    "CheckpointError",
    "ModelFileError",
    "arrays_of_tree",
    "read_folder",
    "tree_from_arrays",
    "write_folder",
    "write_model",
]

VERSION = 1


class ModelFileError(ValueError):
    """A saved model cannot be read: it is missing, damaged, foreign or from a newer version."""


class CheckpointError(ValueError):
    """Checkpoints cannot be used: they are damaged, of another training, or not to be written."""


@dataclass(frozen=True)
class Kind:
    """What a folder holds, and the error for one that does not."""

    noun: str
    error: type[ValueError]

    @property
    def manifest(self) -> str:
        """The name of the file that says what the others are."""
        return f"{self.noun}.json"

    @property
    def format(self) -> str:
        """How the manifest names what it is."""
        return f"dvip-{self.noun}"


MODEL = Kind("model", ModelFileError)
CHECKPOINT = Kind("checkpoint", CheckpointError)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _canonical(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True, allow_nan=True).encode()


def write_model(
    path: str | Path, content: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> None:
    """Writes a model to the folder `path`, which is new or holds a model that is replaced."""
    folder = Path(path)
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"{folder} is a file; a model is a folder. Choose another name.")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / MODEL.manifest).exists():
        raise FileExistsError(
            f"The folder {folder} holds other files and no model. Choose another name."
        )
    write_folder(folder, MODEL, content, arrays)


def write_folder(
    folder: Path, kind: Kind, content: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> None:
    """Writes JSON-able content and arrays to a folder; what it held before is replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    data = serialise_arrays({name: np.asarray(a, order="C") for name, a in arrays.items()})
    arrays_name = f"arrays-{_digest(data)[:16]}.safetensors"
    content = {**content, "arrays": {"file": arrays_name, "sha256": _digest(data)}}
    manifest = {
        "format": kind.format,
        "version": VERSION,
        "sha256": _digest(_canonical(content)),
        "content": content,
    }
    replace_file(folder / arrays_name, data)
    replace_file(folder / kind.manifest, json.dumps(manifest, indent=1).encode())
    settle(folder)
    for old in folder.glob("arrays-*.safetensors"):
        if old.name != arrays_name:
            old.unlink()


def read_folder(folder: Path, kind: Kind) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The content and arrays that `write_folder` wrote; the kind's error if anything is off."""
    path = folder / kind.manifest
    if not path.is_file():
        raise kind.error(f"There is no {kind.noun} at {folder}: it has no {kind.manifest}.")
    try:
        manifest = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise kind.error(f"{path} cannot be read: {error}.") from error
    if not isinstance(manifest, dict) or manifest.get("format") != kind.format:
        raise kind.error(f"{path} was not written by dvip.")
    if manifest.get("version") != VERSION:
        raise kind.error(
            f"{folder} has format version {manifest.get('version')!r}, this dvip reads {VERSION}: "
            "use the version of dvip that wrote it, or a newer one."
        )
    content = manifest.get("content")
    if not isinstance(content, dict) or manifest.get("sha256") != _digest(_canonical(content)):
        raise kind.error(f"{path} is damaged: its checksum does not match.")
    return content, _read_arrays(folder, kind, content)


def _read_arrays(folder: Path, kind: Kind, content: Mapping[str, Any]) -> dict[str, np.ndarray]:
    try:
        name = content["arrays"]["file"]
        if Path(name).name != name:
            raise kind.error(f"{folder / kind.manifest} names a file outside its folder.")
        data = (folder / name).read_bytes()
        if _digest(data) != content["arrays"]["sha256"]:
            raise kind.error(f"{folder / name} is damaged: its checksum does not match.")
        return parse_arrays(data)
    except kind.error:
        raise
    except (OSError, KeyError, TypeError, ValueError, SafetensorError) as error:
        raise kind.error(f"The arrays of {folder} cannot be read: {error}.") from error


Tree = TypeVar("Tree")


def _named_leaves(tree: Any, name: str) -> list[tuple[str, Any]]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return [(f"{name}{jax.tree_util.keystr(path)}", leaf) for path, leaf in leaves]


def arrays_of_tree(name: str, tree: Any) -> dict[str, np.ndarray]:
    """The arrays of a tree, such as a model, by their place in it."""
    return {key: np.asarray(leaf) for key, leaf in _named_leaves(tree, name)}


def tree_from_arrays(name: str, skeleton: Tree, arrays: Mapping[str, np.ndarray]) -> Tree:
    """The tree of the skeleton's shapes with these arrays; ValueError or KeyError if they differ.

    `arrays` is what `arrays_of_tree(name, tree)` gave.
    """
    leaves = []
    for key, leaf in _named_leaves(skeleton, name):
        array = arrays[key]
        if array.shape != leaf.shape or array.dtype != leaf.dtype:
            raise ValueError(
                f"{key} is {array.dtype}{array.shape}, expected {leaf.dtype}{leaf.shape}."
            )
        leaves.append(jax.device_put(array))
    return jax.tree.unflatten(jax.tree.structure(skeleton), leaves)
