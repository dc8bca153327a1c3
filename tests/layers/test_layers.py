"""Layers: one protocol for all of them; moments and KL against brute force."""

import inspect
from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples import (
    RandomWaves,
    assert_gradient,
    empirical_kernel,
    make_implicit_gp_layer,
    make_layer,
    make_sampled_gp_layer,
    make_sip_layer,
    make_sparse_layer,
    numpy_features,
    perturbed,
    random_key,
    rbf_kernel,
    with_posterior,
)

import dvip.layers
from dvip import BayesianNeuralNetwork
from dvip.layers import (
    GaussianLayer,
    KnownVIPLayer,
    Layer,
    RandomFeaturesLayer,
    SampledGPLayer,
    VIPLayer,
)
from dvip.parameters import split_trainable
from dvip.processes import PerUnit
from dvip.runtime import precision

pytestmark = pytest.mark.usefixtures("double")

NETWORK = BayesianNeuralNetwork(hidden=(4,))
# A new layer is added here.
EXAMPLES = {
    "vip": lambda: make_layer(NETWORK),
    "vip, a process each": lambda: make_layer(PerUnit(NETWORK, 2)),
    "vip, fresh noise": lambda: make_layer(NETWORK, fresh_noise=True),
    "vip, own process": lambda: make_layer(RandomWaves()),
    "sparse gp": lambda: make_sparse_layer(rbf_kernel()),
    "inducing points": lambda: make_sparse_layer(empirical_kernel(NETWORK)),
    "inducing points, a process each, fresh noise": lambda: make_sparse_layer(
        empirical_kernel(PerUnit(NETWORK, 2), fresh_noise=True)
    ),
    "random features": lambda: perturbed(
        RandomFeaturesLayer.create(
            3, 2, 5, variance=1.5, lengthscale=1.3, q_scale=0.7, key=random_key(0)
        )
    ),
    "sampled gp": lambda: make_sampled_gp_layer(),
    "implicit gp": lambda: make_implicit_gp_layer(),
    "sip, a process each, fresh noise": lambda: make_sip_layer(
        PerUnit(NETWORK, 2), fresh_noise=True
    ),
}
# Those whose options others have together.
SLOW = ("vip, a process each", "inducing points")
NUM_INPUTS, NUM_UNITS, NUM_ROWS, NUM_DRAWS = 3, 2, 4, 100_000
NUM_MIXTURE_DRAWS = 20_000
INPUTS = np.random.default_rng(1).normal(size=(NUM_INPUTS, NUM_ROWS))


@cache
def example(name):
    return EXAMPLES[name]()


@eqx.filter_jit
def marginals(layer, inputs):
    return layer.marginals(inputs)


@eqx.filter_jit
def conditionals(layer, inputs, sample_noise):
    """At inputs x batch, the same in all samples, or at inputs x samples x batch."""
    inputs = inputs[:, None] if inputs.ndim == 2 else inputs
    return layer.conditionals(inputs, sample_noise)


@eqx.filter_jit
def drawn_values(layer, keys, inputs):
    """Values of one draw of the layer's functions for each key: draws x units x batch."""
    functions = jax.vmap(layer.draw_function)(keys)
    return jax.vmap(lambda function: layer.evaluate(function, inputs))(functions)


@eqx.filter_jit
def kl_estimate(layer, key):
    return layer.kl_estimate(key)


@eqx.filter_jit
def kl_of(layer):
    return layer.kl()


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in EXAMPLES],
)
def layer_name(request):
    return request.param


@pytest.fixture(scope="module")
def layer(layer_name, double):
    return example(layer_name)


@pytest.fixture(scope="module")
def sample_noise(layer):
    return layer.draw_sample_noise(random_key(2), NUM_MIXTURE_DRAWS)


@pytest.fixture(scope="module")
def moments(layer, sample_noise):
    return tuple(map(np.asarray, conditionals(layer, jnp.asarray(INPUTS), sample_noise)))


