"""Deep variational implicit processes and sparse implicit processes as estimators."""

from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from dvip.estimators.base import DeepEstimator, check_count, one_each
from dvip.estimators.classification import DeepClassifier
from dvip.estimators.documenting import documented
from dvip.estimators.regression import DeepRegressor
from dvip.kernels import EmpiricalKernel
from dvip.layers import Layer, SIPLayer, SparseGPLayer, VIPLayer
from dvip.likelihoods import Classification
from dvip.network import MakeLayer
from dvip.processes import ImplicitProcess
from dvip.registry import PRIORS

__all__ = ["DVIPClassifier", "DVIPRegressor", "SIPRegressor"]

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
        max_iter: int | None = None,
        batch_size: int = 100,
        learning_rate: float = 0.01,
        n_predictive_samples: int = 100,
        n_training_samples: int | None = None,
        n_units: int | Sequence[int] | None = None,
        input_propagation: bool | Sequence[bool] = True,
        shared_prior: bool | Sequence[bool] | None = None,
        fresh_noise: bool = False,
        n_inducing: int | None = None,
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
        self.n_inducing = n_inducing
        self.likelihood = likelihood
        self.precision = precision
        self.random_state = random_state
        self.verbose = verbose

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.n_prior_samples < 2:
            raise ValueError("n_prior_samples=1: one function has no variance, use at least 2.")
        if self.n_inducing is not None:
            check_count("n_inducing", self.n_inducing)

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
        num_samples, fresh_noise = int(self.n_prior_samples), bool(self.fresh_noise)

        def make_layer(index: int, inputs: np.ndarray, num_units: int, key: PRNGKeyArray) -> Layer:
            process = processes[index]
            if not shared[index]:
                process = process.one_for_each_unit(num_units)
            num_inputs = inputs.shape[1]
            q_scale = self._q_scale(index)
            if self.n_inducing is None:
                return VIPLayer.create(
                    process,
                    num_inputs,
                    num_units,
                    num_samples,
                    q_scale=q_scale,
                    fresh_noise=fresh_noise,
                    key=key,
                )
            kernel = EmpiricalKernel.create(
                process, num_inputs, num_samples, fresh_noise=fresh_noise, key=key
            )
            return SparseGPLayer.create(
                kernel, inputs, num_units, int(self.n_inducing), q_scale=q_scale
            )

        return make_layer


def _process(prior: Any) -> ImplicitProcess:
    if isinstance(prior, ImplicitProcess):
        return prior
    if isinstance(prior, str) and prior in PRIORS:
        return PRIORS[prior]()
    raise ValueError(f"{PRIORS.unknown(prior)} or an ImplicitProcess object.")


# Type and meaning of the parameters that are DVIP's own.
DVIP_PARAMETERS = {
    "n_layers": (
        "int",
        "Layers. One is the paper's VIP; more make the predictive distribution non-Gaussian.",
    ),
    "n_prior_samples": (
        "int",
        "S, the prior functions that a layer is a linear combination of. More are more flexible; "
        "the cost of a step grows with its square. With inducing points, the functions that the "
        "prior's covariances are estimated from; the paper takes 2,000.",
    ),
    "prior": (
        '{"bnn", "conv", "gp", "neural-sampler", "recurrent", "warped-gp"}, process or sequence',
        "The prior over functions: a name, an object such as "
        '`BayesianNeuralNetwork(hidden=(20, 20), activation="relu")` or '
        '`GaussianProcess(kernel="matern52")`, one of your own class, or one for each layer. '
        '"conv" is for images and "recurrent" for sequences: they are the prior of the first '
        'layer, and if given alone, later layers have "bnn".',
    ),
    "max_iter": (
        "int",
        "Training steps. By default 50,000 for up to 2,000 rows, then as the square root of the "
        "number of rows, up to 200,000.",
    ),
    "n_inducing": (
        "int",
        "Inducing points of a layer: its posterior is then that of a sparse GP with the prior's "
        "covariances (the paper's VIP with inducing points). By default a layer has none: it is a "
        "linear combination of its prior functions.",
    ),
    "shared_prior": (
        "bool or sequence of bool",
        "Whether the units of a layer share their prior functions, or have their own, at a cost; "
        "one for all layers, or one for each. By default they share them, except in a "
        "convolutional layer, where units share the filters only.",
    ),
    "fresh_noise": ("bool", "Whether prior functions are drawn anew at every training step."),
}


