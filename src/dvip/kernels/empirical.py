"""The kernel of an implicit process, estimated from S functions drawn from it.

m*(x) is their mean, k(x, x') = φ(x)ᵀφ(x') with φ their centred values over √S: the Gaussian process
of the paper's Equation 3, here with as many functions as the estimate needs.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from dvip.kernels.kernel import Covariances, Kernel
from dvip.parameters import Fixed
from dvip.processes import ImplicitProcess, mean_and_features
from dvip.products import product

__all__ = ["EmpiricalKernel"]


class EmpiricalKernel(Kernel):
    """Units share a process (its samples have no unit axis) or have one each."""

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
