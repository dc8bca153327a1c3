"""Sparse GPs: kernels, whitening, the layer's moments, and scikit-learn's exact GP."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples import (
    assert_gradient,
    empirical_kernel,
    make_sparse_layer,
    perturbed,
    random_key,
    rbf_kernel,
)
from scipy.linalg import solve_triangular
from scipy.stats import multivariate_normal
from sklearn.gaussian_process import GaussianProcessRegressor, kernels

from dvip import BayesianNeuralNetwork, Gaussian
from dvip.batches import Batch
from dvip.kernels import RBF, squared_distances
from dvip.layers import SparseGPLayer
from dvip.layers.layer import WhitenedGaussian
from dvip.layers.sparse_gp import MAX_ROWS, initial_inducing_points
from dvip.linear_algebra import inverse_factor
from dvip.network import DeepNetwork, Stage
from dvip.objectives import DeepModel, bound
from dvip.parameters import split_trainable
from dvip.processes import PerUnit
from dvip.runtime import precision

pytestmark = pytest.mark.usefixtures("double")

RANDOM = np.random.default_rng(0)
INPUTS, POINTS = RANDOM.normal(size=(3, 7)), RANDOM.normal(size=(3, 5))
NETWORK = BayesianNeuralNetwork(hidden=(4,))
VARIANCE, LENGTHSCALES, NOISE = 1.7, np.array([0.5, 1.0, 2.0]), 0.1


def single(tree):
    """In single precision; to be used within it."""
    return jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf, np.float32)), tree)


def rbf():
    return RBF(jnp.asarray(np.log(VARIANCE)), jnp.asarray(np.log(LENGTHSCALES)))


SKLEARN_KERNEL = kernels.ConstantKernel(VARIANCE) * kernels.RBF(LENGTHSCALES)


@eqx.filter_jit
def call(function, *arguments):
    return function(*arguments)


@eqx.filter_jit
def marginals(layer, inputs):
    return layer.marginals(inputs)


# Kernels.


def test_squared_distances_and_their_gradient():
    expected = np.square(INPUTS[:, :, None] - POINTS[:, None]).sum(axis=0)
    pair = (jnp.asarray(INPUTS), jnp.asarray(POINTS))
    np.testing.assert_allclose(squared_distances(*pair), expected, rtol=1e-12)
    assert_gradient(lambda pair: jnp.sum(jnp.sin(squared_distances(*pair))), pair)


def test_small_distances_far_from_the_origin_in_single_precision():
    with precision("float32"):
        near, far = jnp.full((3, 1), 1000.0), jnp.full((3, 1), 1000.25)
        np.testing.assert_allclose(squared_distances(near, far), 3 / 16)


def test_rbf_against_scikit_learn():
    covariances = rbf()(jnp.asarray(POINTS), jnp.asarray(INPUTS))
    np.testing.assert_allclose(covariances.inducing[0], SKLEARN_KERNEL(POINTS.T), rtol=1e-12)
    expected = SKLEARN_KERNEL(POINTS.T, INPUTS.T)
    np.testing.assert_allclose(covariances.cross[0], expected, rtol=1e-12)
    np.testing.assert_allclose(covariances.variances[0], SKLEARN_KERNEL.diag(INPUTS.T))
    assert (np.asarray(covariances.mean) == 0).all()


@pytest.mark.parametrize("process", [NETWORK, PerUnit(NETWORK, 2)], ids=["shared", "each"])
def test_empirical_kernel_against_the_samples(process):
    kernel = perturbed(empirical_kernel(process))
    covariances = call(kernel, jnp.asarray(POINTS), jnp.asarray(INPUTS))
    both = jnp.asarray(np.hstack([POINTS, INPUTS]))
    samples = np.asarray(call(kernel.process, kernel.noise.value, both)).reshape(-1, 9, 12)
    assert len(samples) == len(covariances.mean)
    for output, values in enumerate(samples):
        expected = np.cov(values.T, bias=True)
        np.testing.assert_allclose(covariances.inducing[output], expected[:5, :5], atol=1e-12)
        np.testing.assert_allclose(covariances.cross[output], expected[:5, 5:], atol=1e-12)
        np.testing.assert_allclose(covariances.variances[output], np.diag(expected)[5:])
        np.testing.assert_allclose(covariances.mean[output], values.mean(axis=0)[5:])


def _covariance_of_draws(kernel, num_draws=100_000):
    def draw(key):
        return kernel.evaluate(kernel.draw_function(key, 2), jnp.asarray(INPUTS[:, :3]))

    draws = np.asarray(jax.jit(jax.vmap(draw))(jax.random.split(random_key(1), num_draws)))
    assert np.abs(np.corrcoef(draws[:, 0, 0], draws[:, 1, 0])[0, 1]) < 0.02  # units apart
    assert np.abs(draws.mean(axis=0)).max() < 5 * draws.std() / np.sqrt(num_draws)
    return np.cov(draws[:, 1].T)


KERNELS = {"rbf": rbf_kernel, "empirical": lambda: empirical_kernel(NETWORK)}


@pytest.mark.parametrize("make", KERNELS.values(), ids=KERNELS.keys())
def test_prior_draws_have_the_kernel_as_their_covariance(make):
    kernel = make()
    inputs = jnp.asarray(INPUTS[:, :3])
    expected = np.asarray(call(kernel, inputs, inputs).inducing[0])
    scale = np.diag(expected).max()
    np.testing.assert_allclose(_covariance_of_draws(kernel), expected, atol=0.03 * scale)


# Whitening.

COINCIDING = np.ones((20, 20))
# Symmetric, but with an eigenvalue of -1e-3: a covariance with large roundings.
ROUNDED = np.ones((20, 20)) + 1e-3 * np.diag([-1.0] + [1.0] * 19)


@jax.jit
def _factor_and_gradient(matrix):
    factor, backward = jax.vjp(inverse_factor, matrix)
    return factor, backward(jax.tree.map(jnp.ones_like, factor))[0]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize("matrix", [np.eye(20), COINCIDING, ROUNDED], ids=["eye", "one", "rounded"])
def test_whitening_never_fails(matrix, scale, dtype):
    with precision(dtype):
        matrix = jnp.asarray(scale * matrix, dtype)
        (inverse, jitter), gradient = _factor_and_gradient(matrix)
    assert np.isfinite(inverse).all()
    assert np.isfinite(gradient).all()
    assert (np.triu(inverse, 1) == 0).all()
    assert 0 < jitter < 0.02
    whole = np.asarray(matrix, float)
    whole = whole + float(jitter) * np.diag(whole).mean() * np.eye(20)
    whitened = np.asarray(inverse, float) @ whole @ np.asarray(inverse, float).T
    np.testing.assert_allclose(whitened, np.eye(20), atol=2e-2 if dtype == "float32" else 1e-6)


def test_jitter_is_raised_only_where_it_is_needed():
    assert inverse_factor(jnp.asarray(COINCIDING))[1] == 1e-8
    assert 1e-4 < inverse_factor(jnp.asarray(ROUNDED))[1] < 1e-1


def test_gradient_of_whitening():
    root = RANDOM.normal(size=(6, 6))
    weights = RANDOM.normal(size=(6, 6))

    def value(root):
        return jnp.sum(weights * inverse_factor(root @ root.T)[0])

    assert_gradient(value, jnp.asarray(root))


# Where inducing points start.


def test_inducing_points_are_the_centres_of_clusters():
    centres = RANDOM.normal(size=(4, 2)) * 10
    rows = np.repeat(centres, 50, axis=0) + 0.01 * RANDOM.normal(size=(200, 2))
    found = initial_inducing_points(rows, 4).T
    distances = np.linalg.norm(found[:, None] - centres, axis=-1)
    assert sorted(distances.argmin(axis=1)) == [0, 1, 2, 3]
    assert distances.min(axis=1).max() < 0.02


def test_fewer_distinct_rows_than_inducing_points():
    rows = np.repeat(RANDOM.normal(size=(3, 2)), 10, axis=0).astype(np.float32)
    points = initial_inducing_points(rows, 8)
    assert points.shape == (2, 8)
    assert points.dtype == np.float32
    assert len(np.unique(points, axis=1).T) == 8
    distances = np.linalg.norm(points.T[:, None] - np.unique(rows, axis=0), axis=-1)
    assert (distances.min(axis=0) == 0).all()  # every row is a point


def test_many_rows_are_thinned_out():
    rows = RANDOM.normal(size=(MAX_ROWS + 1, 1))
    assert np.array_equal(initial_inducing_points(rows, 3), initial_inducing_points(rows, 3))


# The layer.


@pytest.mark.parametrize("make", KERNELS.values(), ids=KERNELS.keys())
def test_marginals_against_the_formula_of_unwhitened_inducing_values(make):
    """u = m(Z) + C v: E[f] = m + k K^{-1} (E[u] - m(Z)), Var[f] = k - k K^{-1} (K - S) K^{-1} k."""
    layer = make_sparse_layer(make())
    covariances = call(layer.kernel, layer.inducing, jnp.asarray(INPUTS))
    full, cross = np.asarray(covariances.inducing[0]), np.asarray(covariances.cross[0])
    full = full + 1e-8 * np.trace(full) / 6 * np.eye(6)
    root = np.linalg.cholesky(full)
    weights = np.linalg.solve(full, cross)
    mean, variance = marginals(layer, jnp.asarray(INPUTS))
    for unit in range(2):
        inducing_mean = root @ np.asarray(layer.posterior.mean[unit])
        spread = root @ np.asarray(layer.posterior.factor[unit])
        expected = np.asarray(covariances.mean[0]) + weights.T @ inducing_mean
        np.testing.assert_allclose(mean[unit], np.broadcast_to(expected, 7), atol=1e-6)
        explained = np.einsum("mn,mk,kn->n", weights, full - spread @ spread.T, weights)
        expected = np.asarray(covariances.variances[0]) - explained
        np.testing.assert_allclose(variance[unit], expected, atol=1e-6)


def _posterior_of(layer, mean, covariance):
    """The layer with q(v) = N(mean, covariance) for its one unit."""
    factor = np.linalg.cholesky(covariance)
    rows = np.vstack([mean, np.triu(factor.T, 1) + np.diag(np.log(np.diag(factor)))])
    return SparseGPLayer(layer.kernel, layer.inducing, WhitenedGaussian(jnp.asarray(rows[None])))


@eqx.filter_jit
def _features(layer, inputs):
    return layer.features(inputs)[1]


def _optimal(points, inputs, targets):
    """The model whose q(v) is the best one for Gaussian noise, in closed form."""
    layer = SparseGPLayer.create(rbf(), points.T, 1, points.shape[1], q_scale=1.0)
    layer = eqx.tree_at(lambda part: part.inducing, layer, jnp.asarray(points))
    features = np.asarray(_features(layer, jnp.asarray(inputs))[0])
    covariance = np.linalg.inv(np.eye(len(features)) + features @ features.T / NOISE)
    covariance = (covariance + covariance.T) / 2
    layer = _posterior_of(layer, covariance @ features @ targets / NOISE, covariance)
    likelihood = eqx.tree_at(
        lambda part: part.log_variance, Gaussian().initialise(1), jnp.asarray([np.log(NOISE)])
    )
    return DeepModel(DeepNetwork((Stage(layer, 1),)), likelihood)


@eqx.filter_jit
def _jitted_bound(model, batch, key):
    noise = model.network.draw_sample_noise(key, 1, len(batch.inputs))
    return bound(model, batch, noise, key, num_data=float(len(batch.inputs)))


def _bound(model, inputs, targets):
    batch = Batch(jnp.asarray(inputs.T), jnp.asarray(targets[:, None]), jnp.ones(len(targets)))
    return float(_jitted_bound(model, batch, random_key(0)))


@pytest.fixture(scope="module")
def exact():
    inputs = RANDOM.normal(size=(3, 25))
    targets = np.sin(2 * inputs[0]) + inputs[1] + np.sqrt(NOISE) * RANDOM.normal(size=25)
    gp = GaussianProcessRegressor(SKLEARN_KERNEL, alpha=NOISE, optimizer=None)
    return inputs, targets, gp.fit(inputs.T, targets)


def test_inducing_points_at_the_data_give_the_exact_gp(exact):
    inputs, targets, gp = exact
    model = _optimal(inputs, inputs, targets)
    new = RANDOM.normal(size=(3, 40)) * 1.5
    mean, variance = marginals(model.network.stages[0].layer, jnp.asarray(new))
    expected_mean, expected_std = gp.predict(new.T, return_std=True)
    np.testing.assert_allclose(mean[0], expected_mean, atol=1e-5)
    np.testing.assert_allclose(variance[0], expected_std**2, atol=1e-5)
    evidence = gp.log_marginal_likelihood_value_
    assert evidence - 1e-3 < _bound(model, inputs, targets) <= evidence


def test_bound_stays_below_the_evidence(exact):
    """Also with fewer inducing points at their best, and with any other posterior."""
    inputs, targets, gp = exact
    evidence = gp.log_marginal_likelihood_value_
    bounds = [_bound(_optimal(inputs[:, :n], inputs, targets), inputs, targets) for n in (4, 8)]
    assert bounds[0] < bounds[1] < evidence - 0.01
    # Titsias' bound in closed form, for eight points.
    points = inputs[:, :8].T
    cross = SKLEARN_KERNEL(points, inputs.T)
    root = np.linalg.cholesky(SKLEARN_KERNEL(points) + 1e-8 * VARIANCE * np.eye(8))
    features = solve_triangular(root, cross, lower=True)
    projected = features.T @ features
    log_density = multivariate_normal.logpdf(targets, None, projected + NOISE * np.eye(25))
    expected = log_density - (25 * VARIANCE - np.trace(projected)) / (2 * NOISE)
    np.testing.assert_allclose(bounds[1], expected, rtol=1e-8)
    optimum = _optimal(inputs, inputs, targets)
    for seed in range(3):
        other = perturbed(optimum.network, seed, 0.1)
        layer = other.stages[0].layer
        layer = SparseGPLayer(rbf(), layer.inducing, layer.posterior)
        model = DeepModel(DeepNetwork((Stage(layer, 1),)), optimum.likelihood)
        assert _bound(model, inputs, targets) < evidence


# Geometry that breaks factorisations, in single precision.

GEOMETRIES = {
    "coinciding points": np.zeros((2, 30)),
    "duplicate rows": np.repeat(RANDOM.normal(size=(2, 3)), 10, axis=1),
    "a constant input": np.vstack([RANDOM.normal(size=30), np.ones(30)]),
    "points very close": 1e-4 * RANDOM.normal(size=(2, 30)),
    "points very far": 1e6 * RANDOM.normal(size=(2, 30)),
}


@eqx.filter_jit
@functools.partial(eqx.filter_grad, has_aux=True)
def _gradient_and_moments(pair):
    layer, inputs = pair
    mean, variance = layer.marginals(inputs)
    return jnp.sum(mean) + jnp.sum(jnp.log(variance)) + layer.kl(), (mean, variance)


@pytest.mark.parametrize("lengthscale", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("points", GEOMETRIES.values(), ids=GEOMETRIES.keys())
def test_bad_geometry_in_single_precision(points, lengthscale):
    layer = SparseGPLayer.create(RBF.create(2, 1.0, lengthscale), points.T, 2, 30, q_scale=1.0)
    layer = eqx.tree_at(lambda part: part.inducing, layer, jnp.asarray(points))
    layer = eqx.tree_at(lambda part: part.posterior, layer, perturbed(layer.posterior, size=0.1))

    with precision("float32"):
        gradient, moments = _gradient_and_moments((single(layer), single(points)))
    mean, variance = map(np.asarray, moments)
    assert mean.dtype == np.float32
    assert np.isfinite(mean).all()
    assert (variance > 0).all()
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(split_trainable(gradient)[0]))
    # The moments that double precision gives with the same jitter.
    covariances = call(layer.kernel, jnp.asarray(points), jnp.asarray(points))
    root = np.linalg.cholesky(np.asarray(covariances.inducing[0]) + 1e-5 * np.eye(30))
    features = solve_triangular(root, np.asarray(covariances.cross[0]), lower=True)
    np.testing.assert_allclose(mean, np.asarray(layer.posterior.mean) @ features, atol=0.01)
    projected = np.einsum("hkm,kn->hmn", np.asarray(layer.posterior.factor), features)
    expected = 1 - np.square(features).sum(axis=0) + np.square(projected).sum(axis=1)
    np.testing.assert_allclose(variance, expected, atol=0.01)


def test_fewer_prior_samples_than_inducing_points_are_singular_and_work():
    """Nine functions, of rank eight once centred, at thirty inducing points."""
    layer = SparseGPLayer.create(
        empirical_kernel(NETWORK), RANDOM.normal(size=(60, 3)), 2, 30, q_scale=1.0
    )
    with precision("float32"):
        mean, variance = marginals(single(layer), single(INPUTS))
    expected = call(layer.kernel, jnp.asarray(INPUTS), jnp.asarray(INPUTS))
    np.testing.assert_allclose(mean, np.broadcast_to(expected.mean, (2, 7)), atol=1e-3)
    # At q(v) = p(v) a unit has its prior's variance.
    np.testing.assert_allclose(variance, np.broadcast_to(expected.variances, (2, 7)), rtol=1e-3)
