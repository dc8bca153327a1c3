"""The sparse Gaussian process layer: inducing points with a whitened Gaussian posterior.

At M inducing points Z, shared by the units, u_h = f_h(Z) = m(Z) + C v_h with C Cᵀ = k(Z, Z) and
v_h ~ N(0, I) a priori, q(v_h) = N(m_h, S_h) a posteriori. With φ(x) = C^{-1} k(Z, x),

    q(f_h(x)) = N(m(x) + φᵀ m_h,  k(x, x) - φᵀφ + φᵀ S_h φ).

With the RBF kernel it is the layer of the doubly stochastic deep GP; with the empirical kernel of
an implicit process it is the paper's VIP with inducing points. Given v_h, f_h is Gaussian whatever
the posterior of v_h is: `InducingPointLayer` is what all such posteriors share.

Stability in single precision: `inverse_factors` gives C^{-1} whatever the points are. Its jitter
ε makes u the values f(Z) plus noise of variance ε k̄, which is a choice of inducing variables as
good as any: the bound stays a bound, and k - φᵀφ is not negative but for roundings, which are cut
off.
"""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree
from sklearn.exceptions import ConvergenceWarning

from dvip.kernels import Kernel
from dvip.layers.layer import GaussianLayer, Layer, WhitenedGaussian
from dvip.linear_algebra import inverse_factors, product

__all__ = ["InducingPointLayer", "SparseGPLayer", "initial_inducing_points"]


class InducingPointLayer(Layer):
    """H units that share inducing points; a posterior of the whitened values there is lacking."""

    kernel: Kernel
    inducing: Float[Array, "inputs inducing"]

    def features(
        self, inputs: Float[Array, "inputs batch"]
    ) -> tuple[
        Float[Array, "outputs #batch"],
        Float[Array, "outputs inducing batch"],
        Float[Array, "outputs batch"],
    ]:
        """The prior mean m(x), φ(x), and the variance k(x, x) - φᵀφ that u does not explain."""
        covariances = self.kernel(self.inducing, inputs)
        whitening, _ = inverse_factors(covariances.inducing)
        features = product(whitening, covariances.cross)
        unexplained = covariances.variances - jnp.sum(jnp.square(features), axis=1)
        return covariances.mean, features, jnp.maximum(unexplained, 0)

    def given(
        self,
        whitened: Float[Array, "units inducing samples"],
        inputs: Float[Array, "inputs samples_or_1 batch"],
    ) -> tuple[Float[Array, "units samples batch"], Float[Array, "units samples batch"]]:
        """m + φᵀ v_h and k - φᵀφ for each sample of v."""
        prior_mean, features, unexplained = self.features(inputs.reshape(inputs.shape[0], -1))
        prior_mean = jnp.broadcast_to(prior_mean, unexplained.shape)
        by_sample = (-1, *inputs.shape[1:])
        if inputs.shape[1] == 1:  # the same inputs in all samples: a product
            shared = features[0] if len(features) == 1 else features
            mean = product(jnp.swapaxes(whitened, -1, -2), shared)
        else:
            features = features.reshape(*features.shape[:2], *inputs.shape[1:])
            mean = jnp.sum(whitened[..., None] * features, axis=1)
        mean = mean + prior_mean.reshape(by_sample)
        return mean, jnp.broadcast_to(unexplained.reshape(by_sample), mean.shape)

    def prior_regularisation(self) -> Float[Array, ""]:
        """That of the kernel."""
        return self.kernel.regularisation()

    def function_given(
        self,
        whitened: Float[Array, "units inducing"],
        prior_key: PRNGKeyArray,
        jitter_key: PRNGKeyArray,
    ) -> PyTree[Array]:
        """A prior function g_h of each unit, and coefficients v_h - C^{-1} (g_h(Z) + jitter).

        By Matheron's rule, g_h(x) + φ(x)ᵀ (v_h - C^{-1} g_h(Z)) is a draw of f_h given v_h.
        """
        function = self.kernel.draw_function(prior_key, len(whitened))
        whitening, added = inverse_factors(self.kernel(self.inducing, self.inducing).inducing)
        values = self.kernel.evaluate(function, self.inducing)
        values = values + jnp.sqrt(added) * jax.random.normal(jitter_key, values.shape)
        return function, whitened - jnp.matmul(whitening, values[..., None])[..., 0]

    def evaluate(
        self, function: PyTree[Array], inputs: Float[Array, "inputs batch"]
    ) -> Float[Array, "units batch"]:
        """m(x) + g_h(x) + φ(x)ᵀ times the coefficients."""
        prior_function, coefficients = function
        prior_mean, features, _ = self.features(inputs)
        correction = jnp.matmul(coefficients[:, None], features)[:, 0]
        return prior_mean + self.kernel.evaluate(prior_function, inputs) + correction


