"""Random frequencies of stationary kernels: k(x - y) = E[cos ω·(x - y)] (Bochner's theorem).

For the RBF kernel ω is Gaussian; for a Matérn kernel of order ν it is a Student variable with 2ν
degrees of freedom. The fewer frequencies stand for this expectation, the more it matters how evenly
they lie.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri
from jaxtyping import Array, Float, PRNGKeyArray, UInt32
from scipy import stats

__all__ = ["CONSTRUCTIONS", "KERNELS", "draw_frequencies"]

# Degrees of freedom of the Student distribution; None is the Gaussian, its limit.
KERNELS: dict[str, int | None] = {"rbf": None, "matern12": 1, "matern32": 3, "matern52": 5}

CONSTRUCTIONS = ("qmc", "orthogonal", "random")

# Of a quasi-random coordinate: (digits + 1/2) / 2²³ is exact in float32, and never 0 or 1.
DIGITS = 23


def draw_frequencies(
    key: PRNGKeyArray, num_frequencies: int, num_inputs: int, kernel: str, construction: str
) -> Float[Array, "frequencies inputs"]:
    """Frequencies of the kernel with length-scales of one."""
    degrees = KERNELS[kernel]
    if construction == "orthogonal":
        return _orthogonal(key, num_frequencies, num_inputs, degrees)
    # A Student vector is a Gaussian one over the root of an average of `degrees` squares.
    shape = (num_frequencies, num_inputs + (degrees or 0))
    white = _quasi_normal(key, *shape) if construction == "qmc" else jax.random.normal(key, shape)
    if degrees is None:
        return white
    squares = jnp.mean(jnp.square(white[:, num_inputs:]), axis=1, keepdims=True)
    return white[:, :num_inputs] / jnp.sqrt(squares)


def _quasi_normal(key: PRNGKeyArray, num_points: int, dimension: int) -> Float[Array, "points _"]:
    """Sobol points after a random digital shift, which makes each uniform and keeps them even."""
    shift = jax.random.bits(key, (dimension,), jnp.uint32) >> (32 - DIGITS)
    digits = _sobol_digits(num_points, dimension) ^ shift
    dtype = jnp.zeros(()).dtype  # the default, which the precision decides
    return ndtri((digits.astype(dtype) + 0.5) / 2**DIGITS)


def _sobol_digits(num_points: int, dimension: int) -> UInt32[np.ndarray, "points _"]:
    sobol = stats.qmc.Sobol(dimension, scramble=False, bits=DIGITS)
    points = sobol.random_base2(math.ceil(math.log2(num_points)))[:num_points]
    return (points * 2**DIGITS).astype(np.uint32)


def _orthogonal(
    key: PRNGKeyArray, num_frequencies: int, num_inputs: int, degrees: int | None
) -> Float[Array, "frequencies inputs"]:
    """Blocks of orthogonal directions, with the quantiles of their length as lengths."""
    block = min(num_frequencies, num_inputs)
    num_blocks = -(-num_frequencies // block)
    white = jax.random.normal(key, (num_blocks, num_inputs, block))
    directions = jnp.swapaxes(jnp.linalg.qr(white)[0], 1, 2).reshape(-1, num_inputs)
    lengths = _lengths(num_frequencies, num_inputs, degrees)
    # Every block gets lengths from the whole range.
    spread = np.concatenate([lengths[first::num_blocks] for first in range(num_blocks)])
    return directions[:num_frequencies] * jnp.asarray(spread, white.dtype)[:, None]


def _lengths(num: int, num_inputs: int, degrees: int | None) -> Float[np.ndarray, " frequencies"]:
    """Quantiles of ‖ω‖, in the middle of `num` parts of equal probability."""
    levels = (np.arange(num) + 0.5) / num
    if degrees is None:
        return stats.chi.ppf(levels, num_inputs)
    return np.sqrt(num_inputs * stats.f.ppf(levels, num_inputs, degrees))
