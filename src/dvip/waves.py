"""Cosine and sine at once, by polynomials: what the random features of a Gaussian process are.

XLA's own cosine takes about ten times as long as its tanh on CPUs and does not share work with the
sine of the same angle. Here both come from one reduction to half a turn and two Taylor series, and
each is the other's derivative, so that training needs no third series.
"""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

__all__ = ["cos_sin"]


@jax.custom_jvp
def cos_sin(turns: Float[Array, "..."]) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """cos(2π t) and sin(2π t), to the precision of their type."""
    half_angle = jnp.pi * (turns - jnp.round(turns))  # within ±π/2, where few terms are enough
    square = jnp.square(half_angle)
    # The first term that is left out is below 1e-9, in double precision below 1e-17.
    num_terms = 7 if turns.dtype == jnp.float32 else 11
    sine = half_angle * _series(square, [2 * k + 1 for k in range(num_terms)])
    cosine = _series(square, [2 * k for k in range(num_terms + 1)])
    return 1 - 2 * jnp.square(sine), 2 * sine * cosine


@cos_sin.defjvp
def _derivative(
    primals: tuple[Array], tangents: tuple[Array]
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    cosine, sine = cos_sin(primals[0])
    angle = 2 * jnp.pi * tangents[0]
    return (cosine, sine), (-sine * angle, cosine * angle)


def _series(square: Float[Array, "..."], powers: list[int]) -> Float[Array, "..."]:
    """Σ_k (-1)^k square^k / powers[k]!, by Horner's rule."""
    total = jnp.zeros_like(square)
    for index, power in reversed(list(enumerate(powers))):
        total = total * square + (-1) ** index / math.factorial(power)
    return total
