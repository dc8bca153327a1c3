"""Implicit processes: one protocol for all of them, and the moments of Bayesian neural networks."""

from itertools import pairwise, product

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples import (
    RandomWaves,
    assert_gradient,
    noise_of,
    perturbed,
    random_key,
    started,
    values_of,
)
from scipy.special import expit
from scipy.stats import gamma, norm

from dvip import (
    BayesianNeuralNetwork,
    Constant,
    Convolutional,
    CurvePrior,
    GaussianProcess,
    JaxSimulatorPrior,
    Linear,
    Monotone,
    NeuralSampler,
    Periodic,
    Recurrent,
    WarpedGaussianProcess,
)
from dvip.parameters import split_trainable
from dvip.processes import PerUnit
from dvip.registry import PRIORS

pytestmark = pytest.mark.usefixtures("double")

ACTIVATIONS = {
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x * expit(x),
    "sigmoid": expit,
    "softplus": lambda x: np.logaddexp(0, x),
    "cos": np.cos,
}

WAVES = GaussianProcess(num_frequencies=6)
CURVES = np.random.default_rng(3).normal(size=(40, 5)).cumsum(axis=1)


def decay(inputs, height, rate):
    return height * jnp.exp(-rate * jnp.sum(inputs**2, axis=1))


# Those of the registry are here by themselves, with their default options.
EXAMPLES = {
    **{name: process() for name, process in PRIORS.items()},
    **{name: BayesianNeuralNetwork(hidden=(4, 3), activation=name) for name in ACTIVATIONS},
    "unconstrained": BayesianNeuralNetwork(hidden=(4,), constrained=False),
    "zero mean": BayesianNeuralNetwork(hidden=(4,), zero_mean=True),
    "unconstrained zero mean": BayesianNeuralNetwork((4,), constrained=False, zero_mean=True),
    "soft": BayesianNeuralNetwork(hidden=(4,), strength=2.0),
    "soft, zero mean": BayesianNeuralNetwork((4,), strength=2.0, zero_mean=True),
    "soft for each unit": PerUnit(BayesianNeuralNetwork(hidden=(4,), strength=2.0), 2),
    "three hidden layers": BayesianNeuralNetwork(hidden=(4, 1, 2)),
    "gp, random": GaussianProcess(num_frequencies=6, construction="random"),
    "gp, orthogonal": GaussianProcess(num_frequencies=7, construction="orthogonal"),
    "gp, Matérn": GaussianProcess("matern32", num_frequencies=6, lengthscale=0.5),
    "gp for each unit": PerUnit(GaussianProcess(num_frequencies=6), 2),
    "orthogonal gp for each unit": PerUnit(GaussianProcess("matern12", 5, "orthogonal"), 2),
    "warped gp for each unit": PerUnit(WarpedGaussianProcess(num_steps=1), 2),
    "sampler for each unit": PerUnit(NeuralSampler((4, 3), "softplus", num_noise=2), 2),
    "one for each unit": PerUnit(BayesianNeuralNetwork(hidden=(4,)), 2),
    "own": RandomWaves(),
    "own for each unit": PerUnit(RandomWaves(), 2),
    "conv, tanh, random filters": Convolutional(activation="tanh", bayesian_filters=True),
    "conv, one filter": Convolutional(filters=(1,), activation="cos", image_shape=(2, 2, 4)),
    "conv for each unit": Convolutional(activation="softplus", num_units=2),
    "conv, random filters, for each unit": Convolutional(
        activation="sigmoid", bayesian_filters=True, num_units=2
    ),
    "recurrent, unconstrained": Recurrent(hidden=3, constrained=False),
    "recurrent for each unit": PerUnit(Recurrent(hidden=3), 2),
    "sum": Linear() + Constant() + WAVES,
    "product": WAVES * Linear(),
    "union": BayesianNeuralNetwork(hidden=(4,)) | WAVES,
    "on columns": WAVES.on([0, 2]) + Linear(),
    "warped": WAVES.warped(),
    "period given": Periodic(period=2, num_frequencies=6),
    "period learned from there": Periodic(period=2, learned=True, num_frequencies=6),
    "monotone in some": Monotone(hidden=(4,), increasing=[0], decreasing=[2]),
    "curves": CurvePrior(np.linspace(-3, 3, 5), CURVES).on(1),
    "curves on a learned scale": CurvePrior(np.linspace(-3, 3, 5), CURVES, learned=True).on(1),
    "simulator": JaxSimulatorPrior(decay, {"height": norm(0, 1), "rate": gamma(2)}),
}
NUM_SAMPLES, NUM_INPUTS, NUM_ROWS = 5, 3, 4
INPUTS = np.random.default_rng(1).normal(size=(NUM_INPUTS, NUM_ROWS))
IMAGES = np.random.default_rng(1).normal(size=(4 * 4, NUM_ROWS))


