"""An estimator as JSON content and arrays, and back.

Parameters and fitted attributes are written by their type, so a new estimator needs no code here.
The network is rebuilt from the parameters and its arrays are filled in.
"""

import copy
import inspect
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from dvip.calibration import Calibration, Judgement
from dvip.closed_form import ClosedFormGP
from dvip.estimators.descriptions import (
    check_needed,
    decoded_parameters,
    encode_parameter,
    encode_parameters,
    looks,
    names_of_data,
)
from dvip.estimators.manifest import check_attributes, check_choice, check_sizes
from dvip.estimators.scales import Standardiser
from dvip.estimators.simulations import Simulations
from dvip.files import expanded
from dvip.neighbourhood import Neighbourhood
from dvip.objectives import DeepModel, Ensemble
from dvip.parameters import split_trainable
from dvip.persistence import (
    MODEL,
    ModelFileError,
    arrays_of_tree,
    check_numbers,
    in_a_line,
    read_folder,
    tree_from_arrays,
    write_model,
)
from dvip.registry import ESTIMATORS
from dvip.runtime import precision, use_compilation_cache
from dvip.sampled import SampledModel
from dvip.sampled_gp import SampledGP
from dvip.tables import TableEncoder
from dvip.training import Diagnostics

__all__ = ["encode_attributes", "load", "save_estimator"]

# Kinds of attributes that are restored last, and attributes that a part has of its own.
CLOSED_FORMS: dict[str, Any] = {"closed-form": ClosedFormGP, "sampled-gp": SampledGP}
OF_MODELS = ("model", *CLOSED_FORMS, "parts")
OF_PARTS = ("model_", "calibration_", "n_iter_", "bound_history_", "validation_scores_")

PARTS_OF_ATTRIBUTES = ("mean", "scale", "rows", "slopes", "numbers", "values")

# Kinds of attributes that have arrays of their own.
KINDS = {**CLOSED_FORMS, "neighbourhood": Neighbourhood, "simulations": Simulations}

# Letters that a type of texts may have room for.
MAX_TEXT = 10_000

CHANGED = (
    "Parameters were changed after the model was trained and do not describe it any more: set them "
    "back, or fit again, and then save."
)


def save_estimator(estimator: Any, path: str | Path) -> None:
    """Writes a fitted estimator.

    ValueError, before anything is written, if its parameters are not those of its model any more.
    """
    arrays: dict[str, np.ndarray] = {}
    fitted = [name for name in vars(estimator) if name.endswith("_") and not name.startswith("_")]
    content = {
        "estimator": type(estimator).__name__,
        "parameters": encode_parameters(estimator, arrays),
        "attributes": encode_attributes(estimator, fitted, arrays),
    }
    if isinstance(getattr(estimator, "model_", None), DeepModel | Ensemble):
        _check_parameters_of_the_model(estimator, arrays)
    write_model(path, content, arrays)


def load(path: str | Path, *, prior: Any = None, likelihood: Any = None) -> Any:
    """The model that was saved at `path`. Nothing is executed.

    Parameters
    ----------
    path : str or Path
        The folder that `save` wrote.
    prior, likelihood : optional
        Needed only where the model has one of your own class: a file cannot hold your code. They
        must be as those that the model was trained with.

    Returns
    -------
    estimator
        Of the class that was saved, fitted.
    """
    use_compilation_cache()
    own_objects = {"prior": prior, "likelihood": likelihood}
    content, arrays = read_folder(expanded(path), MODEL)
    try:
        return _restored(content, arrays, own_objects)
    except ModelFileError:
        raise
    # Whatever a stranger wrote: there is no list of all that it may lead to.
    except Exception as error:
        lacking = "it lacks " if isinstance(error, KeyError) else ""
        raise ModelFileError(
            f"The model at {path} cannot be restored: {lacking}{in_a_line(error)}"
        ) from error


