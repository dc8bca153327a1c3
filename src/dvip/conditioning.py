"""The posterior of the last layer given further rows, in closed form.

The units of the last layer are linear in their coefficients, f_h(x) = φ(x)ᵀ a_h + m*(x) with
q(a_h) = N(m_h, S_h), and y = f + noise of variance σ². Given all before the last layer, and where
q was the best for the rows before, the bound of all rows is largest with

    S'⁻¹    = S⁻¹   + Σ_n w_n E[φ_n φ_nᵀ / σ²],
    S'⁻¹ m' = S⁻¹ m + Σ_n w_n E[φ_n (y_n - m*_n) / σ²],

with the sums over the further rows and expectations over samples that are sent through the inner
layers. In one layer nothing is sampled, and this is Bayesian linear regression. Noise that is
Gaussian given a factor, such as Student's t, has the expectation of 1 / σ² given q(f), which is
computed with the new posterior, a few times.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.linalg import cholesky, solve_triangular
from threadpoolctl import threadpool_limits

from dvip.batches import Batch
from dvip.layers import WhitenedGaussian
from dvip.likelihoods import Regression
from dvip.network import DeepNetwork, SampleNoise
from dvip.objectives import DeepModel
from dvip.prediction import in_pieces

__all__ = ["conditioned", "why_not_conditioned"]

# Numbers that are kept from one round to the next.
MAX_NUMBERS = 2**24

Coefficients = Float[np.ndarray, "units coefficients"]
Matrices = Float[np.ndarray, "units coefficients coefficients"]


def why_not_conditioned(model: Any) -> str | None:
    """Why a model cannot take in rows in closed form; nothing if it can."""
    if not isinstance(model, DeepModel):
        return "its posterior is sampled, and other rows make other samples"
    likelihood, layer = model.likelihood, model.network.stages[-1].layer
    if not getattr(likelihood, "conjugate", False):
        return f"{type(likelihood).__name__} is not Gaussian noise, or a mixture of such"
    # All such layers are linear in their coefficients and tell their `features`.
    if not isinstance(getattr(layer, "posterior", None), WhitenedGaussian):
        return f"the posterior of a {type(layer).__name__} is not Gaussian"
    return None


def conditioned(
    model: DeepModel[Regression], rows: Batch, noise: SampleNoise
) -> DeepModel[Regression]:
    """The model given further rows, which are scaled; all but its last layer stays as it is."""
    with threadpool_limits(1, user_api="blas"):  # several would wait for each other
        return _conditioned(model, rows, noise)


def _conditioned(
    model: DeepModel[Regression], rows: Batch, noise: SampleNoise
) -> DeepModel[Regression]:
    layer: Any = model.network.stages[-1].layer
    before = layer.posterior
    mean, factor = (np.asarray(part, dtype=float) for part in (before.mean, before.factor))
    inverse = _inverses(factor)
    precision = np.swapaxes(inverse, 1, 2) @ inverse
    natural = np.matmul(precision, mean[..., None])[..., 0]
    terms = _pieces(model, rows, noise)
    for _ in range(model.likelihood.num_rounds):
        products, projections = _sums(terms(), model.likelihood, mean, factor)
        mean, factor = _posterior(precision + products, natural + projections)
    posterior = WhitenedGaussian.of_moments(mean, factor, before.q.dtype)
    return eqx.tree_at(lambda tree: tree.network.stages[-1].layer.posterior, model, posterior)


class _Terms(NamedTuple):
    """Some rows, and what their values are made of in each propagated sample.

    f = φᵀ a + m*, with a variance that a does not explain; units may share all of it.
    """

    targets: Float[np.ndarray, "targets_and_errors rows"]
    weights: Float[np.ndarray, " rows"]
    prior_mean: Float[np.ndarray, "outputs samples rows"]
    features: Float[np.ndarray, "outputs coefficients samples rows"]
    unexplained: Float[np.ndarray, "outputs samples rows"]


def _pieces(
    model: DeepModel[Regression], rows: Batch, noise: SampleNoise
) -> Callable[[], Iterable[_Terms]]:
    """What gives the terms of all rows, piece by piece; computed once where they are few."""
    targets, weights = (np.asarray(part, dtype=float) for part in (rows.targets, rows.weights))

    def computed() -> Iterator[_Terms]:
        done = 0
        pieces = in_pieces(
            lambda piece: _terms(model.network, piece, noise),
            np.asarray(rows.inputs),
            model.network,
            noise.num_samples,
        )
        for piece in pieces:
            arrays = [np.asarray(part, dtype=float) for part in piece]
            some = slice(done, done + arrays[0].shape[-1])
            done = some.stop
            yield _Terms(targets[some].T, weights[some], *arrays)

    layer: Any = model.network.stages[-1].layer
    numbers = layer.posterior.mean.size * noise.num_samples * len(weights)
    if numbers > MAX_NUMBERS or model.likelihood.num_rounds == 1:
        return computed
    kept = list(computed())
    return lambda: kept


def _inverses(factors: Matrices) -> Matrices:
    identity = np.eye(factors.shape[1])
    return np.stack([solve_triangular(factor, identity, lower=True) for factor in factors])


def _posterior(precision: Matrices, natural: Coefficients) -> tuple[Coefficients, Matrices]:
    """Mean and lower factor of the covariance, from the precision and precision times mean.

    In reversed order the precision is G Gᵀ, in its own U Uᵀ with U upper triangular: the factor is
    U⁻ᵀ, without a covariance that would have to be factorised.
    """
    upper = [cholesky(matrix[::-1, ::-1], lower=True)[::-1, ::-1] for matrix in precision]
    factor = _inverses(np.stack(upper).swapaxes(1, 2))
    covariance = factor @ factor.swapaxes(1, 2)
    return np.matmul(covariance, natural[..., None])[..., 0], factor


def _sums(
    pieces: Iterable[_Terms], likelihood: Regression, mean: Coefficients, factor: Matrices
) -> tuple[Matrices, Coefficients]:
    """Σ_n w_n E[φφᵀ / σ²] and Σ_n w_n E[φ (y - m*) / σ²] for each unit, in double precision."""
    products, projections = np.zeros_like(factor), np.zeros_like(mean)
    for terms in pieces:
        shape = terms.features.shape[2:]
        columns = terms.features.reshape(*terms.features.shape[:2], -1)
        value = np.matmul(mean[:, None], columns).reshape(len(mean), *shape) + terms.prior_mean
        spread = np.matmul(factor.swapaxes(1, 2), columns)
        variance = np.square(spread).sum(axis=1).reshape(value.shape) + terms.unexplained
        certainty = likelihood.expected_precisions(terms.targets, value, variance)
        certainty = certainty * (terms.weights / shape[0])
        for unit, certain in enumerate(certainty):  # the units of the noise stay as they are
            own = columns[min(unit, len(columns) - 1)]
            missing = terms.targets[unit] - terms.prior_mean[min(unit, len(columns) - 1)]
            weighted = own * certain.ravel()
            products[unit] += weighted @ own.T
            projections[unit] += weighted @ missing.ravel()
    return products, projections


@eqx.filter_jit
def _terms(
    network: DeepNetwork, inputs: Float[Array, "rows inputs"], noise: SampleNoise
) -> tuple[
    Float[Array, "outputs samples rows"],
    Float[Array, "outputs coefficients samples rows"],
    Float[Array, "outputs samples rows"],
]:
    """m*, φ and the variance that the coefficients do not explain, of each propagated sample."""
    last = network.last_inputs(inputs.T, noise)
    layer: Any = network.stages[-1].layer
    prior_mean, features, *others = layer.features(last.reshape(last.shape[0], -1))
    shape = last.shape[1:]
    prior_mean = jnp.broadcast_to(prior_mean, (len(prior_mean), math.prod(shape)))
    unexplained = others[0] if others else jnp.zeros_like(prior_mean)
    return (
        prior_mean.reshape(len(prior_mean), *shape),
        features.reshape(*features.shape[:2], *shape),
        unexplained.reshape(len(unexplained), *shape),
    )
