"""Deep variational implicit processes as estimators."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from jaxtyping import PRNGKeyArray

from dvip.architecture import MakeLayer
from dvip.estimators.base import DeepEstimator, one_each
from dvip.estimators.classification import DeepClassifier
from dvip.estimators.regression import DeepRegressor
from dvip.layers import VIPLayer
from dvip.likelihoods import Classification
from dvip.processes import PROCESSES, ImplicitProcess

__all__ = ["DVIPClassifier", "DVIPRegressor"]

# Starting scales of q(a). Inner layers start as their input, almost without noise; the last layer
# starts at its prior.
INNER_Q_SCALE = 1e-5
LAST_Q_SCALE = 1.0

# The prior of inner layers where the one that was given reads images or sequences.
INNER_PRIOR = "bnn"

Prior = str | ImplicitProcess


class _DVIP(DeepEstimator):
    """The parameters of DVIP and its layers."""

    _counts: ClassVar[tuple[str, ...]] = (*DeepEstimator._counts, "n_prior_samples")

    def __init__(
        self,
        n_layers: int = 3,
        n_prior_samples: int = 20,
        prior: Prior | Sequence[Prior] = "bnn",
        alpha: float = 0.0,
        max_iter: int = 50_000,
        batch_size: int = 100,
        learning_rate: float = 0.01,
        n_predictive_samples: int = 100,
        n_training_samples: int | None = None,
        n_units: int | Sequence[int] | None = None,
        input_propagation: bool | Sequence[bool] = True,
        shared_prior: bool | Sequence[bool] | None = None,
        fresh_noise: bool = False,
        likelihood: str | Classification = "auto",
        precision: str = "float32",
        random_state: int | np.random.RandomState | None = 0,
        verbose: bool = False,
    ):
        self.n_layers = n_layers
        self.n_prior_samples = n_prior_samples
        self.prior = prior
        self.alpha = alpha
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.n_predictive_samples = n_predictive_samples
        self.n_training_samples = n_training_samples
        self.n_units = n_units
        self.input_propagation = input_propagation
        self.shared_prior = shared_prior
        self.fresh_noise = fresh_noise
        self.likelihood = likelihood
        self.precision = precision
        self.random_state = random_state
        self.verbose = verbose

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.n_prior_samples < 2:
            raise ValueError("n_prior_samples=1: one function has no variance, use at least 2.")

    def _input_process(self) -> ImplicitProcess:
        given: Any = self.prior
        return _process(given[0] if isinstance(given, list | tuple) and given else given)

    def _processes(self) -> tuple[ImplicitProcess, ...]:
        """The process of each layer."""
        given: Any = self.prior
        first = self._input_process()
        if isinstance(given, list | tuple):
            inner = tuple(_process(prior) for prior in given[1:])
        else:
            # What leaves the first layer is no image or sequence any more.
            inner = (_process(INNER_PRIOR) if first.structured else first,) * (self.n_layers - 1)
        if len(inner) != self.n_layers - 1:
            raise ValueError(
                f"prior has {1 + len(inner)} entries for {self.n_layers} layers: give one prior, "
                "or one for each layer."
            )
        for process in inner:
            if process.structured:
                raise ValueError(
                    f"prior={given!r}: {type(process).__name__} reads images or sequences, which "
                    "only the first layer sees."
                )
        return (first.for_inputs_of_shape(self.input_shape_), *inner)

    def _shared_priors(self) -> tuple[bool, ...]:
        """Whether the units share the prior functions, layer by layer."""
        given = one_each(self.shared_prior, self.n_layers)
        if len(given) != self.n_layers or not all(
            flag is None or isinstance(flag, bool | np.bool_) for flag in given
        ):
            raise ValueError(
                f"shared_prior={self.shared_prior!r}: give True, False, None, or one of them for "
                f"each of the {self.n_layers} layers."
            )
        return tuple(
            process.shared_by_units if flag is None else bool(flag)
            for flag, process in zip(given, self._processes(), strict=True)
        )

    def _propagate_inputs(self) -> tuple[bool, ...]:
        flags = zip(super()._propagate_inputs(), self._processes(), strict=True)
        return tuple(flag and not process.structured for flag, process in flags)

    def _layer_maker(self) -> MakeLayer:
        processes, shared = self._processes(), self._shared_priors()

        def make_layer(
            index: int, inputs: np.ndarray, num_units: int, key: PRNGKeyArray
        ) -> VIPLayer:
            process = processes[index]
            return VIPLayer.create(
                process if shared[index] else process.one_for_each_unit(num_units),
                inputs.shape[1],
                num_units,
                int(self.n_prior_samples),
                q_scale=LAST_Q_SCALE if index == self.n_layers - 1 else INNER_Q_SCALE,
                fresh_noise=bool(self.fresh_noise),
                key=key,
            )

        return make_layer


def _process(prior: Any) -> ImplicitProcess:
    if isinstance(prior, ImplicitProcess):
        return prior
    if isinstance(prior, str) and prior in PROCESSES:
        return PROCESSES[prior]()
    known = ", ".join(repr(name) for name in PROCESSES)
    raise ValueError(f"prior={prior!r} is not known: use {known} or an ImplicitProcess object.")


_PARAMETERS = """
    Parameters
    ----------
    n_layers : int, default 3
        Layers. One is the paper's VIP; more make the predictive distribution non-Gaussian.
    n_prior_samples : int, default 20
        S, the prior functions that a layer is a linear combination of. More are more flexible; the
        cost of a step grows with its square.
    prior : {"bnn", "conv", "recurrent"}, process or sequence of them, default "bnn"
        The prior over functions: a name, an object such as
        `BayesianNeuralNetwork(hidden=(20, 20), activation="relu")`, one of your own class, or one
        for each layer. "conv" is for images and "recurrent" for sequences: they are the prior of
        the first layer, and if given alone, later layers have "bnn".
    alpha : float from 0 to 1, default 0
        Of the α-energy; 0 is the ELBO. The paper's VIP has one layer and 0.5.
    max_iter : int, default 50000
        Training steps.
    batch_size : int, default 100
        Rows a step.
    learning_rate : float, default 0.01
        Of Adam at the first step; it falls to zero along a cosine.
    n_predictive_samples : int, default 100
        R, the samples propagated for a prediction: the components of the mixture.
    n_training_samples : int, optional
        Samples propagated in a training step. By default 1, and 10 where the α-energy of several
        layers needs them.
    n_units : int or sequence of int, optional
        Units of each inner layer. By default as many as inputs, 30 at most.
    input_propagation : bool or sequence of bool, default True
        Whether an inner layer adds its input to its output (its leading principal components, where
        the layer is narrower than its input); one for all inner layers, or one for each. Around a
        layer that reads images or sequences nothing is propagated.
    shared_prior : bool or sequence of bool, optional
        Whether the units of a layer share their prior functions, or have their own, at a cost; one
        for all layers, or one for each. By default they share them, except in a convolutional
        layer, where units share the filters only.
    fresh_noise : bool, default False
        Whether prior functions are drawn anew at every training step.
    likelihood : {"auto", "probit", "robustmax"} or Classification, default "auto"
        For classifiers: "auto" is probit for two classes and robust-max for more. A regressor has
        Gaussian noise.
    precision : {"float32", "float64"}, default "float32"
        Of all computations of the model.
    random_state : int, RandomState or None, default 0
        The same number gives the same model.
    verbose : bool, default False
        Whether to show a progress bar, on a terminal.

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


class DVIPRegressor(DeepRegressor, _DVIP):
    """Regression with a deep variational implicit process.

    Inputs and targets are scaled inside. Predictions are Gaussian mixtures.
    """


class DVIPClassifier(DeepClassifier, _DVIP):
    """Classification with a deep variational implicit process, with labels of any type."""


for _estimator in (DVIPRegressor, DVIPClassifier):
    _estimator.__doc__ = f"{_estimator.__doc__}\n{_PARAMETERS}"
