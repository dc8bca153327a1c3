"""A model on disk: a folder with `model.json` and the safetensors file that it names.

Nothing is executed on reading, everything is checksummed, and a model that is already there stays
whole until the new one is complete: `model.json` is replaced last, in one step.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as parse_arrays
from safetensors.numpy import save as serialise_arrays

from dvip.files import replace_file

__all__ = ["ModelFileError", "read_model", "write_model"]

FORMAT = "dvip-model"
VERSION = 1
MANIFEST = "model.json"


class ModelFileError(ValueError):
    """A saved model cannot be read: it is missing, damaged, foreign or from a newer version."""


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _canonical(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True, allow_nan=True).encode()


def write_model(
    path: str | Path, content: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> None:
    """Writes JSON-able content and arrays to the folder `path`."""
    folder = Path(path)
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"{folder} is a file; a model is a folder. Choose another name.")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / MANIFEST).exists():
        raise FileExistsError(
            f"The folder {folder} holds other files and no model. Choose another name."
        )
    folder.mkdir(parents=True, exist_ok=True)
    data = serialise_arrays({name: np.asarray(a, order="C") for name, a in arrays.items()})
    arrays_name = f"arrays-{_digest(data)[:16]}.safetensors"
    content = {**content, "arrays": {"file": arrays_name, "sha256": _digest(data)}}
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "sha256": _digest(_canonical(content)),
        "content": content,
    }
    replace_file(folder / arrays_name, data)
    replace_file(folder / MANIFEST, json.dumps(manifest, indent=1).encode())
    for old in folder.glob("arrays-*.safetensors"):
        if old.name != arrays_name:
            old.unlink()


def read_model(path: str | Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The content and the arrays that `write_model` wrote; `ModelFileError` if anything is off."""
    folder = Path(path)
    if not (folder / MANIFEST).is_file():
        raise ModelFileError(f"There is no model at {folder}: it has no {MANIFEST}.")
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise ModelFileError(f"{folder / MANIFEST} cannot be read: {error}.") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ModelFileError(f"{folder / MANIFEST} was not written by dvip.")
    if manifest.get("version") != VERSION:
        raise ModelFileError(
            f"{folder} has format version {manifest.get('version')!r}, this dvip reads {VERSION}: "
            "use the version of dvip that wrote it, or a newer one."
        )
    content = manifest.get("content")
    if not isinstance(content, dict) or manifest.get("sha256") != _digest(_canonical(content)):
        raise ModelFileError(f"{folder / MANIFEST} is damaged: its checksum does not match.")
    return content, _read_arrays(folder, content)


def _read_arrays(folder: Path, content: Mapping[str, Any]) -> dict[str, np.ndarray]:
    try:
        name = content["arrays"]["file"]
        if Path(name).name != name:
            raise ModelFileError(f"{folder / MANIFEST} names a file outside its folder.")
        data = (folder / name).read_bytes()
        if _digest(data) != content["arrays"]["sha256"]:
            raise ModelFileError(f"{folder / name} is damaged: its checksum does not match.")
        return parse_arrays(data)
    except ModelFileError:
        raise
    except (OSError, KeyError, TypeError, ValueError, SafetensorError) as error:
        raise ModelFileError(f"The arrays of {folder} cannot be read: {error}.") from error
