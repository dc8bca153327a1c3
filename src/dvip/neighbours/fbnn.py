"""Functional variational Bayesian neural networks.

Sun, Zhang, Shi and Grosse 2019: the posterior is a network with independent Gaussian weights, but
it is compared to a prior over functions, not over weights. The bound is the functional ELBO at a
finite set of measurement points x_1, ..., x_M,

    Σ_n E_q[log p(y_n | f(x_n))] - KL(q(f) | p(f)),   f = (f(x_1), ..., f(x_M)),

new points at every step: some rows of the batch, and some that are uniform in a box around the
training inputs. The KL of whole functions is that at the worst set of points, so this one is too
small; `measurement.py` says which weight it has. It has no value that could be computed, as
q(f) is implicit, but it has a gradient: with f = f(ε; φ),

    ∇_φ KL = E_ε[(∇_f log q(f) - ∇_f log p(f)) ∂f/∂φ].

∇ log q comes from samples of f, made white, by the spectral estimator (`stein.py`). A Gaussian
process as the prior has -(K + γ²I)⁻¹ f in closed form; of an implicit process it is estimated from
samples as well. Both q and p have a little noise of variance γ² added: the values of a network with
few weights would otherwise lie on a surface, at an infinite KL from any prior.

`fitted_gp.py` has the process that is fitted to the data, and why noise is kept from less than its.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from dvip.estimators.classification import DeepClassifier
from dvip.estimators.priors import Prior
from dvip.estimators.regression import DeepRegressor
from dvip.likelihoods import Likelihood
from dvip.neighbours.fitted_gp import FITTED, NOISE, FittedGP
from dvip.neighbours.mean_field import GaussianWeights, MeanFieldLayer
from dvip.neighbours.measurement import MeasuredEstimator, MeasurementPoints
from dvip.neighbours.stein import whitened_score
from dvip.parameters import Fixed
from dvip.processes import ImplicitProcess

__all__ = [
    "FBNNClassifier",
    "FBNNLayer",
    "FBNNRegressor",
    "functional_kl",
]

Points = Float[Array, "inputs points"]
Values = Float[Array, "samples points"]


class SampledPrior(eqx.Module):
    """An implicit process, known by its functions."""

    process: ImplicitProcess

    def score(self, key: PRNGKeyArray, points: Points, values: Values) -> Values:
        """∇ log p of the values with noise, from as many samples as there are values."""
        function_key, noise_key = jax.random.split(key)
        functions = self.process(self.process.draw_noise(function_key, len(values)), points)
        white = jax.random.normal(noise_key, functions.shape)
        return whitened_score(functions, white, NOISE, at=values)


def functional_kl(
    values: Values, prior: FittedGP | SampledPrior, points: Points, key: PRNGKeyArray
) -> Float[Array, ""]:
    """Zero, with the gradient of KL(q(f) | p(f)) by the values of f, samples of q."""
    noise_key, prior_key = jax.random.split(key)
    white, constant = jax.random.normal(noise_key, values.shape), jax.lax.stop_gradient(values)
    of_prior = prior.score(prior_key, points, constant + NOISE * white)
    slope = whitened_score(constant, white, NOISE) - of_prior
    surrogate = jnp.sum(jax.lax.stop_gradient(slope) * values) / len(values)
    return surrogate - jax.lax.stop_gradient(surrogate)


class FBNNLayer(MeanFieldLayer):
    """The layer of mean-field inference, with a prior over functions."""

    prior: Fixed  # around a FittedGP or a SampledPrior
    points: MeasurementPoints
    num_functions: int = eqx.field(static=True)

    def kl_estimate(
        self, key: PRNGKeyArray, inputs: Float[Array, "inputs batch"] | None = None
    ) -> Float[Array, ""]:
        """Zero, with the gradient of the functional KL, summed over the units."""
        point_key, weight_key, unit_key = jax.random.split(key, 3)
        points, prior = self.points(point_key, inputs), self.prior.value
        networks = self.weights(self.weights.draw_noise(weight_key, self.num_functions))
        values = jnp.moveaxis(networks(points), 1, 0)
        keys = jax.random.split(unit_key, len(values))
        # One unit after another: factorisations of a stack would wait for each other's threads.
        kls = jax.lax.map(
            lambda each: functional_kl(each[0], prior, points, each[1]), (values, keys)
        )
        return self.points.weight.value * jnp.sum(kls)


class _FBNN(MeasuredEstimator):
    """The parameters of functional inference and its layer."""

    n_training_samples: int | None = 10
    _default_steps: ClassVar[tuple[int, int]] = (4_000, 16_000)

    def __init__(
        self,
        hidden: Sequence[int] = (50,),
        activation: str = "tanh",
        prior: Prior = FITTED,
        n_functions: int = 50,
        n_points: tuple[int, int] = (50, 10),
        max_iter: int | None = None,
        batch_size: int = 100,
        learning_rate: float = 0.01,
        n_predictive_samples: int = 100,
        likelihood: str | Likelihood = "auto",
        n_members: int | None = None,
        validation_fraction: float | None = None,
        calibrate: bool = False,
        max_seconds: float | None = None,
        precision: str = "float32",
        random_state: int | np.random.RandomState | None = 0,
        verbose: bool = False,
    ):
        self._store(locals())

    def check_parameters(self) -> None:
        """Raises an error, which says what to do, unless the parameters make sense."""
        super().check_parameters()
        if self.n_functions < 2:
            raise ValueError("n_functions=1: one function tells nothing of others, use 2 or more.")

    def _make_layer(
        self, index: int, inputs: np.ndarray, num_units: int, key: PRNGKeyArray
    ) -> FBNNLayer:
        del index
        weight_key, prior_key, point_key = jax.random.split(key, 3)
        num_inputs = inputs.shape[1]
        widths = self._widths(num_inputs, num_units)
        if self._fits_prior:
            prior: Any = self._fitted_gp(inputs)
        else:
            prior = SampledPrior(self._process_of_inputs().initialise(num_inputs, prior_key))
        return FBNNLayer(
            GaussianWeights.create(widths, self.activation, 1.0, weight_key),
            Fixed(prior),
            self._points(inputs, point_key),
            int(self.n_functions),
        )


class FBNNRegressor(DeepRegressor, _FBNN):
    """Regression with a Bayesian neural network whose prior is one over functions.

    The weights are independent a posteriori, but chosen so that the network's functions are near
    those of a Gaussian process, or of any other prior, as far as the data allow. Inputs and targets
    are scaled inside. Predictions are mixtures over samples of the weights.

    Parameters
    ----------
    hidden : sequence of int, default (50,)
        Widths of the network's hidden layers.
    activation : {"tanh", "relu", "silu", "sigmoid", "softplus", "cos"}, default "tanh"
        Between its layers.
    prior : str or ImplicitProcess, default "gp"
        The prior over functions. "gp" is a Gaussian process whose kernel is fitted to the data
        before the training. All others, names or objects as of `DVIPRegressor`, stay as they are;
        `GaussianProcess()` is such a prior that is not fitted. What reads images or sequences, or
        a `SimulatorPrior`, cannot be used.
    n_functions : int, default 50
        Functions of the posterior that the gradient of the KL is estimated from, at every step.
    n_points : pair of int, default (50, 10)
        Where they are compared to the prior: rows of the batch, and points that are uniform in a
        box around the training inputs. Their KL stands for that of all rows: it has twice the
        weight that would be right for a Gaussian process that is fitted to the data.
    max_iter : int, optional
        Training steps. By default 4,000 for up to 2,000 rows, then as the square root of the
        number of rows, up to 16,000.
    batch_size : int, default 100
        Rows a step.
    learning_rate : float, default 0.01
        Of Adam at the first step; it falls to zero along a cosine.
    n_predictive_samples : int, default 100
        The samples of a prediction: the components of the mixture.
    likelihood : str or Regression, default "auto"
        The noise of the data: a name, or an object of a class of your own. "auto" is Gaussian
        noise, "gaussian". "heteroscedastic" is Gaussian noise whose size depends on the inputs,
        "student-t" has heavy tails, "heteroscedastic-student-t" both; "log-normal" is for
        positive numbers, "poisson" and "negative-binomial" for counts.
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
        Whether to show a progress bar; where there is no terminal, a line a minute.

    Attributes
    ----------
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
        How a table became numbers; only where one was needed.

    Notes
    -----
    The KL has a gradient but no value: `bound_history_` is the data fit alone. The kernel is fitted
    to 1,000 random rows at most, whatever their number, also of a stream, and also to rows that
    `validation_fraction` or `calibrate` leave out of the training; `partial_fit` fits it to the
    rows of the first call. It is saved with the model.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from dvip import FBNNRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = FBNNRegressor(hidden=(10,), n_functions=10, max_iter=100).fit(X, y)
    >>> mean, std = model.predict(X[:5], return_std=True)
    >>> std.shape
    (5,)
    """

    def _initialised(self, likelihood: Likelihood) -> Likelihood:
        return self._guarded(super()._initialised(likelihood))


class FBNNClassifier(DeepClassifier, _FBNN):
    """Classification with a Bayesian neural network whose prior is one over functions.

    The weights are independent a posteriori, but chosen so that the network's functions are near
    those of a Gaussian process, or of any other prior, as far as the data allow. Inputs are scaled
    inside. Probabilities are means over samples of the weights.

    Parameters
    ----------
    hidden : sequence of int, default (50,)
        Widths of the network's hidden layers.
    activation : {"tanh", "relu", "silu", "sigmoid", "softplus", "cos"}, default "tanh"
        Between its layers.
    prior : str or ImplicitProcess, default "gp"
        The prior over functions. "gp" is a Gaussian process whose kernel is fitted before the
        training, to labels as numbers of mean 0 and variance 1. All others, names or objects as
        of `DVIPClassifier`, stay as they are. What reads images or sequences, or a
        `SimulatorPrior`, cannot be used.
    n_functions : int, default 50
        Functions of the posterior that the gradient of the KL is estimated from, at every step.
    n_points : pair of int, default (50, 10)
        Where they are compared to the prior: rows of the batch, and points that are uniform in a
        box around the training inputs. Their KL stands for that of all rows: it has twice the
        weight that would be right for a Gaussian process that is fitted to the data.
    max_iter : int, optional
        Training steps. By default 4,000 for up to 2,000 rows, then as the square root of the
        number of rows, up to 16,000.
    batch_size : int, default 100
        Rows a step.
    learning_rate : float, default 0.01
        Of Adam at the first step; it falls to zero along a cosine.
    n_predictive_samples : int, default 100
        The samples of a prediction: the components of the mixture.
    likelihood : {"auto", "probit", "robustmax", "softmax"} or Classification, default "auto"
        From units to classes: a name, an object such as `RobustMax(error=0.05)`, or one of a
        class of your own. "auto" is probit for two classes and softmax for more.
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
        Whether to show a progress bar; where there is no terminal, a line a minute.

    Attributes
    ----------
    classes_ : array
        The labels, sorted.
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
        How a table became numbers; only where one was needed.

    Notes
    -----
    The KL has a gradient but no value: `bound_history_` is the data fit alone. The kernel is fitted
    to 1,000 random rows at most, whatever their number, also of a stream, and also to rows that
    `validation_fraction` or `calibrate` leave out of the training; `partial_fit` fits it to the
    rows of the first call. It is saved with the model.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dvip import FBNNClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = FBNNClassifier(hidden=(10,), n_functions=10, max_iter=100).fit(X, y)
    >>> model.predict(X[:5]).shape
    (5,)
    """

    def _on_unit_scale(self, targets: np.ndarray) -> np.ndarray:
        """Of each class whether a row is of it, as a number; of two classes one will do."""
        places = np.arange(self._num_outputs if self._num_outputs > 2 else 1)
        return super()._on_unit_scale((targets == places).astype(float))
