"""A sum of kernels and its parameters, which maximise the marginal likelihood of some rows.

Three kernels, each with a variance and a length-scale for every input: Matérn 3/2 for what is
rough, squared exponential for what is smooth, linear for trends, which alone go on beyond the data.
In double precision and in NumPy: a factorisation has few and large operations.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.linalg import lapack
from scipy.optimize import minimize

__all__ = [
    "ANY_FUNCTION",
    "FARTHEST",
    "JITTER",
    "LEAST_NOISE",
    "ROWS_AT_ONCE",
    "SEARCHED_FUNCTION",
    "SMOOTH_FUNCTION",
    "GPData",
    "GPFunctions",
    "KernelPrior",
    "PriorFunctions",
    "Rows",
    "SumKernel",
    "fitted_kernel",
    "loss_of_parameters",
    "pieces",
]

# Rows that the marginal likelihood is of: its time grows with their cube. From each start a few of
# them are descended on, from the best end more.
FEW_FITTED, MAX_FITTED = 250, 1_200
MAX_EVALUATIONS = 60
# A descent that stopped early goes on while this is gained.
LEAST_GAIN = 0.5
# Added to the variance of values at points, as a share of it, and to the noise.
JITTER, LEAST_NOISE = 1e-8, 1e-6
# The middles of the parameters' priors, for noise and the variances of the kernels: few rows decide
# little. Where descents start: all kernels alike, or mostly rough, or mostly smooth.
USUAL_VARIANCES = (0.3, 0.3, 0.3)
STARTS = (USUAL_VARIANCES, (1.0, 0.1, 0.1), (0.1, 1.0, 0.1))
PRIOR_STD = 1.5
# Parameters stay so near to what is usual: numbers stay finite.
FARTHEST = 12.0
# Waves of a function draw.
NUM_WAVES = 1_000
# Rows whose covariances with others are in memory at once; and those that stay near the processor.
ROWS_AT_ONCE, ROWS_OF_BLOCK = 2_000, 100

Rows = Float[np.ndarray, "rows inputs"]


class KernelPrior(NamedTuple):
    """What is thought of a function beforehand.

    The usual variance of its noise, the spread of the logarithm of it, and factors of the variances
    of the trend and of what is rough.
    """

    noise: float = 0.1
    spread: float = 3.0
    trend: float = 1.0
    roughness: float = 1.0


# For tables; for functions that are searched, of which few values are known; and for those that a
# network has to resemble.
ANY_FUNCTION, SEARCHED_FUNCTION = KernelPrior(), KernelPrior(1e-3, 1.0, 1e-3)
SMOOTH_FUNCTION = KernelPrior(roughness=1e-4)


class GPData(NamedTuple):
    """Scaled rows: inputs, targets, and how often each counts.

    `errors` are known ones, squared; `factors` multiply the variance of the noise.
    """

    inputs: Rows
    targets: Float[np.ndarray, "rows outputs"]
    weights: Float[np.ndarray, " rows"]
    errors: Float[np.ndarray, " rows"] | None = None
    factors: Float[np.ndarray, " rows"] | None = None

    def chosen(self, rows: Int[np.ndarray, " chosen"]) -> "GPData":
        """Some of the rows."""
        return GPData(*(None if part is None else part[rows] for part in self))  # type: ignore[arg-type]

    def noise(self, variance: float) -> Float[np.ndarray, " rows"]:
        """The noise of each row, where that of one with the weight 1 has this variance."""
        known = 0.0 if self.errors is None else self.errors
        factors = 1.0 if self.factors is None else self.factors
        return (variance * factors + LEAST_NOISE) / self.weights + known


@dataclass(frozen=True)
class SumKernel:
    """Matérn 3/2 + squared exponential + linear.

    `parameters` are logarithms: the noise's variance, then of each kernel its variance and its
    length-scales.
    """

    parameters: Float[np.ndarray, " parameters"]

    @classmethod
    def usual(
        cls,
        num_inputs: int,
        variances: Sequence[float] = USUAL_VARIANCES,
        prior: KernelPrior = ANY_FUNCTION,
    ) -> "SumKernel":
        """Inputs are some length-scales apart, whatever their number."""
        lengths = np.full(num_inputs, 0.5 * np.log(num_inputs))
        rough, smooth, linear = variances
        logs = np.log([rough * prior.roughness, smooth, linear * prior.trend])
        parts = [np.append(log, lengths) for log in logs]
        return cls(np.concatenate([[np.log(prior.noise)], *parts]))

    @property
    def noise(self) -> float:
        """The variance of the noise."""
        return float(np.exp(self.parameters[0]))

    @property
    def parts(self) -> list[tuple[float, Float[np.ndarray, " inputs"]]]:
        """Variance and inverse length-scales of each of the three."""
        rows = self.parameters[1:].reshape(3, -1)
        return [(float(np.exp(row[0])), np.exp(-row[1:])) for row in rows]

    @property
    def slopes(self) -> Float[np.ndarray, " inputs"]:
        """How much a function changes along each input: root mean squares of its derivatives.

        (A Matérn 3/2 function has derivatives of variance 3 / length².)
        """
        squares = [var * np.square(inverse) for var, inverse in self.parts]
        return np.sqrt(3 * squares[0] + squares[1] + squares[2])

    def __call__(self, first: Rows, second: Rows) -> Float[np.ndarray, "first second"]:
        """k(x, x') between all rows."""
        rough, smooth, linear = self.parts
        matern, _ = _matern(*rough, first, second)
        total = matern + _squared_exponential(*smooth, first, second)
        return total + linear[0] * (1 + (first * linear[1] ** 2) @ second.T)

    def variances(self, inputs: Rows) -> Float[np.ndarray, " rows"]:
        """k(x, x) of each row."""
        rough, smooth, linear = self.parts
        return rough[0] + smooth[0] + linear[0] * (1 + np.square(inputs) @ linear[1] ** 2)

    def gradient(
        self, inputs: Rows, points: Rows, coefficients: Float[np.ndarray, "points functions"]
    ) -> Float[np.ndarray, "rows functions inputs"]:
        """The derivative by x of Σ_m k(x, z_m) c_m, for each column c of the coefficients."""
        rough, smooth, linear = self.parts
        shape = (len(inputs), coefficients.shape[1], inputs.shape[1])
        weighted = (coefficients[:, :, None] * points[:, None]).reshape(len(points), -1)
        total = np.tile(linear[0] * linear[1] ** 2 * (coefficients.T @ points), (len(inputs), 1, 1))
        # Of k(r²): 2 k' (x - z) / length², summed over the points.
        for slope, inverse in (
            (_matern(*rough, inputs, points)[1], rough[1]),
            (0.5 * _squared_exponential(*smooth, inputs, points), smooth[1]),
        ):
            towards = (slope @ weighted).reshape(shape)
            towards -= (slope @ coefficients)[..., None] * inputs[:, None]
            total += 2 * inverse**2 * towards
        return total

    def draw(self, number: int, random: np.random.Generator) -> "PriorFunctions":
        """So many functions of the prior, as sums of waves and a plane."""
        rough, smooth, linear = self.parts
        num_inputs = len(linear[1])
        waves = []
        for (variance, inverse), freedom in ((rough, 3), (smooth, None)):
            frequencies = random.standard_normal((NUM_WAVES, num_inputs)) * inverse
            if freedom is not None:  # the spectrum of a Matérn kernel is a Student distribution
                frequencies /= np.sqrt(random.chisquare(freedom, (NUM_WAVES, 1)) / freedom)
            heights = random.standard_normal((2 * NUM_WAVES, number)) * np.sqrt(
                variance / NUM_WAVES
            )
            waves.append((frequencies, heights))
        plane = random.standard_normal((num_inputs + 1, number)) * np.sqrt(linear[0])
        return PriorFunctions(plane, linear[1], waves)


@dataclass(frozen=True)
class PriorFunctions:
    """Functions of a prior: a plane, whose inputs are scaled, and waves of two kinds."""

    plane: Float[np.ndarray, "inputs_and_1 functions"]
    scales: Float[np.ndarray, " inputs"]
    # Frequencies and heights, first of cosines and then of sines.
    waves: Sequence[tuple[np.ndarray, np.ndarray]]

    def __call__(self, inputs: Rows) -> Float[np.ndarray, "rows functions"]:
        """Their values."""
        values = self.plane[0] + (inputs * self.scales) @ self.plane[1:]
        for frequencies, heights in self.waves:
            angles = inputs @ frequencies.T
            values += np.hstack([np.cos(angles), np.sin(angles)]) @ heights
        return values

    def gradient(self, inputs: Rows) -> Float[np.ndarray, "rows functions inputs"]:
        """Their derivatives by the inputs."""
        slopes = np.tile((self.plane[1:] * self.scales[:, None]).T, (len(inputs), 1, 1))
        for frequencies, heights in self.waves:
            angles = inputs @ frequencies.T
            changes = np.hstack([-np.sin(angles), np.cos(angles)])
            for index, along in enumerate(np.tile(frequencies, (2, 1)).T):
                slopes[..., index] += (changes * along) @ heights
        return slopes


@dataclass(frozen=True)
class GPFunctions:
    """Functions of a posterior: those of the prior, and kernels around the inducing points."""

    prior: PriorFunctions
    kernel: SumKernel
    inducing: Rows
    coefficients: Float[np.ndarray, "inducing functions_and_outputs"]
    num_outputs: int

    def __call__(self, inputs: Rows) -> Float[np.ndarray, "functions rows outputs"]:
        """Their values at scaled inputs."""
        parts = [np.empty((0, self.coefficients.shape[1]))]
        for rows in pieces(inputs):
            moved = self.kernel(rows, self.inducing) @ self.coefficients
            parts.append(self.prior(rows) + moved)
        return self._by_function(np.concatenate(parts))

    def gradient(self, inputs: Rows) -> Float[np.ndarray, "functions rows outputs inputs"]:
        """Their derivatives by scaled inputs."""
        parts = [np.empty((0, self.coefficients.shape[1], self.inducing.shape[1]))]
        for rows in pieces(inputs):
            moved = self.kernel.gradient(rows, self.inducing, self.coefficients)
            parts.append(self.prior.gradient(rows) + moved)
        return self._by_function(np.concatenate(parts))

    def _by_function(self, joined: np.ndarray) -> np.ndarray:
        """From rows x (functions and outputs) to functions x rows x outputs."""
        number = joined.shape[1] // self.num_outputs
        apart = joined.reshape(len(joined), number, self.num_outputs, *joined.shape[2:])
        return np.moveaxis(apart, 1, 0)


def pieces(inputs: Rows, size: int = ROWS_AT_ONCE) -> Iterator[Rows]:
    """Some rows after others, in double precision."""
    for start in range(0, len(inputs), size):
        yield np.asarray(inputs[start : start + size], dtype=float)


def _squared_distances(first: Rows, second: Rows) -> np.ndarray:
    distances = first @ (-2 * second.T)
    distances += np.square(first).sum(axis=1)[:, None]
    distances += np.square(second).sum(axis=1)
    return np.maximum(distances, 0, out=distances)


def _matern(
    variance: float, inverse: np.ndarray, first: Rows, second: Rows
) -> tuple[np.ndarray, np.ndarray]:
    """The Matérn 3/2 kernel, and minus its derivative by the squared distance."""
    inverse = np.sqrt(3) * inverse
    distance = _squared_distances(first * inverse, second * inverse)
    np.sqrt(distance, out=distance)
    decay = np.exp(-distance)
    decay *= variance
    distance += 1
    distance *= decay
    decay *= 1.5
    return distance, decay


def _squared_exponential(
    variance: float, inverse: np.ndarray, first: Rows, second: Rows
) -> np.ndarray:
    exponents = _squared_distances(first * inverse, second * inverse)
    exponents *= -0.5
    np.exp(exponents, out=exponents)
    exponents *= variance
    return exponents


def loss_of_parameters(
    parameters: np.ndarray, data: GPData, prior: KernelPrior = ANY_FUNCTION
) -> tuple[float, np.ndarray]:
    """Minus the log marginal likelihood and the log prior of the parameters, and the derivative.

    That by a length-scale is Σ_ij W_ij (x_i - x_j)² with W from the derivative by the kernel:
    a product for all length-scales together. Covariances are symmetric: of each block of rows,
    which stays near the processor, those with the rows up to it are computed.
    """
    kernel, targets = SumKernel(parameters), data.targets
    number, num_inputs = data.inputs.shape
    blocks = [_Block(kernel, data.inputs, start) for start in range(0, number, ROWS_OF_BLOCK)]
    covariance = np.zeros((number, number))
    for block in blocks:
        covariance[block.rows, : block.stop] = block.matern + block.exponential + block.plane
    diagonal = np.diag_indices_from(covariance)
    covariance[diagonal] += data.noise(kernel.noise) + JITTER * np.mean(covariance[diagonal])
    # (LAPACK sees the transpose, whose upper half is this lower one.)
    factor, failed = lapack.dpotrf(covariance.T, lower=0, clean=0, overwrite_a=1)
    usual = SumKernel.usual(num_inputs, prior=prior).parameters
    spread = np.full(len(parameters), PRIOR_STD)
    spread[0] = prior.spread
    deviations = (parameters - usual) / spread
    if failed:
        return 1e10, deviations / spread
    solved, _ = lapack.dpotrs(factor, targets, lower=0)
    num_outputs = targets.shape[1]
    fit = 0.5 * np.sum(targets * solved) + num_outputs * np.log(np.diag(factor)).sum()
    inverse = lapack.dpotri(factor, lower=0, overwrite_c=1)[0].T
    factors = 1.0 if data.factors is None else data.factors
    on_diagonal = 0.5 * (num_outputs * inverse[diagonal] - np.square(solved).sum(axis=1))
    gradient = np.zeros_like(parameters)
    gradient[0] = np.sum(on_diagonal * factors / data.weights) * kernel.noise
    by_parts = gradient[1:].reshape(3, -1)
    for block in blocks:
        by_kernel = num_outputs * inverse[block.rows, : block.stop]
        by_kernel -= solved[block.rows] @ solved[: block.stop].T
        # Each pair of rows stands for two, but those on the diagonal.
        own = by_kernel[:, block.rows]
        own[...] = np.tril(own, -1)
        np.fill_diagonal(own, on_diagonal[block.rows])
        block.add_derivatives(by_kernel, by_parts)
    total = fit + 0.5 * np.sum(np.square(deviations))
    return float(total), gradient + deviations / spread


class _Block:
    """What is needed of the covariances of some rows with all rows up to the last of them."""

    def __init__(self, kernel: SumKernel, inputs: Rows, start: int):
        self._rough, self._smooth, self._linear = kernel.parts
        self.stop = min(start + ROWS_OF_BLOCK, len(inputs))
        self.rows = slice(start, self.stop)
        self._first, self._second = inputs[self.rows], inputs[: self.stop]
        self.matern, self._matern_slope = _matern(*self._rough, self._first, self._second)
        self.exponential = _squared_exponential(*self._smooth, self._first, self._second)
        variance, inverse = self._linear
        self.plane = variance * (1 + (self._first * inverse**2) @ self._second.T)

    def add_derivatives(self, by_kernel: np.ndarray, by_parts: np.ndarray) -> None:
        """Adds the derivatives by log variance and log length-scales, a row for each kernel.

        (Of k(r²), that by a log length is -2 r² k'; the slopes are -k'.)
        """
        for row, (_, inverse), values, slope in (
            (by_parts[0], self._rough, self.matern, self._matern_slope),
            (by_parts[1], self._smooth, self.exponential, 0.5 * self.exponential),
        ):
            row[0] += np.vdot(by_kernel, values)
            weights = by_kernel * slope
            first, second = self._first * inverse, self._second * inverse
            squares = weights.sum(axis=1) @ first**2 + weights.sum(axis=0) @ second**2
            row[1:] += 2 * (squares - 2 * np.einsum("nd,nd->d", first, weights @ second))
        variance, inverse = self._linear
        by_parts[2, 0] += np.vdot(by_kernel, self.plane)
        products = np.einsum("nd,nd->d", self._first, by_kernel @ self._second)
        by_parts[2, 1:] -= 2 * variance * inverse**2 * products


def fitted_kernel(
    data: GPData, order: Int[np.ndarray, " rows"], prior: KernelPrior = ANY_FUNCTION
) -> SumKernel:
    """The most probable parameters, from several starts: there are several hills."""
    few = data.chosen(order[:FEW_FITTED])
    starts = [SumKernel.usual(data.inputs.shape[1], variances, prior) for variances in STARTS]
    ends = [_descended(start.parameters, few, prior) for start in starts]
    best = min(ends, key=lambda end: end[1])
    if len(order) > FEW_FITTED:
        best = _descended(best[0], data.chosen(order[:MAX_FITTED]), prior)
    return SumKernel(best[0])


def _descended(
    parameters: np.ndarray, data: GPData, prior: KernelPrior
) -> tuple[np.ndarray, float]:
    """Parameters with less of `loss_of_parameters`, and what they have of it.

    A line search that led too far ends L-BFGS early: it begins anew from there.
    """
    loss, left = loss_of_parameters(parameters, data, prior)[0], MAX_EVALUATIONS
    usual = SumKernel.usual(data.inputs.shape[1]).parameters
    bounds = np.stack([usual - FARTHEST, usual + FARTHEST], axis=1)
    while left > 0:
        options = {"maxfun": left, "maxiter": left, "maxcor": 20}
        end = minimize(
            loss_of_parameters,
            parameters,
            (data, prior),
            "L-BFGS-B",
            True,
            bounds=bounds,
            options=options,
        )
        left -= end.nfev
        gain = loss - end.fun
        if gain > 0:
            parameters, loss = end.x, float(end.fun)
        if not gain > LEAST_GAIN:
            break
    return parameters, loss
