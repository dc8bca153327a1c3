"""Parameters as JSON can hold them, and back: priors and likelihoods by class and options.

What is data, such as curves, goes to arrays by a name of its content. A file holds no code: objects
of the user's own classes, and functions, are described, and given again at loading.
"""

import dataclasses
import hashlib
import re
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import numpy as np

from dvip.parameters import Fixed
from dvip.persistence import ModelFileError, in_a_line
from dvip.processes import ImplicitProcess
from dvip.registry import LIKELIHOODS, PRIORS, PRIORS_OF_PARTS

__all__ = [
    "check_needed",
    "decoded_parameters",
    "encode_parameter",
    "encode_parameters",
    "looks",
    "names_of_data",
]

# Before the name of an array that belongs to a parameter.
DATA = "data."


def _known_object(name: str) -> type | None:
    """The class of that name that may be a parameter; others are the user's own."""
    for registry in (PRIORS, PRIORS_OF_PARTS, LIKELIHOODS):
        for entry, cls in zip(registry, registry.classes, strict=True):
            if cls == name:
                found = registry[entry]
                return None if getattr(found, "needs_code", False) else found
    return None


def encode_parameters(
    estimator: Any, arrays: dict[str, np.ndarray] | None = None
) -> dict[str, Any]:
    """The parameters of an estimator; data that they hold are added to `arrays`."""
    return {
        name: encode_parameter(value, arrays)
        for name, value in estimator.get_params(deep=False).items()
    }


def encode_parameter(value: Any, arrays: dict[str, np.ndarray] | None = None) -> Any:
    """A parameter as JSON."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, tuple | list):
        return [encode_parameter(entry, arrays) for entry in value]
    if isinstance(value, Fixed):
        array = np.ascontiguousarray(value.value)
        digest = hashlib.sha256(f"{array.dtype}{array.shape}".encode() + array.tobytes())
        if arrays is not None:
            arrays[DATA + digest.hexdigest()] = array
        return {"array": digest.hexdigest()}
    if isinstance(value, eqx.Module):
        name = type(value).__name__
        if _known_object(name) is not type(value):
            # How it looks tells it from another of its class.
            return {"own_object": name, "looks": looks(value)}
        options = {
            field.name: encode_parameter(getattr(value, field.name), arrays)
            for field in dataclasses.fields(value)
            if field.metadata.get("static", False) or _is_given(getattr(value, field.name))
        }
        return {"object": name, "options": options}
    if isinstance(value, np.random.RandomState | np.random.Generator):
        return None  # the seed that was drawn from it is among the fitted attributes
    return value


def _is_given(value: Any) -> bool:
    """Whether what a field holds is the user's, rather than a parameter to be learned."""
    several = value if isinstance(value, tuple) else (value,)
    return bool(several) and all(isinstance(each, ImplicitProcess | Fixed) for each in several)


def looks(tree: Any) -> str:
    """A module as text, without places in memory."""
    return re.sub(r" at 0x[0-9a-f]+", "", eqx.tree_pformat(tree))


def names_of_data(arrays: Mapping[str, np.ndarray]) -> set[str]:
    """The arrays that belong to parameters."""
    return {name for name in arrays if name.startswith(DATA)}


def decoded_parameters(
    parameters: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    own_objects: Mapping[str, Any],
) -> dict[str, Any]:
    """Parameters of an estimator; those that are the user's own objects are given."""
    return {
        name: _decode_parameter(name, value, arrays, own_objects.get(name))
        for name, value in parameters.items()
    }


def _decode_parameter(name: str, value: Any, arrays: Mapping[str, np.ndarray], own: Any) -> Any:
    if isinstance(value, list):
        if isinstance(own, list | tuple):
            _check_same(name, value, own)
        own_each = own if isinstance(own, list | tuple) else [own] * len(value)
        return tuple(
            _decode_parameter(name, entry, arrays, own)
            for entry, own in zip(value, own_each, strict=True)
        )
    if not isinstance(value, dict):
        return value
    theirs = _own_class(value)
    if theirs is not None:
        if own is None:
            raise ModelFileError(_lacking(name, value, in_a_line(theirs)))
        _check_same(name, value, own)
        return own
    if "array" in value:
        return arrays[DATA + str(value["array"])]
    known = _known_object(value["object"])
    if known is None:
        raise ModelFileError(f"The model's {name} is of an unknown class: {_shown(value)}.")
    return known(
        **{
            key: _decode_parameter(key, entry, arrays, None)
            for key, entry in value["options"].items()
        }
    )


def _own_class(value: Any) -> str | None:
    """The user's class, or that of a function, which an object is of or made of."""
    if isinstance(value, list):
        found = (_own_class(entry) for entry in value)
        return next((name for name in found if name is not None), None)
    if not isinstance(value, dict):
        return None
    return (
        value["own_object"]
        if "own_object" in value
        else _own_class(list(value.get("options", {}).values()))
    )


def _lacking(name: str, value: Mapping[str, Any], own: str) -> str:
    if "own_object" in value:
        is_function = own in PRIORS_OF_PARTS.classes
        what = (
            f"a {own}, whose function" if is_function else f"an object of your class {own}, which"
        )
        return (
            f"The model's {name} is {what} a file cannot hold: pass it as "
            f"load(path, {name}={own}(...))."
        )
    return (
        f"The model's {name} is made of a {own}, among others, which a file cannot hold: pass all "
        f"of it as load(path, {name}=...)."
    )


def check_needed(own_objects: Mapping[str, Any], parameters: Mapping[str, Any]) -> None:
    """Raises an error if an object was given for a parameter that the file holds itself."""
    for name, given in own_objects.items():
        if given is not None and _own_class(parameters.get(name)) is None:
            raise ModelFileError(f"The model needs no {name} of your own: leave out {name}=.")


def _check_same(name: str, stored: Any, given: Any) -> None:
    """Raises an error unless what was given is described as what the model was trained with."""
    described = encode_parameter(given)
    if described != stored:
        raise ModelFileError(
            f"The model was trained with {name}={_shown(stored)}, but {_shown(described)} was "
            "given: pass an object of the same class with the same options."
        )


def _shown(described: Any) -> str:
    """The description of a parameter for a message, in a line."""
    if isinstance(described, list):
        return in_a_line(f"[{', '.join(map(_shown, described))}]")
    if isinstance(described, dict) and "looks" in described:
        return in_a_line(described["looks"])
    if isinstance(described, dict) and "object" in described:
        return in_a_line(f"{described['object']} with {described['options']}")
    return in_a_line(repr(described))
