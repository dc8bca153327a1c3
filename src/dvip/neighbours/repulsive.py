"""Repulsive ensembles: networks side by side that keep away from each other.

D'Angelo and Fortuin 2021: M networks are particles of the posterior, and each follows the gradient
flow of KL(q | p) with q a kernel density of all of them. Network i climbs

    Σ_n log p(y_n | f(x_n; w_i)) + log p(w_i) - log Σ_j k(g_i, g_j),

where the g_j are held constant: what the last term pushes apart, the others pull to the posterior.
g are the weights, or the values f(X; w) at the rows X of a step; k is the kernel
exp(-‖g_i - g_j‖² / h) with h = median of all ‖g_i - g_j‖² over log M. The objective is the mean
over i.

At rest, the density of the particles blurred by k is the posterior: their covariance is smaller
than the posterior's by h/2 in each direction. Weights are compared in units of their prior's
scales. With values in place of weights, the prior of functions is that of the weights, whose
gradient reaches the values through the weights, as one of the paper's variants has it.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from dvip.estimators.classification import DeepClassifier
from dvip.estimators.regression import DeepRegressor
from dvip.layers import Perceptrons
from dvip.likelihoods import Likelihood
from dvip.neighbours.frame import NetworkEstimator, check_among
from dvip.neighbours.networks import RandomNetworks, started, whitened
from dvip.training import TrainingSettings

__all__ = [
    "NetworksEstimator",
    "ParticleLayer",
    "RepulsiveEnsembleClassifier",
    "RepulsiveEnsembleRegressor",
    "log_kernel_density",
]

REPULSIONS = ("functions", "weights")


def log_kernel_density(
    points: Float[Array, "networks numbers"],
) -> Float[Array, " networks"]:
    """log Σ_j k(g_i, g_j) for each i; only g_i has a derivative."""
    others = jax.lax.stop_gradient(points)
    squares = jnp.sum(jnp.square(points[:, None] - others[None]), axis=-1)
    pairs = np.triu_indices(len(points), 1)
    median = jnp.median(jax.lax.stop_gradient(squares)[pairs])
    width = jnp.maximum(median / np.log(len(points)), jnp.finfo(points.dtype).tiny)
    return logsumexp(-squares / width, axis=1)


class ParticleLayer(RandomNetworks):
    """M networks, of which each sample is one: sample j is network j mod M."""

    particles: Perceptrons
    prior_scale: float = eqx.field(static=True)
    # None, or one of `REPULSIONS`.
    repulsion: str | None = eqx.field(static=True, default=None)

    @property
    def num_networks(self) -> int:
        """M."""
        return len(self.particles.weights[0])

    def draw_sample_noise(self, key: PRNGKeyArray, num_samples: int) -> Int[Array, " samples"]:
        """The number of each sample's network: all of them take turns."""
        del key
        return jnp.arange(num_samples) % self.num_networks

    def networks(self, sample_noise: Int[Array, " samples"]) -> Perceptrons:
        """The networks of these numbers."""
        return jax.tree.map(lambda leaf: leaf[sample_noise], self.particles)

    def conditionals(
        self,
        inputs: Float[Array, "inputs samples_or_1 batch"],
        sample_noise: Int[Array, " samples"],
    ) -> tuple[Float[Array, "units samples batch"], Float[Array, "units samples batch"]]:
        """The outputs of each sample's network; at inputs that are shared, of each network once."""
        if inputs.shape[1] > 1:
            return super().conditionals(inputs, sample_noise)
        values = jnp.moveaxis(self.particles(inputs[:, 0])[sample_noise], 0, 1)
        return values, jnp.zeros_like(values)

    def kl_estimate(
        self, key: PRNGKeyArray, inputs: Float[Array, "inputs batch"] | None = None
    ) -> Float[Array, ""]:
        """The mean over networks of -log p(w_i) + log Σ_j k(g_i, g_j), but for constants."""
        del key
        weights = whitened(self.particles, self.prior_scale)
        costs = 0.5 * jnp.sum(jnp.square(weights), axis=1)
        if self.repulsion == "weights":
            costs = costs + log_kernel_density(weights)
        elif self.repulsion == "functions" and inputs is not None:
            values = self.particles(inputs)
            costs = costs + log_kernel_density(values.reshape(len(values), -1))
        return jnp.mean(costs)

    def draw_function(self, key: PRNGKeyArray) -> Int[Array, " one"]:
        """The number of one network."""
        return jax.random.randint(key, (1,), 0, self.num_networks)


