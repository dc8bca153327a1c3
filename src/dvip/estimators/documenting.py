"""The parameters' part of an estimator's documentation, from one description of each parameter."""

import inspect
import textwrap
from collections.abc import Callable, Mapping
from typing import TypeVar

__all__ = ["SHARED_PARAMETERS", "documented"]

# Type and meaning of the parameters that estimators have in common. Defaults are the signature's.
SHARED_PARAMETERS: Mapping[str, tuple[str, str]] = {
    "alpha": (
        "float from 0 to 1",
        "Of the α-energy; 0 is the ELBO. The paper's VIP has one layer and 0.5.",
    ),
    "max_iter": ("int", "Training steps."),
    "batch_size": ("int", "Rows a step."),
    "learning_rate": (
        "float",
        "Of Adam at the first step; it falls to zero along a cosine.",
    ),
    "n_predictive_samples": (
        "int",
        "R, the samples propagated for a prediction: the components of the mixture.",
    ),
    "n_training_samples": (
        "int",
        "Samples propagated in a training step. By default 1, and 10 where the α-energy of several "
        "layers needs them.",
    ),
    "n_units": (
        "int or sequence of int",
        "Units of each inner layer. By default as many as inputs, 30 at most.",
    ),
    "input_propagation": (
        "bool or sequence of bool",
        "Whether an inner layer adds its input to its output (its leading principal components, "
        "where the layer is narrower than its input); one for all inner layers, or one for each. "
        "Around a layer that reads images or sequences nothing is propagated.",
    ),
    "likelihood": (
        '{"auto", "probit", "robustmax"} or Classification',
        'For classifiers: "auto" is probit for two classes and robust-max for more. A regressor '
        "has Gaussian noise.",
    ),
    "precision": ('{"float32", "float64"}', "Of all computations of the model."),
    "random_state": ("int, RandomState or None", "The same number gives the same model."),
    "verbose": (
        "bool",
        "Whether to show a progress bar; where there is no terminal, a line a minute.",
    ),
}

_ATTRIBUTES = """
Attributes
----------
model_ : DeepModel
    The trained network and likelihood.
bound_history_ : array
    The mean of the bound over successive stretches of the training.
n_iter_ : int
    Training steps done.
input_shape_ : tuple of int
    The shape of one input, such as (28, 28) for images; `n_features_in_` is its product.
"""

Estimator = TypeVar("Estimator", bound=type)


def documented(own: Mapping[str, tuple[str, str]]) -> Callable[[Estimator], Estimator]:
    """Adds all parameters to a class's docstring: its own as given, the others as shared."""

    def decorate(cls: Estimator) -> Estimator:
        entries = []
        for name, parameter in inspect.signature(cls).parameters.items():
            kind, meaning = {**SHARED_PARAMETERS, **own}[name]
            default = parameter.default
            shown = f'"{default}"' if isinstance(default, str) else default
            head = f"{name} : {kind}, " + ("optional" if default is None else f"default {shown}")
            entries += [head, textwrap.indent(textwrap.fill(meaning, 88), "    ")]
        lines = "\n".join(["\nParameters\n----------", *entries])
        cls.__doc__ = f"{inspect.cleandoc(cls.__doc__ or '')}\n{lines}\n{_ATTRIBUTES}"
        return cls

    return decorate
