"""Models and checkpoints on disk: a folder with a manifest and the safetensors file it names.

Nothing is executed on reading, everything is checksummed, and what is already there stays whole
until the new is complete: the manifest is replaced last, in one step.
"""

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np
from safetensors.numpy import load as parse_arrays
from safetensors.numpy import save as serialise_arrays

from dvip.files import Hold, expanded, lock, remove_leftovers, replace_file, settle

__all__ = [
    "CHECKPOINT",
    "MODEL",
    "CheckpointError",
    "ModelFileError",
    "arrays_of_tree",
    "check_model_folder",
    "check_numbers",
    "in_a_line",
    "read_folder",
    "tree_from_arrays",
    "write_folder",
    "write_model",
]

VERSION = 2
# How the names of files with arrays begin.
ARRAYS = "arrays-"
# Readings of a folder that others replace at the same time.
MAX_ATTEMPTS = 10
# Letters of a foreign text that a message quotes.
MAX_SHOWN = 200


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


def in_a_line(text: object) -> str:
    """A text for a message: what a stranger's file holds may be long."""
    line = " ".join(str(text).split())
    return line if len(line) <= MAX_SHOWN else f"{line[:MAX_SHOWN]} ..."


def write_model(
    path: str | Path, content: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> None:
    """Writes a model to the folder `path`, which is new or holds a model that is replaced."""
    folder = expanded(path)
    check_model_folder(folder)
    try:
        write_folder(folder, MODEL, content, arrays)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise OSError(
            f"The model could not be saved to {folder}: {reason}. Make room or choose another "
            "folder; what was there before is as it was."
        ) from error


def check_model_folder(folder: Path) -> None:
    """Raises an error unless a model can be written there: a new folder, or one with a model."""
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"{folder} is a file; a model is a folder. Choose another name.")
    if not (folder / MODEL.manifest).exists() and _holds_other_files(folder):
        raise FileExistsError(
            f"The folder {folder} holds other files and no model. Choose another name."
        )


def _holds_other_files(folder: Path) -> bool:
    """Whether a folder has files that no save could have left, or could be making now."""
    if not folder.is_dir():
        return False
    ours = (ARRAYS, f"{MODEL.manifest}.")
    return not all(path.name.lstrip(".").startswith(ours) for path in folder.iterdir())


def write_folder(
    folder: Path, kind: Kind, content: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> None:
    """Writes JSON-able content and arrays to a folder; what it held before is replaced.

    Of several processes that do so at the same time, the last to replace the manifest wins. They
    wait for each other. Where there are no locks, arrays that are not the manifest's own may be
    those of a process that is about to write its manifest: they stay until they are old.
    """
    folder.mkdir(parents=True, exist_ok=True)
    data = serialise_arrays({name: np.asarray(a, order="C") for name, a in arrays.items()})
    arrays_name = f"{ARRAYS}{_digest(data)[:16]}.safetensors"
    named = {"file": arrays_name, "sha256": _digest(data)}
    content = {"dvip": version("dvip"), **content, "arrays": named}
    manifest = {
        "format": kind.format,
        "version": VERSION,
        "sha256": _digest(_canonical(content)),
        "content": content,
    }
    with lock(folder, wait=True) as hold:
        ours, were_there = hold is Hold.OURS, (folder / arrays_name).exists()
        replace_file(folder / arrays_name, data)
        try:
            replace_file(folder / kind.manifest, json.dumps(manifest, indent=1).encode())
        except BaseException:
            if ours and not were_there:
                (folder / arrays_name).unlink()
            raise
        settle(folder)
        remove_leftovers(folder, f"{ARRAYS}*.safetensors", keep=arrays_name, all_ages=ours)
        remove_leftovers(folder, ".*.tmp", all_ages=ours)


def read_folder(folder: Path, kind: Kind) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The content and arrays that `write_folder` wrote; the kind's error if anything is off."""
    for attempt in range(MAX_ATTEMPTS):
        version, content = _read_manifest(folder, kind)
        try:
            arrays = _read_arrays(folder, kind, content)
        except FileNotFoundError as error:
            # Another process has replaced the folder's content since: it has a new manifest.
            last = error
            time.sleep(0.01 * attempt)
        else:
            return (
                (content, arrays) if version > 1 else _of_version_1(folder, kind, content, arrays)
            )
    raise kind.error(f"The arrays of {folder} cannot be read: {in_a_line(last)}.") from last


def _read_manifest(folder: Path, kind: Kind) -> tuple[int, dict[str, Any]]:
    path = folder / kind.manifest
    if not path.is_file():
        raise kind.error(f"There is no {kind.noun} at {folder}: it has no {kind.manifest}.")
    try:
        manifest = json.loads(path.read_bytes())
        digest = _digest(_canonical(manifest["content"])) if "content" in manifest else None
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise kind.error(f"{path} cannot be read: {in_a_line(error)}.") from error
    if not isinstance(manifest, dict) or manifest.get("format") != kind.format:
        raise kind.error(f"{path} was not written by dvip.")
    version = manifest.get("version")
    if version not in (1, VERSION) or isinstance(version, bool | float):
        raise kind.error(
            f"{folder} has format version {in_a_line(repr(version))}, this dvip reads 1 to "
            f"{VERSION}: use the version of dvip that wrote it, or a newer one."
        )
    content = manifest.get("content")
    if not isinstance(content, dict) or manifest.get("sha256") != digest:
        raise kind.error(f"{path} is damaged: its checksum does not match.")
    return version, content


def _read_arrays(folder: Path, kind: Kind, content: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The arrays; FileNotFoundError if there is no such file."""
    try:
        name, digest = content["arrays"]["file"], content["arrays"]["sha256"]
        path = folder / name
        # Neither a path nor a link leads out of the folder, and no pipe is waited for.
        if Path(name).name != name or path.resolve().parent != folder.resolve():
            raise kind.error(f"{folder / kind.manifest} names a file outside its folder.")
        if path.exists() and not path.is_file():
            raise kind.error(f"{path} is not a file.")
        data = path.read_bytes()
        if _digest(data) != digest:
            raise kind.error(f"{path} is damaged: its checksum does not match.")
        return parse_arrays(data)
    except (kind.error, FileNotFoundError):
        raise
    except Exception as error:  # a stranger's file may be anything
        raise kind.error(f"The arrays of {folder} cannot be read: {in_a_line(error)}.") from error


def _of_version_1(
    folder: Path, kind: Kind, content: dict[str, Any], arrays: dict[str, np.ndarray]
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What version 0.1.0 wrote, as this version would: stages were blocks, encoders tables."""
    before, now = ".network.blocks[", ".network.stages["
    arrays = {name.replace(before, now): array for name, array in arrays.items()}
    try:
        table = content.pop("table", None)
        if table is not None:
            content["attributes"] = {
                **content["attributes"],
                "encoder_": {"kind": "encoder", "content": table},
                "target_names_": {"kind": "tuple", "values": table["targets"]},
            }
    except (KeyError, TypeError) as error:
        raise kind.error(f"{folder} does not hold what version 0.1.0 wrote: {error!r}.") from error
    return content, arrays


def check_numbers(arrays: Mapping[str, np.ndarray], may_be_infinite: str = "") -> None:
    """ValueError if an array holds a number that is none; those of some names may be infinite."""
    for name, array in arrays.items():
        if array.dtype.kind != "f" or np.isfinite(array).all():
            continue
        if may_be_infinite and may_be_infinite in name and not np.isnan(array).any():
            continue
        raise ValueError(f"{in_a_line(name)} holds values that are not finite.")


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
