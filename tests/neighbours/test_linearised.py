"""Linearised networks against linear models in closed form."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples import random_key
from scipy.stats import multivariate_normal

from dvip import LinearisedClassifier, LinearisedRegressor
from dvip.batches import ArrayData
from dvip.layers import Perceptrons
from dvip.likelihoods.gaussian import Gaussian, HeteroscedasticGaussian
from dvip.likelihoods.softmax import Softmax
from dvip.neighbours import laplace
from dvip.neighbours.function_space import FunctionSpaceLayer, gaussian_kl
from dvip.neighbours.laplace import LaplaceLayer, curvature, num_linearised, with_posterior
from dvip.neighbours.networks import jacobian
from dvip.network import DeepNetwork, Stage
from dvip.objectives import DeepModel
from dvip.runtime import precision

random = np.random.default_rng(0)
NUM_ROWS, NOISE = 23, 0.4
X = random.normal(size=(NUM_ROWS, 2))
Y = X @ [[1.0], [-0.5]] + 0.3 + NOISE * random.normal(size=(NUM_ROWS, 1))
COUNTS = random.integers(1, 3, NUM_ROWS).astype(float)
# Weights of a sum of two terms have the scale 1/√2, the bias 1.
DESIGN = np.hstack([X / np.sqrt(2), np.ones((NUM_ROWS, 1))])


@pytest.fixture(scope="module")
def double():
    with precision("float64"):
        yield


def a_line(log_precision):
    """A network without a hidden layer, at its maximum a posteriori."""
    precisions = DESIGN.T @ (COUNTS[:, None] * DESIGN) / NOISE**2
    right = DESIGN.T @ (COUNTS[:, None] * Y) / NOISE**2
    best = np.linalg.solve(precisions + np.exp(log_precision) * np.eye(3), right)[:, 0]
    layer = LaplaceLayer.create((2, 1), "tanh", math.exp(-log_precision / 2), random_key(0))
    network = Perceptrons(
        (jnp.asarray(best[:2] / np.sqrt(2)).reshape(1, 1, 2),),
        (jnp.asarray(best[2]).reshape(1, 1, 1),),
        "tanh",
    )
    layer = eqx.tree_at(lambda layer: layer.network, layer, network)
    likelihood = Gaussian(jnp.full(1, 2 * np.log(NOISE)))
    return DeepModel(DeepNetwork((Stage(layer, 1),)), likelihood), precisions, best


def evidence(log_precision, log_factor=0.0):
    """That of Bayesian linear regression: y ~ N(0, design designᵀ / δ + σ² τ I)."""
    rows = np.repeat(np.arange(NUM_ROWS), COUNTS.astype(int))
    design, noise = DESIGN[rows], NOISE**2 * np.exp(log_factor)
    covariance = design @ design.T * np.exp(-log_precision) + noise * np.eye(len(rows))
    return multivariate_normal(np.zeros(len(rows)), covariance).logpdf(Y[rows, 0])


def test_a_linear_network_is_bayesian_linear_regression(double, monkeypatch):
    monkeypatch.setattr(laplace, "MAX_BATCH", 7)  # the last batch is not full
    log_precision = 0.7
    model, precisions, best = a_line(log_precision)
    data = ArrayData(X, Y, COUNTS)
    found = curvature(model, data, 0, NUM_ROWS)
    np.testing.assert_allclose(
        found.vectors * found.eigenvalues @ found.vectors.T, precisions, rtol=1e-8
    )
    factor = found.factor(log_precision)
    np.testing.assert_allclose(
        factor @ factor.T, np.linalg.inv(precisions + np.exp(log_precision) * np.eye(3)), rtol=1e-8
    )
    np.testing.assert_allclose(
        found.log_evidence(log_precision), evidence(log_precision), rtol=1e-10
    )
    # The noise: a factor that leaves m where it is, as the prior's precision has its inverse.
    scaled = a_line(log_precision - 0.4)[0]
    np.testing.assert_allclose(
        curvature(scaled, data, 0, NUM_ROWS).log_evidence(log_precision - 0.8, 0.4),
        evidence(log_precision - 0.8, 0.4),
        rtol=1e-10,
    )
    # More rows than are looked at.
    twice = curvature(model, data, 0, 2 * NUM_ROWS)
    np.testing.assert_allclose(twice.eigenvalues, 2 * found.eigenvalues, rtol=1e-8)

    trained = with_posterior(model, data, 0, NUM_ROWS)
    log_precision, log_factor = found.best()
    assert found.log_evidence(log_precision, log_factor) >= max(
        found.log_evidence(log_precision + first, log_factor + second)
        for first, second in [(0.1, 0), (-0.1, 0), (0, 0.1), (0, -0.1)]
    )
    noise = NOISE**2 * np.exp(log_factor)
    np.testing.assert_allclose(trained.likelihood.variance[0], noise, rtol=1e-6)
    posterior = np.linalg.inv(precisions * np.exp(-log_factor) + np.exp(log_precision) * np.eye(3))
    layer = trained.network.stages[0].layer

    @eqx.filter_jit
    def evaluated(layer, inputs):
        def drawn(key):
            return layer.evaluate(layer.draw_function(key), inputs)

        draws = jax.vmap(drawn)(jax.random.split(random_key(0), 9))
        return *layer.marginals(inputs), draws, layer.without_factor().marginals(inputs)[1]

    mean, variance, draws, nothing = map(np.asarray, evaluated(layer, jnp.asarray(X.T)))
    np.testing.assert_allclose(mean[0], DESIGN @ best, rtol=1e-8)
    expected = np.sum(DESIGN @ posterior * DESIGN, axis=1)
    np.testing.assert_allclose(variance[0], expected, rtol=1e-6)
    centred = draws[:, 0] - DESIGN @ best
    # A drawn function is linear: it lies in the span of the design.
    left = centred.T - DESIGN @ np.linalg.lstsq(DESIGN, centred.T, rcond=None)[0]
    assert np.abs(left).max() < 1e-8 < np.abs(centred).max()
    assert not nothing.any()


def test_the_hessian_of_classes_and_of_noise_that_varies(double):
    """By the Jacobian: of softmax with diag(p) - p pᵀ; else without negative eigenvalues."""
    layer = LaplaceLayer.create((2, 3, 3), "tanh", 1.0, random_key(1))
    model = DeepModel(DeepNetwork((Stage(layer, 3),)), Softmax())
    labels = random.integers(0, 3, (NUM_ROWS, 1)).astype(float)
    found = curvature(model, ArrayData(X, labels, COUNTS), 0, NUM_ROWS)
    assert found.num_targets == 0
    assert found.best()[1] == 0
    derivatives = np.asarray(eqx.filter_jit(jacobian)(layer.network, jnp.asarray(X.T)))
    values = np.asarray(eqx.filter_jit(layer.network)(jnp.asarray(X.T))[0]).T
    p = np.exp(values) / np.exp(values).sum(axis=1, keepdims=True)
    hessians = np.einsum("nu,uv->nuv", p, np.eye(3)) - p[:, :, None] * p[:, None]
    scales = np.repeat([1 / np.sqrt(2), 1 / np.sqrt(3), 1.0], [6, 9, 6])
    whole = np.einsum("n,nup,nuv,nvq->pq", COUNTS, derivatives, hessians, derivatives)
    whole = scales[:, None] * whole * scales
    np.testing.assert_allclose(
        found.vectors * found.eigenvalues @ found.vectors.T, whole, rtol=1e-6, atol=1e-8
    )
    layer = LaplaceLayer.create((2, 3, 2), "tanh", 1.0, random_key(1))
    likelihood = HeteroscedasticGaussian().initialise(1)
    model = DeepModel(DeepNetwork((Stage(layer, 2),)), likelihood)
    found = curvature(model, ArrayData(X, Y, COUNTS), 0, NUM_ROWS)
    assert np.isfinite(found.eigenvalues).all()
    assert found.num_targets == 0


def test_large_networks_are_linearised_in_their_last_layer():
    assert num_linearised((8, 50, 1)) == (0, 501)
    assert num_linearised((8, 100, 100, 1)) == (2, 101)
    with pytest.raises(ValueError, match="use a smaller last width"):
        num_linearised((8, 500, 10))
    layer = LaplaceLayer.create((2, 60, 60, 1), "tanh", 1.0, random_key(0))
    derivatives = eqx.filter_jit(jacobian)(
        layer.network, jnp.asarray(X.T, jnp.float32), layer.first
    )
    hidden = Perceptrons(layer.network.weights[:2], layer.network.biases[:2], "tanh")
    expected = np.tanh(eqx.filter_jit(hidden)(jnp.asarray(X.T, jnp.float32))[0]).T
    np.testing.assert_allclose(derivatives[:, 0, :-1], expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(derivatives[:, 0, -1], 1)


def test_kl_between_gaussians(double):
    mean, roots = random.normal(size=4), random.normal(size=(2, 4, 6))
    first, second = roots @ np.swapaxes(roots, 1, 2)
    inverse = np.linalg.inv(second)
    expected = 0.5 * (
        np.trace(inverse @ first)
        + mean @ inverse @ mean
        - 4
        + np.linalg.slogdet(second)[1]
        - np.linalg.slogdet(first)[1]
    )
    found = jax.jit(gaussian_kl)(*map(jnp.asarray, (mean, first, second)))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_processes_of_linear_networks_are_exact(double):
    """Of a line, the linearised process is that of its weights, and the KL that of weights."""
    layer = FunctionSpaceLayer.create(X, (2, 1), "tanh", 1.5, 1.0, random_key(0))
    prior = np.array([1.5 / np.sqrt(2), 1.5 / np.sqrt(2), 1.5])
    design = np.hstack([X[:3], np.ones((3, 1))])
    expected = design * prior**2 @ design.T

    @eqx.filter_jit
    def evaluated(layer, points):
        mean, covariances = layer.process(points)
        found = gaussian_kl(mean[0], covariances[0], jnp.asarray(expected))
        return mean, covariances, layer.prior_covariances(points), found, layer.weights.kl()

    mean, covariances, of_prior, found, kl = evaluated(layer, jnp.asarray(X[:3].T))
    weights = layer.weights
    scales = np.exp([*weights.log_scale.weights[0][0, 0], weights.log_scale.biases[0][0, 0, 0]])
    centre = np.array([*weights.mean.weights[0][0, 0], weights.mean.biases[0][0, 0, 0]])
    np.testing.assert_allclose(mean[0], design @ centre, rtol=1e-8)
    np.testing.assert_allclose(covariances[0], design * scales**2 @ design.T, rtol=1e-8)
    np.testing.assert_allclose(of_prior[0], expected, rtol=1e-8)
    # Three points determine the three weights of a line.
    np.testing.assert_allclose(found, kl, rtol=1e-3)


def test_context_points_are_rows_and_points_of_the_box():
    layers = [
        FunctionSpaceLayer.create(X, (2, 5, 1), "tanh", 1.0, weight, random_key(0))
        for weight in (1.0, 3.0)
    ]
    rows = jnp.asarray(X[:4].T)

    @eqx.filter_jit
    def evaluated(layer, rows):
        return layer.context(random_key(1), rows), layer.kl_estimate(random_key(1), rows)

    points, kl = map(np.asarray, evaluated(layers[0], rows))
    np.testing.assert_allclose(points[:, :4], rows)
    assert points.shape[1] > 8
    margin = 0.1 * np.ptp(X, axis=0) + 1e-6
    assert (points.min(axis=1) >= X.min(axis=0) - margin).all()
    assert (points.max(axis=1) <= X.max(axis=0) + margin).all()
    assert kl > 0
    np.testing.assert_allclose(evaluated(layers[1], rows)[1], 3 * kl, rtol=1e-5)


def test_uncertainty_grows_away_from_the_rows():
    x = np.linspace(-1, 1, 60)[:, None]
    y = np.sin(3 * x[:, 0]) + 0.1 * random.normal(size=60)
    model = LinearisedRegressor(hidden=(20,), prior_scale=3.0, max_iter=1500, learning_rate=0.02)
    mean, std = model.fit(x, y).predict([[0.0], [3.0]], return_std=True)
    assert abs(mean[0]) < 0.2
    assert 0.07 < std[0] < 0.15
    assert std[1] > 3 * std[0]


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (LinearisedRegressor(method="ntk"), "use one of laplace, function-space"),
        (LinearisedRegressor(prior_scale=-1), "must be a positive number"),
        (LinearisedRegressor(hidden=(4000,)), "use a smaller last width of hidden"),
        (LinearisedClassifier(likelihood="robustmax"), "softmax"),
    ],
)
def test_parameters_that_make_no_sense(model, words):
    y = np.array(["a", "b", "c", "a", "b"])
    with pytest.raises(ValueError, match=words):
        model.fit(np.arange(5.0)[:, None], y if model.task == "classification" else np.arange(5.0))
