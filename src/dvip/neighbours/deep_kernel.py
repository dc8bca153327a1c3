"""Deep kernel learning: a network in front of a Gaussian process, both trained together.

Wilson et al. 2016a: the kernel of the process sees features g(x; w) of a network,

    k(x, x') = k_RBF(g(x; w), g(x'; w)),

and w is a parameter of the kernel as length-scales are. Wilson et al. 2016b train it on minibatches
by a variational bound. Here the process is sparse: at inducing points Z in the space of features,
with φ = C⁻¹ k_RBF(Z, g(x; w)) and C Cᵀ = k_RBF(Z, Z),

    q(f_h(x)) = N(φᵀ m_h,  k(x, x) - φᵀφ + φᵀ S_h φ),

and w, Z, the parameters of k_RBF, m_h and S_h have the largest ELBO that Adam finds. Batches of all
rows make it the training of the first paper, but for what inducing points leave out.

The weights have no posterior, and with many of them the process is sure of what it cannot know
(Ober et al. 2021). So that tables of hundreds of rows can be learned at all, the bound loses
Σ_i w_i² / (2 p_i²), as with a Gaussian prior of scale p_i = σ_w/√n for the weights of a sum of n
terms, and σ_w for biases.
"""

import math
from collections.abc import Sequence
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from dvip.estimators.classification import DeepClassifier
from dvip.estimators.regression import DeepRegressor
from dvip.kernels import RBF
from dvip.layers import GaussianLayer, Perceptrons, SparseGPLayer, WhitenedGaussian
from dvip.layers.sparse_gp import initial_inducing_points
from dvip.likelihoods import Likelihood
from dvip.neighbours.frame import NetworkEstimator
from dvip.neighbours.networks import whitened

__all__ = ["DeepKernelClassifier", "DeepKernelLayer", "DeepKernelRegressor"]


class DeepKernelLayer(GaussianLayer):
    """A sparse GP of the outputs of one network, which all units share."""

    network: Perceptrons
    process: SparseGPLayer
    prior_scale: float = eqx.field(static=True)

    @classmethod
    def create(
        cls,
        widths: Sequence[int],
        activation: str,
        inputs: Float[np.ndarray, "rows inputs"],
        num_units: int,
        num_inducing: int,
        prior_scale: float,
        key: PRNGKeyArray,
    ) -> "DeepKernelLayer":
        """A random network; inducing points are its features of centres of the inputs."""
        network = Perceptrons.create(1, widths, activation=activation, key=key)
        process = SparseGPLayer(
            # Features are about √(2 features) apart, as scaled inputs are.
            RBF.create(widths[-1], 1.0, math.sqrt(widths[-1])),
            network(jnp.asarray(initial_inducing_points(inputs, num_inducing)))[0],
            WhitenedGaussian.create(num_units, num_inducing, 1.0),
        )
        return cls(network, process, prior_scale)

    @property
    def posterior(self) -> WhitenedGaussian:
        """That of the whitened values at the inducing points."""
        return self.process.posterior

    def features(
        self, inputs: Float[Array, "inputs batch"]
    ) -> tuple[Float[Array, "1 1"], Float[Array, "1 inducing batch"], Float[Array, "1 batch"]]:
        """The prior mean, φ(x), and the variance that the inducing points leave."""
        return self.process.features(self.network(inputs)[0])

    def marginals(
        self, inputs: Float[Array, "inputs batch"]
    ) -> tuple[Float[Array, "units batch"], Float[Array, "units batch"]]:
        """Those of the process at the features."""
        return self.process.marginals(self.network(inputs)[0])

    def kl(self) -> Float[Array, ""]:
        """That of the process."""
        return self.process.kl()

    def prior_regularisation(self) -> Float[Array, ""]:
        """Σ_i w_i² / (2 p_i²), with p_i = σ/√n for the weights of a sum of n terms."""
        return 0.5 * jnp.sum(jnp.square(whitened(self.network, self.prior_scale)))

    def draw_function(self, key: PRNGKeyArray) -> PyTree[Array]:
        """A function of features."""
        return self.process.draw_function(key)

    def evaluate(
        self, function: PyTree[Array], inputs: Float[Array, "inputs batch"]
    ) -> Float[Array, "units batch"]:
        """It, at the features of these inputs."""
        return self.process.evaluate(function, self.network(inputs)[0])


class _DeepKernel(NetworkEstimator):
    """The parameters of deep kernels and their layer."""

    n_features: int
    n_inducing: int
    prior_scale: float

    _counts: ClassVar[tuple[str, ...]] = (*NetworkEstimator._counts, "n_features", "n_inducing")
    _positive: ClassVar[tuple[str, ...]] = ("prior_scale",)

    def __init__(
        self,
        hidden: Sequence[int] = (50, 50),
        activation: str = "tanh",
        n_features: int = 5,
        n_inducing: int = 100,
        prior_scale: float = 1.0,
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

    @property
    def _without_variance(self) -> bool:
        return False

    def _make_layer(
        self, index: int, inputs: np.ndarray, num_units: int, key: PRNGKeyArray
    ) -> DeepKernelLayer:
        del index
        return DeepKernelLayer.create(
            self._widths(inputs.shape[1], int(self.n_features)),
            self.activation,
            inputs,
            num_units,
            int(self.n_inducing),
            float(self.prior_scale),
            key,
        )


class DeepKernelRegressor(DeepRegressor, _DeepKernel):
    """Regression with a Gaussian process of the features of a network (deep kernel learning).

    Network, kernel and inducing points are trained together. Inputs and targets are scaled inside.
    Predictions are Gaussian where the noise is.

    Parameters
    ----------
    hidden : sequence of int, default (50, 50)
        Widths of the network's hidden layers.
    activation : {"tanh", "relu", "silu", "sigmoid", "softplus", "cos"}, default "tanh"
        Between its layers.
    n_features : int, default 5
        Outputs of the network, which the kernel sees.
    n_inducing : int, default 100
        Inducing points, in the space of features. The cost of a step grows with the square.
    prior_scale : float, default 1.0
        Scale of a Gaussian prior of the weights, of those of a sum of n terms over √n; their most
        probable values are sought. A large one is no prior, and sure of its mistakes.
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
    >>> from dvip import DeepKernelRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = DeepKernelRegressor(hidden=(10,), n_inducing=20, max_iter=100).fit(X, y)
    >>> mean, std = model.predict(X[:5], return_std=True)
    >>> std.shape
    (5,)
    """


class DeepKernelClassifier(DeepClassifier, _DeepKernel):
    """Classification with a Gaussian process of the features of a network.

    Network, kernel and inducing points are trained together. Inputs are scaled inside.

    Parameters
    ----------
    hidden : sequence of int, default (50, 50)
        Widths of the network's hidden layers.
    activation : {"tanh", "relu", "silu", "sigmoid", "softplus", "cos"}, default "tanh"
        Between its layers.
    n_features : int, default 5
        Outputs of the network, which the kernel sees.
    n_inducing : int, default 100
        Inducing points, in the space of features. The cost of a step grows with the square.
    prior_scale : float, default 1.0
        Scale of a Gaussian prior of the weights, of those of a sum of n terms over √n; their most
        probable values are sought. A large one is no prior, and sure of its mistakes.
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
        class of your own. "auto" is probit for two classes and robust-max for more.
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
    >>> from dvip import DeepKernelClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = DeepKernelClassifier(hidden=(10,), n_inducing=20, max_iter=100).fit(X, y)
    >>> model.predict(X[:5]).shape
    (5,)
    """