def _restored(
    content: Mapping[str, Any], arrays: Mapping[str, np.ndarray], own_objects: Mapping[str, Any]
) -> Any:
    """The estimator of a manifest. An error of any kind if it could not have been saved so."""
    cls, parameters = ESTIMATORS[content["estimator"]], content["parameters"]
    check_numbers(
        {name: array for name, array in arrays.items() if not name.endswith("bound_history_")}
    )
    check_sizes(cls, parameters, arrays)
    check_needed(own_objects, parameters)
    # Version 0.1.0 had the paper's setting only.
    before = {"inference": "vi"} if "inference" in inspect.signature(cls).parameters else {}
    estimator: Any = cls(**{**before, **decoded_parameters(parameters, arrays, own_objects)})
    estimator.check_parameters()
    used = names_of_data(arrays)
    attributes = content["attributes"]
    for name, value in attributes.items():
        if name.endswith("_") and not name.startswith("_") and value["kind"] not in OF_MODELS:
            setattr(estimator, name, _decode_attribute(name, value, arrays))
            used |= {name, *(f"{name}.{part}" for part in PARTS_OF_ATTRIBUTES)}
    # Version 0.1.0 noted the inputs that its encoder gives, not the columns that it takes.
    encoder = getattr(estimator, "encoder_", None)
    for name in ("n_features_in_", "feature_names_in_"):
        if hasattr(encoder, name):
            setattr(estimator, name, getattr(encoder, name))
    check_attributes(estimator)
    if "parts_" in attributes:
        parts = attributes["parts_"]["parts"]
        check_choice(estimator, len(parts))
        estimator.parts_ = tuple(
            _restored_part(estimator, part, f"parts_.{index}.", arrays, own_objects, used)
            for index, part in enumerate(parts)
        )
    else:
        used |= _restore_model(estimator, attributes.get("model_"), arrays)
    if not used.issuperset(arrays):
        raise ValueError(f"arrays that the model does not have: {sorted(set(arrays) - used)}.")
    return estimator


def _restore_model(
    estimator: Any, described: Mapping[str, Any] | None, arrays: Mapping[str, np.ndarray]
) -> set[str]:
    """Sets the trained model; gives the names of its arrays."""
    if described is not None and described["kind"] in CLOSED_FORMS:
        own = _with_prefix("model_.", arrays)
        sizes = len(estimator.input_scaler_.mean), len(estimator.target_scaler_.mean)
        estimator.model_ = CLOSED_FORMS[described["kind"]].from_arrays(own, *sizes)
        return {f"model_.{name}" for name in own}
    with precision(estimator.precision):
        estimator.model_ = _fill_model(estimator, arrays)
        return set(arrays_of_tree("model_", estimator.model_))


