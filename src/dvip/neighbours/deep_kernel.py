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
from dvip.neighbours.frame import NetworkEstimator, with_shared_parameters
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


@with_shared_parameters
class DeepKernelRegressor(DeepRegressor, _DeepKernel):
    """Regression with a Gaussian process of the features of a network (deep kernel learning).

    Network, kernel and inducing points are trained together. Inputs and targets are scaled inside.
    Predictions are Gaussian where the noise is.

    Parameters
    ----------
    {network}
    n_features : int, default 5
        Outputs of the network, which the kernel sees.
    n_inducing : int, default 100
        Inducing points, in the space of features. The cost of a step grows with the square.
    prior_scale : float, default 1.0
        Scale of a Gaussian prior of the weights, of those of a sum of n terms over √n; their most
        probable values are sought. A large one is no prior, and sure of its mistakes.
    {training}
    {likelihood}
    {others}

    Attributes
    ----------
    {attributes}

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


@with_shared_parameters
class DeepKernelClassifier(DeepClassifier, _DeepKernel):
    """Classification with a Gaussian process of the features of a network.

    Network, kernel and inducing points are trained together. Inputs are scaled inside.

    Parameters
    ----------
    {network}
    n_features : int, default 5
        Outputs of the network, which the kernel sees.
    n_inducing : int, default 100
        Inducing points, in the space of features. The cost of a step grows with the square.
    prior_scale : float, default 1.0
        Scale of a Gaussian prior of the weights, of those of a sum of n terms over √n; their most
        probable values are sought. A large one is no prior, and sure of its mistakes.
    {training}
    {likelihood}
    {others}

    Attributes
    ----------
    {attributes}

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dvip import DeepKernelClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = DeepKernelClassifier(hidden=(10,), n_inducing=20, max_iter=100).fit(X, y)
    >>> model.predict(X[:5]).shape
    (5,)
    """
