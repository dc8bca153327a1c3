"""The spectral Stein gradient estimator: ∇ log q from samples of q alone.

Shi, Sun and Zhu 2018. With a kernel k, its Gram matrix K of the samples x_1, ..., x_S and the
eigenvectors u_j and eigenvalues λ_j of K, the eigenfunctions of k under q are about

    ψ_j(x) = √S / λ_j Σ_s u_js k(x, x_s).

They are a basis for functions of x: ∇ log q(x) = Σ_j β_j ψ_j(x), and by Stein's identity
β_j = -E_q[∇ψ_j]. With the mean over the samples in place of E_q all this is

    ∇ log q(x) ≈ Σ_j λ_j⁻² (Σ_s k(x, x_s) u_js) (Σ_s u_js g_s),   g_s = -Σ_t ∇k(x_t, x_s).

The kernel is exp(-‖x - y‖² / 2h²) with the median distance of the samples as h. Small eigenvalues
are noise: the sum is over the largest, which make up a share of the trace of K.

One width for all directions sees nothing of those in which samples vary little: of the values of a
smooth function at 30 points it finds a sixth of the gradient of their entropy. So values x = f + γε
are made white first, by the mean m and the covariance C of f in its samples,

    v = W (x - m),   W (C + γ²I) Wᵀ = I,   ∇ log q(x) = Wᵀ ∇ log q(v).
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from dvip.kernels import squared_distances
from dvip.linear_algebra import inverse_factor

__all__ = ["TRACE_SHARE", "spectral_score", "whitened_score"]

# Of the trace of the Gram matrix, what the eigenvalues that are used make up.
TRACE_SHARE = 0.99


def spectral_score(
    samples: Float[Array, "samples values"],
    at: Float[Array, "points values"] | None = None,
    share: float = TRACE_SHARE,
) -> Float[Array, "points values"]:
    """An estimate of ∇ log q at some points, by default at the samples of q themselves."""
    points = samples if at is None else at
    squares = squared_distances(samples.T, samples.T)
    num_samples = len(samples)
    # Of each sample and the next: to sort all pairs takes longer than all else. Samples that are
    # all the same have the width 1.
    median = jnp.median(jnp.diagonal(jnp.roll(squares, 1, axis=0)))
    width = jnp.where(median > 0, median, 1.0)
    gram = jnp.exp(-0.5 * squares / width)
    values, vectors = jnp.linalg.eigh(gram)
    # From the largest on, those whose predecessors have less than the share of the trace.
    descending = values[::-1]
    before = jnp.cumsum(descending) - descending
    used = (before < share * num_samples)[::-1] & (values > 0)
    inverse = jnp.where(used, 1 / jnp.where(used, values, 1.0), 0.0)
    pulls = (gram @ samples - jnp.sum(gram, axis=1, keepdims=True) * samples) / width
    weights = vectors * inverse
    if at is None:  # K u_j = λ_j u_j
        return vectors @ (weights.T @ pulls)
    between = jnp.exp(-0.5 * squared_distances(points.T, samples.T) / width)
    return (between @ weights) @ (weights.T @ pulls)


def whitened_score(
    clean: Float[Array, "samples values"],
    white: Float[Array, "samples values"],
    noise: float,
    at: Float[Array, "points values"] | None = None,
) -> Float[Array, "points values"]:
    """∇ log q of clean samples with this noise times white one; by the spectral score of v."""
    mean = jnp.mean(clean, axis=0)
    centred = clean - mean
    covariance = centred.T @ centred / (len(clean) - 1)
    whitening, _ = inverse_factor(covariance + noise**2 * jnp.eye(len(mean), dtype=mean.dtype))
    samples = (centred + noise * white) @ whitening.T
    points = None if at is None else (at - mean) @ whitening.T
    return spectral_score(samples, points) @ whitening