class NetworksEstimator(NetworkEstimator):
    """A model of several networks side by side: each sample of a step is one of them."""

    n_networks: int
    prior_scale: float
    repulsion: str | None = None

    # From 400 rows on each is seen equally often, up to the most steps: neither the noise nor a
    # single network has a posterior, and with many steps few rows are fitted all too well. On the
    # same grounds networks are stopped before they are at rest. On eleven small parts of
    # tables, the mean NLL was 2.5 after 3,000 steps (at a rate of 0.005), and at this rate 0.37
    # after 1,000 and -0.04 after 600; with ten times the rows it is -0.41. Slower rates leave too
    # much noise where there is little.
    _default_steps: ClassVar[tuple[int, int]] = (600, 20_000)
    _rows_for_fewest_steps: ClassVar[int] = 400
    _growth_of_steps: ClassVar[str] = "in proportion to"
    _counts: ClassVar[tuple[str, ...]] = (*NetworkEstimator._counts, "n_networks")
    _positive: ClassVar[tuple[str, ...]] = ("prior_scale",)

    def _num_steps(self, num_rows: int) -> int:
        fewest, most = self._default_steps
        steps = fewest * num_rows / self._rows_for_fewest_steps
        return int(self.max_iter or np.clip(steps, fewest, most))

    def _settings(self, max_iter: int) -> TrainingSettings:
        return replace(super()._settings(max_iter), num_samples=int(self.n_networks))

    def _make_layer(
        self, index: int, inputs: np.ndarray, num_units: int, key: PRNGKeyArray
    ) -> ParticleLayer:
        del index
        widths = self._widths(inputs.shape[1], num_units)
        number, activation = int(self.n_networks), self.activation
        particles = started(number, widths, activation, key)
        return ParticleLayer(particles, float(self.prior_scale), self.repulsion)


class _Repulsive(NetworksEstimator):
    """The parameters of repulsive ensembles."""

    def __init__(
        self,
        hidden: Sequence[int] = (50, 50),
        activation: str = "relu",
        n_networks: int = 10,
        repulsion: str = "functions",
        prior_scale: float = 2.0,
        max_iter: int | None = None,
        batch_size: int = 100,
        learning_rate: float = 0.02,
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
        check_among("repulsion", self.repulsion, REPULSIONS)
        if self.n_networks < 2:
            raise ValueError("n_networks=1: one network has none to keep away from, use more.")


class RepulsiveEnsembleRegressor(DeepRegressor, _Repulsive):
    """Regression with networks that keep away from each other: a repulsive ensemble.

    Inputs and targets are scaled inside. Predictions are mixtures over the networks.

    Parameters
    ----------
    hidden : sequence of int, default (50, 50)
        Widths of the network's hidden layers.
    activation : {"tanh", "relu", "silu", "sigmoid", "softplus", "cos"}, default "relu"
        Between its layers.
    n_networks : int, default 10
        How many networks there are. A prediction is best made of a multiple of them.
    repulsion : {"functions", "weights"}, default "functions"
        What is to differ: the networks' values at the rows of a step, or their weights.
    prior_scale : float, default 2.0
        Standard deviation of the weights a priori, of those of a sum of n terms over √n.
    max_iter : int, optional
        Training steps. By default 600 for up to 400 rows, then in proportion to the
        number of rows, up to 20,000.
    batch_size : int, default 100
        Rows a step.
    learning_rate : float, default 0.02
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
    >>> from dvip import RepulsiveEnsembleRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = RepulsiveEnsembleRegressor(hidden=(10,), n_networks=5, max_iter=100).fit(X, y)
    >>> mean, std = model.predict(X[:5], return_std=True)
    >>> std.shape
    (5,)
    """


class RepulsiveEnsembleClassifier(DeepClassifier, _Repulsive):
    """Classification with networks that keep away from each other: a repulsive ensemble.

    Inputs are scaled inside. Probabilities are means over the networks.

    Parameters
    ----------
    hidden : sequence of int, default (50, 50)
        Widths of the network's hidden layers.
    activation : {"tanh", "relu", "silu", "sigmoid", "softplus", "cos"}, default "relu"
        Between its layers.
    n_networks : int, default 10
        How many networks there are. A prediction is best made of a multiple of them.
    repulsion : {"functions", "weights"}, default "functions"
        What is to differ: the networks' values at the rows of a step, or their weights.
    prior_scale : float, default 2.0
        Standard deviation of the weights a priori, of those of a sum of n terms over √n.
    max_iter : int, optional
        Training steps. By default 600 for up to 400 rows, then in proportion to the
        number of rows, up to 20,000.
    batch_size : int, default 100
        Rows a step.
    learning_rate : float, default 0.02
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
    >>> from dvip import RepulsiveEnsembleClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = RepulsiveEnsembleClassifier(hidden=(10,), n_networks=5, max_iter=100).fit(X, y)
    >>> model.predict(X[:5]).shape
    (5,)
    """
