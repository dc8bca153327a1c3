"""Mean-field inference: samples and their KL, against densities; what the warm-up is for."""

import equinox as eqx
import jax
import numpy as np
import pytest
from examples import random_key
from scipy import stats

from dvip import MeanFieldRegressor
from dvip.neighbours.mean_field import GaussianWeights


def test_kl_is_the_mean_of_differences_of_log_densities():
    """With samples of all weights, whose priors are N(0, 3²/n), of biases N(0, 3²)."""

    @eqx.filter_jit
    def evaluated():
        weights = GaussianWeights.create((2, 4, 1), "tanh", 3.0, random_key(0))
        log_scale = jax.tree.map(lambda leaf: leaf + 2.5, weights.log_scale)
        weights = eqx.tree_at(lambda weights: weights.log_scale, weights, log_scale)
        samples = weights(weights.draw_noise(random_key(1), 20_000))
        return weights, samples, weights.kl()

    weights, samples, kl = evaluated()
    total = np.zeros(20_000)
    for part in ("weights", "biases"):
        for mean, log_scale, drawn in zip(
            *(getattr(each, part) for each in (weights.mean, weights.log_scale, samples)),
            strict=True,
        ):
            prior = 3 / np.sqrt(mean.shape[-1]) if part == "weights" else 3
            log_q = stats.norm(mean, np.exp(log_scale)).logpdf(drawn)
            log_p = stats.norm(0, prior).logpdf(drawn)
            total += (log_q - log_p).reshape(20_000, -1).sum(axis=1)
    error = total.std() / np.sqrt(len(total))
    assert abs(total.mean() - kl) < 4 * error
    assert kl > 10 * error


def test_a_wave_is_not_explained_as_noise():
    random = np.random.default_rng(0)
    X = random.uniform(-2, 2, size=(100, 1))
    y = 5 + np.sin(4 * X[:, 0]) + 0.1 * random.normal(size=100)
    model = MeanFieldRegressor(max_iter=3_000).fit(X, y)
    errors = model.predict(X) - y
    assert np.sqrt(np.mean(np.square(errors))) < 0.3


@pytest.mark.parametrize("scale", [0, -1.0, np.nan, "wide"])
def test_parameters_that_make_no_sense(scale):
    with pytest.raises(ValueError, match="must be a positive number"):
        MeanFieldRegressor(prior_scale=scale).fit(np.zeros((5, 1)), np.arange(5.0))