def _with_prefix(prefix: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays whose names begin so, by the rest of their names."""
    return {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }


def _restored_part(
    whole: Any,
    content: Mapping[str, Any],
    prefix: str,
    arrays: Mapping[str, np.ndarray],
    own_objects: Mapping[str, Any],
    used: set[str],
) -> Any:
    """A part of a model that is several: as the whole, with parameters and a model of its own."""
    own = _with_prefix(prefix, arrays)
    check_sizes(type(whole), content["parameters"], own)
    part = copy.copy(whole)
    for name in ("choice_", "calibration_", "neighbourhood_"):
        part.__dict__.pop(name, None)
    part.set_params(**decoded_parameters(content["parameters"], own, own_objects))
    part.check_parameters()
    if part.inference == "auto":
        raise ValueError("a part of it is no single model.")
    names = names_of_data(own)
    for name, value in content["attributes"].items():
        if name in OF_PARTS and value["kind"] not in OF_MODELS:
            setattr(part, name, _decode_attribute(name, value, own))
            names.add(name)
    check_attributes(part)
    names |= _restore_model(part, content["attributes"]["model_"], own)
    used |= {f"{prefix}{name}" for name in names}
    return part


def encode_attributes(
    estimator: Any, names: Iterable[str], arrays: dict[str, np.ndarray]
) -> dict[str, Any]:
    """Those of the attributes that the estimator has; their arrays are added to `arrays`."""
    return {
        name: _encode_attribute(name, getattr(estimator, name), arrays)
        for name in names
        if hasattr(estimator, name)
    }


def _encode_attribute(name: str, value: Any, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    if name == "parts_":
        return {
            "kind": "parts",
            "parts": [_encode_part(*each, arrays) for each in enumerate(value)],
        }
    if name == "choice_":
        return {"kind": "choice", "judgements": [list(judgement) for judgement in value]}
    for kind, cls in KINDS.items():
        if isinstance(value, cls):
            arrays.update({f"{name}.{key}": array for key, array in value.arrays().items()})
            return {"kind": kind}
    if isinstance(value, DeepModel | Ensemble | SampledModel):
        arrays.update(arrays_of_tree(name, value))
        return {"kind": "model"}
    if isinstance(value, Calibration):
        return {"kind": "calibration", "values": [float(number) for number in value]}
    if isinstance(value, Diagnostics):
        values = [None if number != number else number for number in value]
        return {"kind": "diagnostics", "values": values}
    if isinstance(value, TableEncoder):
        return {"kind": "encoder", "content": value.to_json()}
    if isinstance(value, Standardiser):
        arrays[f"{name}.mean"], arrays[f"{name}.scale"] = value.mean, value.scale
        return {"kind": "standardiser"}
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        arrays[name] = value
        return {"kind": "array"}
    if isinstance(value, np.ndarray) and value.dtype.kind in "mM":
        return {"kind": "times", "values": value.view(np.int64).tolist(), "dtype": value.dtype.str}
    if isinstance(value, np.ndarray) and all(isinstance(entry, str) for entry in value):
        dtype = "object" if value.dtype == object else value.dtype.str
        return {"kind": "texts", "values": value.tolist(), "dtype": dtype}
    if isinstance(value, tuple):
        return {"kind": "tuple", "values": [encode_parameter(entry) for entry in value]}
    if value is None or isinstance(value, bool | int | float | str):
        return {"kind": "value", "value": value}
    raise TypeError(f"{name} of type {type(value).__name__} cannot be saved.")


def _encode_part(index: int, part: Any, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    own: dict[str, np.ndarray] = {}
    content = {
        "parameters": encode_parameters(part, own),
        "attributes": encode_attributes(part, OF_PARTS, own),
    }
    arrays.update({f"parts_.{index}.{name}": array for name, array in own.items()})
    return content


def _decode_attribute(name: str, value: Mapping[str, Any], arrays: Mapping[str, Any]) -> Any:
    match value["kind"]:
        case "encoder":
            return TableEncoder.from_json(value["content"])
        case "neighbourhood":
            own = _with_prefix(f"{name}.", arrays)
            return Neighbourhood.from_arrays(own, own["rows"].shape[1])
        case "simulations":
            own = _with_prefix(f"{name}.", arrays)
            return Simulations.from_arrays(own, own["rows"].shape[1])
        case "choice":
            return tuple(Judgement(*judgement) for judgement in value["judgements"])
        case "calibration":
            return Calibration(*map(float, value["values"]))
        case "diagnostics":
            numbers = [np.nan if number is None else number for number in value["values"]]
            kinds = Diagnostics.__annotations__.values()
            return Diagnostics(*(kind(n) for kind, n in zip(kinds, numbers, strict=True)))
        case "standardiser":
            return Standardiser(arrays[f"{name}.mean"], arrays[f"{name}.scale"])
        case "array":
            return arrays[name]
        case "texts":
            return _texts(name, value["values"], value["dtype"])
        case "times":
            dtype = np.dtype(value["dtype"])
            if dtype.kind not in "mM":
                raise ModelFileError(f"{name} is of the type {dtype}, which is no time.")
            return np.array(value["values"], dtype=np.int64).view(dtype)
        case "tuple" if isinstance(value["values"], list):
            if all(isinstance(entry, str | int | float) for entry in value["values"]):
                return tuple(value["values"])
        case "value" if isinstance(value["value"], str | int | float | None):
            return value["value"]
    raise ModelFileError(f"{name} is of an unknown kind: {in_a_line(value)}.")


def _texts(name: str, values: Any, stored: Any) -> np.ndarray:
    """Texts of a type with room for each of them, and not for much more."""
    if not (isinstance(values, list) and all(isinstance(text, str) for text in values)):
        raise ModelFileError(f"{name} holds something else than texts.")
    dtype = np.dtype(stored)
    longest = max(map(len, values), default=1)
    fits = dtype.kind == "U" and longest <= dtype.itemsize // 4 <= max(longest, MAX_TEXT)
    if not (fits or stored == "object"):
        raise ModelFileError(f"{name} is of the type {in_a_line(stored)}, which does not fit it.")
    return np.array(values, dtype=dtype)


def _fill_model(
    estimator: Any, arrays: Mapping[str, np.ndarray]
) -> DeepModel | Ensemble | SampledModel:
    """The estimator's model with the saved arrays; nothing is computed for the skeleton."""
    inputs = np.zeros((1, len(estimator.input_scaler_.mean)), estimator.precision)
    # The inputs stay NumPy's: a narrowing layer takes its projection from their values.
    skeleton = eqx.filter_eval_shape(lambda: estimator.build_model(inputs))
    if estimator._makes_sampled_model:
        number = next(len(array) for name, array in arrays.items() if SAMPLED in name)
        skeleton = eqx.filter_eval_shape(lambda model: _samples_of(model, number), skeleton)
    if estimator.n_members is not None:
        skeleton = Ensemble((skeleton,) * int(estimator.n_members))
    return tree_from_arrays("model_", skeleton, arrays)


# In the names of arrays that have an axis of samples.
SAMPLED = "model_.parameters"


def _samples_of(model: DeepModel, number: int) -> SampledModel:
    """So many samples, all the same."""
    parameters, fixed = split_trainable(model.known())
    return SampledModel(jax.tree.map(lambda leaf: jnp.stack([leaf] * number), parameters), fixed)


def _check_parameters_of_the_model(estimator: Any, arrays: Mapping[str, np.ndarray]) -> None:
    """Raises an error unless the estimator's parameters make a model such as it has."""
    try:
        with precision(estimator.precision):
            made = _fill_model(estimator, arrays)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"{CHANGED} ({error})") from error
    # Arrays have the right shapes then; what else a model consists of must agree, too.
    ours, theirs = (looks(jax.tree.map(lambda _: 0, tree)) for tree in (estimator.model_, made))
    if ours != theirs:
        raise ValueError(CHANGED)
