"""Saved models and checkpoints read and written plainly, with right checksums in any case."""

import hashlib
import json

import numpy as np
from safetensors.numpy import load, save


def unsealed(folder, name="model"):
    """The content of a manifest, and the arrays that it names."""
    content = json.loads((folder / f"{name}.json").read_text())["content"]
    return content, load((folder / content["arrays"]["file"]).read_bytes())


def seal(folder, content, arrays=None, name="model"):
    """Writes content, and arrays if any are given, with right checksums."""
    if arrays is not None:
        for old in folder.glob("arrays-*"):
            old.unlink()
        data = save({key: np.array(array, order="C") for key, array in arrays.items()})
        digest = hashlib.sha256(data).hexdigest()
        content = {**content, "arrays": {"file": f"arrays-{digest[:16]}.safetensors"}}
        content["arrays"]["sha256"] = digest
        (folder / content["arrays"]["file"]).write_bytes(data)
    canonical = json.dumps(content, sort_keys=True).encode()
    digest = hashlib.sha256(canonical).hexdigest()
    manifest = {"format": f"dvip-{name}", "version": 2, "sha256": digest, "content": content}
    (folder / f"{name}.json").write_text(json.dumps(manifest))
