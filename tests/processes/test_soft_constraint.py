"""The prior between the constrained and the unconstrained Bayesian neural network."""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from examples import perturbed, random_key, started
from scipy.stats import norm
from sklearn.base import clone

from dvip import BayesianNeuralNetwork, DVIPRegressor

pytestmark = pytest.mark.usefixtures("double")

HIDDEN, NUM_INPUTS = (4, 2), 3
# Weights and biases of each network layer.
SIZES = (12, 4, 8, 2, 2, 1)
INPUTS = jnp.asarray(np.random.default_rng(1).normal(size=(NUM_INPUTS, 5)))


def initialised(**options):
    return started(BayesianNeuralNetwork(HIDDEN, **options), NUM_INPUTS)


@eqx.filter_jit
def functions(process):
    return process(process.draw_noise(random_key(1), 6), INPUTS)


def deviations(process):
    kinds = (process.mean_deviation, process.log_scale_deviation)
    return [np.asarray(kind) for kind in kinds if kind is not None]


def test_starts_as_the_constrained_prior():
    soft = initialised(strength=2.0)
    assert np.array_equal(functions(soft), functions(initialised()))
    assert soft.regularisation() == 0


def test_contains_the_unconstrained_prior():
    """Deviations lead to any mean and any scale of each weight."""
    free = perturbed(initialised(constrained=False))
    groups = initialised(strength=1.0)
    mean, log_scale = (np.repeat(part, SIZES) for part in (groups.mean, groups.log_scale))
    soft = dataclasses.replace(
        groups,
        mean_deviation=(free.mean - mean) / np.exp(log_scale),
        log_scale_deviation=free.log_scale - log_scale,
    )
    np.testing.assert_allclose(functions(soft), functions(free), rtol=1e-10)


@pytest.mark.parametrize("zero_mean", [False, True])
def test_costs_minus_the_log_density_of_the_hyper_prior(zero_mean):
    strength = 3.0
    process = perturbed(initialised(strength=strength, zero_mean=zero_mean))
    log_scale = np.repeat(process.log_scale, SIZES)
    spread = 1 / np.sqrt(strength)
    # What it is of: the means and the logarithms of the scales themselves.
    own = log_scale + process.log_scale_deviation
    expected = norm.logpdf(own, log_scale, spread) - norm.logpdf(0, 0, spread)
    if zero_mean:
        assert process.mean_deviation is None
    else:
        mean, scale = np.repeat(process.mean, SIZES), spread * np.exp(log_scale)
        own = mean + np.exp(log_scale) * process.mean_deviation
        expected += norm.logpdf(own, mean, scale) - norm.logpdf(mean, mean, scale)
    assert expected.sum() < -1
    np.testing.assert_allclose(process.regularisation(), -expected.sum(), rtol=1e-10)


def test_strength_shrinks_the_deviations():
    random = np.random.default_rng(0)
    X = random.normal(size=(80, NUM_INPUTS))
    y = np.sin(2 * X[:, 0]) + 0.1 * random.normal(size=80)

    def size_after_training(strength):
        prior = BayesianNeuralNetwork(HIDDEN, strength=strength)
        model = DVIPRegressor.paper(n_layers=1, prior=prior, n_prior_samples=6, max_iter=200)
        process = model.fit(X, y).model_.network.stages[0].layer.process
        return np.mean([np.abs(kind).mean() for kind in deviations(process)])

    sizes = [size_after_training(strength) for strength in (1e-6, 1e6)]
    assert sizes[0] > 20 * sizes[1]
    assert sizes[1] < 1e-2  # the constraint


def test_clones_keep_the_strength():
    model = DVIPRegressor.paper(prior=BayesianNeuralNetwork(strength=5))
    assert clone(model).prior.strength == 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        *(({"strength": bad}, "strength=.*positive number") for bad in (0, -1, np.inf, True)),
        ({"strength": np.nan}, "strength=nan must be a positive number"),
        ({"strength": 1.0, "constrained": False}, "leave out constrained=False"),
        ({"strength": 1.0, "regularised": True}, "choose one"),
    ],
    ids=str,
)
def test_bad_strengths(options, message):
    with pytest.raises(ValueError, match=message):
        BayesianNeuralNetwork(**options)
