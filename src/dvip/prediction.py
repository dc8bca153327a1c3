"""From a trained network to numbers, in pieces of a fixed number of rows.

Memory is bounded whatever the number of rows, and one compiled shape serves every call.
"""

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from dvip.likelihoods import Classification, Likelihood
from dvip.network import DeepNetwork, SampleNoise
from dvip.objectives import DeepModel, Ensemble
from dvip.runtime import precision, random_key
from dvip.sampled import ChosenSamples, SampledModel, SampledNetwork

__all__ = [
    "FunctionDraws",
    "Model",
    "class_probabilities",
    "draw_functions",
    "members_of",
    "moments",
    "sample_noises",
]

LikelihoodOf = TypeVar("LikelihoodOf", bound=Likelihood)
# What can predict: a network and a likelihood, trained or sampled, and what its samples differ by.
Model = DeepModel[LikelihoodOf] | SampledModel[LikelihoodOf]
Network = DeepNetwork | SampledNetwork
Noise = SampleNoise | ChosenSamples

# Row-samples (rows times propagated samples) that one compiled call handles: its arrays then stay
# in a core's cache. Measured on 10,000 rows: 3,200 take a third of the time of 12,800.
MAX_ROW_SAMPLES = 3_200
MAX_ROWS = 1_024
# Pieces that wait for whoever uses them, for each thread: none is to wait for work, nor all rows in
# memory.
PIECES_AHEAD = 16
# With more units in a layer than these, or more numbers of inputs, a call takes fewer rows: its
# memory stays the same.
MANY_UNITS, MAX_INPUT_NUMBERS = 64, 2**22


def members_of(
    model: Model[LikelihoodOf] | Ensemble[LikelihoodOf],
) -> tuple[Model[LikelihoodOf], ...]:
    """The members of an ensemble; a model alone is the only one."""
    return model.members if isinstance(model, Ensemble) else (model,)


