"""Sparse implicit processes as an estimator."""

from collections.abc import Sequence
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from dvip.architecture import MakeLayer
from dvip.estimators.documenting import documented
from dvip.estimators.dvip import _DVIP, DVIP_PARAMETERS, Prior
from dvip.estimators.regression import DeepRegressor
from dvip.layers import SIPLayer

__all__ = ["SIPRegressor"]


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