@pytest.fixture(scope="module")
def draw_keys(double):
    return jax.random.split(random_key(3), NUM_MIXTURE_DRAWS)


@pytest.fixture(scope="module")
def draws(layer, draw_keys):
    return np.asarray(drawn_values(layer, draw_keys, jnp.asarray(INPUTS)))


def _assert_moments(draws, mean, variance):
    """Means and variances over the first axis within five standard errors."""
    error = np.sqrt(variance / len(draws))
    assert (np.abs(draws.mean(axis=0) - mean) < 5 * error).all()
    # The draws are Gaussian: the variance's own standard error.
    assert (np.abs(draws.var(axis=0) / variance - 1) < 5 * np.sqrt(2 / len(draws))).all()


def test_every_layer_has_an_example():
    """Of the classes in `dvip.layers`, those that are no protocol."""
    layers = {cls for cls in vars(dvip.layers).values() if isinstance(cls, type)}
    layers = {cls for cls in layers if issubclass(cls, Layer) and not inspect.isabstract(cls)}
    # (A layer whose coefficients are known has no variance; test_sampling.py has its mathematics.)
    lacking = layers - {type(example(name)) for name in EXAMPLES.keys() - SLOW} - {KnownVIPLayer}
    assert not lacking, f"Add {lacking} to EXAMPLES of this file."


def test_conditionals_have_a_row_for_each_unit(layer, sample_noise, moments):
    mean, variance = moments
    num_samples = NUM_MIXTURE_DRAWS if jax.tree.leaves(sample_noise) else 1
    assert mean.shape == variance.shape == (NUM_UNITS, num_samples, NUM_ROWS)
    assert np.isfinite(mean).all()
    assert (variance > 0).all()
    assert len(np.unique(mean[:, 0])) == mean[:, 0].size
    assert num_samples == 1 or (mean.std(axis=1) > 0).all()


# Columns of the inputs in another order and company: of the same shape, so that nothing has to be
# compiled for them.
MOVED = [2, 0, 0, 3]


def test_conditionals_of_columns_do_not_depend_on_each_other(layer, sample_noise, moments):
    moved = conditionals(layer, jnp.asarray(INPUTS[:, MOVED]), sample_noise)
    for moment, expected in zip(moved, moments, strict=True):
        np.testing.assert_allclose(moment, expected[..., MOVED], rtol=1e-9)


def test_conditionals_of_samples_with_inputs_of_their_own(layer, sample_noise, moments):
    """The inputs of sample 0, 1, 2 are 0, 1, 2 columns further."""
    shifted = np.stack([np.roll(INPUTS, -shift, axis=1) for shift in range(3)], axis=1)
    sample_noise = jax.tree.map(lambda leaf: leaf[..., :3], sample_noise)
    of_own = conditionals(layer, jnp.asarray(shifted), sample_noise)
    for moment, expected in zip(of_own, moments, strict=True):
        for shift in range(3):
            of_sample = expected[:, min(shift, expected.shape[1] - 1)]
            wanted = np.roll(of_sample, -shift, axis=1)
            np.testing.assert_allclose(moment[:, shift], wanted, rtol=1e-9)


def test_draws_have_the_conditionals_moments(draws, sample_noise, moments):
    """Those of the mixture over the layer's noise; the draws' own spread tells their errors."""
    means, variances = moments
    mean, second = means.mean(axis=1), (variances + means**2).mean(axis=1)
    num_errors = 7 if jax.tree.leaves(sample_noise) else 5  # both sides are estimates then
    for power, expected in ((1, mean), (2, second)):
        error = (draws**power).std(axis=0) / np.sqrt(NUM_MIXTURE_DRAWS)
        assert (np.abs((draws**power).mean(axis=0) - expected) < num_errors * error).all()


def test_draws_are_whole_functions(layer, draw_keys, draws):
    moved = drawn_values(layer, draw_keys, jnp.asarray(INPUTS[:, MOVED]))
    np.testing.assert_allclose(moved[:3], draws[:3][..., MOVED], rtol=1e-11)
    assert len(np.unique(np.round(draws[:3], 9))) == draws[:3].size


