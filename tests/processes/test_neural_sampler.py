"""The neural sampler: against the same network in NumPy."""

import jax.numpy as jnp
import numpy as np
import pytest
from examples import noise_of, perturbed, started, values_of

from dvip import NeuralSampler

pytestmark = pytest.mark.usefixtures("double")

INPUTS = np.random.default_rng(1).normal(size=(3, 4))


@pytest.mark.parametrize("hidden", [(5,), (5, 4, 3)], ids=str)
def test_values(hidden):
    """One function and one input at a time, input and noise as one vector."""
    process = perturbed(started(NeuralSampler(hidden, "relu", num_noise=2), 3))
    noise = np.asarray(noise_of(process, 6))
    values = np.asarray(values_of(process, jnp.asarray(noise), INPUTS))
    assert values.shape == (6, 4)
    first = np.hstack([process.input_weights, process.noise_weights])
    weights = [first, *map(np.asarray, process.weights)]
    for sample in range(6):
        for row in range(4):
            h = np.concatenate([INPUTS[:, row], noise[:, sample]])[:, None]
            for index, (weight, bias) in enumerate(zip(weights, process.biases, strict=True)):
                h = weight @ h + np.asarray(bias)
                h = np.maximum(h, 0) if index < len(hidden) else h
            np.testing.assert_allclose(values[sample, row], h.item(), rtol=1e-10, atol=1e-13)


def test_functions_start_different_and_of_the_order_of_one():
    """At standardised inputs, over the functions: that is what a layer can combine."""
    for hidden, num_inputs in (((20, 20), 3), ((50,), 200)):
        process = started(NeuralSampler(hidden), num_inputs)
        inputs = np.random.default_rng(5).normal(size=(num_inputs, 50))
        values = np.asarray(values_of(process, noise_of(process, 200), inputs))
        assert 0.2 < values.std(axis=0).mean() < 3
        assert 0.2 < values.std(axis=1).mean() < 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"activation": "swish"}, "activation='swish'.*tanh"),
        ({"hidden": ()}, r"hidden=\(\)"),
        ({"hidden": (3, 0)}, r"hidden=\(3, 0\)"),
        ({"num_noise": 0}, "num_noise=0"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        NeuralSampler(**options)
