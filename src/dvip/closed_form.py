"""A layer with a Gaussian process as its prior and Gaussian noise: the posterior in closed form.

The kernel is fitted to some of the rows (`sum_kernel.py`); the posterior is that of all rows at M
inducing points Z, which is exact where each row is one. With C Cᵀ = k(Z, Z),
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

import math
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, reduce

import numpy as np
from jaxtyping import Float, Int
from scipy.linalg import cho_solve, lapack, solve_triangular
from threadpoolctl import threadpool_limits

from dvip.gp_moments import SPREADS, GPMoments, best_level_and_spread
from dvip.sum_kernel import (
    ANY_FUNCTION,
    FARTHEST,
    JITTER,
    ROWS_AT_ONCE,
    GPData,
    GPFunctions,
    KernelPrior,
    Rows,
    SumKernel,
    fitted_kernel,
    pieces,
)

__all__ = [
    "MAX_REFITTED",
    "ClosedFormGP",
    "Folds",
    "conditioned",
    "fit_closed_form",
    "fit_constant",
]

MAX_INDUCING = 1_500
# Rows that are predicted at once: what they need of the kernel stays near the processor.
ROWS_PREDICTED = 500
# A row becomes an inducing point if more than this remains unexplained, as a share of the prior's
# variance and of the noise's.
LEAST_NEW, LEAST_OF_NOISE = 1e-7, 1e-4
# Rows up to which each fold has a kernel of its own.
MAX_REFITTED = 250
# Inputs that are scaled are no larger.
LARGEST = 1e9
# Of the logarithm of a squared standard normal variable; how far the logarithm of the noise may be
# from its middle; what noise that varies must gain in the log-density of a row to be kept.
MEAN_LOG_SQUARE, MAX_LOG_RATIO, LEAST_GAIN_OF_NOISE = -1.27, 4.0, 0.01
SMALLEST = 1e-12
# Left-out rows that varying noise is learned from, at least; those that its kernel is fitted to.
MIN_ROWS_FOR_NOISE, MAX_FITTED_TO_NOISE = 50, 600


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

    @property
    def members(self) -> tuple["ClosedFormGP", ...]:
        """Itself: a process whose kernel is sampled has several (`sampled_gp.py`)."""
        return (self,)

    @cached_property
    def _prior_factor(self) -> Float[np.ndarray, "inducing inducing"]:
        return _prior_factor(self.kernel, self.inducing)

    @cached_property
    def _noise_weights(self) -> Float[np.ndarray, "inducing 1"]:
        """C⁻ᵀ m of the process of the noise: its mean is k(x, Z) times these."""
        assert self.noise_kernel is not None
        factor = _prior_factor(self.noise_kernel, self.inducing)
        return solve_triangular(factor.T, self.noise_mean, lower=False)

    @cached_property
    def _posterior_factor(self) -> Float[np.ndarray, "inducing inducing"]:
        whole = np.zeros((len(self.inducing), len(self.inducing)))
        whole[np.tri(len(whole), dtype=bool)] = self.factor
        return whole

    def moments(self, inputs: Rows) -> "GPMoments":
        """Of each target and its noise at scaled inputs."""
        if not len(inputs):  # of which LAPACK wants to know nothing
            mean, variance, middle, spread = self._moments(np.zeros((1, inputs.shape[1])))
            return GPMoments(mean[:0], variance[:0], middle[:0], spread)
        first, *others = pieces(inputs, ROWS_PREDICTED)
        # A piece in each thread, as BLAS has little to do; the first makes the factors of all.
        with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(os.cpu_count()) as threads:
            return GPMoments.of_all([self._moments(first), *threads.map(self._moments, others)])

    def _moments(self, rows: Rows) -> "GPMoments":
        features = _features(self.kernel, self._prior_factor, self.inducing, rows)
        unexplained = self.kernel.variances(rows) - np.square(features).sum(axis=0)
        solved = solve_triangular(self._posterior_factor, features, lower=True)
        variance = np.maximum(unexplained, 0) + np.square(solved).sum(axis=0)
        noise = np.full(len(rows), self.kernel.noise) * self._noise_ratios(rows)
        return GPMoments(features.T @ self.mean, variance, noise, self.spread)

    def _noise_ratios(self, rows: Rows) -> Float[np.ndarray, " rows"] | float:
        """Of the noise at some rows to its middle."""
        if self.noise_mean is None or self.noise_kernel is None:
            return 1.0
        return _ratios((self.noise_kernel(rows, self.inducing) @ self._noise_weights)[:, 0])

    def given(self, data: GPData, added: Rows | None = None) -> "ClosedFormGP":
        """The process given further rows, with the same kernel.

        Rows that the inducing points do not explain become such themselves, or those `added`. As
        factors are lower triangular, values v at the points that were there keep their meaning, and
        those at new ones are standard normal a priori: B and B m gain the sums of the further rows.
        """
        inputs, before = np.asarray(data.inputs, dtype=float), len(self.inducing)
        with threadpool_limits(1, user_api="blas"):
            ratios = np.broadcast_to(self._noise_ratios(inputs), len(inputs))
            added = self.unexplained(inputs) if added is None else added
            inducing = np.concatenate([self.inducing, added])
            factor = _prior_factor(self.kernel, inducing)
            rows = data._replace(inputs=inputs, factors=ratios)
            products, projections = _sums(self.kernel, factor, inducing, rows)
            old = self._posterior_factor
            products[:before, :before] += old @ old.T - np.eye(before)
            projections[:before] += old @ (old.T @ self.mean)
            factor, mean = _posterior(products, projections)
        noise_mean = self.noise_mean
        if noise_mean is not None:
            noise_mean = np.pad(noise_mean, ((0, len(inducing) - before), (0, 0)))
        packed = _packed(factor).astype(np.float32)
        return replace(self, inducing=inducing, factor=packed, mean=mean, noise_mean=noise_mean)

    def unexplained(self, inputs: Rows) -> Rows:
        """Rows that are to be inducing points: while there is room, those that add something."""
        some = inputs[np.linspace(0, len(inputs) - 1, min(len(inputs), ROWS_AT_ONCE)).astype(int)]
        features = _features(self.kernel, self._prior_factor, self.inducing, some)
        remaining = self.kernel(some, some) - features.T @ features
        of_prior = float(np.mean(self.kernel.variances(some)))
        least = max(LEAST_NEW * of_prior, LEAST_OF_NOISE * self.kernel.noise)
        if remaining.diagonal().max() <= least:
            return some[:0]
        _, order, rank, _ = lapack.dpstrf(remaining, tol=least, lower=1)
        room = max(0, MAX_INDUCING - len(self.inducing))
        return some[order[: min(rank, room)] - 1]

    def draw_functions(self, number: int, seed: int) -> "GPFunctions":
        """Whole functions: a function of the prior, moved by Matheron's rule."""
        random = np.random.default_rng(seed)
        num_outputs = self.mean.shape[1]
        prior = self.kernel.draw(number * num_outputs, random)
        white = random.standard_normal((len(self.inducing), number * num_outputs))
        chosen = solve_triangular(self._posterior_factor.T, white, lower=False)
        chosen += np.tile(self.mean, number)
        at_points = solve_triangular(self._prior_factor, prior(self.inducing), lower=True)
        moved = solve_triangular(self._prior_factor.T, chosen - at_points, lower=False)
        return GPFunctions(prior, self.kernel, self.inducing, moved, num_outputs)

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