def test_kl_is_positive(layer):
    if isinstance(layer, GaussianLayer):
        assert kl_of(layer) > 0
        np.testing.assert_allclose(kl_estimate(layer, random_key(0)), kl_of(layer), rtol=1e-15)
    elif isinstance(layer, SampledGPLayer):  # but for a constant, whatever the key
        squares = np.square(layer.samples.value).sum(axis=(1, 2))
        np.testing.assert_allclose(kl_estimate(layer, random_key(0)), 0.5 * squares.mean())
    else:  # of an estimate only that it is one number, which the key decides
        estimate = kl_estimate(layer, random_key(0))
        assert np.isfinite(estimate)
        assert estimate == kl_estimate(layer, random_key(0)) != kl_estimate(layer, random_key(1))


def test_gradients(layer):
    sample_noise = layer.draw_sample_noise(random_key(2), 3)

    def value(arguments):
        layer, inputs = arguments
        mean, variance = layer.conditionals(inputs[:, None], sample_noise)
        exact = layer.kl() if isinstance(layer, GaussianLayer) else 0.0
        return jnp.sum(jnp.sin(mean) * variance) + exact

    def objective(arguments):
        return value(arguments) + arguments[0].kl_estimate(random_key(1))

    arguments = (layer, jnp.asarray(INPUTS))
    gradient, _ = assert_gradient(value, arguments)
    if not isinstance(layer, GaussianLayer):  # whose estimate is a number of its own
        gradient, _ = eqx.filter_jit(eqx.filter_grad(objective))(arguments)
    slopes = jax.tree.leaves(split_trainable(gradient)[0])
    assert slopes
    assert all((slope != 0).any() for slope in slopes)


def test_redrawing_noise(layer, layer_name, sample_noise, moments):
    redrawn = layer.redraw_noise(random_key(5))
    again = layer.redraw_noise(random_key(5))
    mean, _ = conditionals(redrawn, jnp.asarray(INPUTS), sample_noise)
    assert np.array_equal(mean, conditionals(again, jnp.asarray(INPUTS), sample_noise)[0])
    assert np.array_equal(mean, moments[0]) == ("fresh" not in layer_name)
    # Only the noise changes.
    before, after = (jax.tree.leaves(split_trainable(part)[0]) for part in (layer, redrawn))
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("name", ["vip", "inducing points"])
def test_prior_noise_is_not_trained(name):
    layer = example(name)
    trained, rest, whole = (
        jax.tree.leaves(getattr(part, "kernel", part).noise)
        for part in (*split_trainable(layer), layer)
    )
    assert trained == []
    assert len(rest) == len(whole) > 0


# What is particular to the linear model f = φᵀ a + m*.


@pytest.mark.parametrize("name", ["vip", "vip, a process each"])
def test_marginals_against_sampled_coefficients(name):
    layer = example(name)
    prior_mean, features = numpy_features(layer, INPUTS)
    white = np.random.default_rng(6).normal(size=(NUM_DRAWS, NUM_UNITS, 6, 1))
    coefficients = np.asarray(layer.q_mean) + (np.asarray(layer.q_factor) @ white)[..., 0]
    draws = np.einsum("nhs,hsb->nhb", coefficients, features) + prior_mean
    _assert_moments(draws, *map(np.asarray, marginals(layer, jnp.asarray(INPUTS))))


@pytest.mark.parametrize("name", ["vip", "vip, a process each"])
def test_draws_have_the_covariance_between_inputs(name):
    layer = example(name)
    _, features = numpy_features(layer, INPUTS)
    factor = np.asarray(layer.q_factor)
    expected = np.einsum("hsb,hst,hut,huc->hbc", features, factor, factor, features)
    keys = jax.random.split(random_key(7), NUM_DRAWS)
    draws = np.asarray(drawn_values(layer, keys, jnp.asarray(INPUTS)))
    for unit in range(NUM_UNITS):
        variance = np.diag(expected[unit])
        error = np.sqrt((np.outer(variance, variance) + expected[unit] ** 2) / NUM_DRAWS)
        assert (np.abs(np.cov(draws[:, unit].T) - expected[unit]) < 5 * error).all()


