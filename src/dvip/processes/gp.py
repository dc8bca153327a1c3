"""A Gaussian process as an implicit process, by random features.

f_s(x) = a / √M Σ_m (w_sm cos ω_m·(x / l) + v_sm sin ω_m·(x / l)), with Gaussian w and v, has the
kernel a² / M Σ_m cos ω_m·((x - y) / l), which approximates that of the Gaussian process, as
k(x - y) = E[cos ω·(x - y)] (Bochner's theorem). For the RBF kernel ω is Gaussian; for a Matérn
kernel of order ν it is a Student variable with 2ν degrees of freedom. The fewer frequencies stand
for this expectation, the more it matters how evenly they lie.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri
from jaxtyping import Array, Float, PRNGKeyArray, UInt32
from scipy import stats

from dvip.linear_algebra import product
from dvip.processes.process import ImplicitProcess

__all__ = ["CONSTRUCTIONS", "KERNELS", "GaussianProcess", "cos_sin", "draw_frequencies"]

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
    """Groups of orthogonal directions, with the quantiles of their length as lengths."""
    size = min(num_frequencies, num_inputs)
    num_groups = -(-num_frequencies // size)
    white = jax.random.normal(key, (num_groups, num_inputs, size))
    directions = jnp.swapaxes(jnp.linalg.qr(white)[0], 1, 2).reshape(-1, num_inputs)
    lengths = _lengths(num_frequencies, num_inputs, degrees)
    # Every group gets lengths from the whole range.
    spread = np.concatenate([lengths[first::num_groups] for first in range(num_groups)])
    return directions[:num_frequencies] * jnp.asarray(spread, white.dtype)[:, None]


def _lengths(num: int, num_inputs: int, degrees: int | None) -> Float[np.ndarray, " frequencies"]:
    """Quantiles of ‖ω‖, in the middle of `num` parts of equal probability."""
    levels = (np.arange(num) + 0.5) / num
    if degrees is None:
        return stats.chi.ppf(levels, num_inputs)
    return np.sqrt(num_inputs * stats.f.ppf(levels, num_inputs, degrees))


@jax.custom_jvp
def cos_sin(turns: Float[Array, "..."]) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """cos(2π t) and sin(2π t), to the precision of their type.

    XLA's own cosine takes about ten times as long as its tanh on CPUs and does not share work with
    the sine of the same angle. Here both come from one reduction to half a turn and two Taylor
    series, and each is the other's derivative, so that training needs no third series.
    """
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


# Frequencies, which all functions share, and for each function the heights of the cosines and then
# of the sines.
WaveNoise = tuple[Float[Array, "frequencies inputs"], Float[Array, "samples features"]]


class GaussianProcess(ImplicitProcess):
    """A zero-mean Gaussian process with a length-scale for each input and an amplitude, learned.

    `kernel` is "rbf", "matern12", "matern32" or "matern52". The functions share
    `num_frequencies` frequencies, each with a cosine and a sine, so that all functions together
    cost little more than one. `construction` says how frequencies are drawn: "qmc" (quasi-Monte
    Carlo, the best for up to about 15 inputs), "orthogonal" (for more) or "random". `lengthscale`
    is where the length-scales start, by default √inputs: standardised inputs are then about √2
    length-scales apart, whatever their number.
    """

    kernel: str = eqx.field(static=True, default="rbf")
    num_frequencies: int = eqx.field(static=True, default=256)
    construction: str = eqx.field(static=True, default="qmc")
    lengthscale: float | None = eqx.field(static=True, default=None)
    log_lengthscales: Float[Array, " inputs"] | None = None
    log_amplitude: Float[Array, ""] | None = None

    def __check_init__(self) -> None:
        if self.kernel not in KERNELS:
            known = ", ".join(KERNELS)
            raise ValueError(f"kernel={self.kernel!r} is not known; choose from {known}.")
        if self.construction not in CONSTRUCTIONS:
            known = ", ".join(CONSTRUCTIONS)
            raise ValueError(
                f"construction={self.construction!r} is not known; choose from {known}."
            )
        if self.num_frequencies < 1:
            raise ValueError(f"num_frequencies={self.num_frequencies}: give at least 1.")
        if self.lengthscale is not None and not 0 < self.lengthscale < math.inf:
            raise ValueError(f"lengthscale={self.lengthscale}: give a positive number or None.")

    def initialise(self, num_inputs: int, key: PRNGKeyArray) -> "GaussianProcess":
        """All length-scales at their start, an amplitude of 1."""
        del key
        lengthscale = math.sqrt(num_inputs) if self.lengthscale is None else self.lengthscale
        return GaussianProcess(
            self.kernel,
            self.num_frequencies,
            self.construction,
            self.lengthscale,
            jnp.full(num_inputs, math.log(lengthscale)),
            jnp.zeros(()),
        )

    def draw_noise(self, key: PRNGKeyArray, num_samples: int) -> WaveNoise:
        """Frequencies for length-scales of one, and the heights of the waves of each function."""
        if self.log_lengthscales is None:
            raise ValueError("Call initialise(num_inputs, key) before drawing noise.")
        frequency_key, height_key = jax.random.split(key)
        num_inputs = self.log_lengthscales.shape[0]
        frequencies = draw_frequencies(
            frequency_key, self.num_frequencies, num_inputs, self.kernel, self.construction
        )
        heights = jax.random.normal(height_key, (num_samples, 2 * self.num_frequencies))
        return frequencies, heights

    def __call__(
        self, noise: WaveNoise, inputs: Float[Array, "inputs batch"]
    ) -> Float[Array, "samples batch"]:
        """The waves once for all functions, then their sums."""
        return product(noise[1], self._waves(noise, inputs)) * self._scale()

    def combined(
        self,
        noise: WaveNoise,
        weights: Float[Array, "units samples"],
        inputs: Float[Array, "inputs batch"],
    ) -> Float[Array, "units batch"]:
        """A combination of functions has a combination of their heights."""
        heights = jnp.matmul(weights, noise[1])
        return product(heights, self._waves(noise, inputs)) * self._scale()

    def _waves(
        self, noise: WaveNoise, inputs: Float[Array, "inputs batch"]
    ) -> Float[Array, "features batch"]:
        assert self.log_lengthscales is not None  # there is noise, so there are parameters
        turns = product(noise[0] * jnp.exp(-self.log_lengthscales) / (2 * jnp.pi), inputs)
        return jnp.concatenate(cos_sin(turns))

    def _scale(self) -> Float[Array, ""]:
        """It multiplies the sums, not the heights: the amplitude's derivative is then cheap."""
        assert self.log_amplitude is not None  # as above
        return jnp.exp(self.log_amplitude) / math.sqrt(self.num_frequencies)
