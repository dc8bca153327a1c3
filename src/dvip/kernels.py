"""Kernels, the moments that a sparse GP layer takes as its prior: RBF, or that of a process."""

import abc
import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from dvip.linear_algebra import product
from dvip.parameters import Fixed
from dvip.processes import ImplicitProcess, mean_and_features

__all__ = ["RBF", "Covariances", "EmpiricalKernel", "Kernel", "squared_distances"]


class Covariances(NamedTuple):
    """Moments of the prior at inducing points z and at inputs x.

    `outputs` is 1 where all units of a layer share them.
    """

    inducing: Float[Array, "outputs inducing inducing"]
    cross: Float[Array, "outputs inducing batch"]
    variances: Float[Array, "outputs batch"]
    mean: Float[Array, "outputs #batch"]


class Kernel(eqx.Module):
    """A prior over functions that is known through its mean and covariances."""

    @abc.abstractmethod
    def __call__(
        self, inducing: Float[Array, "inputs inducing"], inputs: Float[Array, "inputs batch"]
    ) -> Covariances:
        """k(z, z'), k(z, x), k(x, x) and the mean m(x)."""

    @abc.abstractmethod
    def draw_function(self, key: PRNGKeyArray, num_units: int) -> PyTree[Array]:
        """All that is random in one draw of a function f - m for each unit."""

    @abc.abstractmethod
    def evaluate(
        self, function: PyTree[Array], inputs: Float[Array, "inputs batch"]
    ) -> Float[Array, "units batch"]:
        """The functions that `draw_function` drew, at these inputs."""

    def regularisation(self) -> Float[Array, ""]:
        """What the objective loses for the parameters of the kernel; nothing by default."""
        return jnp.zeros(())

    def redraw_noise(self, key: PRNGKeyArray) -> "Kernel":
        """The kernel at the next training step; one without noise of its own is unchanged."""
        del key
        return self


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
    transposed = jax.lax.optimization_barrier(gradient.T)  # as in `product`
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


class EmpiricalKernel(Kernel):
    """The kernel of an implicit process, estimated from S functions drawn from it.

    m*(x) is their mean, k(x, x') = φ(x)ᵀφ(x') with φ their centred values over √S: the Gaussian
    process of the paper's Equation 3, here with as many functions as the estimate needs. Units
    share a process (its samples have no unit axis) or have one each.
    """

    process: ImplicitProcess
    noise: Fixed
    num_samples: int = eqx.field(static=True)
    fresh_noise: bool = eqx.field(static=True)

    @classmethod
    @eqx.filter_jit  # one compilation instead of one an operation
    def create(
        cls,
        process: ImplicitProcess,
        num_inputs: int,
        num_samples: int,
        *,
        fresh_noise: bool = False,
        key: PRNGKeyArray,
    ) -> "EmpiricalKernel":
        """A kernel from `num_samples` functions of the process at its starting point."""
        process_key, noise_key = jax.random.split(key)
        process = process.initialise(num_inputs, process_key)
        noise = Fixed(process.draw_noise(noise_key, num_samples))
        return cls(process, noise, num_samples, fresh_noise)

    def features(
        self, inputs: Float[Array, "inputs batch"]
    ) -> tuple[Float[Array, "outputs batch"], Float[Array, "outputs samples batch"]]:
        """The mean m*(x) and φ(x); `outputs` is 1 for a shared process."""
        return mean_and_features(self.process(self.noise.value, inputs))

    def __call__(
        self, inducing: Float[Array, "inputs inducing"], inputs: Float[Array, "inputs batch"]
    ) -> Covariances:
        """Moments of the samples at both.

        Inducing points and inputs are evaluated apart: where the inputs differ from draw to draw of
        a deep function, k(z, z') does not.
        """
        _, at_inducing = self.features(inducing)
        mean, at_inputs = self.features(inputs)
        transposed = jnp.swapaxes(at_inducing, -1, -2)
        return Covariances(
            product(transposed, at_inducing),
            product(transposed, at_inputs),
            jnp.sum(jnp.square(at_inputs), axis=1),
            mean,
        )

    def draw_function(self, key: PRNGKeyArray, num_units: int) -> PyTree[Array]:
        """Coefficients a ~ N(0, I) of each unit: φ(x)ᵀa has exactly this covariance."""
        return jax.random.normal(key, (num_units, self.num_samples))

    def evaluate(
        self, function: PyTree[Array], inputs: Float[Array, "inputs batch"]
    ) -> Float[Array, "units batch"]:
        """φ(x)ᵀ a."""
        _, features = self.features(inputs)
        return jnp.matmul(function[:, None], features)[:, 0]

    def regularisation(self) -> Float[Array, ""]:
        """That of the process."""
        return self.process.regularisation()

    def redraw_noise(self, key: PRNGKeyArray) -> "EmpiricalKernel":
        """New prior functions, where the prior noise is not fixed for the training."""
        if not self.fresh_noise:
            return self
        noise = Fixed(self.process.draw_noise(key, self.num_samples))
        return eqx.tree_at(lambda kernel: kernel.noise, self, noise)
