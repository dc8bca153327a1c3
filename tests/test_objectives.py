"""The ELBO and the α-energy, against exact answers, integration and brute force."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples import (
    assert_gradient,
    brute_force_samples,
    make_network,
    numpy_features,
    perturbed,
    random_key,
    with_posterior,
)
from scipy.integrate import quad
from scipy.special import log_ndtr, logsumexp
from scipy.stats import multivariate_normal, norm

from dvip import BayesianNeuralNetwork, Gaussian, Probit
from dvip.batches import Batch
from dvip.network import DeepNetwork, Stage
from dvip.objectives import DeepModel, bound
from dvip.parameters import split_trainable
from dvip.runtime import precision

pytestmark = pytest.mark.usefixtures("double")

NUM_ROWS, BATCH = 12, 4
RANDOM = np.random.default_rng(1)
INPUTS = RANDOM.normal(size=(NUM_ROWS, 3))
TARGETS = RANDOM.normal(size=(NUM_ROWS, 2))
LABELS = (TARGETS[:, :1] > 0).astype(float)
WEIGHTS = RANDOM.uniform(0.2, 3, size=NUM_ROWS)
ALL = np.arange(NUM_ROWS)
NOISE_VARIANCES = np.array([0.5, 1.0])


def slowly(value):
    """A value of a parameter that takes a program of its own, much like the others."""
    return pytest.param(value, marks=pytest.mark.slow)


def batch(rows, targets=TARGETS, weights=WEIGHTS):
    return Batch(*(jnp.asarray(array[rows]) for array in (INPUTS, targets, weights)))


@eqx.filter_jit
def evaluate(model, data, key, alpha=0.0, num_samples=1):
    noise = model.network.draw_sample_noise(key, num_samples, len(data.inputs))
    return bound(model, data, noise, key, num_data=float(NUM_ROWS), alpha=alpha)


@eqx.filter_jit
def evaluate_many(model, data, keys, alpha=0.0, num_samples=1):
    return jax.vmap(lambda key: evaluate(model, data, key, alpha, num_samples))(keys)


def gaussian_model(*widths):
    return DeepModel(make_network(INPUTS, widths), Gaussian(jnp.log(NOISE_VARIANCES[: widths[-1]])))


@pytest.fixture(scope="module")
def shallow(double):
    return gaussian_model(2)


@pytest.fixture(scope="module")
def deep(double):
    return gaussian_model(3, 2)


@pytest.fixture(scope="module")
def shallow_probit(double):
    return DeepModel(make_network(INPUTS, (1,)), Probit())


def moments(model):
    """Mean and variance of a one-layer model at all inputs, units x rows, in NumPy."""
    layer = model.network.stages[0].layer
    prior_mean, features = numpy_features(layer, INPUTS.T)
    mean = np.einsum("hs,hsb->hb", layer.q_mean, features) + prior_mean
    return mean, np.square(np.einsum("hst,hsb->htb", layer.q_factor, features)).sum(axis=1)


def kl(model):
    """By traces and determinants."""
    total = 0.0
    for stage in model.network.stages:
        for mean, factor in zip(
            np.asarray(stage.layer.q_mean), np.asarray(stage.layer.q_factor), strict=True
        ):
            covariance = factor @ factor.T
            log_determinant = np.linalg.slogdet(covariance)[1]
            total += 0.5 * (np.trace(covariance) + mean @ mean - len(mean) - log_determinant)
    return total


# One layer.


def test_elbo_of_one_layer(shallow):
    mean, variance = moments(shallow)
    noise = NOISE_VARIANCES[:, None]
    terms = norm.logpdf(TARGETS.T, mean, np.sqrt(noise)) - 0.5 * variance / noise
    expected = WEIGHTS @ terms.sum(axis=0) - kl(shallow)
    np.testing.assert_allclose(evaluate(shallow, batch(ALL), random_key(0)), expected, rtol=1e-10)


def test_minibatches_of_one_layer_average_to_the_whole(shallow):
    """Nothing is sampled, so the average over a partition is exact; weights included."""
    whole = evaluate(shallow, batch(ALL), random_key(0))
    rows = np.random.default_rng(2).permutation(NUM_ROWS).reshape(-1, BATCH)
    parts = [evaluate(shallow, batch(part), random_key(i)) for i, part in enumerate(rows)]
    np.testing.assert_allclose(np.mean(parts), whole, rtol=1e-12)
    assert np.std(parts) > 0.1


def test_weights_count_rows(shallow):
    """A weight of two is the row twice; a weight of zero is no row."""
    twice = np.array([0, 1, 1, 3])
    weights = np.array([1.0, 2.0, 0.0, 1.0])
    data = Batch(*(jnp.asarray(a) for a in (INPUTS[:4], TARGETS[:4], weights)))
    repeated = batch(twice, weights=np.ones(NUM_ROWS))
    np.testing.assert_allclose(
        evaluate(shallow, data, random_key(0)), evaluate(shallow, repeated, random_key(0))
    )


@pytest.mark.parametrize("alpha", [slowly(0.2), 0.5, slowly(1.0)])
def test_alpha_energy_of_one_gaussian_layer_against_integration(shallow, alpha):
    mean, variance = moments(shallow)
    std = np.sqrt(NOISE_VARIANCES)
    total = 0.0
    for row in range(NUM_ROWS):
        for unit in range(2):
            m, s, y = mean[unit, row], np.sqrt(variance[unit, row]), TARGETS[row, unit]
            integral, _ = quad(
                lambda f, m=m, s=s, y=y, h=unit: (
                    norm.pdf(f, m, s) * norm.pdf(y, f, std[h]) ** alpha
                ),
                *(m - 12 * s, m + 12 * s),
                epsabs=0,
                limit=200,
            )
            total += WEIGHTS[row] * np.log(integral) / alpha
    energy = evaluate(shallow, batch(ALL), random_key(0), alpha)
    np.testing.assert_allclose(energy, total - kl(shallow), rtol=1e-8)


@pytest.mark.parametrize("alpha", [0.0, 0.5, slowly(1.0)])
def test_alpha_energy_of_one_probit_layer_against_integration(shallow_probit, alpha):
    mean, variance = (moment[0] for moment in moments(shallow_probit))
    total = 0.0
    for row in range(NUM_ROWS):
        sign = 2 * LABELS[row, 0] - 1
        m, s = mean[row], np.sqrt(variance[row])

        def integrand(f, m=m, s=s, sign=sign):
            log_prob = log_ndtr(sign * f)
            return norm.pdf(f, m, s) * (np.exp(alpha * log_prob) if alpha else log_prob)

        integral, _ = quad(integrand, m - 12 * s, m + 12 * s, epsabs=0, limit=200)
        total += WEIGHTS[row] * (np.log(integral) / alpha if alpha else integral)
    energy = evaluate(shallow_probit, batch(ALL, LABELS), random_key(0), alpha)
    np.testing.assert_allclose(energy, total - kl(shallow_probit), rtol=1e-5)


@pytest.mark.parametrize("name", ["shallow", "shallow_probit"])
def test_alpha_to_zero_is_the_elbo(request, name):
    model = request.getfixturevalue(name)
    data = batch(ALL, TARGETS if name == "shallow" else LABELS)
    elbo = float(evaluate(model, data, random_key(0)))
    larger, smaller = (float(evaluate(model, data, random_key(0), a)) for a in (2e-4, 1e-4))
    assert larger > smaller > elbo
    # The difference is linear in α: it halves, and extrapolates to the ELBO.
    np.testing.assert_allclose(2 * smaller - larger, elbo, rtol=1e-5)


# One layer with Gaussian noise is Bayesian linear regression on the features, which is exact.


@pytest.fixture(scope="module")
def at_optimum(double):
    """A model with one target whose q(a) is the exact posterior."""
    model = gaussian_model(1)
    layer = model.network.stages[0].layer
    prior_mean, features = numpy_features(layer, INPUTS.T)
    phi, residuals = features[0].T, TARGETS[:, 0] - prior_mean[0]
    covariance = np.linalg.inv(np.eye(phi.shape[1]) + phi.T @ phi / NOISE_VARIANCES[0])
    mean = covariance @ phi.T @ residuals / NOISE_VARIANCES[0]
    layer = with_posterior(layer, mean[None], np.linalg.cholesky(covariance)[None])
    return eqx.tree_at(lambda m: m.network.stages[0].layer, model, layer)


def unweighted():
    return batch(ALL, TARGETS[:, :1], np.ones(NUM_ROWS))


def log_evidence(model, noise_variance):
    """log p(y) of the linear model with standard normal coefficients."""
    prior_mean, features = numpy_features(model.network.stages[0].layer, INPUTS.T)
    covariance = features[0].T @ features[0] + noise_variance * np.eye(NUM_ROWS)
    return multivariate_normal.logpdf(TARGETS[:, 0], prior_mean[0], covariance)


def test_elbo_at_the_exact_posterior_is_the_evidence(at_optimum):
    elbo = evaluate(at_optimum, unweighted(), random_key(0))
    expected = log_evidence(at_optimum, NOISE_VARIANCES[0])
    np.testing.assert_allclose(elbo, expected, rtol=1e-10)


def test_elbo_with_known_errors_is_the_evidence_of_weighted_regression():
    """Each row has a noise of its own, σ² + s²; of equal errors that is one noise for all."""
    model = gaussian_model(1)
    layer = model.network.stages[0].layer
    prior_mean, features = numpy_features(layer, INPUTS.T)
    phi, residuals = features[0].T, TARGETS[:, 0] - prior_mean[0]
    for errors in (RANDOM.uniform(0.01, 2, NUM_ROWS), np.full(NUM_ROWS, 0.7)):
        variances = NOISE_VARIANCES[0] + errors**2
        covariance = np.linalg.inv(np.eye(phi.shape[1]) + phi.T @ (phi / variances[:, None]))
        mean = covariance @ phi.T @ (residuals / variances)
        exact = with_posterior(layer, mean[None], np.linalg.cholesky(covariance)[None])
        exact = eqx.tree_at(lambda m: m.network.stages[0].layer, model, exact)
        targets = np.column_stack([TARGETS[:, 0], errors])
        elbo = evaluate(exact, batch(ALL, targets, np.ones(NUM_ROWS)), random_key(0))
        expected = multivariate_normal.logpdf(residuals, None, phi @ phi.T + np.diag(variances))
        np.testing.assert_allclose(elbo, expected, rtol=1e-10)
    likelihood = Gaussian(jnp.log(NOISE_VARIANCES[:1] + 0.7**2))
    alike = eqx.tree_at(lambda m: m.likelihood, exact, likelihood)
    for alpha in (0.0, 0.5):
        with_errors = evaluate(exact, batch(ALL, targets), random_key(0), alpha)
        same = evaluate(alike, batch(ALL, targets[:, :1]), random_key(0), alpha)
        np.testing.assert_allclose(with_errors, same, rtol=1e-12)


def test_elbo_elsewhere_is_lower(at_optimum):
    layer = at_optimum.network.stages[0].layer
    for seed in range(5):
        moved = eqx.tree_at(lambda m: m.process, perturbed(layer, seed, 0.1), layer.process)
        model = eqx.tree_at(lambda m: m.network.stages[0].layer, at_optimum, moved)
        assert evaluate(model, unweighted(), random_key(0)) < log_evidence(
            at_optimum, NOISE_VARIANCES[0]
        )


def test_gradients_at_the_exact_posterior(at_optimum):
    """None for q(a); for the rest, that of the log evidence."""

    def elbo(model):
        return evaluate(model, unweighted(), random_key(0))

    gradient = assert_gradient(elbo, at_optimum)
    layer = split_trainable(gradient)[0].network.stages[0].layer
    slopes = jax.tree.leaves(eqx.tree_at(lambda part: part.process, layer, None))
    assert max(np.abs(slope).max() for slope in slopes) < 1e-9

    step, log_noise = 1e-5, np.log(NOISE_VARIANCES[0])
    up, down = (log_evidence(at_optimum, np.exp(log_noise + s * step)) for s in (1, -1))
    expected = (up - down) / (2 * step)
    np.testing.assert_allclose(gradient.likelihood.log_variance[0], expected, rtol=1e-6)


# Deep models.

MANY = 10_000


@pytest.mark.parametrize("num_samples", [slowly(1), 3])
def test_minibatches_of_a_deep_model_are_unbiased(deep, num_samples):
    """Averages over batches and samples equal those of the whole data."""
    whole_keys, part_keys = (jax.random.split(random_key(seed), MANY) for seed in (0, 1))
    whole = np.asarray(evaluate_many(deep, batch(ALL), whole_keys, 0.0, num_samples))
    rows = ALL.reshape(-1, BATCH)
    parts = np.concatenate(
        [evaluate_many(deep, batch(part), part_keys, 0.0, num_samples) for part in rows]
    ).reshape(len(rows), MANY)
    error = np.sqrt(whole.var() / MANY + parts.mean(axis=0).var() / MANY)
    assert abs(whole.mean() - parts.mean()) < 5 * error
    assert error < 0.005 * abs(whole.mean())  # or nothing would be shown


def test_deep_elbo_against_brute_force(deep):
    """E[log p(y | f)] with every coefficient and all noise sampled, for two rows."""
    data = batch(ALL[:2])
    estimates = np.asarray(evaluate_many(deep, data, jax.random.split(random_key(2), MANY)))
    values, errors = [], []
    for row in range(2):
        samples = brute_force_samples(deep.network, INPUTS[[row]].T, 100_000, row)
        log_prob = norm.logpdf(TARGETS[row][:, None], samples, np.sqrt(NOISE_VARIANCES)[:, None])
        log_prob = WEIGHTS[row] * log_prob.sum(axis=0) * NUM_ROWS / 2
        values.append(log_prob.mean())
        errors.append(log_prob.var() / len(log_prob))
    error = np.sqrt(sum(errors) + estimates.var() / MANY)
    assert abs(estimates.mean() - (sum(values) - kl(deep))) < 5 * error


@pytest.mark.parametrize("alpha", [0.5, slowly(1.0)])
def test_deep_alpha_energy_against_brute_force(deep, alpha):
    """The log-mean-exp over many samples against (1/α) log E[p(y | f)^α], all sampled."""
    num_samples = 50_000
    energy = float(evaluate(deep, batch(ALL[:2]), random_key(3), alpha, num_samples))
    total, variance = -kl(deep), 0.0
    for row in range(2):
        samples = brute_force_samples(deep.network, INPUTS[[row]].T, num_samples, row)
        log_prob = norm.logpdf(TARGETS[row][:, None], samples, np.sqrt(NOISE_VARIANCES)[:, None])
        tilted = alpha * log_prob.sum(axis=0)
        weight = WEIGHTS[row] * NUM_ROWS / 2 / alpha
        total += weight * (logsumexp(tilted) - np.log(num_samples))
        # Of the logarithm of a mean; twice, as the energy's samples have no larger variance.
        powers = np.exp(tilted - tilted.max())
        variance += 2 * (weight * powers.std() / powers.mean()) ** 2 / num_samples
    assert abs(energy - total) < 5 * np.sqrt(variance)
    assert np.sqrt(variance) < 0.005 * abs(total)  # or nothing would be shown


def test_deep_alpha_energy_grows_with_samples(deep):
    """Jensen: with few samples the energy is a lower bound of itself with many."""
    keys = jax.random.split(random_key(4), 2_000)
    few, many = (np.mean(evaluate_many(deep, batch(ALL), keys, 0.5, n)) for n in (1, 20))
    assert few < many


# Regularisation of the prior.


@pytest.mark.parametrize("alpha", [slowly(0.0), 0.5])
def test_the_bound_loses_the_regularisation_of_every_layer(alpha):
    def model(regularised):
        process = BayesianNeuralNetwork((4,), constrained=False, regularised=regularised)
        return DeepModel(make_network(INPUTS, (3, 2), process=process), Gaussian().initialise(2))

    regularised, free = model(True), model(False)
    costs = [stage.layer.process.regularisation() for stage in regularised.network.stages]
    assert min(costs) > 1
    lost = evaluate(free, batch(ALL), random_key(0), alpha) - evaluate(
        regularised, batch(ALL), random_key(0), alpha
    )
    np.testing.assert_allclose(lost, sum(costs), rtol=1e-9)


# Fresh noise and precision.


def test_fresh_noise_is_redrawn_for_each_key():
    def model(fresh):
        network = make_network(INPUTS, (1,))
        layer = network.stages[0].layer
        layer = type(layer)(**{**vars(layer), "fresh_noise": fresh})
        return DeepModel(DeepNetwork((Stage(layer, 1),)), Gaussian().initialise(1))

    data = batch(ALL, TARGETS[:, :1])
    fixed = [float(evaluate(model(False), data, random_key(seed))) for seed in (0, 1)]
    fresh = [float(evaluate(model(True), data, random_key(seed))) for seed in (0, 1)]
    assert fixed[0] == fixed[1]
    assert len({*fixed, *fresh}) == 3


@pytest.mark.parametrize("alpha", [slowly(0.0), 0.5])
def test_single_precision_is_close_to_double(shallow, alpha):
    def value_and_gradient(model, data):
        function = eqx.filter_jit(
            eqx.filter_value_and_grad(lambda m: evaluate(m, data, random_key(0), alpha))
        )
        value, gradient = function(model)
        return np.asarray(value), jax.tree.leaves(split_trainable(gradient)[0])

    value, gradient = value_and_gradient(shallow, batch(ALL))
    halved = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), (shallow, batch(ALL)))
    with precision("float32"):
        model, data = jax.tree.map(jnp.asarray, halved)
        single_value, single_gradient = value_and_gradient(model, data)
    assert single_value.dtype == np.float32
    np.testing.assert_allclose(single_value, value, rtol=1e-5)
    for single, double in zip(single_gradient, gradient, strict=True):
        assert single.dtype == np.float32
        np.testing.assert_allclose(single, double, rtol=1e-3, atol=1e-4 * np.abs(double).max())
