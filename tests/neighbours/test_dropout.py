"""Dropout: masks and weight decay, against what is known."""

import equinox as eqx
import numpy as np
import pytest
from examples import random_key

from dvip import DropoutRegressor
from dvip.layers import Perceptrons
from dvip.neighbours.dropout import DropoutLayer

random = np.random.default_rng(0)


def test_dropped_units_and_the_weight_decay():
    @eqx.filter_jit
    def evaluated(inputs):
        layer = DropoutLayer(Perceptrons.create(1, (3, 40, 2), key=random_key(0)), 0.3, 2.0)
        masks, one = layer.draw_sample_noise(random_key(1), 500), layer.draw_function(random_key(2))
        values = layer.conditionals(inputs[:, None], masks)
        of_one = layer.evaluate(one, inputs), layer.conditionals(inputs[:, None], one)[0][:, 0]
        return layer.network, masks, *values, layer.kl_estimate(random_key(0)), of_one

    inputs = random.normal(size=(3, 5)).astype(np.float32)
    network, masks, mean, variance, cost, of_one = evaluated(inputs)
    masks = list(map(np.asarray, masks))
    assert [mask.shape for mask in masks] == [(3, 500), (40, 500)]
    np.testing.assert_allclose(masks[1].mean(), 0.7, atol=0.02)
    (first, last), (bias, last_bias) = (
        map(np.asarray, part) for part in (network.weights, network.biases)
    )
    hidden = first[0] @ (masks[0][:, 7, None] * inputs) + bias[0]
    hidden = np.where(hidden > 0, hidden, 0.01 * hidden)
    expected = last[0] @ (masks[1][:, 7, None] * hidden) + last_bias[0]
    np.testing.assert_allclose(mean[:, 7], expected, rtol=1e-4, atol=1e-5)
    assert not variance.any()
    decay = 0.7 * (3 * np.square(first).sum() + 40 * np.square(last).sum()) / 8
    np.testing.assert_allclose(cost, decay, rtol=1e-5)
    np.testing.assert_allclose(*of_one, rtol=1e-6)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (DropoutRegressor(rate=1.0), "below 1"),
        (DropoutRegressor(rate=-0.1), "must be a positive number"),
    ],
)
def test_parameters_that_make_no_sense(model, words):
    with pytest.raises(ValueError, match=words):
        model.fit(np.zeros((5, 1)), np.arange(5.0))