def _ratios(logs: np.ndarray) -> np.ndarray:
    """Of the noise to its middle, from their logarithms."""
    return np.exp(MAX_LOG_RATIO * np.tanh(logs / MAX_LOG_RATIO))


def _prior_factor(kernel: SumKernel, inducing: Rows) -> np.ndarray:
    covariance = kernel(inducing, inducing)
    diagonal = np.diag_indices_from(covariance)
    jitter = JITTER * float(np.mean(covariance[diagonal]))
    while True:
        covariance[diagonal] += jitter
        factor, failed = lapack.dpotrf(covariance.T, lower=1, clean=1)
        if not failed:
            return factor
        jitter *= 10


def _features(kernel: SumKernel, factor: np.ndarray, inducing: Rows, rows: Rows) -> np.ndarray:
    """φ(x), a column for each row."""
    return solve_triangular(factor, kernel(inducing, rows), lower=True, overwrite_b=True)


Folds = Sequence[Int[np.ndarray, " fold"]]


def fit_closed_form(
    data: GPData,
    folds: Folds,
    seed: int,
    prior: KernelPrior = ANY_FUNCTION,
    on_constant_noise: Callable[[list[GPMoments]], None] = lambda left_out: None,
) -> tuple[ClosedFormGP, list[GPMoments]]:
    """The Gaussian process of these rows, and what it predicts for each fold without it.

    Folds need not hold all rows. Of many rows, all folds share the kernel's parameters, which are
    few beside them; of few rows each fold has a kernel that was fitted without it.
    `on_constant_noise` hears what is predicted before noise that varies is tried.
    """
    # Threads that wait for each other cost more than they gain, and others have work to do.
    with threadpool_limits(1, user_api="blas"):
        order = np.random.default_rng(seed).permutation(len(data.inputs))
        kernel = fitted_kernel(data, order, prior)
        constant = conditioned(kernel, data, folds, data.inputs[order[:MAX_INDUCING]])
        if len(order) <= MAX_REFITTED:
            constant = constant[0], [_without(fold, data) for fold in folds]
        on_constant_noise(constant[1])
        if sum(map(len, folds)) < MIN_ROWS_FOR_NOISE:
            return constant
        other = _with_varying_noise(constant[0], data, folds, constant[1])
    gains = _log_density(data, folds, other[1]) - _log_density(data, folds, constant[1])
    by_chance = 2 * float(np.std(gains)) / math.sqrt(gains.size)
    return other if np.mean(gains) > max(LEAST_GAIN_OF_NOISE, by_chance) else constant