@pytest.mark.parametrize("process", [NETWORK, PerUnit(NETWORK, 2)], ids=["shared", "each"])
def test_prior_has_the_moments_of_the_prior_samples(process):
    """At q(a) = p(a) a unit has the mean and the variance of the S functions themselves."""
    layer = VIPLayer.create(process, NUM_INPUTS, NUM_UNITS, 6, q_scale=1.0, key=random_key(0))
    samples = np.asarray(layer.process(layer.noise.value, jnp.asarray(INPUTS)))
    mean, variance = layer.marginals(jnp.asarray(INPUTS))
    shape = (NUM_UNITS, NUM_ROWS)
    np.testing.assert_allclose(mean, np.broadcast_to(samples.mean(axis=-2), shape), rtol=1e-12)
    np.testing.assert_allclose(variance, np.broadcast_to(samples.var(axis=-2), shape), rtol=1e-12)
    assert layer.kl() == 0


def test_starting_scale():
    layer = VIPLayer.create(NETWORK, NUM_INPUTS, NUM_UNITS, 6, q_scale=1e-3, key=random_key(0))
    np.testing.assert_allclose(layer.q_factor, np.tile(1e-3 * np.eye(6), (NUM_UNITS, 1, 1)))
    assert (np.asarray(layer.q_mean) == 0).all()


def _kl_from_standard_normal(mean, covariance):
    _, log_determinant = np.linalg.slogdet(covariance)
    return 0.5 * (np.trace(covariance) + mean @ mean - len(mean) - log_determinant)


def test_kl_against_traces_and_determinants():
    layer = perturbed(make_layer(NETWORK), 8)
    factor = np.asarray(layer.q_factor)
    assert (np.triu(factor, 1) == 0).all()
    assert (np.diagonal(factor, axis1=1, axis2=2) > 0).all()
    expected = sum(
        _kl_from_standard_normal(mean, unit @ unit.T)
        for mean, unit in zip(np.asarray(layer.q_mean), factor, strict=True)
    )
    np.testing.assert_allclose(layer.kl(), expected, rtol=1e-12)


def test_kl_of_a_given_posterior():
    """The layer's mean and factor are what they say: any q(a) has its KL, here from sampling."""
    random = np.random.default_rng(9)
    mean = random.normal(size=(NUM_UNITS, 6))
    factor = np.tril(random.normal(size=(NUM_UNITS, 6, 6)), -1) + np.diag(np.linspace(0.2, 2, 6))
    layer = with_posterior(make_layer(NETWORK), mean, factor)
    white = random.normal(size=(NUM_DRAWS, NUM_UNITS, 6))
    coefficients = mean + np.einsum("hst,nht->nhs", factor, white)
    log_determinants = np.log(np.diagonal(factor, axis1=1, axis2=2)).sum()
    log_ratios = 0.5 * (coefficients**2 - white**2).sum(axis=(1, 2)) - log_determinants
    error = log_ratios.std() / np.sqrt(NUM_DRAWS)
    assert abs(layer.kl() - log_ratios.mean()) < 5 * error


def test_single_precision_is_close_to_double():
    layer = make_layer(NETWORK)
    single = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), layer)
    with precision("float32"):
        single = jax.tree.map(jnp.asarray, single)
        mean, variance = marginals(single, jnp.asarray(INPUTS, jnp.float32))
        kl = single.kl()
    assert mean.dtype == variance.dtype == kl.dtype == jnp.float32
    expected_mean, expected_variance = marginals(layer, jnp.asarray(INPUTS))
    np.testing.assert_allclose(mean, expected_mean, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(variance, expected_variance, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(kl, layer.kl(), rtol=1e-5)
