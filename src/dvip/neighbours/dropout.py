"""Dropout as approximate inference of a network's weights ("Monte Carlo dropout").

Gal and Ghahramani 2016: in front of each layer of weights a unit is dropped with probability r, in
predictions as in training. With z the units that are kept, 0 or 1 each, a sample of the weights is
W_l = M_l diag(z_l), and the objective is the ELBO with their approximation of the KL,

    Σ_n E_z[log p(y_n | f(x_n; M, z))] - Σ_i (1 - r) m_i² / 2p_i² - Σ_i b_i² / 2p_i²,

with p_i the prior's scales of weights m and biases b. The masks z of a sample are the same for all
rows: a drawn function is one mask.
"""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from dvip.estimators.classification import DeepClassifier
from dvip.estimators.regression import DeepRegressor
from dvip.layers import Perceptrons
from dvip.likelihoods import Likelihood
from dvip.neighbours.frame import NetworkEstimator, check_positive
from dvip.neighbours.networks import RandomNetworks, log_prior_scales, started

__all__ = ["DropoutClassifier", "DropoutLayer", "DropoutRegressor"]

# Of each layer of weights, which of its inputs are kept: 1, or 0.
Masks = tuple[Float[Array, "_ samples"], ...]


class DropoutLayer(RandomNetworks):
    """One network, of which each sample keeps some units."""

    network: Perceptrons
    rate: float = eqx.field(static=True)
    prior_scale: float = eqx.field(static=True)

    def draw_sample_noise(self, key: PRNGKeyArray, num_samples: int) -> Masks:
        """The masks of each sample. Inputs of the network are dropped, too."""
        widths = [weights.shape[-1] for weights in self.network.weights]
        keys = jax.random.split(key, len(widths))
        masks = [
            jax.random.bernoulli(key, 1 - self.rate, (width, num_samples))
            for key, width in zip(keys, widths, strict=True)
        ]
        return tuple(mask.astype(self.network.weights[0].dtype) for mask in masks)

    def networks(self, sample_noise: Masks) -> Perceptrons:
        """M_l diag(z_l) for each sample."""
        pairs = zip(self.network.weights, sample_noise, strict=True)
        weights = tuple(weights * mask.T[:, None] for weights, mask in pairs)
        number = len(weights[0])
        biases = tuple(jnp.repeat(biases, number, axis=0) for biases in self.network.biases)
        return Perceptrons(weights, biases, self.network.activation)

    def kl_estimate(
        self, key: PRNGKeyArray, inputs: Float[Array, "inputs batch"] | None = None
    ) -> Float[Array, ""]:
        """The approximation of the KL, but for a constant: weight decay."""
        del key, inputs
        scales = log_prior_scales(self.network, self.prior_scale)

        def cost(values: Array, log_scales: Array) -> Array:
            return 0.5 * jnp.sum(jnp.square(values) * jnp.exp(-2 * log_scales))

        weights = sum(map(cost, self.network.weights, scales.weights), jnp.zeros(()))
        return (1 - self.rate) * weights + sum(map(cost, self.network.biases, scales.biases))


class _Dropout(NetworkEstimator):
    """The parameters of dropout and its layer."""

    rate: float
    prior_scale: float

    _positive = ("prior_scale",)

    def __init__(
        self,
        hidden: Sequence[int] = (50, 50),
        activation: str = "relu",
        rate: float = 0.02,
        prior_scale: float = 2.0,
        max_iter: int | None = None,
        batch_size: int = 100,
        learning_rate: float = 0.005,
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
        check_positive("rate", self.rate)
        if self.rate >= 1:
            raise ValueError(f"rate={self.rate!r} drops all units: use one below 1, such as 0.02.")

    def _make_layer(
        self, index: int, inputs: np.ndarray, num_units: int, key: PRNGKeyArray
    ) -> DropoutLayer:
        del index
        widths = self._widths(inputs.shape[1], num_units)
        network = started(1, widths, self.activation, key)
        return DropoutLayer(network, float(self.rate), float(self.prior_scale))


class DropoutRegressor(DeepRegressor, _Dropout):
    """Regression with a network some of whose units are dropped at random: Monte Carlo dropout.

    Inputs and targets are scaled inside. Predictions are mixtures over samples of dropped units.

    Parameters
    ----------
    hidden : sequence of int, default (50, 50)
        Widths of the network's hidden layers.
    activation : {"tanh", "relu", "silu", "sigmoid", "softplus", "cos"}, default "relu"
        Between its layers.
    rate : float, default 0.02
        The probability that a unit, or an input of the network, is dropped.
    prior_scale : float, default 2.0
        Standard deviation of the weights a priori, of those of a sum of n terms over √n: the
        smaller, the stronger the weight decay.
    max_iter : int, optional
        Training steps. By default 10,000 for up to 2,000 rows, then as the square root of the
        number of rows, up to 50,000.
    batch_size : int, default 100
        Rows a step.
    learning_rate : float, default 0.005
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

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from dvip import DropoutRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = DropoutRegressor(hidden=(10,), max_iter=100).fit(X, y)
    >>> mean, std = model.predict(X[:5], return_std=True)
    >>> std.shape
    (5,)
    """


class DropoutClassifier(DeepClassifier, _Dropout):
    """Classification with a network some of whose units are dropped at random.

    Inputs are scaled inside. Probabilities are means over samples of dropped units.

    Parameters
    ----------
    hidden : sequence of int, default (50, 50)
        Widths of the network's hidden layers.
    activation : {"tanh", "relu", "silu", "sigmoid", "softplus", "cos"}, default "relu"
        Between its layers.
    rate : float, default 0.02
        The probability that a unit, or an input of the network, is dropped.
    prior_scale : float, default 2.0
        Standard deviation of the weights a priori, of those of a sum of n terms over √n: the
        smaller, the stronger the weight decay.
    max_iter : int, optional
        Training steps. By default 10,000 for up to 2,000 rows, then as the square root of the
        number of rows, up to 50,000.
    batch_size : int, default 100
        Rows a step.
    learning_rate : float, default 0.005
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

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dvip import DropoutClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = DropoutClassifier(hidden=(10,), max_iter=100).fit(X, y)
    >>> model.predict(X[:5]).shape
    (5,)
    """