def fit_constant(data: GPData, folds: Folds) -> tuple[ClosedFormGP, list[GPMoments]]:
    """The mean of the targets and their spread: a process that does not vary, to compare with."""
    targets = data.targets - np.average(data.targets, axis=0, weights=data.weights)
    variance = float(np.average(np.square(targets).mean(axis=1), weights=data.weights))
    parameters = SumKernel.usual(data.inputs.shape[1]).parameters
    parameters[1:].reshape(3, -1)[:, 0] -= FARTHEST  # the variances of the kernels
    parameters[0] = np.log(max(variance, SMALLEST))
    return conditioned(SumKernel(parameters), data, folds, data.inputs[:1])


def _without(fold: Int[np.ndarray, " fold"], data: GPData) -> GPMoments:
    """What a process that was fitted to all other rows says of these."""
    others = data.chosen(np.setdiff1d(np.arange(len(data.inputs)), fold))
    kernel = fitted_kernel(others, np.arange(len(others.inputs)))
    model, _ = conditioned(kernel, others, [], others.inputs)
    return model.moments(data.inputs[fold])


def _log_density(
    data: GPData, folds: Folds, left_out: Sequence[GPMoments]
) -> Float[np.ndarray, "rows outputs"]:
    """Of rows that were left out."""
    pairs = zip(folds, left_out, strict=True)
    return np.concatenate([moments.log_density(data.targets[rows]) for rows, moments in pairs])


def conditioned(
    kernel: SumKernel, data: GPData, folds: Folds, inducing: Rows
) -> tuple[ClosedFormGP, list[GPMoments]]:
    """The posterior given all rows, and what it is for each fold without its rows."""
    factor = _prior_factor(kernel, inducing)
    others = np.setdiff1d(np.arange(len(data.inputs)), np.concatenate([*folds, []]).astype(int))
    sums = [_sums(kernel, factor, inducing, data.chosen(rows)) for rows in (*folds, others)]
    products, projections = (reduce(np.add, parts) for parts in zip(*sums, strict=True))
    left_out = []
    for rows, (some, projected) in zip(folds, sums, strict=False):
        without, mean = _posterior(products - some, projections - projected)
        partial = ClosedFormGP(kernel, inducing, np.empty(0), mean)
        partial.__dict__.update(_prior_factor=factor, _posterior_factor=without)  # as they are
        left_out.append(partial.moments(data.inputs[rows]))
    whole, mean = _posterior(products, projections)
    return ClosedFormGP(kernel, inducing, _packed(whole).astype(np.float32), mean), left_out


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
    noise_kernel = fitted_kernel(of_noise, order[:MAX_FITTED_TO_NOISE])
    noise, noise_left_out = conditioned(noise_kernel, of_noise, places, first.inducing)
    logs_everywhere = scale * noise.moments(data.inputs).mean[:, 0]
    logs_everywhere[rows] = scale * GPMoments.of_all(noise_left_out).mean[:, 0]
    factors = _ratios(logs_everywhere)
    level, spread = best_level_and_spread(
        before, first.kernel.noise * factors[rows], data.targets[rows]
    )
    parameters = first.kernel.parameters.copy()
    parameters[0] += np.log(level)
    model, of_folds = conditioned(
        SumKernel(parameters), data._replace(factors=factors), folds, first.inducing
    )
    if len(data.inputs) <= MAX_REFITTED:  # those before have kernels of their own
        of_folds = list(left_out)
    varied = [
        part._replace(middle=model.kernel.noise * factors[fold], spread=spread)
        for part, fold in zip(of_folds, folds, strict=True)
    ]
    mean = scale * noise.mean
    return replace(model, noise_kernel=noise_kernel, noise_mean=mean, spread=spread), varied


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


def _posterior(products: np.ndarray, projections: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The factor of B, and m; overwrites the products."""
    products[np.diag_indices_from(products)] += 1
    factor, _ = lapack.dpotrf(products.T, lower=1, clean=1, overwrite_a=1)
    return factor, cho_solve((factor, True), projections)


def _packed(factor: np.ndarray) -> np.ndarray:
    return factor[np.tri(len(factor), dtype=bool)]
