"""Robust-max with many classes: other formulas than for few, in memory that does not explode."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dvip import RobustMax
from dvip.likelihoods import robustmax
from dvip.prediction import MAX_ROW_SAMPLES, MAX_ROWS, rows_at_once

LIKELIHOOD = RobustMax(error=0.01)
class_probabilities = jax.jit(LIKELIHOOD.class_probabilities)


def moments(num_classes, *shape, seed=0):
    random = np.random.default_rng(seed)
    mean = random.normal(size=(num_classes, *shape)).astype(np.float32)
    return jnp.asarray(mean), jnp.asarray(random.uniform(0.1, 2.0, mean.shape), np.float32)


def test_shares_against_sampling():
    num_classes, draws = 60, 20_000
    mean, variance = moments(num_classes, 2, 2)
    found = np.asarray(class_probabilities(mean, variance))
    assert found.shape == mean.shape
    np.testing.assert_allclose(found.sum(axis=0), 1, rtol=1e-5)
    white = np.random.default_rng(1).normal(size=(draws, num_classes, 2, 2)).astype(np.float32)
    winners = (np.asarray(mean) + np.sqrt(variance) * white).argmax(axis=1)
    shares = (winners[:, None] == np.arange(num_classes)[:, None, None]).mean(axis=0)
    expected = shares * 0.99 + (1 - shares) * 0.01 / (num_classes - 1)
    error = np.sqrt(found * (1 - found) / draws)
    assert (np.abs(found - expected) < 5 * error).all()


def test_both_formulas_agree(monkeypatch):
    mean, variance = moments(8, 50)
    targets = jnp.arange(50.0)[None] % 8

    def fit(mean):
        return jnp.sum(LIKELIHOOD.expected_log_prob(targets, mean, variance))

    def compiled_anew():
        shares = jax.jit(lambda mean: LIKELIHOOD.class_probabilities(mean, variance))
        return shares(mean), *jax.jit(lambda mean: jax.value_and_grad(fit)(mean))(mean)

    few, value, gradient = compiled_anew()
    monkeypatch.setattr(robustmax, "FEW_CLASSES", 7)
    many, same_value, same_gradient = compiled_anew()
    assert not np.array_equal(few, many)
    np.testing.assert_allclose(many, few, atol=5e-3)
    np.testing.assert_allclose(same_value, value, rtol=1e-5)
    np.testing.assert_allclose(same_gradient, gradient, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("stretch", "variance"), [(1.0, 0.0), (1e4, 1.0), (0.0, 1.0)], ids=["certain", "far", "same"]
)
def test_extremes(stretch, variance):
    mean = stretch * moments(200, 30)[0]
    found = class_probabilities(mean, jnp.full_like(mean, variance))
    if stretch == 0:
        np.testing.assert_allclose(found, 1 / 200, rtol=1e-5)
    else:
        assert (np.argmax(found, axis=0) == mean.argmax(axis=0)).all()
        np.testing.assert_allclose(np.max(found, axis=0), 0.99, rtol=1e-4)


def test_memory_is_a_few_times_that_of_the_moments():
    """Once it was that times the number of classes and of quadrature points: here, 10 GB."""
    moment = jax.ShapeDtypeStruct((200, 100, 32), jnp.float32)
    targets = jnp.zeros((1, 32))

    def fit(mean, variance):
        return jnp.sum(LIKELIHOOD.expected_log_prob(targets, mean, variance))

    for function in (LIKELIHOOD.class_probabilities, jax.grad(fit, (0, 1))):
        used = jax.jit(function).lower(moment, moment).compile().memory_analysis()
        assert used.temp_size_in_bytes < 20 * 4 * moment.size


def test_pieces_are_smaller_the_more_units_there_are():
    assert rows_at_once(100) == rows_at_once(100, 10) == MAX_ROW_SAMPLES // 100
    assert rows_at_once(100, 1_000) * 100 * 1_000 <= MAX_ROW_SAMPLES * 64
    assert rows_at_once(1) == MAX_ROWS
    assert rows_at_once(10_000, 1_000) == 1
