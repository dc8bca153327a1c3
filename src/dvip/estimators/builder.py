"""From parameters to a model: checks, widths, likelihood, layers."""

import abc
import math
import numbers
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from jaxtyping import PRNGKeyArray

from dvip.estimators.callbacks import CallbackSupport
from dvip.estimators.inputs import InputReader
from dvip.layers import Layer
from dvip.likelihoods import Likelihood
from dvip.network import build_network, default_widths
from dvip.objectives import DeepModel
from dvip.registry import LIKELIHOODS
from dvip.runtime import PRECISIONS

__all__ = ["ModelBuilder", "check_count", "default_max_iter", "one_each"]


# Tables of up to so many rows have the fewest training steps.
ROWS_FOR_FEWEST_STEPS = 2_000


def default_max_iter(num_rows: int, fewest: int, most: int) -> int:
    """Training steps for a table of that many rows: as their square root, within limits."""
    steps = fewest * math.sqrt(num_rows / ROWS_FOR_FEWEST_STEPS)
    return int(np.clip(steps, fewest, most))


class ModelBuilder(InputReader, CallbackSupport):
    """The part of an estimator that makes the model that its parameters describe."""

    # Of every estimator: what it is for, as its likelihood says.
    task: ClassVar[str]

    # Parameters of every estimator; `__init__` is the subclass's own. Some may be None: then they
    # are chosen, or have the paper's values.
    n_layers: int | None
    n_units: int | Sequence[int] | None
    alpha: float | None
    input_propagation: bool | Sequence[bool]
    likelihood: str | Likelihood
    max_iter: int | None
    batch_size: int
    learning_rate: float | None
    n_training_samples: int | None
    n_predictive_samples: int
    random_state: Any
    verbose: bool

    # The paper's values of what was not given.
    _paper: ClassVar[Mapping[str, Any]] = {"n_layers": 3, "alpha": 0.0, "learning_rate": 0.01}

    # Positive whole numbers among the parameters; a subclass adds its own.
    _counts: ClassVar[tuple[str, ...]] = ("n_layers", "batch_size", "n_predictive_samples")

    # Training steps where `max_iter` is not given: the fewest, and the most that many rows get.
    _default_steps: ClassVar[tuple[int, int]] = (50_000, 200_000)

    # Where the posterior scales of inner layers start: at their input, almost without noise.
    _inner_q_scale: ClassVar[float] = 1e-5

    # The seed of a training; parts of the model are random.
    seed_: int

    def _store(self, given: Mapping[str, Any]) -> None:
        """Keeps what `__init__` was given, its `locals()`, as scikit-learn wants it: unchanged."""
        for name in self._get_param_names():
            setattr(self, name, given[name])

    def _value(self, name: str) -> Any:
        """A parameter, or the paper's value of one that was not given."""
        given = getattr(self, name)
        return self._paper[name] if given is None else given

    @property
    def _num_layers(self) -> int:
        return self._value("n_layers")

    @property
    def _alpha(self) -> float:
        return self._value("alpha")

    @property
    def _learning_rate(self) -> float:
        return self._value("learning_rate")

    def _steps_by_default(self) -> tuple[int, int]:
        """The fewest training steps, and the most."""
        return self._default_steps

    def _num_steps(self, num_rows: int) -> int:
        """`max_iter` or, where it is not given, what suits so many rows."""
        return int(self.max_iter or default_max_iter(num_rows, *self._steps_by_default()))

    @abc.abstractmethod
    def _make_layer(
        self, index: int, inputs: np.ndarray, num_units: int, key: PRNGKeyArray
    ) -> Layer:
        """The layer of a place in the network, of that many units, at its starting point.

        `inputs` are what input propagation alone would bring to it.
        """

    @abc.abstractmethod
    def _default_likelihood(self) -> str:
        """The name of the likelihood for targets that were looked at."""

    @property
    @abc.abstractmethod
    def _num_outputs(self) -> int:
        """How many targets, or classes, there are."""

    def _q_scale(self, index: int) -> float:
        """Where a layer's posterior scale starts. The last layer starts at its prior."""
        return 1.0 if index == self._num_layers - 1 else self._inner_q_scale

    def check_parameters(self) -> None:
        """Raises an error, which says what to do, unless the parameters make sense."""
        for name in self._counts:
            if not (name in self._paper and getattr(self, name) is None):
                check_count(name, getattr(self, name))
        for name in ("max_iter", "n_training_samples"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        if not (isinstance(self._alpha, numbers.Real) and 0 <= self._alpha <= 1):
            raise ValueError(f"alpha={self._alpha!r} must lie between 0 (the ELBO) and 1.")
        rate = self._learning_rate
        if not (isinstance(rate, numbers.Real) and 0 < rate < np.inf):
            raise ValueError(f"learning_rate={rate!r} must be a positive number.")
        for name in ("verbose", "fresh_noise"):
            if not isinstance(getattr(self, name, False), bool | np.bool_ | int):
                raise ValueError(f"{name}={getattr(self, name)!r} must be True or False.")
        if self.precision not in PRECISIONS:
            raise ValueError(f"precision={self.precision!r} must be one of {PRECISIONS}.")
        if not (isinstance(self.likelihood, str) and self.likelihood == "auto"):
            self._likelihood_of(self.likelihood)

    def _likelihood_of(self, given: Any) -> Likelihood:
        """The likelihood that was given, by its name or as an object; an error if it is none."""
        likelihood = given
        if isinstance(given, str):
            if given not in LIKELIHOODS:
                raise ValueError(f"{LIKELIHOODS.unknown(given)}, or auto.")
            likelihood = LIKELIHOODS[given]()
        if not isinstance(likelihood, Likelihood):
            raise ValueError(
                f"likelihood={given!r} is neither a name ({LIKELIHOODS.listed()}) nor a "
                "Likelihood object."
            )
        if likelihood.task != self.task:
            raise ValueError(
                f"likelihood={given!r} is for {likelihood.task}, {type(self).__name__} for "
                f"{self.task}: choose another."
            )
        return likelihood

    def _chosen_likelihood(self) -> Likelihood:
        """The likelihood before it has parameters, for targets that were looked at."""
        given = self.likelihood
        auto = isinstance(given, str) and given == "auto"
        return self._likelihood_of(self._default_likelihood() if auto else given)

    def _initialised(self, likelihood: Likelihood) -> Likelihood:
        """The likelihood at its starting point."""
        return likelihood.initialise(self._num_outputs)

    def _inner_widths(self, num_inputs: int) -> tuple[int, ...]:
        if self.n_units is None:
            return default_widths(num_inputs, int(self._num_layers), 1)[:-1]
        widths = one_each(self.n_units, self._num_layers - 1)
        if len(widths) != self._num_layers - 1 or not all(map(_is_count, widths)):
            raise ValueError(
                f"n_units={self.n_units!r}: give one positive width, or a width for each of the "
                f"{self._num_layers - 1} inner layers."
            )
        return tuple(map(int, widths))

    def _propagate_inputs(self) -> tuple[bool, ...]:
        flags = one_each(self.input_propagation, self._num_layers - 1)
        are_flags = all(isinstance(flag, bool | np.bool_) for flag in flags)
        if len(flags) != self._num_layers - 1 or not are_flags:
            raise ValueError(
                f"input_propagation={self.input_propagation!r}: give True, False, or one of them "
                f"for each of the {self._num_layers - 1} inner layers."
            )
        return (*flags, False)

    def build_model(self, inputs: np.ndarray, seed: int | None = None) -> DeepModel:
        """The model at its starting point, for scaled inputs; targets were looked at before.

        Members of an ensemble differ by their seeds.
        """
        inputs, likelihood = self._proper(inputs), self._chosen_likelihood()
        widths = self._inner_widths(inputs.shape[1])
        network = build_network(
            inputs,
            (*widths, likelihood.num_latents(self._num_outputs)),
            self._make_layer,
            self._propagate_inputs(),
            self.seed_ if seed is None else seed,
        )
        return DeepModel(network, self._initialised(likelihood))


def one_each(given: Any, number: int) -> tuple:
    """What was given for each layer, or one thing for all of them."""
    return tuple(given) if isinstance(given, Sequence | np.ndarray) else (given,) * number


def _is_count(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= 1)


def check_count(name: str, value: Any) -> None:
    """Raises an error unless the parameter is a positive whole number."""
    if not _is_count(value):
        raise ValueError(f"{name}={value!r} must be a whole number of at least 1.")