class SparseGPLayer(InducingPointLayer, GaussianLayer):
    """H units with a common kernel and common inducing points, or with a kernel each."""

    posterior: WhitenedGaussian

    @classmethod
    def create(
        cls,
        kernel: Kernel,
        inputs: Float[np.ndarray, "rows inputs"],
        num_units: int,
        num_inducing: int,
        *,
        q_scale: float,
    ) -> "SparseGPLayer":
        """A layer at its starting point: Z amid the inputs, q(v) = N(0, q_scale² I)."""
        return cls(
            kernel,
            jnp.asarray(initial_inducing_points(inputs, num_inducing)),
            WhitenedGaussian.create(num_units, num_inducing, q_scale),
        )

    def marginals(
        self, inputs: Float[Array, "inputs batch"]
    ) -> tuple[Float[Array, "units batch"], Float[Array, "units batch"]]:
        """m + φᵀ m_h and k - φᵀφ + φᵀ S_h φ."""
        prior_mean, features, unexplained = self.features(inputs)
        mean, variance = self.posterior.moments(features)
        return mean + prior_mean, variance + unexplained

    def kl(self) -> Float[Array, ""]:
        """KL of q(v) from N(0, I)."""
        return self.posterior.kl()

    def draw_function(self, key: PRNGKeyArray) -> PyTree[Array]:
        """A function given values that are drawn from q(v)."""
        prior_key, posterior_key, jitter_key = jax.random.split(key, 3)
        return self.function_given(self.posterior.draw(posterior_key), prior_key, jitter_key)

    def redraw_noise(self, key: PRNGKeyArray) -> "SparseGPLayer":
        """The layer with the kernel of the next training step."""
        return SparseGPLayer(self.kernel.redraw_noise(key), self.inducing, self.posterior)


# More rows than these move the centres little and cost time.
MAX_ROWS = 5_000


def initial_inducing_points(
    inputs: Float[np.ndarray, "rows inputs"], number: int
) -> Float[np.ndarray, "inputs inducing"]:
    """Centres of k-means, a function of the inputs alone; exactly `number` of them.

    Where there are fewer distinct rows, each is a point, and standard normal points, which are what
    scaled data look like, make up the number: the shapes of a model do not depend on its data.
    """
    random = np.random.default_rng(0)
    if len(inputs) > MAX_ROWS:
        inputs = inputs[random.choice(len(inputs), MAX_ROWS, replace=False)]
    distinct = np.unique(inputs, axis=0)
    if len(distinct) <= number:
        others = random.standard_normal((number - len(distinct), inputs.shape[1]))
        centres = np.concatenate([distinct, others])
    else:
        from sklearn.cluster import KMeans  # a prediction need not wait for it

        with warnings.catch_warnings():
            # Rows that differ by roundings alone: centres that coincide do no harm.
            warnings.simplefilter("ignore", ConvergenceWarning)
            centres = KMeans(number, n_init=1, random_state=0).fit(inputs).cluster_centers_
    return np.ascontiguousarray(centres.T.astype(inputs.dtype))
