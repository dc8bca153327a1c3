"""The posterior of the last layer given further rows, in closed form.

The units of the last layer are linear in their coefficients, f_h(x) = φ(x)ᵀ a_h + m*(x) with
q(a_h) = N(m_h, S_h), and y = f + noise of variance σ². Given all before the last layer, the bound
of all rows is largest where

    S'⁻¹    = S⁻¹   + Σ_n w_n E[φ_n φ_nᵀ / σ²],
    S'⁻¹ m' = S⁻¹ m + Σ_n w_n E[φ_n (y_n - m*_n) / σ²],

with the sums over the further rows and expectations over samples that are sent through the inner
layers. In one layer nothing is sampled, and this is Bayesian linear regression. Noise that is
Gaussian given a factor, such as Student's t, has the expectation of 1 / σ² given q(f), which is
computed with the new posterior, a few times.
"""

import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.linalg import cholesky, solve_triangular

from dvip.batches import Batch
from dvip.layers import SparseGPLayer, VIPLayer, WhitenedGaussian
from dvip.likelihoods import Regression
from dvip.network import DeepNetwork, SampleNoise
from dvip.objectives import DeepModel
from dvip.prediction import in_pieces

__all__ = ["conditioned", "why_not_conditioned"]

Coefficients = Float[np.ndarray, "units coefficients"]
Matrices = Float[np.ndarray, "units coefficients coefficients"]


def why_not_conditioned(model: Any) -> str | None:
    """Why a model cannot take in rows in closed form; nothing if it can."""
    if not isinstance(model, DeepModel):
        return "its posterior is sampled, and other rows make other samples"
    likelihood, layer = model.likelihood, model.network.stages[-1].layer
    if not getattr(likelihood, "conjugate", False):
        return f"{type(likelihood).__name__} is not Gaussian noise, or a mixture of such"
    if not isinstance(layer, VIPLayer | SparseGPLayer):
        return f"the posterior of a {type(layer).__name__} is not Gaussian"
    return None


def conditioned(
    model: DeepModel[Regression], rows: Batch, noise: SampleNoise
) -> DeepModel[Regression]:
    """The model given further rows, which are scaled; all but its last layer stays as it is."""
    layer: Any = model.network.stages[-1].layer
    before = layer.posterior
    mean, factor = (np.asarray(part, dtype=float) for part in (before.mean, before.factor))
    inverse = _inverses(factor)
    precision = np.swapaxes(inverse, 1, 2) @ inverse
    natural = np.matmul(precision, mean[..., None])[..., 0]
    for _ in range(model.likelihood.num_rounds):
        products, projections = _sums(model, rows, noise, mean, factor)
        mean, factor = _posterior(precision + products, natural + projections)
    posterior = WhitenedGaussian.of_moments(mean, factor, before.q.dtype)
    return eqx.tree_at(lambda tree: tree.network.stages[-1].layer.posterior, model, posterior)


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
    model: DeepModel[Regression],
    rows: Batch,
    noise: SampleNoise,
    mean: Coefficients,
    factor: Matrices,
) -> tuple[Matrices, Coefficients]:
    """Σ_n w_n E[φφᵀ / σ²] and Σ_n w_n E[φ (y - m*) / σ²] for each unit, in double precision."""
    products, projections, done = np.zeros_like(factor), np.zeros_like(mean), 0
    pieces = in_pieces(
        lambda piece: _terms(model.network, piece, noise),
        np.asarray(rows.inputs),
        model.network,
        noise.num_samples,
    )
    for piece in pieces:
        prior_mean, features, unexplained = (np.asarray(part, dtype=float) for part in piece)
        number = features.shape[-1]
        targets = np.asarray(rows.targets[done : done + number], dtype=float).T
        weights = np.asarray(rows.weights[done : done + number], dtype=float)
        done += number
        value = np.einsum("hs,hsrn->hrn", mean, _for_each(features, mean)) + prior_mean
        spread = np.einsum("hst,hsrn->htrn", factor, _for_each(features, mean))
        variance = np.square(spread).sum(axis=1) + unexplained
        certainty = model.likelihood.expected_precisions(targets, value, variance)
        certainty = certainty * weights / features.shape[2]
        for unit, certain in enumerate(certainty):  # the units of the noise stay as they are
            own = features[min(unit, len(features) - 1)].reshape(features.shape[1], -1)
            weighted = own * certain.ravel()
            missing = targets[unit] - prior_mean[min(unit, len(prior_mean) - 1)]
            products[unit] += weighted @ own.T
            projections[unit] += weighted @ missing.ravel()
    return products, projections


def _for_each(features: np.ndarray, mean: Coefficients) -> np.ndarray:
    """Features with an axis of units, which may share them."""
    return np.broadcast_to(features, (len(mean), *features.shape[1:]))


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
