"""What the manifest of a saved model may hold.

All of it is checked before a model is made of it: a wrong number would otherwise be found by a
prediction, or ask for all the memory there is.
"""

import inspect
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from dvip.calibration import Calibration
from dvip.estimators.scales import Standardiser
from dvip.training import Diagnostics

__all__ = ["check_attributes", "check_choice", "check_sizes"]

# Parameters whose size nothing in the file confirms, and what they may be at most.
UNCONFIRMED = {
    "max_iter": 2**31,
    "batch_size": 2**31,
    "random_state": 2**32,
    "n_training_samples": 10**6,
    "n_predictive_samples": 10**6,
    "max_seconds": math.inf,
}
# Options of priors, such as a number of frequencies; the one that is no size may be any number.
MAX_OPTION = 10**6
NO_SIZE = "period"


def check_sizes(cls: type, parameters: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Numbers and lists among the parameters are no larger than the arrays that they describe."""
    defaults = inspect.signature(cls).parameters
    num_numbers = sum(array.size for array in arrays.values())
    for name, value in parameters.items():
        described = len(arrays) if name in ("n_layers", "n_members") else num_numbers
        largest = UNCONFIRMED.get(name, described)
        _check_value(name, value, largest, len(arrays))
        is_flag = isinstance(defaults[name].default, bool)
        if is_flag and not isinstance(value, bool | list):
            raise ValueError(f"{name}={value!r} must be True or False.")
    seed = parameters.get("random_state")
    if seed is not None and (type(seed) is not int or seed < 0):
        raise ValueError(f"random_state={seed!r} must be a whole number of at least 0.")


def _check_value(name: str, value: Any, largest: float, longest: int) -> None:
    """Raises an error for a number beyond `largest`, or lists of more than `longest` entries."""
    if isinstance(value, dict):
        for key, entry in value.get("options", {}).items():
            most = math.inf if key == NO_SIZE else MAX_OPTION
            _check_value(f"{name}.{key}", entry, most, longest)
    elif isinstance(value, list):
        if len(value) > longest:
            raise ValueError(f"{name} has {len(value):,} entries, more than the model has arrays.")
        for entry in value:
            _check_value(name, entry, largest, longest)
    elif isinstance(value, int | float) and not abs(value) <= largest:
        raise ValueError(f"{name}={value!r} is no size of this model.")


def check_attributes(estimator: Any) -> None:
    """Raises an error unless the fitted attributes are there and agree with each other."""
    counts = {"n_features_in_": 1, "n_iter_": 0, "n_samples_seen_": 0, "seed_": 0}
    for name, least in counts.items():
        value = getattr(estimator, name)
        if type(value) is not int or not least <= value < (2**31 if name == "seed_" else 2**63):
            raise ValueError(f"{name}={value!r} is no such number.")
    _check_scaler(estimator, "input_scaler_", estimator.input_shape_)
    num_inputs = len(estimator.input_scaler_.mean)
    num_given = estimator.n_features_in_
    if hasattr(estimator, "encoder_"):
        num_given = len(estimator.encoder_.get_feature_names_out())
    if num_given != num_inputs:
        raise ValueError(f"{num_given:,} inputs, {num_inputs:,} scales.")
    _check_array(estimator, "feature_names_in_", "O", estimator.n_features_in_)
    _check_array(estimator, "input_range_", "f", 2, num_inputs)
    sampled = estimator.inference == "mcmc"
    if hasattr(estimator, "bound_history_"):
        number = estimator.n_chains if estimator._makes_sampled_model else estimator.n_members
        members = () if number is None or estimator.inference == "exact" else (number,)
        _check_array(estimator, "bound_history_", "f", *members, estimator.bound_history_.shape[-1])
    if hasattr(estimator, "validation_scores_"):
        _check_array(estimator, "validation_scores_", "f", len(estimator.validation_scores_), 3)
    _check_calibration(estimator)
    simulations = getattr(estimator, "simulations_", None)
    if simulations is not None and simulations.rows.shape[1:] != (num_inputs,):
        raise ValueError("simulations_ are of other inputs.")
    neighbourhood = getattr(estimator, "neighbourhood_", None)
    if neighbourhood is not None and len(neighbourhood.slopes) != num_inputs:
        raise ValueError("neighbourhood_ is of other inputs.")
    if sampled and not isinstance(estimator.diagnostics_, Diagnostics):
        raise ValueError("diagnostics_ are none.")
    for attribute in ("target_names_", "noise_names_"):
        names = getattr(estimator, attribute, ())
        if not (isinstance(names, tuple) and all(isinstance(name, str) for name in names)):
            raise ValueError(f"{attribute}={names!r} are no names.")
    if is_classifier(estimator):
        _check_classes(estimator.classes_)
    else:
        _check_scaler(estimator, "target_scaler_", estimator.target_shape_)
        if type(estimator.known_errors_) is not bool:
            raise ValueError(f"known_errors_={estimator.known_errors_!r} must be True or False.")
        noise = getattr(estimator, "noise_names_", None)
        known = estimator.known_errors_
        if noise is not None and not (known and len(noise) == math.prod(estimator.target_shape_)):
            raise ValueError(f"noise_names_={noise!r} are not the errors of the targets.")


def check_choice(estimator: Any, num_parts: int) -> None:
    """Raises an error unless the weights of the parts are such."""
    if not all(type(name) is str and type(score) is float for name, score, _ in estimator.choice_):
        raise ValueError("choice_ has names or scores that are none.")
    weights = [judgement.weight for judgement in estimator.choice_]
    if not all(type(weight) is float and 0 <= weight <= 1 for weight in weights):
        raise ValueError("choice_ has weights that are none.")
    if abs(sum(weights) - 1) > 1e-6 or sum(weight > 0 for weight in weights) != num_parts:
        raise ValueError("choice_ does not describe the parts.")


def _check_calibration(estimator: Any) -> None:
    if not hasattr(estimator, "calibration_"):
        return
    calibration = estimator.calibration_
    if not isinstance(calibration, Calibration):
        raise ValueError("calibration_ is none.")
    factors = (calibration.scale, calibration.tail_scale, calibration.temperature)
    if not (all(0 < factor < 1e6 for factor in factors) and 0 <= calibration.tail_weight < 1):
        raise ValueError(f"calibration_={calibration!r} is none.")


def _check_array(estimator: Any, name: str, kind: str, *shape: int) -> None:
    """Raises an error if there is an attribute of this name that is no such array."""
    array = getattr(estimator, name, None)
    if array is None and not hasattr(estimator, name):
        return
    if not (isinstance(array, np.ndarray) and array.dtype.kind == kind and array.shape == shape):
        raise ValueError(f"{name} is not of the shape {shape}, or of another type.")


def _check_scaler(estimator: Any, name: str, shape: Any) -> None:
    scaler = getattr(estimator, name)
    if not (isinstance(shape, tuple) and all(type(size) is int and size >= 1 for size in shape)):
        raise ValueError(f"{shape!r} is no shape.")
    if not isinstance(scaler, Standardiser):
        raise ValueError(f"{name} is no scale.")
    for array in (scaler.mean, scaler.scale):
        if array.shape != (math.prod(shape),) or array.dtype != np.float64:
            raise ValueError(f"{name} is {array.dtype}{array.shape} for the shape {shape!r}.")
    # Variances are squares of it.
    if not (np.all(scaler.scale > 0) and np.all(scaler.scale < 1e150)):
        raise ValueError(f"{name} has scales that are not positive, or too large.")


def _check_classes(classes: Any) -> None:
    if not (isinstance(classes, np.ndarray) and classes.ndim == 1 and len(classes) >= 2):
        raise ValueError("classes_ is no list of classes.")
    if not np.array_equal(np.unique(classes), classes):
        raise ValueError("classes_ are not in order, or some are there twice.")
