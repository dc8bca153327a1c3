"""The network: input propagation, inner noise, and samples against brute force."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples import (
    Recording,
    brute_force_samples,
    make_layer,
    make_network,
    numpy_features,
    random_key,
)
from sklearn.decomposition import PCA

from dvip import BayesianNeuralNetwork
from dvip.network import DeepNetwork, SampleNoise, default_widths, propagation_matrix
from dvip.processes import PerUnit

pytestmark = pytest.mark.usefixtures("double")

NUM_INPUTS, NUM_SAMPLES = 3, 50_000
NETWORK = BayesianNeuralNetwork(hidden=(4,))
TABLE = np.random.default_rng(1).normal(size=(50, NUM_INPUTS)) @ np.diag([1.0, 3.0, 2.0])
INPUTS = TABLE[:2].T


@eqx.filter_jit
def conditionals(block_or_layer, inputs):
    """Of one sample, in a layer without noise of its own."""
    return [moment[:, 0] for moment in block_or_layer.conditionals(inputs[:, None], None)]


# Input propagation.


def test_identity_where_widths_agree():
    assert np.array_equal(propagation_matrix(TABLE, NUM_INPUTS), np.eye(NUM_INPUTS))


def test_zeros_where_layers_grow():
    assert np.array_equal(propagation_matrix(TABLE, 5), np.eye(5)[:, :NUM_INPUTS])


@pytest.mark.parametrize("num_units", [1, 2])
def test_principal_components_where_layers_shrink(num_units):
    matrix = propagation_matrix(TABLE + 7, num_units)
    pca = PCA(num_units).fit(TABLE)
    np.testing.assert_allclose(np.abs(matrix @ pca.components_.T), np.eye(num_units), atol=1e-12)


def test_principal_components_of_wide_tables():
    """More columns than rows: as before, without a matrix of columns times columns."""
    table = np.random.default_rng(2).normal(size=(6, 5_000))
    matrix = propagation_matrix(table, 4)
    pca = PCA(4).fit(table)
    np.testing.assert_allclose(np.abs(matrix @ pca.components_.T), np.eye(4), atol=1e-9)
    # More units than rows: what the rows do not span is left out.
    more = propagation_matrix(table, 8)
    assert more.shape == (8, 5_000)
    np.testing.assert_allclose(more[:4], matrix, atol=1e-12)
    assert (more[6:] == 0).all()


@pytest.mark.parametrize("num_units", [2, pytest.param(3, marks=pytest.mark.slow), 5])
def test_inner_layers_add_their_input_and_noise(num_units):
    stage = make_network(TABLE, (num_units, 1)).stages[0]
    layer = stage.layer
    prior_mean, features = numpy_features(layer, INPUTS)
    mean = np.einsum("hs,hsb->hb", layer.q_mean, features) + prior_mean
    mean += propagation_matrix(TABLE, num_units) @ INPUTS
    variance = np.square(np.einsum("hst,hsb->htb", layer.q_factor, features)).sum(axis=1)
    noise = np.exp(np.asarray(stage.log_inner_noise))
    assert len(np.unique(noise)) == num_units  # its own for each unit
    moments = conditionals(stage, jnp.asarray(INPUTS))
    np.testing.assert_allclose(moments[0], mean, rtol=1e-10)
    np.testing.assert_allclose(moments[1], variance + noise[:, None], rtol=1e-10)


def test_principal_components_of_what_reaches_the_layer():
    """The third layer of 3-2-1-1 units projects on the plane that the second saw."""
    network = make_network(TABLE, (3, 2, 1, 1))
    plane = PCA(2).fit_transform(TABLE)
    expected = PCA(1).fit(plane).components_
    matrix = network.stages[2].propagation.value
    np.testing.assert_allclose(np.abs(matrix), np.abs(expected), atol=1e-12)


@pytest.mark.parametrize(
    "flags", [(False, True), (True, False), pytest.param((False, False), marks=pytest.mark.slow)]
)
def test_propagation_can_be_switched_off_for_each_layer(flags):
    network = make_network(TABLE, (3, 3, 1), (*flags, True))
    assert [stage.propagation is not None for stage in network.stages] == [*flags, False]


def test_last_layer_is_bare():
    """Even one as wide as its input: no propagation, no inner noise."""
    stage = make_network(TABLE, (3, 3)).stages[-1]
    assert stage.propagation is None
    assert stage.log_inner_noise is None
    moments = conditionals(stage, jnp.asarray(INPUTS))
    for moment, of_layer in zip(
        moments, conditionals(stage.layer, jnp.asarray(INPUTS)), strict=True
    ):
        np.testing.assert_allclose(moment, of_layer, rtol=1e-12)


def test_default_widths():
    assert default_widths(3, 1, 2) == (2,)
    assert default_widths(3, 3, 2) == (3, 3, 2)
    assert default_widths(100, 4, 1) == (30, 30, 30, 1)


# Samples.


@eqx.filter_jit
def propagate(network, inputs, white):
    return network.propagate(inputs, SampleNoise(white, (None,) * len(network.stages)))


@eqx.filter_jit
def drawn_values(network, keys, inputs):
    functions = jax.vmap(network.draw_function)(keys)
    return jax.vmap(lambda function: network.evaluate(function, inputs))(functions)


def white_noise(network, num_samples, seed):
    """For the inner units; a single layer has nothing to sample."""
    shape = (num_samples if network.inner_widths else 1, sum(network.inner_widths), 1)
    return np.random.default_rng(seed).normal(size=shape)


def _assert_equal_moments(a, b):
    """Means and second moments over the last axis, within five standard errors."""
    for power in (1, 2):
        x, y = a**power, b**power
        error = np.sqrt(x.var(axis=-1) / x.shape[-1] + y.var(axis=-1) / y.shape[-1])
        assert (np.abs(x.mean(axis=-1) - y.mean(axis=-1)) < 5 * error).all()


NETWORKS = {
    "one layer": lambda: make_network(TABLE, (2,)),
    "two layers": lambda: make_network(TABLE, (2, 1)),
    "three layers, a process each": lambda: make_network(
        TABLE, (2, 2, 2), (True, False, False), PerUnit(NETWORK, 2)
    ),
}


# Three layers do what two do, and take longer to compile.
@pytest.fixture(
    scope="module",
    params=[
        pytest.param(make, id=name, marks=[pytest.mark.slow] * name.startswith("three"))
        for name, make in NETWORKS.items()
    ],
)
def network(request, double):
    return request.param()


@pytest.fixture(scope="module")
def brute_force(network):
    return brute_force_samples(network, INPUTS[:, :1], NUM_SAMPLES, 3)


@pytest.fixture(scope="module")
def propagated(network):
    white = jnp.asarray(white_noise(network, NUM_SAMPLES, 4))
    return tuple(map(np.asarray, propagate(network, jnp.asarray(INPUTS), white)))


@pytest.fixture(scope="module")
def draw_keys(double):
    return jax.random.split(random_key(5), NUM_SAMPLES)


@pytest.fixture(scope="module")
def draws(network, draw_keys):
    return np.asarray(drawn_values(network, draw_keys, jnp.asarray(INPUTS)))


def test_propagated_samples_against_brute_force(propagated, brute_force):
    mean, variance = (moment[..., 0] for moment in propagated)
    last = np.random.default_rng(5).normal(size=(len(mean), NUM_SAMPLES))
    _assert_equal_moments(mean + np.sqrt(variance) * last, brute_force)


def test_function_draws_against_brute_force(draws, brute_force):
    _assert_equal_moments(draws[..., 0].T, brute_force)


def test_function_draws_are_whole_functions(network, draw_keys, draws):
    """At inputs in another place and company."""
    moved = drawn_values(network, draw_keys, jnp.asarray(INPUTS[:, [1, 1]]))
    np.testing.assert_allclose(moved[:4], draws[:4][..., [1, 1]], rtol=1e-10)
    assert len(np.unique(np.round(draws[:4], 9))) == draws[:4].size


def test_shared_white_noise_stands_for_the_same_noise_at_every_row(network, propagated):
    """One column of white noise is the same as that column for every row."""
    white = np.repeat(white_noise(network, NUM_SAMPLES, 4), INPUTS.shape[1], axis=2)
    repeated = propagate(network, jnp.asarray(INPUTS), jnp.asarray(white))
    for a, b in zip(propagated, repeated, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_kl_is_the_sum_over_layers(network):
    layers = [stage.layer for stage in network.stages]
    np.testing.assert_allclose(
        network.kl(random_key(0)), sum(float(layer.kl()) for layer in layers)
    )


def test_first_layer_is_evaluated_once_a_row():
    process, shapes = Recording.around(NETWORK)
    network = make_network(TABLE, (3, 2, 1), process=process)
    num_rows, num_samples = 7, 11
    white = jnp.zeros((num_samples, 5, num_rows))
    shapes.clear()
    mean, _ = propagate(network, jnp.asarray(TABLE[:num_rows].T), white)
    assert mean.shape == (1, num_samples, num_rows)
    columns = [(shape[0], int(np.prod(shape[1:]))) for shape in shapes]
    assert columns == [(3, num_rows), (3, num_rows * num_samples), (2, num_rows * num_samples)]


def test_redrawing_noise_reaches_every_layer():
    def layers(fresh):
        made = [make_layer(NETWORK, num_units=3, fresh_noise=fresh) for _ in range(2)]
        network = make_network(TABLE, (3, 3))
        return eqx.tree_at(lambda net: [stage.layer for stage in net.stages], network, made)

    def noise(network: DeepNetwork):
        return [jax.tree.leaves(stage.layer.noise)[0] for stage in network.stages]

    fresh = layers(True)
    redrawn = noise(fresh.redraw_noise(random_key(8)))
    assert not any(np.array_equal(a, b) for a, b in zip(noise(fresh), redrawn, strict=True))
    assert not np.array_equal(*redrawn)
    fixed = layers(False)
    kept = noise(fixed.redraw_noise(random_key(8)))
    assert all(np.array_equal(a, b) for a, b in zip(noise(fixed), kept, strict=True))