@eqx.filter_jit
def draw_noise(process, key):
    return process.draw_noise(key, NUM_SAMPLES)


# Options that others of these show together, or one by one.
SLOW = {
    *(ACTIVATIONS.keys() - {"tanh"}),  # test_moments_of_one_hidden_layer has all of them
    *("unconstrained", "zero mean"),  # test_moments_of_one_hidden_layer
    "unconstrained zero mean",
    "soft, zero mean",
    "soft for each unit",
    "three hidden layers",
    "orthogonal gp for each unit",
    "warped gp for each unit",
    "sampler for each unit",
    "own for each unit",
    "conv, random filters, for each unit",
    "recurrent for each unit",
    "period given",
    "curves",
    *("gp, random", "gp, orthogonal", "gp, Matérn"),  # test_gaussian_process.py
    *("on columns", "warped", "union", "product"),  # test_algebra.py
    *("conv, one filter", "recurrent, unconstrained"),  # test_images_and_sequences.py
}


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(process, id=name, marks=[pytest.mark.slow] * (name in SLOW))
        for name, process in EXAMPLES.items()
    ],
)
def example(request):
    return request.param


@pytest.fixture(scope="module")
def inputs(example):
    return IMAGES if isinstance(example, Convolutional) else INPUTS


@pytest.fixture(scope="module")
def process(example, inputs, double):
    """An example with parameters away from where they start."""
    return perturbed(example.initialise(len(inputs), random_key(0)))


@pytest.fixture(scope="module")
def noise(process):
    return draw_noise(process, random_key(1))


@pytest.fixture(scope="module")
def values(process, noise, inputs):
    return np.asarray(values_of(process, noise, jnp.asarray(inputs)))


def test_values_have_a_row_for_each_function_and_a_column_for_each_input(process, values):
    units = (2,) if getattr(process, "num_units", None) else ()
    assert values.shape == (*units, NUM_SAMPLES, NUM_ROWS)
    assert values.dtype == np.float64
    assert np.isfinite(values).all()
    functions = values.reshape(-1, NUM_ROWS)
    assert len(np.unique(functions, axis=0)) == len(functions)
    assert len(np.unique(functions, axis=1)) == len(functions)


def test_draws_are_reproducible(process, noise):
    def same(draw):
        leaves = zip(jax.tree.leaves(noise), jax.tree.leaves(draw), strict=True)
        return [np.array_equal(a, b) for a, b in leaves]

    assert all(same(draw_noise(process, random_key(1))))
    assert not any(same(draw_noise(process, random_key(2))))
    # Parameters have no influence on the noise: functions move smoothly when θ is trained.
    assert all(same(draw_noise(perturbed(process, 5), random_key(1))))


def test_same_functions_at_any_batch(process, noise, inputs, values):
    """Columns in another order and company, in a batch of the same size."""
    moved = [2, 0, 0, 3]
    again = values_of(process, noise, jnp.asarray(inputs[:, moved]))
    np.testing.assert_allclose(again, values[..., moved], rtol=1e-12, atol=1e-14)


def test_every_parameter_is_trained_and_matters(process, noise, inputs, values):
    readout = np.random.default_rng(2).normal(size=values.shape)

    def value(arguments):
        process, inputs = arguments
        return jnp.sum(readout * process(noise, inputs))

    arguments = (process, jnp.asarray(inputs))
    trained, _ = split_trainable(process)
    gradient, _ = split_trainable(assert_gradient(value, arguments)[0])  # of what is trained
    for parameter, slope in zip(jax.tree.leaves(trained), jax.tree.leaves(gradient), strict=True):
        assert slope.shape == parameter.shape
        assert (slope != 0).any()


# The moments of a network with one hidden layer, by quadrature.


def _hidden_moments(activation, mean, covariance):
    """E[h(u)], E[h(v)] and E[h(u) h(v)] for Gaussian (u, v), by quadrature in two dimensions."""
    points, weights = np.polynomial.hermite_e.hermegauss(80)
    weights = weights / weights.sum()
    white = np.array(list(product(points, points)))
    weight = np.array([a * b for a, b in product(weights, weights)])
    u, v = (mean + white @ np.linalg.cholesky(covariance).T).T
    h, g = ACTIVATIONS[activation](u), ACTIVATIONS[activation](v)
    return weight @ h, weight @ g, weight @ (h * g)


