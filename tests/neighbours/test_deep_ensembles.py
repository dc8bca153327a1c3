"""Deep ensembles: their noise, and their weight decay."""

import numpy as np
import pytest
from examples import random_key

from dvip import DeepEnsembleRegressor
from dvip.layers import Perceptrons
from dvip.likelihoods.gaussian import HeteroscedasticGaussian
from dvip.neighbours.repulsive import ParticleLayer


def test_networks_of_a_deep_ensemble_say_how_large_the_noise_is():
    assert DeepEnsembleRegressor()._default_likelihood() == "heteroscedastic"
    assert isinstance(DeepEnsembleRegressor()._regression(), HeteroscedasticGaussian)
    layer = ParticleLayer(Perceptrons.create(3, (2, 4, 1), key=random_key(0)), 0.5)
    first, last = layer.particles.weights
    decay = (2 * np.square(first).sum() + 4 * np.square(last).sum()) / 0.25 / 2 / 3
    np.testing.assert_allclose(layer.kl_estimate(random_key(0)), decay, rtol=1e-5)


@pytest.mark.parametrize(
    ("num_rows", "steps"), [(10, 500), (400, 500), (4_000, 5_000), (10**9, 20_000)]
)
def test_steps_grow_with_the_rows_within_limits(num_rows, steps):
    assert DeepEnsembleRegressor()._num_steps(num_rows) == steps
    assert DeepEnsembleRegressor(max_iter=7)._num_steps(num_rows) == 7


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (DeepEnsembleRegressor(n_networks=0), "n_networks=0 must be a whole number"),
        (DeepEnsembleRegressor(prior_scale=0), "prior_scale=0 must be a positive number"),
    ],
)
def test_parameters_that_make_no_sense(model, words):
    with pytest.raises(ValueError, match=words):
        model.fit(np.zeros((5, 1)), np.arange(5.0))