@documented(DVIP_PARAMETERS)
class DVIPRegressor(DeepRegressor, _DVIP):
    """Regression with a deep variational implicit process.

    Inputs and targets are scaled inside. Predictions are Gaussian mixtures.
    """


@documented(DVIP_PARAMETERS)
class DVIPClassifier(DeepClassifier, _DVIP):
    """Classification with a deep variational implicit process, with labels of any type."""


@documented(
    {
        **DVIP_PARAMETERS,
        "n_layers": ("int", "Layers. One is the SIP of the literature."),
        "n_inducing": (
            "int",
            "Inducing inputs of a layer; learned, and started at random rows of the data.",
        ),
        "n_prior_samples": (
            "int",
            "Prior functions that a layer's means and covariances are estimated from. Use more "
            "than `n_inducing`.",
        ),
        "max_iter": ("int", "Training steps."),
        "shared_prior": (
            "bool",
            "Whether the units of a layer share their prior functions, or have their own, at a "
            "cost.",
        ),
        "n_training_samples": (
            "int",
            "Samples propagated in a training step, over which the α-energy takes its expectation.",
        ),
    }
)
class SIPRegressor(DeepRegressor, _DVIP):
    """Regression with a sparse implicit process, or with a deep one.

    The posterior of the function's values at some inducing inputs is implicit: a network turns
    noise into samples of it, so that even the predictions of one layer are not Gaussian but
    mixtures. Its divergence from the prior is estimated by a classifier, trained along with all
    else. Inputs and targets are scaled inside.
    """

    _kl_warm_up: ClassVar[float] = 0.05
    # Of the whitened values at the inducing inputs: near the prior mean.
    _inner_q_scale: ClassVar[float] = 0.01
    _counts: ClassVar[tuple[str, ...]] = (*_DVIP._counts, "n_inducing", "n_training_samples")

    def __init__(
        self,
        n_layers: int = 1,
        n_inducing: int = 50,
        n_prior_samples: int = 200,
        prior: Prior | Sequence[Prior] = "bnn",
        alpha: float = 1.0,
        max_iter: int = 6_000,
        batch_size: int = 100,
        learning_rate: float = 0.01,
        n_predictive_samples: int = 100,
        n_training_samples: int = 50,
        n_units: int | Sequence[int] | None = None,
        input_propagation: bool | Sequence[bool] = True,
        shared_prior: bool = True,
        fresh_noise: bool = False,
        precision: str = "float32",
        random_state: int | np.random.RandomState | None = 0,
        verbose: bool = False,
    ):
        self.n_layers = n_layers
        self.n_inducing = n_inducing
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
        self.precision = precision
        self.random_state = random_state
        self.verbose = verbose

    def _layer_maker(self) -> MakeLayer:
        processes, shared = self._processes(), self._shared_priors()

        def make_layer(
            index: int, inputs: np.ndarray, num_units: int, key: PRNGKeyArray
        ) -> SIPLayer:
            layer_key, rows_key = jax.random.split(key)
            process = processes[index]
            assert self.n_inducing is not None  # one of the counts that are checked
            rows = _random_rows(rows_key, len(inputs), int(self.n_inducing))
            return SIPLayer.create(
                process if shared[index] else process.one_for_each_unit(num_units),
                jnp.asarray(inputs)[rows].T,
                num_units,
                int(self.n_prior_samples),
                q_scale=self._q_scale(index),
                fresh_noise=bool(self.fresh_noise),
                key=layer_key,
            )

        return make_layer


def _random_rows(key: PRNGKeyArray, num_rows: int, number: int) -> jax.Array:
    """That many of the rows, none twice if there are enough."""
    return jax.random.choice(key, num_rows, (number,), replace=num_rows < number)
