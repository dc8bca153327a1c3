"""What the neighbours share: their parameters, with what is said of them, and networks."""

import numbers
from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np

from dvip.estimators.base import DeepEstimator
from dvip.estimators.builder import ROWS_FOR_FEWEST_STEPS, check_count
from dvip.processes.bnn import check_activation

__all__ = ["NetworkEstimator", "check_among", "check_positive", "with_shared_parameters"]

# Of a docstring, for `{network}`, `{training}`, `{likelihood}`, `{others}` and `{attributes}`.
NETWORK = """\
hidden : sequence of int, default {hidden}
        Widths of the network's hidden layers.
    activation : {{"tanh", "relu", "silu", "sigmoid", "softplus", "cos"}}, default "{activation}"
        Between its layers."""
TRAINING = """\
max_iter : int, optional
        Training steps. By default {fewest:,} for up to {rows_for_fewest:,} rows, then {growth} the
        number of rows, up to {most:,}.
    batch_size : int, default {batch_size}
        Rows a step.
    learning_rate : float, default {learning_rate}
        Of Adam at the first step; it falls to zero along a cosine.
    n_predictive_samples : int, default {n_predictive_samples}
        The samples of a prediction: the components of the mixture."""
LIKELIHOODS = {
    "regression": """\
likelihood : str or Regression, default "auto"
        The noise of the data: a name, or an object of a class of your own. "auto" is Gaussian
        noise, "gaussian". "heteroscedastic" is Gaussian noise whose size depends on the inputs,
        "student-t" has heavy tails, "heteroscedastic-student-t" both; "log-normal" is for
        positive numbers, "poisson" and "negative-binomial" for counts.""",
    "classification": """\
likelihood : {"auto", "probit", "robustmax", "softmax"} or Classification, default "auto"
        From units to classes: a name, an object such as `RobustMax(error=0.05)`, or one of a
        class of your own. "auto" is probit for two classes and softmax for more.""",
}
OTHERS = """\
n_members : int, optional
        Train an ensemble of so many models, side by side; the prediction is the mean of their
        distributions. By default there is one model.
    validation_fraction : float, optional
        The share of the rows that is left out of the training to stop it when nothing improves
        any more and to keep the best. Each member of an ensemble leaves out another part.
    calibrate : bool, default False
        Whether to correct predictions by rows that were left out of the training:
        `validation_fraction` of them or, if it is not given, a tenth, or of an ensemble all rows,
        each by one member.
    max_seconds : float, optional
        How long `fit` may take; the training is shortened to it.
    precision : {"float32", "float64"}, default "float32"
        Of all computations of the model.
    random_state : int, RandomState or None, default 0
        The same number gives the same model.
    verbose : bool, default False
        Whether to show a progress bar; where there is no terminal, a line a minute."""
ATTRIBUTES = """\
model_ : DeepModel or Ensemble
        The trained network and likelihood, or with `n_members` all of them.
    bound_history_ : array
        The mean of the objective over successive stretches of the training.
    calibration_ : Calibration
        How predictions are corrected, with `calibrate`.
    validation_scores_ : array of shape (scores, 3)
        Member, step and mean log-density of left-out rows, on the scale of the model.
    n_iter_ : int
        Training steps done.
    encoder_ : TableEncoder
        How a table became numbers; only where one was needed."""

Estimator = TypeVar("Estimator", bound=type["NetworkEstimator"])


def with_shared_parameters(cls: Estimator) -> Estimator:
    """The class, whose docstring says what it has in common with others where it has `{names}`."""
    if cls.__doc__ is None:  # python -OO
        return cls
    defaults = {
        **cls().get_params(),
        "fewest": cls._default_steps[0],
        "most": cls._default_steps[1],
        "rows_for_fewest": cls._rows_for_fewest_steps,
        "growth": cls._growth_of_steps,
    }
    shared = {
        "network": NETWORK.format(**defaults) if "hidden" in defaults else "",
        "training": TRAINING.format(**defaults),
        "likelihood": LIKELIHOODS[cls.task],
        "others": OTHERS,
        "attributes": ATTRIBUTES,
    }
    if cls.task == "classification":
        shared["attributes"] = f"classes_ : array\n        The labels, sorted.\n    {ATTRIBUTES}"
        if not cls()._without_variance:
            shared["likelihood"] = shared["likelihood"].replace("softmax for", "robust-max for")
    for name, text in shared.items():
        cls.__doc__ = cls.__doc__.replace(f"{{{name}}}", text)
    return cls


class NetworkEstimator(DeepEstimator):
    """A model of one layer that is made of a network, or of several.

    Subclasses list their parameters, these among them, in an `__init__` that calls `_store`.
    """

    # What estimators of several layers have as parameters.
    n_layers: int | None = 1
    n_units: int | Sequence[int] | None = None
    input_propagation: bool | Sequence[bool] = True
    alpha: float | None = 0.0
    n_training_samples: int | None = None

    hidden: Sequence[int]
    activation: str

    _default_steps: ClassVar[tuple[int, int]] = (10_000, 50_000)
    # Up to how many rows there are the fewest steps, and how they then grow: what is said of
    # `_num_steps`, and goes with it.
    _rows_for_fewest_steps: ClassVar[int] = ROWS_FOR_FEWEST_STEPS
    _growth_of_steps: ClassVar[str] = "as the square root of"
    # Positive numbers among the parameters; a subclass adds its own.
    _positive: ClassVar[tuple[str, ...]] = ()

    @property
    def _without_variance(self) -> bool:
        return True

    def check_parameters(self) -> None:
        """Raises an error, which says what to do, unless the parameters make sense."""
        if "hidden" in self._get_param_names():
            if isinstance(self.hidden, str) or not isinstance(self.hidden, Sequence | np.ndarray):
                raise ValueError(f"hidden={self.hidden!r}: give widths, such as (50, 50).")
            for width in self.hidden:
                check_count("hidden", width)
            if not len(self.hidden):
                raise ValueError("hidden=(): give at least one width, such as (50, 50).")
            check_activation(self.activation)
        for name in self._positive:
            check_positive(name, getattr(self, name))
        super().check_parameters()

    def _widths(self, num_inputs: int, num_units: int) -> tuple[int, ...]:
        """Those of the network, from inputs to units."""
        return (num_inputs, *map(int, self.hidden), num_units)


def check_positive(name: str, value: Any) -> None:
    """Raises an error unless the parameter is a positive number."""
    if not (isinstance(value, numbers.Real) and 0 < float(value) < np.inf):
        raise ValueError(f"{name}={value!r} must be a positive number.")


def check_among(name: str, value: Any, possible: Sequence[str]) -> None:
    """Raises an error unless the parameter is one of these words."""
    if not (isinstance(value, str) and value in possible):
        raise ValueError(f"{name}={value!r} is not known: use one of {', '.join(possible)}.")
