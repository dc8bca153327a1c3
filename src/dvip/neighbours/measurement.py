"""Where functions are compared: the measurement points of functional inference.

The KL between distributions of functions is the largest over all finite sets of points. At a few
points it is far too small beside the data fit of all rows, and a network over-fits. So it is
multiplied by w = N / M_rows, with M_rows the rows among the points and N all rows: as the data fit
of a batch, the KL of some rows stands for all (Sun et al. 2019 do the same, with λ = 1 / |D_s| in
their bound for each row). For N ≤ M_rows it counts once.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from threadpoolctl import threadpool_limits

from dvip.batches import Batch
from dvip.estimators.builder import check_count
from dvip.estimators.priors import ImplicitProcessEstimator, Prior
from dvip.neighbours.frame import NetworkEstimator
from dvip.parameters import Fixed
from dvip.processes.simulator import simulators_of
from dvip.training import CheckpointFolder, Data

__all__ = ["MeasuredEstimator", "MeasurementPoints"]

# How far the box of points goes beyond the training inputs, as a share of their range.
MARGIN = 0.1
# Training rows that are kept to have points near them where there is no batch.
NUM_KEPT = 200


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
        lowest, highest = inputs.min(axis=0), inputs.max(axis=0)
        margin = MARGIN * (highest - lowest)
        kept = jax.random.choice(key, len(inputs), (NUM_KEPT,))
        return cls(
            Fixed(jnp.asarray(np.stack([lowest - margin, highest + margin]))),
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
        lowest, highest = self.box.value[..., None]
        shape = (len(lowest), self.num_covering)
        covering = lowest + (highest - lowest) * jax.random.uniform(box_key, shape, lowest.dtype)
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

    # Rows that are looked at before a model is made; the weight of the KL, until the model has it.
    _num_looked_at: ClassVar[int] = 1_000
    _kl_weight: float = 1.0

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
        if self.n_functions < 2:
            raise ValueError("n_functions=1: one function tells nothing of others, use 2 or more.")
        process = self._input_process()
        if process.structured or simulators_of(process):
            raise ValueError(
                f"prior={self.prior!r} has no functions at points between the rows, or reads "
                "images or sequences: use another."
            )

    def _look_at(self, rows: Batch, num_rows: int) -> None:
        """What is noted of the rows before a model is made: their number."""
        del rows
        self._kl_weight = max(1.0, num_rows / int(self.n_points[0]))

    def _train_on(
        self, data: Data, inputs: np.ndarray, checkpoints: CheckpointFolder | None = None
    ) -> None:
        # With the same seed the same rows: also when a training is resumed.
        rows: Any = data  # in memory or streamed
        sample = rows.rows(self.seed_, 0, min(self._num_looked_at, data.num_rows))
        self._look_at(sample, data.num_rows)
        with _one_thread():
            super()._train_on(data, inputs, checkpoints)

    def _train_once(self, rows: Batch) -> None:
        if not hasattr(self, "model_"):
            some: Any = [part[: self._num_looked_at] for part in rows]
            self._look_at(Batch(*some), len(rows.inputs))
        with _one_thread():
            super()._train_once(rows)

    def _points(self, inputs: np.ndarray, key: PRNGKeyArray) -> MeasurementPoints:
        return MeasurementPoints.create(inputs, self.n_points, self._kl_weight, key)


def _one_thread() -> threadpool_limits:
    """Factors of small matrices take ten times as long where threads wait for each other."""
    return threadpool_limits(1, user_api="blas")
