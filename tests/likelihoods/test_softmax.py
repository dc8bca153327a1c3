"""Softmax: exact for two classes, close to sampling for many, in memory that does not explode."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit
from scipy.stats import norm

from dvip import Softmax

LIKELIHOOD = Softmax()


@jax.jit
def probabilities_and_fit(targets, mean, variance):
    return (
        LIKELIHOOD.class_probabilities(mean, variance),
        LIKELIHOOD.expected_log_prob(targets, mean, variance),
    )


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize(("lead", "variance"), [(0.3, 0.5), (-4.0, 2.0), (2.5, 0.01)])
def test_two_classes_are_one_logistic_unit(lead, variance):
    mean = jnp.array([[1.0], [1.0 + lead]])
    variances = variance * jnp.array([[0.25], [0.75]])

    def expected(function):
        points = np.sqrt(variance)
        return quad(lambda t: norm.pdf(t) * function(lead + points * t), -12, 12)[0]

    found, fit = probabilities_and_fit(jnp.ones((1, 1)), mean, variances)
    np.testing.assert_allclose(found[1], expected(expit), rtol=1e-5)
    np.testing.assert_allclose(fit, expected(lambda f: -np.logaddexp(0, -f)), rtol=1e-5)


@pytest.mark.parametrize(("size", "error"), [(0.1, 1e-3), (1.0, 1e-2), (4.0, 4e-2)])
def test_many_classes_against_sampling(size, error):
    """With the errors that the docstring promises, for variances of this size."""
    random = np.random.default_rng(0)
    num_classes, num_draws = 100, 4_000
    mean = random.normal(size=(num_classes, 3)).astype(np.float32)
    variance = (size * random.uniform(0.5, 1.5, mean.shape)).astype(np.float32)
    white = random.normal(size=(num_draws, *mean.shape)).astype(np.float32)
    values = mean + np.sqrt(variance) * np.concatenate([white, -white])
    log_probs = values - np.log(np.exp(values).sum(axis=1, keepdims=True))
    shares = np.exp(log_probs)
    noise = shares.std(axis=0) / np.sqrt(num_draws)
    chosen = np.array([0, 50, 99])
    found, fit = probabilities_and_fit(jnp.array(chosen[None], float), mean, variance)
    np.testing.assert_allclose(found.sum(axis=0), 1, rtol=1e-5)
    expected = shares.mean(axis=0)
    assert (np.abs(found - expected) < 5 * noise + 2 * error * expected).all()
    expected = log_probs.mean(axis=0)[chosen, np.arange(3)]
    np.testing.assert_allclose(fit, expected, atol=error + 4e-3)


def test_memory_is_that_of_the_points_of_one_unit():
    moment = jax.ShapeDtypeStruct((200, 100, 32), jnp.float32)
    targets = jnp.zeros((1, 32))

    def fit(mean, variance):
        return jnp.sum(LIKELIHOOD.expected_log_prob(targets, mean, variance))

    used = jax.jit(jax.grad(fit, (0, 1))).lower(moment, moment).compile().memory_analysis()
    assert used.temp_size_in_bytes < 20 * 4 * moment.size
    probabilities = jax.jit(LIKELIHOOD.class_probabilities)
    used = probabilities.lower(moment, moment).compile().memory_analysis()
    assert used.temp_size_in_bytes < 60 * 4 * moment.size
