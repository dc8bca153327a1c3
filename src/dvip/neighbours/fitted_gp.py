"""A Gaussian process that is fitted to the data before functional inference begins.

Its kernel, a smooth part and a linear one, has the largest marginal likelihood. It is a prior in
closed form: with a little noise of variance γ² the values at points are N(0, K + γ²I). Functions
that are compared with it have noise as well.

It also knows the noise of the data. Functions that are compared at a few points, by samples, tell
too little of a distribution of many values: their variance comes out too small, and with it the
noise that explains the rest, the more so the longer the training. The marginal likelihood of a
Gaussian process knows no such error. Gaussian noise σ² therefore starts at that of the process, and
costs the bound

    N max(0, log σ²_GP - log σ²)²,

a prior that speaks against too little noise alone: as the data fit rises by N/2 at most for each
unit that log σ² falls, σ is never less than σ_GP by more than an eighth.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from dvip.kernels import squared_distances
from dvip.likelihoods.gaussian import Gaussian
from dvip.linear_algebra import inverse_factor
from dvip.parameters import Fixed
from dvip.sum_kernel import SumKernel

__all__ = ["FITTED", "NOISE", "FittedGP", "GuardedGaussian", "log_gaussian"]

# The name of the prior that is fitted to the data.
FITTED = "gp"
# γ, beside functions of about the size 1.
NOISE = 0.02
# The variance of Gaussian noise starts where the fitted process has it, but not below this:
# functions that have to pass near all targets from the first step on stay rough.
LEAST_INITIAL_NOISE = 0.01

Points = Float[Array, "inputs points"]
Values = Float[Array, "samples points"]


class FittedGP(eqx.Module):
    """A Gaussian process with mean zero and the kernel of `sum_kernel.py`."""

    parameters: Float[Array, " parameters"]

    def covariance(self, points: Points) -> Float[Array, "points points"]:
        """k(x, x') between all points."""
        rows = self.parameters[1:].reshape(3, -1)
        variances, inverse = jnp.exp(rows[:, 0]), jnp.exp(-rows[:, 1:])
        scaled = [points * each[:, None] for each in inverse]
        distance = jnp.sqrt(3 * squared_distances(scaled[0], scaled[0]))
        rough = (1 + distance) * jnp.exp(-distance)
        smooth = jnp.exp(-0.5 * squared_distances(scaled[1], scaled[1]))
        linear = 1 + scaled[2].T @ scaled[2]
        return variances[0] * rough + variances[1] * smooth + variances[2] * linear

    def score(self, key: PRNGKeyArray, points: Points, values: Values) -> Values:
        """∇ log p of the values with noise, in closed form."""
        del key
        whitening, _ = inverse_factor(self._with_noise(points))
        return -(values @ whitening.T) @ whitening

    def log_density(self, points: Points, values: Values) -> Float[Array, " samples"]:
        """log p of the values with noise, in closed form."""
        return log_gaussian(values, self._with_noise(points))

    def _with_noise(self, points: Points) -> Float[Array, "points points"]:
        return self.covariance(points) + NOISE**2 * jnp.eye(points.shape[1], dtype=points.dtype)


def log_gaussian(
    differences: Values, covariance: Float[Array, "points points"]
) -> Float[Array, " samples"]:
    """log N(difference; 0, covariance) of each sample."""
    whitening, _ = inverse_factor(covariance)
    squares = jnp.sum(jnp.square(differences @ whitening.T), axis=1)
    logs = jnp.sum(jnp.log(jnp.diagonal(whitening)))
    return logs - 0.5 * (squares + len(covariance) * np.log(2 * np.pi))


class GuardedGaussian(Gaussian):
    """Gaussian noise that hardly falls below that of the fitted process."""

    least: Fixed | None = None  # log σ²_GP
    weight: Fixed | None = None  # N

    @classmethod
    def of(cls, noise: Gaussian, kernel: SumKernel | None, num_rows: int) -> "GuardedGaussian":
        """From where the process has it; without a process it starts as any other."""
        assert noise.log_variance is not None  # of an initialised likelihood
        start = least = noise.log_variance
        if kernel is not None:
            least = jnp.full_like(start, np.log(kernel.noise))
            start = jnp.clip(least, np.log(LEAST_INITIAL_NOISE), 0.0)
        weight = jnp.asarray(0.0 if kernel is None else num_rows, start.dtype)
        return cls(start, Fixed(least), Fixed(weight))

    def regularisation(self) -> Float[Array, ""]:
        """N max(0, log σ²_GP - log σ²)², for each target."""
        assert self.log_variance is not None
        assert self.least is not None
        assert self.weight is not None  # of what `of` makes
        missing = jnp.maximum(self.least.value - self.log_variance, 0)
        return super().regularisation() + self.weight.value * jnp.sum(jnp.square(missing))
