"""Sampled posteriors: densities, the exact posterior of one layer, diagnostics, calibration."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples import RandomWaves, numpy_features, perturbed, random_key
from scipy import stats

import simulation_based_calibration as calibration
from dvip.batches import ArrayData, Batch
from dvip.layers import VIPLayer
from dvip.likelihoods import Regression
from dvip.likelihoods.gaussian import Gaussian
from dvip.network import DeepNetwork, Stage, build_network
from dvip.objectives import DeepModel
from dvip.processes.gp import GaussianProcess
from dvip.processes.process import PerGroup, PerUnit
from dvip.registry import LIKELIHOODS
from dvip.training.diagnostics import Diagnostics, diagnose, split_r_hat
from dvip.training.samplers import Posterior
from dvip.training.sampling import SamplingSettings, sample_posterior

pytestmark = pytest.mark.usefixtures("double")

RANDOM = np.random.default_rng(0)
INPUTS = RANDOM.normal(size=(30, 2))


def one_layer(noise=0.1):
    layer = VIPLayer.create(RandomWaves(), 2, 1, 6, q_scale=1.0, key=random_key(0))
    network = DeepNetwork((Stage(layer, 1),))
    return DeepModel(network, Gaussian(jnp.full(1, np.log(noise))))


@pytest.mark.parametrize("sampler", ["mclmc", "nuts"])
def test_samples_of_one_layer_are_those_of_its_exact_posterior(sampler):
    model, noise = one_layer(), 0.1
    y = np.sin(INPUTS[:, 0]) + np.sqrt(noise) * RANDOM.normal(size=30)
    weights = RANDOM.integers(1, 3, size=30).astype(float)
    data = ArrayData(INPUTS, y[:, None], weights)
    settings = SamplingSettings(8_000, 2, 0, sampler)
    result = sample_posterior(model, data, settings, only_coefficients=True)
    coefficients = np.asarray(result.model.parameters.network.stages[0].layer.coefficients)[:, 0]
    mean, features = numpy_features(model.network.stages[0].layer, INPUTS.T)
    scaled = features[0] * weights / noise
    covariance = np.linalg.inv(np.eye(6) + scaled @ features[0].T)
    exact = covariance @ scaled @ (y - mean[0])
    assert coefficients.shape == (200, 6)
    white = (coefficients - exact) @ np.linalg.inv(np.linalg.cholesky(covariance)).T
    np.testing.assert_allclose(white.mean(axis=0), 0, atol=0.3)
    np.testing.assert_allclose(np.cov(white.T), np.eye(6), atol=0.4)
    assert result.diagnostics.worst_r_hat < 1.05
    assert result.diagnostics.least_effective_samples > 100
    assert result.diagnostics.advice() is None


def test_the_density_is_that_of_the_model():
    model = one_layer()
    y, weights = RANDOM.normal(size=(30, 1)), np.full(30, 2.0)
    once = Posterior.of(model, Batch(INPUTS, y, weights))
    twice = Posterior.of(model, Batch(np.tile(INPUTS, (2, 1)), np.tile(y, (2, 1)), np.ones(60)))
    position = jnp.asarray(RANDOM.normal(size=once.size))

    @jax.jit
    def evaluated(position, inputs):
        densities = once.log_density(position), twice.log_density(position)
        return *densities, once.parameters(position), once.values(position[None], inputs)[0]

    found, of_twice, sample, values = evaluated(position, jnp.asarray(INPUTS))
    np.testing.assert_allclose(found, of_twice)
    noise = np.exp(0.5 * np.asarray(sample.likelihood.log_variance)[0])
    expected = 2 * stats.norm.logpdf(y[:, 0], values, noise).sum()
    expected -= 0.5 * np.square(position).sum()
    np.testing.assert_allclose(found, expected)
    # Parameters are around where they started, those of the likelihood within a wider range.
    np.testing.assert_allclose(sample.likelihood.log_variance, np.log(0.1) + 3 * position[-1])


@pytest.mark.parametrize(
    ("process", "copies"),
    [
        *((RandomWaves(), copies) for copies in (None, PerUnit, PerGroup)),
        (GaussianProcess(num_frequencies=8), PerGroup),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_known_layers_are_the_functions_of_their_coefficients(process, copies):
    if copies is PerUnit:
        process = PerUnit(process, 4)
    elif copies is PerGroup:
        process = PerGroup(process, 2, 4)
    layer = perturbed(VIPLayer.create(process, 2, 4, 6, q_scale=0.5, key=random_key(1)))
    coefficients = jnp.asarray(RANDOM.normal(size=(4, 6)))

    @eqx.filter_jit
    def both(layer, coefficients, columns):
        known = layer.with_coefficients(coefficients)
        return known.evaluate((), columns), layer.evaluate(coefficients, columns)

    np.testing.assert_allclose(*both(layer, coefficients, jnp.asarray(INPUTS.T)), atol=1e-12)


def test_known_networks_are_trained_ones_without_noise():
    def layer(index, inputs, num_units, key):
        return VIPLayer.create(RandomWaves(), inputs.shape[1], num_units, 6, q_scale=1.0, key=key)

    network = build_network(INPUTS, (2, 1), layer, (True, False), 0)
    known = perturbed(network.known())

    @eqx.filter_jit
    def both(network, known, columns):
        values = columns
        for stage, one in zip(network.stages, known.stages, strict=True):
            process = one.layer.process
            trained = VIPLayer(process, stage.layer.noise, stage.layer.posterior, False)
            values = trained.evaluate(one.layer.coefficients, values) + stage.propagated(values)
        return known.known_values(columns), values

    np.testing.assert_allclose(*both(network, known, jnp.asarray(INPUTS.T)), atol=1e-10)


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_log_prob_is_the_expectation_where_f_is_known(name):
    likelihood = LIKELIHOODS[name]()
    if not likelihood.has_gradient:
        return
    number = 2 if likelihood.task == "regression" or name == "probit" else 3
    likelihood = perturbed(likelihood.initialise(number))
    if isinstance(likelihood, Regression):
        likelihood = likelihood.linked(np.zeros(number), np.ones(number))
        targets = RANDOM.integers(0, 6, size=(number, 20)).astype(float)
    else:
        targets = RANDOM.integers(0, number, size=(1, 20)).astype(float)
    targets = jnp.asarray(targets)
    values = jnp.asarray(RANDOM.normal(size=(likelihood.num_latents(number), 20)))

    @jax.jit
    def evaluated(values):
        return (
            likelihood.expected_log_prob(targets, values, jnp.full_like(values, 1e-9)),
            likelihood.log_prob(targets, values),
            jax.grad(lambda f: likelihood.log_prob(targets, f).sum())(values),
        )

    expected, found, gradient = evaluated(values)
    np.testing.assert_allclose(found, expected, atol=1e-3)
    assert np.isfinite(gradient).all()
    assert np.abs(gradient).max() > 0


def test_diagnostics_tell_chains_that_agree_from_those_that_do_not():
    good = RANDOM.normal(size=(4, 100, 3))
    agree = diagnose(good, 1e-4, np.nan, 0.0, 1_000)
    assert agree.worst_r_hat < 1.05
    assert agree.least_effective_samples > 150
    assert agree.advice() is None
    assert 0.95 < split_r_hat(good) < 1.05
    apart = good + 3 * np.arange(4)[:, None, None]
    assert "do not agree" in diagnose(apart, 1e-4, np.nan, 0.0, 1_000).advice()
    assert split_r_hat(apart) > 2
    slow = np.cumsum(RANDOM.normal(size=(4, 100, 3)), axis=1)
    assert diagnose(slow, 1e-4, np.nan, 0.0, 1_000).effective_samples < 50
    assert "steps failed" in diagnose(good, 1e-4, np.nan, 0.5, 1_000).advice()
    few = Diagnostics(1.0, 10.0, 1.0, 5.0, 0.0, np.nan, 0.0, 4, 100)
    assert "max_iter=300" in few.advice()


@pytest.mark.slow
def test_simulation_based_calibration():
    ranks = calibration.calibrate(60, 2, "mclmc")
    assert ranks.shape == (60, len(calibration.QUANTITIES))
    assert min(calibration.p_values(ranks).values()) > 1e-3