def rows_at_once(num_samples: int, num_units: int = 1, num_inputs: int = 1) -> int:
    """How many rows a compiled call takes with that many samples of each, in that many units."""
    per_row = num_samples * max(num_units, MANY_UNITS) // MANY_UNITS
    return max(1, min(MAX_ROWS, MAX_ROW_SAMPLES // per_row, MAX_INPUT_NUMBERS // num_inputs))


def sample_noises(models: Sequence[Model], num_samples: int, seeds: Sequence[int]) -> list[Noise]:
    """The noise of `num_samples` propagated samples, which the members share.

    All rows share it. Each row's mixture is what independent draws would give, and the prediction
    for a row does not depend on the rows that happen to be asked for with it.
    """
    if not (isinstance(num_samples, int | np.integer) and num_samples >= 1):
        raise ValueError(
            f"n_predictive_samples={num_samples!r} must be a whole number of at least 1."
        )
    of_each = -(-int(num_samples) // len(models))
    return [
        model.network.draw_sample_noise(random_key(seed), of_each)
        for model, seed in zip(models, seeds, strict=True)
    ]


def in_pieces(
    function: Callable[[Array], PyTree],
    inputs: np.ndarray,
    network: Network,
    num_samples: int,
) -> Iterator[PyTree]:
    """`function` of each piece of the rows, in order, on all cores; the last is padded.

    No more are computed than there are cores until the first of them is taken.
    """
    num_units = max(stage.num_units for stage in network.stages)
    rows = rows_at_once(num_samples, num_units, max(1, inputs.shape[1]))

    def evaluate(start: int) -> PyTree:
        piece = inputs[start : start + rows]
        missing = rows - len(piece)
        if missing:
            # A table of no rows goes the same way, and comes out with no rows.
            filling = piece[-1:] if len(piece) else np.zeros((1, *inputs.shape[1:]), inputs.dtype)
            padded = np.concatenate([piece, np.repeat(filling, missing, axis=0)])
        else:
            padded = piece
        with precision(inputs.dtype):  # threads do not inherit it
            results = function(jax.device_put(padded))
        return jax.tree.map(lambda array: np.asarray(array)[..., : len(piece)], results)

    starts = range(0, max(1, len(inputs)), rows)
    if len(starts) == 1:
        yield evaluate(0)
        return
    num_threads = os.cpu_count() or 1
    with ThreadPoolExecutor(num_threads) as threads:
        pending: deque[Future] = deque()
        try:
            for start in starts:
                if len(pending) >= PIECES_AHEAD * num_threads:
                    yield pending.popleft().result()
                pending.append(threads.submit(evaluate, start))
            while pending:
                yield pending.popleft().result()
        finally:  # whoever asked for them may have had enough
            for future in pending:
                future.cancel()


@eqx.filter_jit
def _moments(
    network: Any, inputs: Float[Array, "rows inputs"], noise: Noise
) -> tuple[Float[Array, "units samples rows"], Float[Array, "units samples rows"]]:
    return network.propagate(inputs.T, noise)


@eqx.filter_jit
def _class_probabilities(
    model: Any, inputs: Float[Array, "rows inputs"], noise: Noise
) -> Float[Array, "classes rows"]:
    return model.class_probabilities(inputs.T, noise)


Moments = tuple[Float[np.ndarray, "units samples rows"], Float[np.ndarray, "units samples rows"]]


def moments(
    models: Sequence[Model],
    inputs: Float[np.ndarray, "rows inputs"],
    noises: Sequence[Noise],
) -> Iterator[list[Moments]]:
    """Of each member, mean and variance of the last layer for each propagated sample, in pieces."""
    pairs = list(zip(models, noises, strict=True))
    return in_pieces(
        lambda piece: [_moments(model.network, piece, noise) for model, noise in pairs],
        inputs,
        models[0].network,
        sum(noise.num_samples for noise in noises),
    )


def class_probabilities(
    models: Sequence[Model[Classification]],
    inputs: Float[np.ndarray, "rows inputs"],
    noises: Sequence[Noise],
) -> Float[np.ndarray, "rows classes"]:
    """Probability of each class, averaged over the propagated samples and the members."""
    pairs = list(zip(models, noises, strict=True))
    pieces = in_pieces(
        lambda piece: [_class_probabilities(model, piece, noise) for model, noise in pairs],
        inputs,
        models[0].network,
        sum(noise.num_samples for noise in noises),
    )
    return np.concatenate([sum(members[1:], members[0]).T / len(pairs) for members in pieces])


class FunctionDraws(eqx.Module):
    """Whole functions from the posterior: the same functions at any inputs, call after call."""

    network: Network
    functions: PyTree[Array]
    num_functions: int = eqx.field(static=True)

    @eqx.filter_jit
    def _evaluate(
        self, inputs: Float[Array, "rows inputs"]
    ) -> Float[Array, "functions units rows"]:
        return jax.vmap(lambda function: self.network.evaluate(function, inputs.T))(self.functions)

    @eqx.filter_jit
    def _gradient(
        self, inputs: Float[Array, "rows inputs"]
    ) -> Float[Array, "functions units inputs rows"]:
        units = jnp.arange(self.network.stages[-1].num_units)

        def of_unit(function: PyTree[Array], unit: Array) -> Float[Array, "inputs rows"]:
            # A row's value depends on no other row: the gradient of their sum is that of each.
            return jax.grad(lambda columns: self.network.evaluate(function, columns)[unit].sum())(
                inputs.T
            )

        of_units = jax.vmap(of_unit, in_axes=(None, 0))
        return jax.vmap(of_units, in_axes=(0, None))(self.functions, units)

    def __call__(
        self, inputs: Float[np.ndarray, "rows inputs"]
    ) -> Float[np.ndarray, "functions rows units"]:
        """Values of each function's units at these (scaled) inputs."""
        pieces = in_pieces(self._evaluate, inputs, self.network, self.num_functions)
        return np.moveaxis(np.concatenate(list(pieces), axis=-1), 1, 2)

    def gradient(
        self, inputs: Float[np.ndarray, "rows inputs"]
    ) -> Float[np.ndarray, "functions rows units inputs"]:
        """The derivatives of these values by the inputs."""
        number = self.num_functions * self.network.stages[-1].num_units
        pieces = in_pieces(self._gradient, inputs, self.network, number)
        return np.moveaxis(np.concatenate(list(pieces), axis=-1), 3, 1)


def draw_functions(network: Network, num_functions: int, seed: int) -> FunctionDraws:
    """`num_functions` draws of the whole network from its posterior."""
    functions = network.draw_functions(random_key(seed), num_functions)
    return FunctionDraws(network, functions, num_functions)
