"""The RBF kernel k(x, x') = σ² exp(-½ Σ_d (x_d - x'_d)² / ℓ_d²), with a length-scale an input."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from dvip.kernels.kernel import Covariances, Kernel
from dvip.products import product

__all__ = ["RBF", "squared_distances"]

# Frequencies of a function draw. Its mean and covariance are exact with any number of them; with
# many it is also close to Gaussian.
NUM_FREQUENCIES = 500


@jax.custom_vjp
def squared_distances(
    first: Float[Array, "inputs first"], second: Float[Array, "inputs second"]
) -> Float[Array, "first second"]:
    """‖a - b‖² between all columns, from their differences.

    The expansion ‖a‖² + ‖b‖² - 2 aᵀb would lose all digits of small distances in single precision.
    The derivative has no such trouble and is two products.
    """

    # One input after another: XLA takes several times as long for a sum over the first axis.
    def add(total: Array, rows: tuple[Array, Array]) -> tuple[Array, None]:
        return total + jnp.square(rows[0][:, None] - rows[1]), None

    zeros = jnp.zeros((first.shape[1], second.shape[1]), first.dtype)
    return jax.lax.scan(add, zeros, (first, second))[0]


def _forward(first: Array, second: Array) -> tuple[Array, tuple[Array, Array]]:
    return squared_distances(first, second), (first, second)


def _backward(saved: tuple[Array, Array], gradient: Array) -> tuple[Array, Array]:
    first, second = saved
    transposed = jax.lax.optimization_barrier(gradient.T)  # as in `products`
    for_first = first * jnp.sum(gradient, axis=1) - jnp.matmul(second, transposed)
    for_second = second * jnp.sum(gradient, axis=0) - jnp.matmul(first, gradient)
    return 2 * for_first, 2 * for_second


squared_distances.defvjp(_forward, _backward)


class RBF(Kernel):
    """A Gaussian process with mean zero whose units share variance and length-scales."""

    log_variance: Float[Array, ""]
    log_lengthscales: Float[Array, " inputs"]
    num_frequencies: int = eqx.field(static=True, default=NUM_FREQUENCIES)

    @classmethod
    def create(cls, num_inputs: int, variance: float, lengthscale: float) -> "RBF":
        """The same length-scale for every input."""
        log_lengthscales = jnp.full(num_inputs, math.log(lengthscale))
        return cls(jnp.full((), math.log(variance)), log_lengthscales)

    def _scaled(self, inputs: Float[Array, "inputs batch"]) -> Float[Array, "inputs batch"]:
        return inputs * jnp.exp(-self.log_lengthscales)[:, None]

    def __call__(
        self, inducing: Float[Array, "inputs inducing"], inputs: Float[Array, "inputs batch"]
    ) -> Covariances:
        """The covariances; the mean is zero."""
        variance = jnp.exp(self.log_variance)
        points = self._scaled(inducing)

        def covariance(others: Float[Array, "inputs others"]) -> Float[Array, "1 inducing others"]:
            return variance * jnp.exp(-0.5 * squared_distances(points, others))[None]

        batch = inputs.shape[1]
        return Covariances(
            covariance(points),
            covariance(self._scaled(inputs)),
            jnp.broadcast_to(variance, (1, batch)),
            jnp.zeros((1, 1)),
        )

    def draw_function(self, key: PRNGKeyArray, num_units: int) -> PyTree[Array]:
        """Random waves: frequencies from the kernel's spectrum, and Gaussian heights."""
        frequency_key, height_key = jax.random.split(key)
        num_inputs = self.log_lengthscales.shape[0]
        frequencies = jax.random.normal(frequency_key, (self.num_frequencies, num_inputs))
        heights = jax.random.normal(height_key, (num_units, 2 * self.num_frequencies))
        return frequencies, heights

    def evaluate(
        self, function: PyTree[Array], inputs: Float[Array, "inputs batch"]
    ) -> Float[Array, "units batch"]:
        """σ F^{-½} Σ_f (a_f cos ω_fᵀx + b_f sin ω_fᵀx), of covariance k over frequencies ω_f."""
        frequencies, heights = function
        angles = product(frequencies, self._scaled(inputs))
        waves = jnp.concatenate([jnp.cos(angles), jnp.sin(angles)])
        scale = jnp.exp(0.5 * self.log_variance) / math.sqrt(self.num_frequencies)
        return scale * product(heights, waves)
