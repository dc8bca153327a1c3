"""Functional variational BNNs: scores from samples, and gradients of a KL, against closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples import random_key
from threadpoolctl import threadpool_limits

from dvip import ArraySource, BayesianNeuralNetwork, FBNNRegressor, load
from dvip.likelihoods.gaussian import Gaussian
from dvip.neighbours.fbnn import SampledPrior, functional_kl
from dvip.neighbours.fitted_gp import NOISE, FittedGP, GuardedGaussian
from dvip.neighbours.stein import spectral_score, whitened_score
from dvip.sum_kernel import SumKernel


@pytest.fixture(autouse=True)
def one_thread():
    """As in a training: threads would wait for each other."""
    with threadpool_limits(1, user_api="blas"):
        yield


def correlated(num_values, num_samples, seed=0):
    """Samples of a Gaussian, its mean and its covariance."""
    random = np.random.default_rng(seed)
    square = random.normal(size=(num_values, num_values)) / num_values**0.5
    covariance = square @ square.T + 0.5 * np.eye(num_values)
    mean = np.linspace(-1, 2, num_values)
    white = np.random.default_rng(seed + 100).normal(size=(num_samples, num_values))
    return mean + white @ np.linalg.cholesky(covariance).T, mean, covariance


def compiled_score(samples, at=None):
    samples, at = (None if rows is None else jnp.asarray(rows, "float32") for rows in (samples, at))
    return np.asarray(jax.jit(spectral_score)(samples, at=at))


@pytest.mark.parametrize(
    ("num_values", "error"), [pytest.param(1, 0.3, marks=pytest.mark.slow), (2, 0.3), (5, 0.35)]
)
def test_spectral_scores_of_gaussians(num_values, error):
    samples, mean, covariance = correlated(num_values, 500)
    exact = -np.linalg.solve(covariance, (samples - mean).T).T
    size = np.sqrt(np.mean(np.square(exact)))
    found = compiled_score(samples)
    assert np.sqrt(np.mean(np.square(found - exact))) < error * size
    # Elsewhere than at the samples, too; and at the samples it is the same.
    np.testing.assert_allclose(compiled_score(samples, at=samples), found, atol=0.02 * size)
    inner = mean + 0.5 * (correlated(num_values, 500, seed=1)[0] - mean)
    exact = -np.linalg.solve(covariance, (inner - mean).T).T
    found = compiled_score(samples, at=inner)
    assert np.sqrt(np.mean(np.square(found - exact))) < error * size


def test_white_values_of_smooth_functions_have_the_entropy_of_all_directions():
    """The derivative of the entropy by the logarithm of the scale is the number of values."""
    places = np.linspace(-2, 2, 10)
    covariance = np.exp(-0.5 * np.square(places[:, None] - places)) + 1e-3 * np.eye(10)
    random = np.random.default_rng(1)
    samples = random.normal(size=(100, 10)) @ np.linalg.cholesky(covariance).T
    noise = random.normal(size=samples.shape)

    def found(scores):
        return -np.mean(np.sum(np.asarray(scores) * samples, axis=1))

    assert found(compiled_score(samples)) < 7
    white = jax.jit(lambda samples, noise: whitened_score(samples, noise, 1e-3))
    scores = white(*(jnp.asarray(part, "float32") for part in (samples, noise)))
    assert found(scores) == pytest.approx(10, rel=0.1)


def test_scores_of_samples_that_are_all_the_same_are_finite():
    assert np.isfinite(compiled_score(np.ones((10, 3)))).all()


def test_covariances_are_those_of_the_fitted_kernel():
    random = np.random.default_rng(0)
    kernel = SumKernel(SumKernel.usual(3).parameters + 0.3 * random.normal(size=13))
    points = random.normal(size=(5, 3))
    found = FittedGP(jnp.asarray(kernel.parameters)).covariance(jnp.asarray(points.T))
    np.testing.assert_allclose(found, kernel(points, points), rtol=1e-3)


def test_gradient_of_the_functional_kl_between_gaussian_processes():
    """q has independent values with a mean and a scale; the derivatives by both are known."""
    points = jnp.linspace(-2, 2, 4)[None]
    prior = FittedGP(jnp.asarray(SumKernel.usual(1).parameters, jnp.float32))
    eye = jnp.eye(4)
    covariance = prior.covariance(points)
    white = jax.random.normal(random_key(3), (500, 4))

    def exact(parameters):
        mean, log_scale = parameters
        of_q = (jnp.exp(2 * log_scale) + NOISE**2) * eye
        of_p = covariance + NOISE**2 * eye
        means = mean * jnp.ones(4)
        trace = jnp.trace(jnp.linalg.solve(of_p, of_q))
        distance = means @ jnp.linalg.solve(of_p, means)
        ratio = jnp.linalg.slogdet(of_p)[1] - jnp.linalg.slogdet(of_q)[1]
        return 0.5 * (trace + distance + ratio - 4)

    def estimated(parameters, prior):
        mean, log_scale = parameters
        values = mean + jnp.exp(log_scale) * white
        return functional_kl(values, prior, points, random_key(4))

    both = jax.jit(jax.value_and_grad(estimated)), jax.jit(jax.grad(exact))
    for parameters in ((1.0, -0.5), (-0.5, 0.3)):
        parameters = jnp.asarray(parameters)
        (value, gradient), wanted = both[0](parameters, prior), both[1](parameters)
        assert value == 0
        np.testing.assert_allclose(gradient, wanted, rtol=0.15, atol=0.3)


@pytest.mark.slow
def test_an_implicit_prior_pulls_functions_to_it():
    process = BayesianNeuralNetwork().initialise(1, random_key(5))
    points = jnp.array([[-1.0, 0.0, 1.0]])
    white = jax.random.normal(random_key(6), (200, 3))

    def kl(mean):
        return functional_kl(mean + white, SampledPrior(process), points, random_key(7))

    assert jax.grad(kl)(1.5) > 0
    assert jax.grad(kl)(-1.5) < 0


def test_noise_hardly_falls_below_that_of_the_process():
    kernel = SumKernel.usual(1)  # its noise is 0.1
    noise = GuardedGaussian.of(Gaussian().initialise(2), kernel, 50)
    np.testing.assert_allclose(noise.variance, 0.1, rtol=1e-5)
    assert noise.regularisation() == 0
    for change, cost in ((1.0, 0.0), (-0.5, 2 * 50 * 0.25)):
        moved = GuardedGaussian(noise.log_variance + change, noise.least, noise.weight)
        assert moved.regularisation() == pytest.approx(cost, rel=1e-4)


random = np.random.default_rng(0)
X = random.uniform(-2, 2, size=(60, 1))
Y = 5 + np.sin(2 * X[:, 0]) + 0.1 * random.normal(size=60)
TINY = dict(hidden=(20,), max_iter=600, n_functions=20, n_points=(10, 10), n_predictive_samples=20)


def test_prior_is_fitted_saved_and_bounds_are_data_fits(tmp_path):
    model = FBNNRegressor(**TINY).fit(X, Y)
    layer = model.model_.network.stages[0].layer
    parameters = np.asarray(layer.prior.value.parameters)
    assert np.abs(parameters - SumKernel.usual(1).parameters).max() > 0.3
    assert 1 < float(layer.points.weight.value) < 6
    low, high = np.asarray(layer.points.box.value)[:, 0]
    assert low < layer.points.kept.value.min() < layer.points.kept.value.max() < high
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model").model_.network.stages[0].layer
    assert np.array_equal(loaded.prior.value.parameters, parameters)
    mean, std = model.predict(np.array([[0.5], [1.0]]), return_std=True)
    np.testing.assert_allclose(mean, 5 + np.sin([1.0, 2.0]), atol=0.3)
    assert (std < 0.5).all()


@pytest.mark.slow
def test_the_prior_of_streamed_rows_is_nearly_that_of_all_at_once():
    models = (FBNNRegressor(**TINY).fit(*rows) for rows in ((X, Y), (ArraySource(X, Y),)))
    priors = [model.model_.network.stages[0].layer.prior.value for model in models]
    assert np.allclose(priors[0].parameters, priors[1].parameters, atol=1)


def test_parameters_that_make_no_sense():
    with pytest.raises(ValueError, match="use 2 or more"):
        FBNNRegressor(n_functions=1).fit(X, Y)
    with pytest.raises(ValueError, match="n_points=0 must be a whole number"):
        FBNNRegressor(n_points=(0, 5)).fit(X, Y)
    with pytest.raises(ValueError, match="between the rows"):
        FBNNRegressor(prior="recurrent").fit(X, Y)
    with pytest.raises(ValueError, match="is not known"):
        FBNNRegressor(prior="nothing").fit(X, Y)