def _means_and_scales(process, *hidden):
    """Those of the weights and biases, layer by layer, in arrays of the parameters' shapes."""
    widths = (NUM_INPUTS, *hidden, 1)
    shapes = [shape for a, b in pairwise(widths) for shape in ((b, a), (b, 1))]
    mean = np.zeros_like(process.log_scale) if process.mean is None else process.mean
    pairs = np.stack([mean, np.exp(process.log_scale)])
    if process.constrained:
        return [[np.broadcast_to(v, s) for v in p] for p, s in zip(pairs.T, shapes, strict=True)]
    ends = np.cumsum([rows * columns for rows, columns in shapes])
    pieces = np.split(pairs, ends[:-1], axis=1)
    return [piece.reshape(2, *shape) for piece, shape in zip(pieces, shapes, strict=True)]


def _network_moments(process, inputs):
    """Means at both inputs and the covariance between them, of a one-hidden-layer network."""
    (width,) = process.hidden

    hidden, bias, out, last = _means_and_scales(process, width)
    (weight_mean, weight_std), (bias_mean, bias_std) = hidden, bias
    (out_mean, out_std), (last_mean, last_std) = out, last
    means = np.full(2, last_mean[0, 0])
    covariance = last_std[0, 0] ** 2
    for k in range(width):
        hidden_mean = weight_mean[k] @ inputs + bias_mean[k, 0]
        hidden_covariance = inputs.T @ np.diag(weight_std[k] ** 2) @ inputs + bias_std[k, 0] ** 2
        at_first, at_second, both = _hidden_moments(
            process.activation, hidden_mean, hidden_covariance
        )
        v, s = out_mean[0, k], out_std[0, k]
        means += v * np.array([at_first, at_second])
        covariance += (v**2 + s**2) * both - v**2 * at_first * at_second
    return means, covariance


def _assert_moments(values, means, covariance):
    """Sample means and covariance within five standard errors."""
    num_samples = values.shape[0]
    error = values.std(axis=0) / np.sqrt(num_samples)
    assert (np.abs(values.mean(axis=0) - means) < 5 * error).all()
    products = np.prod(values - values.mean(axis=0), axis=1)
    error = products.std() / np.sqrt(num_samples)
    assert abs(products.mean() - covariance) < 5 * error


MANY = 40_000


@eqx.filter_jit
def many_functions(process, inputs):
    return process(process.draw_noise(random_key(3), MANY), inputs)


@pytest.mark.parametrize(
    "options",
    [
        *({"activation": name} for name in ACTIVATIONS),
        {"constrained": False},
        {"zero_mean": True},
        {"constrained": False, "zero_mean": True},
    ],
    ids=str,
)
def test_moments_of_one_hidden_layer(options):
    process = BayesianNeuralNetwork(hidden=(3,), **options)
    process = perturbed(started(process, NUM_INPUTS))
    inputs = INPUTS[:, :2]
    means, covariance = _network_moments(process, inputs)
    _assert_moments(np.asarray(many_functions(process, jnp.asarray(inputs))), means, covariance)
    if process.zero_mean:
        assert (means == 0).all()


