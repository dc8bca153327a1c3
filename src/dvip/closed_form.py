"""A layer with a Gaussian process as its prior and Gaussian noise: the posterior in closed form.

The kernel is a sum of three, each with a variance and a length-scale for every input: Matérn 3/2
for what is rough, squared exponential for what is smooth, linear for trends, which alone go on
beyond the data. Its parameters maximise the marginal likelihood of some of the rows; the posterior
is that of all rows at M inducing points which is exact where each row is one.

In double precision and in NumPy: a factorisation has few and large operations. With C Cᵀ = k(Z, Z),
φ(x) = C⁻¹ k(Z, x) and rows n of noise variance d_n,

    q(v) = N(m, B⁻¹),  B = I + Σ_n φ_n φ_nᵀ / d_n,  m = B⁻¹ Σ_n φ_n y_n / d_n,
    f(x) ~ N(φᵀ m,  k(x, x) - φᵀφ + φᵀ B⁻¹ φ).

What the inducing points do not explain of a row counts as noise of its own (FITC: Snelson and
Ghahramani, 2006): rows far from all of them then say little rather than something wrong.

Noise may depend on the inputs: a second process of the same kind is fitted to the logarithms of the
squared errors of left-out rows (Kersting et al., 2007), and kept where these are predicted better.
Its logarithm has a spread of its own besides, which makes for heavy tails; left-out rows say how
much.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.linalg import cho_solve, lapack, solve_triangular
from scipy.optimize import minimize
from scipy.special import logsumexp
from threadpoolctl import threadpool_limits

__all__ = ["ClosedFormGP", "GPData", "GPMoments", "SumKernel", "fit_closed_form"]

# Rows that the marginal likelihood is of: its time grows with their cube. From each start a few of
# them are descended on, from the best end more. Inducing points.
FEW_FITTED, MAX_FITTED, MAX_INDUCING = 250, 700, 1_000
MAX_EVALUATIONS = 60
# A descent that stopped early goes on while this is gained.
LEAST_GAIN = 0.5
# Rows whose covariances with the inducing points are in memory at once.
ROWS_AT_ONCE = 2_000
# Added to the variance of the inducing values, as a share of it, and to the noise.
JITTER, LEAST_NOISE = 1e-8, 1e-6
# The middles of the parameters' priors, for noise and the variances of the kernels: few rows decide
# little. Where descents start: all kernels alike, or mostly rough, or mostly smooth.
USUAL_NOISE, USUAL_VARIANCES = 0.1, (0.3, 0.3, 0.3)
STARTS = (USUAL_VARIANCES, (1.0, 0.1, 0.1), (0.1, 1.0, 0.1))
PRIOR_STD, PRIOR_STD_OF_NOISE = 1.5, 3.0
# Parameters stay so near to what is usual: numbers stay finite.
FARTHEST = 12.0
# Inputs that are scaled are no larger.
LARGEST = 1e9
# Of the logarithm of a squared standard normal variable; how far the logarithm of the noise may be
# from its middle; what noise that varies must gain in the log-density of a row to be kept.
MEAN_LOG_SQUARE, MAX_LOG_RATIO, LEAST_GAIN_OF_NOISE = -1.27, 4.0, 0.01
SMALLEST = 1e-12
# Where the level of the noise and the spread of its logarithm are looked for; the values that stand
# for a standard normal variable, and their probabilities.
LEVELS, SPREADS = np.exp(np.linspace(-2, 2, 25)), (0.0, 0.3, 0.6, 0.9, 1.2)
NODES, SHARES = np.polynomial.hermite_e.hermegauss(5)
SHARES = SHARES / SHARES.sum()
# Left-out rows that noise which varies is learned from, at least.
MIN_ROWS_FOR_NOISE = 50
# Waves of a function draw.
NUM_WAVES = 1_000

Rows = Float[np.ndarray, "rows inputs"]


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
    def usual(cls, num_inputs: int, variances: Sequence[float] = USUAL_VARIANCES) -> "SumKernel":
        """Inputs are some length-scales apart, whatever their number."""
        lengths = np.full(num_inputs, 0.5 * np.log(num_inputs))
        parts = [np.append(np.log(variance), lengths) for variance in variances]
        return cls(np.concatenate([[np.log(USUAL_NOISE)], *parts]))

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

    def draw(self, number: int, random: np.random.Generator) -> Callable[[Rows], np.ndarray]:
        """So many functions of the prior, as sums of waves and a plane: (rows, functions)."""
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

        def functions(inputs: Rows) -> np.ndarray:
            values = plane[0] + (inputs * linear[1]) @ plane[1:]
            for frequencies, heights in waves:
                angles = inputs @ frequencies.T
                values += np.hstack([np.cos(angles), np.sin(angles)]) @ heights
            return values

        return functions


def _squared_distances(first: Rows, second: Rows) -> np.ndarray:
    squares = np.square(first).sum(axis=1)[:, None] + np.square(second).sum(axis=1)
    return np.maximum(squares - 2 * first @ second.T, 0)


def _matern(
    variance: float, inverse: np.ndarray, first: Rows, second: Rows
) -> tuple[np.ndarray, np.ndarray]:
    """The Matérn 3/2 kernel, and minus its derivative by the squared distance."""
    distance = np.sqrt(3 * _squared_distances(first * inverse, second * inverse))
    decay = variance * np.exp(-distance)
    return (1 + distance) * decay, 1.5 * decay


def _squared_exponential(
    variance: float, inverse: np.ndarray, first: Rows, second: Rows
) -> np.ndarray:
    return variance * np.exp(-0.5 * _squared_distances(first * inverse, second * inverse))


def _loss(parameters: np.ndarray, data: GPData) -> tuple[float, np.ndarray]:
    """Minus the log marginal likelihood and the log prior of the parameters, and the derivative.

    That by a length-scale is Σ_ij W_ij (x_i - x_j)² with W from the derivative by the kernel:
    a product for all length-scales together.
    """
    kernel, inputs, targets = SumKernel(parameters), data.inputs, data.targets
    rough, smooth, linear = kernel.parts
    matern, matern_slope = _matern(*rough, inputs, inputs)
    exponential = _squared_exponential(*smooth, inputs, inputs)
    plane = linear[0] * (1 + (inputs * linear[1] ** 2) @ inputs.T)
    noise = data.noise(kernel.noise)
    covariance = matern + exponential + plane
    diagonal = np.diag_indices_from(covariance)
    covariance[diagonal] += noise + JITTER * np.mean(covariance[diagonal])
    factor, failed = lapack.dpotrf(covariance, lower=1)
    usual = SumKernel.usual(inputs.shape[1]).parameters
    spread = np.full(len(parameters), PRIOR_STD)
    spread[0] = PRIOR_STD_OF_NOISE
    deviations = (parameters - usual) / spread
    if failed:
        return 1e10, deviations / spread
    solved = cho_solve((factor, True), targets)
    inverse, _ = lapack.dpotri(factor, lower=1)
    inverse = np.tril(inverse) + np.tril(inverse, -1).T
    num_outputs = targets.shape[1]
    fit = 0.5 * np.sum(targets * solved) + num_outputs * np.log(np.diag(factor)).sum()
    by_kernel = 0.5 * (num_outputs * inverse - solved @ solved.T)

    def by_lengths(weights: np.ndarray, scaled: Rows) -> np.ndarray:
        products = np.einsum("nd,nd->d", scaled, weights @ scaled)
        return 2 * (products - weights.sum(axis=1) @ np.square(scaled))

    factors = 1.0 if data.factors is None else data.factors
    by_noise = np.sum(np.diag(by_kernel) * factors / data.weights) * kernel.noise
    gradient = [np.array([by_noise])]
    for (_, lengths), values, slope in (
        (rough, matern, matern_slope),
        (smooth, exponential, 0.5 * exponential),
    ):
        # (Of k(r²), the derivative by log length is -2 r² k'; `slope` is -k'.)
        gradient.append(np.array([np.sum(by_kernel * values)]))
        gradient.append(-2 * by_lengths(by_kernel * slope, inputs * lengths))
    gradient.append(np.array([np.sum(by_kernel * plane)]))
    scaled = inputs * linear[1]
    gradient.append(-2 * linear[0] * np.einsum("nd,nd->d", scaled, by_kernel @ scaled))
    total = fit + 0.5 * np.sum(np.square(deviations))
    return float(total), np.concatenate(gradient) + deviations / spread


@dataclass(frozen=True)
class ClosedFormGP:
    """A Gaussian process given its rows, by way of its inducing points.

    `factor` is that of B, packed; `mean` is m of each target. Where the noise varies,
    `noise_kernel` and `noise_mean` are those of the process of its logarithm.
    """

    kernel: SumKernel
    inducing: Rows
    factor: Float[np.ndarray, " packed"]
    mean: Float[np.ndarray, "inducing outputs"]
    noise_kernel: SumKernel | None = None
    noise_mean: Float[np.ndarray, "inducing 1"] | None = None
    # Of the logarithm of the noise, where it does not depend on the inputs.
    spread: float = 0.0

    @cached_property
    def _prior_factor(self) -> Float[np.ndarray, "inducing inducing"]:
        return _prior_factor(self.kernel, self.inducing)

    @cached_property
    def _noise_factor(self) -> Float[np.ndarray, "inducing inducing"]:
        assert self.noise_kernel is not None
        return _prior_factor(self.noise_kernel, self.inducing)

    @cached_property
    def _posterior_factor(self) -> Float[np.ndarray, "inducing inducing"]:
        number = len(self.inducing)
        whole = np.zeros((number, number))
        whole[np.tril_indices(number)] = self.factor
        return whole

    def moments(self, inputs: Rows) -> "GPMoments":
        """Of each target and its noise at scaled inputs."""
        pieces = [self._moments(rows) for rows in _pieces(inputs)]
        return GPMoments.of_all(pieces)

    def _moments(self, rows: Rows) -> "GPMoments":
        features = _features(self.kernel, self._prior_factor, self.inducing, rows)
        unexplained = self.kernel.variances(rows) - np.square(features).sum(axis=0)
        solved = solve_triangular(self._posterior_factor, features, lower=True)
        variance = np.maximum(unexplained, 0) + np.square(solved).sum(axis=0)
        noise = np.full(len(rows), self.kernel.noise)
        if self.noise_mean is not None and self.noise_kernel is not None:
            features_of_noise = _features(
                self.noise_kernel, self._noise_factor, self.inducing, rows
            )
            logs = (features_of_noise.T @ self.noise_mean)[:, 0]
            noise = noise * _ratios(logs)
        return GPMoments(features.T @ self.mean, variance, noise, self.spread)

    def draw_functions(
        self, number: int, seed: int
    ) -> Callable[[Rows], Float[np.ndarray, "functions rows outputs"]]:
        """Whole functions: a function of the prior, moved by Matheron's rule."""
        random = np.random.default_rng(seed)
        num_outputs = self.mean.shape[1]
        prior = self.kernel.draw(number * num_outputs, random)
        white = random.standard_normal((len(self.inducing), number * num_outputs))
        chosen = solve_triangular(self._posterior_factor.T, white, lower=False)
        chosen += np.tile(self.mean, number)
        at_points = solve_triangular(self._prior_factor, prior(self.inducing), lower=True)

        def functions(inputs: Rows) -> np.ndarray:
            pieces = [np.empty((0, number * num_outputs))]
            for rows in _pieces(inputs):
                features = _features(self.kernel, self._prior_factor, self.inducing, rows)
                pieces.append(prior(rows) + features.T @ (chosen - at_points))
            values = np.concatenate(pieces).reshape(-1, number, num_outputs)
            return np.moveaxis(values, 1, 0)

        return functions

    def arrays(self) -> dict[str, np.ndarray]:
        """All that it is made of. The factor has single precision: it is by far the largest."""
        arrays = {
            "parameters": self.kernel.parameters,
            "inducing": self.inducing,
            "factor": self.factor,
            "mean": self.mean,
            "spread": np.array(self.spread),
        }
        if self.noise_kernel is not None and self.noise_mean is not None:
            arrays["noise_parameters"] = self.noise_kernel.parameters
            arrays["noise_mean"] = self.noise_mean
        return arrays

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, np.ndarray], num_inputs: int, num_outputs: int
    ) -> "ClosedFormGP":
        """What `arrays` gave; a ValueError or KeyError unless they fit together."""
        number = len(arrays["inducing"])
        expected: dict[str, tuple[type, tuple[int, ...]]] = {
            "parameters": (np.float64, (4 + 3 * num_inputs,)),
            "inducing": (np.float64, (number, num_inputs)),
            "factor": (np.float32, (number * (number + 1) // 2,)),
            "mean": (np.float64, (number, num_outputs)),
            "spread": (np.float64, ()),
        }
        if "noise_mean" in arrays:
            expected["noise_parameters"] = expected["parameters"]
            expected["noise_mean"] = (np.float64, (number, 1))
        for name, (dtype, shape) in expected.items():
            array = arrays[name]
            if array.dtype != dtype or array.shape != shape:
                raise ValueError(f"{name} is {array.dtype}{array.shape}, expected {dtype}{shape}.")
        usual = SumKernel.usual(num_inputs).parameters
        for name in expected:
            if "parameters" in name and np.any(np.abs(arrays[name] - usual) > 2 * FARTHEST):
                raise ValueError(f"{name} are no parameters of a kernel.")
        diagonal = arrays["factor"][np.cumsum(np.arange(1, number + 1)) - 1]
        if not number or np.any(diagonal < 0.5) or np.any(np.abs(arrays["inducing"]) > LARGEST):
            raise ValueError("its posterior is none.")  # (B is no less than I)
        if not 0 <= arrays["spread"] <= SPREADS[-1]:
            raise ValueError("the spread of its noise is none.")
        noise = arrays.get("noise_parameters")
        return cls(
            SumKernel(arrays["parameters"]),
            arrays["inducing"],
            arrays["factor"],
            arrays["mean"],
            None if noise is None else SumKernel(noise),
            arrays.get("noise_mean"),
            float(arrays["spread"]),
        )


class GPMoments(NamedTuple):
    """Mean of each target, variance of f and of the noise in its middle, of each row."""

    mean: Float[np.ndarray, "rows outputs"]
    variance: Float[np.ndarray, " rows"]
    middle: Float[np.ndarray, " rows"]
    spread: float = 0.0

    @classmethod
    def of_all(cls, parts: Sequence["GPMoments"]) -> "GPMoments":
        """Of the rows of all of them."""
        mean, variance, middle = (
            np.concatenate(part) for part in list(zip(*parts, strict=True))[:3]
        )
        return cls(mean, variance, middle, parts[0].spread)

    @property
    def weights(self) -> Float[np.ndarray, " levels"]:
        """Probabilities of the levels of the noise."""
        return SHARES if self.spread else np.ones(1)

    @property
    def noise(self) -> Float[np.ndarray, "rows levels"]:
        """Variances of the noise; its mean over the levels is that of the middle."""
        factors = np.exp(self.spread * NODES) if self.spread else np.ones(1)
        return self.middle[:, None] * (factors / (factors @ self.weights)) + LEAST_NOISE

    def log_density(self, targets: np.ndarray) -> Float[np.ndarray, "rows outputs"]:
        """Of these targets."""
        total = (self.variance[:, None] + self.noise)[:, None]
        squares = np.square(targets - self.mean)[..., None]
        logs = -0.5 * (squares / total + np.log(2 * np.pi * total))
        return logsumexp(logs, b=self.weights, axis=-1)


def _ratios(logs: np.ndarray) -> np.ndarray:
    """Of the noise to its middle, from their logarithms."""
    return np.exp(MAX_LOG_RATIO * np.tanh(logs / MAX_LOG_RATIO))


def _pieces(inputs: Rows) -> Iterator[Rows]:
    for start in range(0, len(inputs), ROWS_AT_ONCE):
        yield np.asarray(inputs[start : start + ROWS_AT_ONCE], dtype=float)


def _prior_factor(kernel: SumKernel, inducing: Rows) -> np.ndarray:
    covariance = kernel(inducing, inducing)
    diagonal = np.diag_indices_from(covariance)
    jitter = JITTER * float(np.mean(covariance[diagonal]))
    while True:
        covariance[diagonal] += jitter
        factor, failed = lapack.dpotrf(covariance, lower=1, clean=1)
        if not failed:
            return factor
        jitter *= 10


def _features(kernel: SumKernel, factor: np.ndarray, inducing: Rows, rows: Rows) -> np.ndarray:
    """φ(x), a column for each row."""
    return solve_triangular(factor, kernel(inducing, rows), lower=True, overwrite_b=True)


Folds = Sequence[Int[np.ndarray, " fold"]]


def fit_closed_form(
    data: GPData, folds: Folds, seed: int, *, varying: bool = True
) -> tuple[ClosedFormGP, list[GPMoments]]:
    """The Gaussian process of these rows, and what it predicts for each fold without it.

    Folds need not hold all rows. (All rows share the kernel's parameters, which are few: those of a
    fold as well.) With `varying`, noise that depends on the inputs is tried.
    """
    # Threads that wait for each other cost more than they gain, and others have work to do.
    with threadpool_limits(1, user_api="blas"):
        order = np.random.default_rng(seed).permutation(len(data.inputs))
        kernel = _fitted_kernel(data, order)
        constant = _conditioned(kernel, data, folds, data.inputs[order[:MAX_INDUCING]])
        if not varying or sum(map(len, folds)) < MIN_ROWS_FOR_NOISE:
            return constant
        other = _with_varying_noise(constant[0], data, folds, constant[1])
    pair = (constant, other)
    scores = [_log_density(data, folds, left_out).mean() for _, left_out in pair]
    return pair[int(scores[1] > scores[0] + LEAST_GAIN_OF_NOISE)]


def _log_density(
    data: GPData, folds: Folds, left_out: Sequence[GPMoments]
) -> Float[np.ndarray, "rows outputs"]:
    """Of rows that were left out."""
    pairs = zip(folds, left_out, strict=True)
    return np.concatenate([moments.log_density(data.targets[rows]) for rows, moments in pairs])


def _fitted_kernel(data: GPData, order: Int[np.ndarray, " rows"]) -> SumKernel:
    """The most probable parameters, from several starts: there are several hills."""
    few = data.chosen(order[:FEW_FITTED])
    starts = [SumKernel.usual(data.inputs.shape[1], variances) for variances in STARTS]
    ends = [_descended(start.parameters, few) for start in starts]
    best = min(ends, key=lambda end: end[1])
    if len(order) > FEW_FITTED:
        best = _descended(best[0], data.chosen(order[:MAX_FITTED]))
    return SumKernel(best[0])


def _descended(parameters: np.ndarray, data: GPData) -> tuple[np.ndarray, float]:
    """Parameters with less of `_loss`, and what they have of it.

    A line search that led too far ends L-BFGS early: it begins anew from there.
    """
    loss, left = _loss(parameters, data)[0], MAX_EVALUATIONS
    usual = SumKernel.usual(data.inputs.shape[1]).parameters
    bounds = np.stack([usual - FARTHEST, usual + FARTHEST], axis=1)
    while left > 0:
        options = {"maxfun": left, "maxiter": left, "maxcor": 20}
        end = minimize(_loss, parameters, (data,), "L-BFGS-B", True, bounds=bounds, options=options)
        left -= end.nfev
        gain = loss - end.fun
        if gain > 0:
            parameters, loss = end.x, float(end.fun)
        if not gain > LEAST_GAIN:
            break
    return parameters, loss


def _conditioned(
    kernel: SumKernel, data: GPData, folds: Folds, inducing: Rows
) -> tuple[ClosedFormGP, list[GPMoments]]:
    """The posterior given all rows, and what it is for each fold without its rows."""
    factor = _prior_factor(kernel, inducing)
    others = np.setdiff1d(np.arange(len(data.inputs)), np.concatenate([*folds, []]).astype(int))
    sums = [_sums(kernel, factor, inducing, data.chosen(rows)) for rows in (*folds, others)]
    whole = _posterior(sums)
    model = ClosedFormGP(kernel, inducing, _packed(whole[0]).astype(np.float32), whole[1])
    left_out = []
    for index, rows in enumerate(folds):
        without = _posterior([part for other, part in enumerate(sums) if other != index])
        partial = ClosedFormGP(kernel, inducing, _packed(without[0]), without[1])
        left_out.append(partial.moments(data.inputs[rows]))
    return model, left_out


def _with_varying_noise(
    first: ClosedFormGP, data: GPData, folds: Folds, left_out: Sequence[GPMoments]
) -> tuple[ClosedFormGP, list[GPMoments]]:
    """The same with noise whose logarithm is a process, fitted to errors of left-out rows."""
    rows, before = np.concatenate(folds), GPMoments.of_all(left_out)
    errors = np.square(data.targets[rows] - before.mean).mean(axis=1) + SMALLEST
    logs = np.log(errors / (before.variance + before.middle))[:, None] - MEAN_LOG_SQUARE
    scale = max(float(np.std(logs)), SMALLEST)
    of_noise = GPData(data.inputs[rows], logs / scale, data.weights[rows])
    places = np.split(np.arange(len(rows)), np.cumsum([len(fold) for fold in folds])[:-1])
    order = np.random.default_rng(len(rows)).permutation(len(rows))
    noise_kernel = _fitted_kernel(of_noise, order)
    noise, noise_left_out = _conditioned(noise_kernel, of_noise, places, first.inducing)
    logs_everywhere = scale * noise.moments(data.inputs).mean[:, 0]
    logs_everywhere[rows] = scale * GPMoments.of_all(noise_left_out).mean[:, 0]
    factors = _ratios(logs_everywhere)
    level, spread = _level_and_spread(
        before, first.kernel.noise * factors[rows], data.targets[rows]
    )
    parameters = first.kernel.parameters.copy()
    parameters[0] += np.log(level)
    model, of_folds = _conditioned(
        SumKernel(parameters), data._replace(factors=factors), folds, first.inducing
    )
    varied = [
        part._replace(middle=model.kernel.noise * factors[fold], spread=spread)
        for part, fold in zip(of_folds, folds, strict=True)
    ]
    mean = scale * noise.mean
    return replace(model, noise_kernel=noise_kernel, noise_mean=mean, spread=spread), varied


def _level_and_spread(
    moments: GPMoments, noise: Float[np.ndarray, " rows"], targets: np.ndarray
) -> tuple[float, float]:
    """The factor of this noise, and the spread of its logarithm, that targets favour."""

    def score(pair: tuple[float, float]) -> float:
        level, spread = pair
        return float(
            moments._replace(middle=level * noise, spread=spread).log_density(targets).sum()
        )

    return max(((float(level), spread) for level in LEVELS for spread in SPREADS), key=score)


def _sums(
    kernel: SumKernel, factor: np.ndarray, inducing: Rows, data: GPData
) -> tuple[np.ndarray, np.ndarray]:
    """Σ_n φ_n φ_nᵀ / d_n and Σ_n φ_n y_n / d_n."""
    number = len(inducing)
    products = np.zeros((number, number))
    projections = np.zeros((number, data.targets.shape[1]))
    noise = data.noise(kernel.noise)
    for start in range(0, len(data.inputs), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        features = _features(kernel, factor, inducing, data.inputs[rows])
        unexplained = kernel.variances(data.inputs[rows]) - np.square(features).sum(axis=0)
        weighted = features / (noise[rows] + np.maximum(unexplained, 0))
        products += weighted @ features.T
        projections += weighted @ data.targets[rows]
    return products, projections


def _posterior(sums: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """The factor of B, and m."""
    precision = np.sum([products for products, _ in sums], axis=0)
    precision[np.diag_indices_from(precision)] += 1
    factor, _ = lapack.dpotrf(precision, lower=1, clean=1)
    return factor, cho_solve((factor, True), np.sum([part for _, part in sums], axis=0))


def _packed(factor: np.ndarray) -> np.ndarray:
    return factor[np.tril_indices(len(factor))]
