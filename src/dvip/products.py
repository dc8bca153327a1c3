"""The product that all the work of a training step goes through: small matrices times a batch.

It is `jnp.matmul`; only its derivative is written out. On CPUs XLA has fast kernels for a matrix
times a matrix, but not for a transposed matrix times a matrix, which the derivative needs; making
the (small) transpose an array of its own halves the time of a whole training step.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

__all__ = ["product"]

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
