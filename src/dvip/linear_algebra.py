"""Linear algebra with derivatives written out: a product, and inverse Cholesky factors.

`product` is what all the work of a training step goes through: small matrices times a batch. It is
`jnp.matmul`. On CPUs XLA has fast kernels for a matrix times a matrix, but not for a transposed
matrix times a matrix, which the derivative needs; making the (small) transpose an array of its own
halves the time of a whole training step.

`inverse_factor` cannot fail. It is W = C^{-1} with C Cᵀ = K + ε k̄ I, where k̄ is the mean of K's
diagonal. Stability, also in single precision and for points that coincide, where K is singular:

- the jitter ε is relative to the variances of K, so that their scale does not matter;
- where the factorisation fails, ε is raised tenfold until it does not, inside the compiled
  program; at ε = 1 it succeeds for every matrix that is a covariance up to rounding;
- the derivative is products with W. It needs no second factorisation or solve, and is finite
  wherever W is.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

__all__ = ["FIRST_JITTER", "inverse_factor", "inverse_factors", "product"]

Matrices = Float[Array, "*stack rows inner"]
Columns = Float[Array, "*stack_or_none inner batch"]


@jax.custom_vjp
def product(matrices: Matrices, columns: Columns) -> Float[Array, "*stack rows batch"]:
    """matrices @ columns; without a stack of their own, the columns serve every matrix."""
    return jnp.matmul(matrices, columns)


def _forward(matrices: Matrices, columns: Columns) -> tuple[Array, tuple[Array, Array]]:
    return product(matrices, columns), (matrices, columns)


def _backward(saved: tuple[Array, Array], gradient: Array) -> tuple[Array, Array]:
    matrices, columns = saved
    shape = matrices.shape
    if columns.ndim < matrices.ndim:  # one tall matrix is the same product
        matrices = matrices.reshape(-1, shape[-1])
        gradient = gradient.reshape(-1, gradient.shape[-1])
    # The barrier keeps XLA from folding the transposition into the product again.
    transposed = jax.lax.optimization_barrier(jnp.swapaxes(matrices, -1, -2))
    for_matrices = jnp.matmul(gradient, jnp.swapaxes(columns, -1, -2))
    return for_matrices.reshape(shape), jnp.matmul(transposed, gradient)


product.defvjp(_forward, _backward)


# Small beside the noise of data, large beside the roundings of a covariance of 100 points.
FIRST_JITTER = {np.dtype(np.float32): 1e-5, np.dtype(np.float64): 1e-8}
MAX_JITTER = 1.0
# Of the inverse; OpenBLAS uses threads from 8 on.
COLUMNS_AT_ONCE = 4

Covariance = Float[Array, "points points"]


@jax.custom_vjp
def inverse_factor(covariance: Covariance) -> tuple[Covariance, Float[Array, ""]]:
    """W, lower triangular, and the jitter ε that it took. The jitter has no derivative."""
    identity = jnp.eye(len(covariance), dtype=covariance.dtype)
    scale = jnp.mean(jnp.diagonal(covariance))

    def factor(jitter: Float[Array, ""]) -> Covariance:
        return jax.lax.linalg.cholesky(covariance + jitter * scale * identity)

    def failed(state: tuple[Array, Array]) -> Array:
        jitter, factored = state
        return ~jnp.all(jnp.isfinite(factored)) & (jitter < MAX_JITTER)

    def try_more(state: tuple[Array, Array]) -> tuple[Array, Array]:
        jitter = 10 * state[0]
        return jitter, factor(jitter)

    first = jnp.asarray(FIRST_JITTER[np.dtype(covariance.dtype)], covariance.dtype)
    jitter, factored = jax.lax.while_loop(failed, try_more, (first, factor(first)))
    return _inverse_of_triangle(factored), jitter


def _inverse_of_triangle(factor: Covariance) -> Covariance:
    """The inverse of a lower-triangular matrix, a few columns at a time.

    BLAS solves for more columns with several threads, of which one waits for the other: whenever
    something else uses the processors, for 8 ms instead of 0.03.
    """
    num_points = len(factor)
    num_solves = -(-num_points // COLUMNS_AT_ONCE)
    columns = np.eye(num_points, num_solves * COLUMNS_AT_ONCE, dtype=factor.dtype)
    groups = np.moveaxis(columns.reshape(num_points, num_solves, COLUMNS_AT_ONCE), 1, 0)

    def solve(group: Float[Array, "points columns"]) -> Float[Array, "points columns"]:
        return jax.lax.linalg.triangular_solve(factor, group, left_side=True, lower=True)

    solved = jnp.moveaxis(jax.lax.map(solve, groups), 0, 1)
    return solved.reshape(num_points, -1)[:, :num_points]


def _inverse_forward(covariance: Covariance) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    inverse, jitter = inverse_factor(covariance)
    return (inverse, jitter), (inverse, jitter)


def _inverse_backward(
    saved: tuple[Array, Array], gradients: tuple[Covariance, Array]
) -> tuple[Covariance]:
    """From dW = -Φ(W dK Wᵀ) W, where Φ takes the lower triangle and half of the diagonal."""
    inverse, jitter = saved
    transposed = jax.lax.optimization_barrier(inverse.T)  # as in `product`
    lower = jnp.tril(jnp.matmul(gradients[0], transposed))
    symmetric = lower + jnp.tril(lower, -1).T
    direct = -0.5 * jnp.matmul(transposed, jnp.matmul(symmetric, inverse))
    through_jitter = jitter * jnp.trace(direct) / len(inverse)
    return (direct + through_jitter * jnp.eye(len(inverse), dtype=inverse.dtype),)


inverse_factor.defvjp(_inverse_forward, _inverse_backward)


def inverse_factors(
    covariances: Float[Array, "outputs points points"],
) -> tuple[Float[Array, "outputs points points"], Float[Array, "outputs 1"]]:
    """W of each matrix, and the variance ε k̄ that was added to its diagonal."""
    # One after another: stacks of matrices are factorised in the thread pool that XLA itself uses,
    # and several predictions at a time then wait for each other for ever.
    inverses, jitters = jax.lax.map(inverse_factor, covariances)
    scales = jnp.mean(jnp.diagonal(covariances, axis1=1, axis2=2), axis=1)
    return inverses, (jitters * scales)[:, None]