@pytest.mark.parametrize("num_samples", [5, 20])
def test_noise_of_few_networks_has_exact_moments(num_samples):
    process = started(BayesianNeuralNetwork(), NUM_INPUTS)
    noise = np.asarray(noise_of(process, num_samples), float)
    np.testing.assert_allclose(noise.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(noise.std(axis=0), 1, rtol=1e-5)


def test_noise_of_one_network_is_noise():
    process = started(BayesianNeuralNetwork(), NUM_INPUTS)
    assert np.asarray(noise_of(process, 1)).std() > 0.5


def test_moments_of_two_hidden_layers():
    """Against another sampler, in NumPy."""
    process = perturbed(started(BayesianNeuralNetwork((4, 3), "relu"), NUM_INPUTS))
    inputs = INPUTS[:, :2]
    values = np.asarray(many_functions(process, jnp.asarray(inputs)))
    random = np.random.default_rng(4)

    h = inputs
    entries = [
        mean + scale * random.normal(size=(MANY, *mean.shape))
        for mean, scale in _means_and_scales(process, 4, 3)
    ]
    for index, (weights, biases) in enumerate(zip(entries[::2], entries[1::2], strict=True)):
        h = weights @ h + biases
        h = np.maximum(h, 0) if index < 2 else h
    expected = h[:, 0]
    for moment in (lambda f: f, lambda f: f**2, lambda f: f[:, :1] * f[:, 1:]):
        a, b = moment(values), moment(expected)
        error = np.sqrt((a.var(axis=0) + b.var(axis=0)) / MANY)
        assert (np.abs(a.mean(axis=0) - b.mean(axis=0)) < 5 * error).all()


def test_functions_start_of_the_order_of_one():
    """Whatever the widths: a prior of standardised data, at standardised inputs."""
    for hidden, num_inputs in (((10, 10), 3), ((50,), 200)):
        process = started(BayesianNeuralNetwork(hidden), num_inputs)
        inputs = np.random.default_rng(5).normal(size=(num_inputs, 1))
        values = np.asarray(values_of(process, noise_of(process, 200), inputs))
        assert 0.3 < values.std() < 3


def test_number_of_parameters():
    def count(**options):
        process = BayesianNeuralNetwork(hidden=(4, 3), **options)
        trained, _ = split_trainable(process.initialise(NUM_INPUTS, random_key(0)))
        return sum(leaf.size for leaf in jax.tree.leaves(trained))

    entries = (3 * 4 + 4) + (4 * 3 + 3) + (3 * 1 + 1)
    assert count() == 3 * 2 * 2  # network layers x (weights, biases) x (mean, scale)
    assert count(zero_mean=True) == 3 * 2
    assert count(constrained=False) == 2 * entries
    assert count(constrained=False, zero_mean=True) == entries


def test_units_with_a_process_each_are_independent():
    process = started(PerUnit(BayesianNeuralNetwork(hidden=(4,)), 2), NUM_INPUTS)
    inputs = jnp.asarray(INPUTS[:, :1])
    first, second = np.asarray(many_functions(process, inputs))[..., 0]
    assert abs(np.corrcoef(first, second)[0, 1]) < 5 / np.sqrt(MANY)

    # The parameters of the second unit are no concern of the first.
    trained, rest = split_trainable(process)
    moved = eqx.combine(jax.tree.map(lambda leaf: leaf.at[1].add(0.3), trained), rest)
    moved_first, moved_second = np.asarray(many_functions(moved, inputs))[..., 0]
    assert np.array_equal(moved_first, first)
    assert not np.isclose(moved_second, second, rtol=1e-12).any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"activation": "swish"}, "activation='swish'.*tanh"),
        ({"hidden": ()}, r"hidden=\(\)"),
        ({"hidden": (3, 0)}, r"hidden=\(3, 0\)"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        BayesianNeuralNetwork(**options)


@pytest.mark.parametrize("process", [BayesianNeuralNetwork(), Convolutional(), Recurrent()])
def test_noise_needs_the_width_of_the_inputs(process):
    with pytest.raises(ValueError, match="initialise"):
        process.draw_noise(random_key(0), 3)


# Regularisation.


@eqx.filter_jit
def regularisation(process):
    return process.regularisation()


def _kl_by_quadrature(means, scales):
    """Σ E[log N(w | mean, scale²) - log N(w | 0, 1)] over the entries."""
    points, weights = np.polynomial.hermite_e.hermegauss(20)
    weights = weights / weights.sum()
    values = means[..., None] + scales[..., None] * points
    terms = norm.logpdf(values, means[..., None], scales[..., None]) - norm.logpdf(values)
    return np.sum(terms @ weights)


@pytest.mark.parametrize("zero_mean", [False, True])
@pytest.mark.parametrize("constrained", [False, True])
def test_regularisation_is_the_divergence_of_all_weights_and_biases(constrained, zero_mean):
    options = dict(constrained=constrained, zero_mean=zero_mean)
    process = BayesianNeuralNetwork((4, 2), regularised=True, **options)
    process = perturbed(started(process, NUM_INPUTS))
    expected = sum(_kl_by_quadrature(*entries) for entries in _means_and_scales(process, 4, 2))
    assert expected > 1
    np.testing.assert_allclose(regularisation(process), expected, rtol=1e-10)
    free = started(BayesianNeuralNetwork((4, 2), **options), NUM_INPUTS)
    assert free.regularisation() == 0


def test_regularisation_of_units_is_their_sum():
    process = BayesianNeuralNetwork((4,), constrained=False, regularised=True)
    units = perturbed(started(PerUnit(process, 2), NUM_INPUTS))
    each = [jax.tree.map(lambda leaf, unit=unit: leaf[unit], units.process) for unit in range(2)]
    first, second = (float(regularisation(unit)) for unit in each)
    np.testing.assert_allclose(regularisation(units), first + second, rtol=1e-12)
    assert first != second


def test_standard_normal_weights_cost_nothing():
    process = started(BayesianNeuralNetwork((4,), regularised=True), NUM_INPUTS)
    standard = jax.tree.map(jnp.zeros_like, process)
    assert regularisation(standard) == 0
    assert regularisation(process) > 0
