"""Where functions are compared: the measurement points of functional inference.

The KL between distributions of functions is the largest over all finite sets of points. At a few
points S it is far too small beside the data fit of all rows X, and a network over-fits; N / |S|
times as much (Sun et al. 2019, whose λ is 1 / |S| for each row) is far too large, as rows tell much
of each other, and a network under-fits. How much too small it is can be computed of a Gaussian
process: with kernel k, noise Σ, A = (K_XX + Σ)⁻¹ and, as in all of functional inference, a little
noise γ² besides, its exact posterior has

    KL_S = KL(N(K_SX A y, K_SS - K_SX A K_XS + γ²I) | N(0, K_SS + γ²I)),

and w = KL_X / E_S[KL_S] is how many times too small the KL at points is. Where there are many
rows N, that of n of them is extrapolated. It grows with every doubling of their number, the more
slowly the more there are, as rows tell ever more of each other: with g_1, g_2 and g_3 the growths
of log₂ w from n/8 to n/4, to n/2, to n, and r = (g_3 / g_1)^½,

    log₂ w_N = log₂ w_n + Σ_{k ≤ K} g_3 r^k,    K = log₂(N/n).

(Of four tables of the arena, with fitted kernels and those of networks, 1,000 rows tell w of 4,000
within -29 and +13 %.)

Where the process is all that is known, the mean over targets of its own will do: the KL is then
what the rows tell of the values there, half the difference of the log-determinants.

All methods have twice this weight, or 1 if that is more; functional BNNs and FVI with the kernel
that has the largest marginal likelihood. The 2 was chosen for functional BNNs on eight small parts
of tables: networks with independent weights come out too sure of themselves with 1, on some of
these tables by far (mean NLL 1.14; with 2 and with 3 it is 0.14).
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray
from scipy.linalg import cho_solve, cholesky
from threadpoolctl import threadpool_limits

from dvip.batches import Batch
from dvip.estimators.builder import check_count
from dvip.estimators.priors import ImplicitProcessEstimator, Prior
from dvip.likelihoods import Likelihood
from dvip.likelihoods.gaussian import Gaussian
from dvip.neighbours.fitted_gp import FITTED, NOISE, FittedGP, GuardedGaussian
from dvip.neighbours.frame import NetworkEstimator
from dvip.parameters import Fixed
from dvip.processes.simulator import simulators_of
from dvip.sum_kernel import JITTER, SMOOTH_FUNCTION, GPData, SumKernel, fitted_kernel
from dvip.training import CheckpointFolder, Data

__all__ = [
    "CAUTION",
    "ExactPosterior",
    "MeasuredEstimator",
    "MeasurementPoints",
    "growth",
    "kl_weight",
    "one_thread",
]

# How far the box of points goes beyond the training inputs, as a share of their range.
MARGIN = 0.1
# Training rows that are kept to have points near them where there is no batch.
NUM_KEPT = 200
# Of the weight of the KL: rows at most, sets of points, and how many times what an exact posterior
# asks for.
NUM_WEIGHED, NUM_SETS = 1_000, 8
CAUTION = 2.0


def box_around(
    inputs: Float[np.ndarray, "rows inputs"], margin: float = 0.0
) -> Float[np.ndarray, "2 inputs"]:
    """The smallest and the largest of each input, with a margin as a share of its range."""
    lowest, highest = inputs.min(axis=0), inputs.max(axis=0)
    added = margin * (highest - lowest)
    return np.stack([lowest - added, highest + added])


def points_in_box(
    key: PRNGKeyArray, box: Float[Array, "2 inputs"], number: int
) -> Float[Array, "inputs points"]:
    """Points that are uniform in a box."""
    lowest, highest = box[:, :, None]
    return lowest + (highest - lowest) * jax.random.uniform(
        key, (len(lowest), number), lowest.dtype
    )


Points = Float[np.ndarray, "points inputs"]


class ExactPosterior:
    """That of a Gaussian process, given rows with some noise: what its KL at some points is."""

    def __init__(
        self,
        kernel: Callable[[Points, Points], np.ndarray],
        inputs: Points,
        noise: float | Float[np.ndarray, " points"],
        targets: Float[np.ndarray, "points outputs"] | None = None,
    ):
        self.kernel, self.inputs = kernel, inputs
        self.factor = _factor(kernel(inputs, inputs), noise)
        self.solved = None if targets is None else cho_solve((self.factor, True), targets)

    def kl(self, points: Points) -> float:
        """KL_S, the mean over the outputs, or over all targets that the process may have."""
        prior, cross = self.kernel(points, points), self.kernel(points, self.inputs)
        posterior = prior - cross @ cho_solve((self.factor, True), cross.T)
        of_prior, of_posterior = (_factor(each, NOISE**2) for each in (prior, posterior))
        ratio = np.sum(np.log(np.diag(of_prior)) - np.log(np.diag(of_posterior)))
        if self.solved is None:  # the rest is zero on average
            return float(ratio)
        mean = cross @ self.solved
        trace = np.trace(cho_solve((of_prior, True), of_posterior @ of_posterior.T))
        square = np.mean(np.sum(mean * cho_solve((of_prior, True), mean), axis=0))
        return float(0.5 * (trace - len(points) + square) + ratio)


def _factor(covariance: np.ndarray, noise: Any) -> np.ndarray:
    """The Cholesky factor with this noise on the diagonal."""
    with_noise, diagonal = covariance.copy(), np.diag_indices_from(covariance)
    with_noise[diagonal] += noise + JITTER * np.mean(covariance[diagonal])
    return cholesky(with_noise, lower=True)


def kl_weight(
    posterior: Callable[[Int[np.ndarray, " chosen"]], ExactPosterior],
    inputs: Points,
    numbers: Sequence[int],
    num_rows: int,
) -> float:
    """How many times too small the KL is at so many rows and points in the box.

    `posterior` is that given some of the rows with these inputs; there are `num_rows` in all.
    """
    random = np.random.default_rng(0)
    order = random.permutation(len(inputs))[:NUM_WEIGHED]
    inputs, number = inputs[order], len(order)
    lowest, highest = box_around(inputs, MARGIN)
    covering = random.uniform(lowest, highest, (NUM_SETS, int(numbers[1]), inputs.shape[1]))

    def weight(of: int) -> float:
        exact, rows = posterior(order[:of]), inputs[:of]
        of_sets = [
            exact.kl(np.concatenate([random.permutation(rows)[: int(numbers[0])], points]))
            for points in covering
        ]
        return float(exact.kl(rows) / np.mean(of_sets))

    if not num_rows > number >= 8:
        return weight(number)
    weights = [weight(number // parts) for parts in (8, 4, 2, 1)]
    return weights[-1] * growth(weights, np.log2(num_rows / number))


def growth(of_rows: Sequence[float], doublings: float) -> float:
    """By what a number grows that an eighth, a quarter and half of some rows have, and all."""
    first, _, last = np.clip(np.diff(np.log2(np.maximum(of_rows, 1e-12))), 0, 1)
    if last == 0:
        return 1.0
    log_ratio = min(0.5 * np.log(last / max(first, last)), -1e-9)
    # Σ_{k ≤ K} r^k, which is defined for all K.
    steps = np.exp(log_ratio) * np.expm1(log_ratio * doublings) / np.expm1(log_ratio)
    return float(2 ** (last * steps))


class MeasurementPoints(eqx.Module):
    """Rows of a batch, or of the training, and points that cover the inputs evenly."""

    box: Fixed  # the smallest and the largest of each input
    kept: Fixed  # some rows
    weight: Fixed  # of the KL at these points
    num_rows: int = eqx.field(static=True)
    num_covering: int = eqx.field(static=True)

    @classmethod
    def create(
        cls,
        inputs: Float[np.ndarray, "rows inputs"],
        numbers: Sequence[int],
        weight: float,
        key: PRNGKeyArray,
    ) -> "MeasurementPoints":
        """Around these inputs."""
        kept = jax.random.choice(key, len(inputs), (NUM_KEPT,))
        return cls(
            Fixed(jnp.asarray(box_around(inputs, MARGIN))),
            Fixed(jnp.asarray(inputs)[kept].T),
            Fixed(jnp.asarray(weight, inputs.dtype)),
            int(numbers[0]),
            int(numbers[1]),
        )

    def __call__(
        self, key: PRNGKeyArray, inputs: Float[Array, "inputs batch"] | None = None
    ) -> Float[Array, "inputs points"]:
        """The first rows of a batch, which is in random order, or kept ones; then the others."""
        row_key, box_key = jax.random.split(key)
        covering = points_in_box(box_key, self.box.value, self.num_covering)
        if inputs is None:
            chosen = jax.random.choice(row_key, NUM_KEPT, (self.num_rows,))
            inputs = self.kept.value[:, chosen]
        return jnp.hstack([inputs[:, : self.num_rows], covering])


class MeasuredEstimator(NetworkEstimator, ImplicitProcessEstimator):
    """What functional inference has as parameters besides a network."""

    prior: Prior
    n_functions: int
    n_points: tuple[int, int]

    # What else estimators with implicit processes have as parameters.
    n_prior_samples: int | None = None
    n_inducing: int | None = None
    shared_prior: bool | None = True
    fresh_noise: bool = False

    # Rows that are looked at before a model is made; the kernel that fits them, the weight of the
    # KL and the number of all rows, until the model has what it needs of them.
    _num_looked_at: ClassVar[int] = 1_000
    _kernel: SumKernel | None = None
    _kl_weight: float = 1.0
    _num_rows: int = 0

    def check_parameters(self) -> None:
        """Raises an error, which says what to do, unless the parameters make sense."""
        super().check_parameters()
        given: Any = self.n_points
        if isinstance(given, str) or not isinstance(given, Sequence) or len(given) != 2:
            raise ValueError(
                f"n_points={given!r}: give two numbers, of rows and of points that cover the "
                "inputs, such as (20, 10)."
            )
        check_count("n_points", given[0])
        if given[1] != 0:
            check_count("n_points", given[1])
        check_count("n_functions", self.n_functions)
        process = self._input_process()
        if process.structured or simulators_of(process):
            raise ValueError(
                f"prior={self.prior!r} has no functions at points between the rows, or reads "
                "images or sequences: use another."
            )

    def _look_at(self, rows: Batch, num_rows: int) -> None:
        """Fits a kernel to some of the rows by their marginal likelihood, and weighs the KL.

        The kernel is smooth: a rough one explains noise by functions, which networks then follow.
        """
        self._kernel, self._kl_weight, self._num_rows = None, 1.0, num_rows
        counted = np.asarray(rows.weights) > 0
        if not counted.any():
            return
        inputs, targets, weights = (np.asarray(part, dtype=float)[counted] for part in rows)
        targets, errors = np.split(targets, [self._num_outputs], axis=1)
        known = np.mean(np.square(errors), axis=1) if errors.shape[1] else None
        data = GPData(inputs, self._on_unit_scale(targets), weights, known)
        kernel = fitted_kernel(data, np.arange(len(inputs)), SMOOTH_FUNCTION)

        def posterior(chosen: Int[np.ndarray, " chosen"]) -> ExactPosterior:
            some = data.chosen(chosen)
            return ExactPosterior(kernel, some.inputs, some.noise(kernel.noise), some.targets)

        weight = kl_weight(posterior, inputs, self.n_points, num_rows)
        self._kernel, self._kl_weight = kernel, max(1.0, CAUTION * weight)

    def _on_unit_scale(self, targets: np.ndarray) -> np.ndarray:
        """Targets as the units are to be: around 0, with a variance of 1."""
        return (targets - targets.mean(axis=0)) / np.maximum(targets.std(axis=0), 1e-6)

    def _train_on(
        self, data: Data, inputs: np.ndarray, checkpoints: CheckpointFolder | None = None
    ) -> None:
        # With the same seed the same rows: also when a training is resumed.
        rows: Any = data  # in memory or streamed
        sample = rows.rows(self.seed_, 0, min(self._num_looked_at, data.num_rows))
        with one_thread():
            self._look_at(sample, data.num_rows)
            super()._train_on(data, inputs, checkpoints)

    def _train_once(self, rows: Batch) -> None:
        with one_thread():
            if not hasattr(self, "model_"):
                some: Any = [part[: self._num_looked_at] for part in rows]
                self._look_at(Batch(*some), len(rows.inputs))
            super()._train_once(rows)

    @property
    def _fits_prior(self) -> bool:
        return isinstance(self.prior, str) and self.prior == FITTED

    def _fitted_gp(self, inputs: np.ndarray) -> FittedGP:
        """The process of the kernel that was fitted; before there are data, a usual one."""
        kernel = self._kernel or SumKernel.usual(inputs.shape[1], prior=SMOOTH_FUNCTION)
        return FittedGP(jnp.asarray(kernel.parameters.astype(inputs.dtype)))

    def _guarded(self, likelihood: Likelihood) -> Likelihood:
        """Gaussian noise starts where the fitted process has it, and is kept from less."""
        if type(likelihood) is not Gaussian:
            return likelihood
        return GuardedGaussian.of(likelihood, self._kernel, self._num_rows)

    def _points(self, inputs: np.ndarray, key: PRNGKeyArray) -> MeasurementPoints:
        return MeasurementPoints.create(inputs, self.n_points, self._kl_weight, key)


def one_thread() -> threadpool_limits:
    """Factors of small matrices take ten times as long where threads wait for each other."""
    return threadpool_limits(1, user_api="blas")
