"""Sparse implicit processes: the Gaussian conditional, the classifier's KL, the estimator."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from examples import SMALL_NETWORK, TINY_SIP, make_sip_layer, random_key, regression_data

from dvip import SIPRegressor
from dvip.density_ratio import classification_loss, kl_from_samples
from dvip.layers.perceptron import Perceptrons
from dvip.layers.sip import SIPLayer
from dvip.layers.whitening import FIRST_JITTER
from dvip.objectives import Batch, DeepModel, data_fit
from dvip.processes import PerUnit

NUM_INPUTS, NUM_ROWS = 3, 4
INPUTS = np.random.default_rng(1).normal(size=(NUM_INPUTS, NUM_ROWS))
X, Y = regression_data()


def numpy_conditional(layer, whitened, unit):
    """Mean and covariance of f_h(x) given u_h, from covariances of the prior functions' values."""
    columns = np.hstack([INPUTS, np.asarray(layer.inducing_inputs)])
    samples = np.asarray(layer.process(layer.noise.value, jnp.asarray(columns)))
    samples = samples[min(unit, len(samples) - 1)] if samples.ndim == 3 else samples
    mean, covariance = samples.mean(axis=0), np.cov(samples.T)
    within = covariance[NUM_ROWS:, NUM_ROWS:]
    jitter = FIRST_JITTER[within.dtype] * np.diag(within).mean()
    within = within + jitter * np.eye(len(within))
    values = mean[NUM_ROWS:] + np.linalg.cholesky(within) @ whitened
    weights = np.linalg.solve(within, covariance[NUM_ROWS:, :NUM_ROWS]).T
    return (
        mean[:NUM_ROWS] + weights @ (values - mean[NUM_ROWS:]),
        covariance[:NUM_ROWS, :NUM_ROWS] - weights @ covariance[NUM_ROWS:, :NUM_ROWS],
    )


PROCESSES = {"shared": SMALL_NETWORK, "each": PerUnit(SMALL_NETWORK, 2)}


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("process", PROCESSES.values(), ids=PROCESSES.keys())
def test_conditionals_against_covariance_matrices(process):
    layer = make_sip_layer(process)
    noise = layer.draw_sample_noise(random_key(0), 3)
    whitened = np.asarray(layer.sampler(noise))
    means, variances = layer.conditionals(jnp.asarray(INPUTS)[:, None], noise)
    for unit in range(2):
        for sample in range(3):
            mean, covariance = numpy_conditional(layer, whitened[unit, :, sample], unit)
            np.testing.assert_allclose(means[unit, sample], mean, rtol=1e-8)
            np.testing.assert_allclose(variances[unit, sample], np.diag(covariance), rtol=1e-8)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("process", PROCESSES.values(), ids=PROCESSES.keys())
def test_draws_have_the_covariance_between_inputs(process):
    """With a sampler that always gives the same u, draws are those of the Gaussian conditional."""
    layer = make_sip_layer(process)
    last = layer.sampler.networks.weights[-1]
    where = lambda layer: layer.sampler.networks.weights[-1]  # noqa: E731
    layer = eqx.tree_at(where, layer, jnp.zeros_like(last))
    whitened = np.asarray(layer.sampler.networks.biases[-1])[..., 0]
    num_draws = 20_000
    functions = jax.vmap(layer.draw_function)(jax.random.split(random_key(1), num_draws))
    evaluate = jax.vmap(lambda function: layer.evaluate(function, jnp.asarray(INPUTS)))
    draws = np.asarray(evaluate(functions))
    for unit in range(2):
        mean, covariance = numpy_conditional(layer, whitened[unit], unit)
        variance = np.diag(covariance)
        assert (
            np.abs(draws[:, unit].mean(axis=0) - mean) < 5 * np.sqrt(variance / num_draws)
        ).all()
        error = np.sqrt((np.outer(variance, variance) + covariance**2) / num_draws)
        assert (np.abs(np.cov(draws[:, unit].T) - covariance) < 5 * error).all()


class Watching(eqx.Module):
    """In the place of a classifier: keeps what it is shown."""

    seen: list = eqx.field(static=True)

    def __call__(self, values):
        self.seen.append(values)
        return jnp.sum(values, axis=1, keepdims=True)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("process", PROCESSES.values(), ids=PROCESSES.keys())
def test_classifier_sees_prior_samples_with_zero_mean_and_unit_covariance(process):
    inducing = jnp.asarray(np.random.default_rng(0).normal(size=(NUM_INPUTS, 5)))
    layer = SIPLayer.create(process, inducing, 2, 4_000, q_scale=1.0, key=random_key(0))
    seen = []
    watched = eqx.tree_at(lambda layer: layer.classifier, layer, Watching(seen))
    watched.kl_estimate(random_key(2))
    from_p = np.asarray(seen[-1])
    assert from_p.shape == (2, 5, 4_000)
    for unit in range(2):
        np.testing.assert_allclose(from_p[unit].mean(axis=1), 0, atol=0.12)
        np.testing.assert_allclose(np.cov(from_p[unit]), np.eye(5), atol=0.3)


# The KL from a classifier.


def gaussian_samples(key, mean, scale, num_samples):
    return mean[..., None] + scale[..., None] * jax.random.normal(key, (*mean.shape, num_samples))


def test_kl_from_samples_of_gaussians():
    """Two units, each with a q of its own; p is the standard normal."""
    mean = jnp.array([[0.7, -0.5], [0.0, 0.3]])
    scale = jnp.array([[0.6, 1.0], [0.8, 0.5]])
    expected = jnp.sum(0.5 * (scale**2 + mean**2 - 1) - jnp.log(scale))
    classifier = Perceptrons.create(2, (2, 20, 20, 1), key=random_key(0))
    adam = optax.adam(optax.cosine_decay_schedule(0.01, 600))

    def samples(key, number):
        q_key, p_key = jax.random.split(key)
        from_p = jax.random.normal(p_key, (2, 2, number))
        return gaussian_samples(q_key, mean, scale, number), from_p

    def step(carry, key):
        classifier, state = carry
        gradient = jax.grad(kl_from_samples)(classifier, *samples(key, 200))
        updates, state = adam.update(gradient, state)
        return (optax.apply_updates(classifier, updates), state), None

    keys = jax.random.split(random_key(1), 600)
    start = (classifier, adam.init(classifier))
    (trained, _), _ = jax.jit(lambda carry: jax.lax.scan(step, carry, keys))(start)
    estimate = kl_from_samples(trained, *samples(random_key(2), 20_000))
    assert abs(estimate - expected) < 0.1 * expected
    assert abs(kl_from_samples(classifier, *samples(random_key(2), 20_000)) - expected) > 0.5


@pytest.mark.usefixtures("double")
def test_estimate_and_classifier_have_gradients_of_their_own():
    classifier = Perceptrons.create(2, (3, 4, 1), key=random_key(0))
    from_q, from_p = (jax.random.normal(random_key(seed), (2, 3, 7)) for seed in (1, 2))
    gradients = jax.grad(kl_from_samples, argnums=(0, 1, 2))(classifier, from_q, from_p)
    of_loss = jax.grad(classification_loss)(classifier, from_q, from_p)
    of_estimate = jax.grad(lambda q: jnp.sum(jnp.mean(classifier(q), axis=-1)))(from_q)
    pairs = zip(jax.tree.leaves(gradients[0]), jax.tree.leaves(of_loss), strict=True)
    for gradient, expected in pairs:
        np.testing.assert_allclose(gradient, expected, rtol=1e-12)
    np.testing.assert_allclose(gradients[1], of_estimate, rtol=1e-12)
    assert (np.asarray(gradients[2]) == 0).all()
    value = kl_from_samples(classifier, from_q, from_p)
    np.testing.assert_allclose(value, jnp.sum(jnp.mean(classifier(from_q), axis=-1)), rtol=1e-12)


# The estimator.


@pytest.fixture(scope="module")
def fitted():
    return SIPRegressor(**TINY_SIP).fit(X, Y)


def test_data_do_not_train_the_classifier(fitted):
    batch = Batch(*(jnp.asarray(a, jnp.float32) for a in (X[:5], Y[:5, None] / 100, np.ones(5))))
    noise = fitted.model_.network.draw_sample_noise(random_key(0), 3)

    def value(model: DeepModel):
        return jnp.sum(data_fit(model, batch, noise, 1.0))

    gradient = eqx.filter_grad(value)(fitted.model_)
    layer = gradient.network.blocks[0].layer
    assert all((leaf == 0).all() for leaf in jax.tree.leaves(layer.classifier))
    assert all((leaf != 0).any() for leaf in jax.tree.leaves(layer.sampler))


def test_learns(fitted):
    assert fitted.score(X, Y) > 0.5
    dist = fitted.predict_dist(X)
    assert dist.means.shape == (len(X), 9)  # a mixture, with one layer only
    assert (dist.means.std(axis=1) > 0).all()
    functions = fitted.sample_functions(2_000, random_state=0)(X[:5])
    function = dist.variance_parts()[1][:5]
    assert (np.abs(functions.mean(axis=0) - dist.mean[:5]) < 2 * np.sqrt(function)).all()


def test_is_the_same_again(fitted):
    again = SIPRegressor(**TINY_SIP).fit(X, Y)
    assert np.array_equal(again.predict(X), fitted.predict(X))
    rows = [3, 40]
    np.testing.assert_allclose(fitted.predict(X[rows]), fitted.predict(X)[rows], rtol=1e-5)


def test_several_targets_and_layers():
    Y2 = regression_data(num_targets=2)[1]
    options = {**TINY_SIP, "max_iter": 20, "n_training_samples": 2}
    model = SIPRegressor(n_layers=2, shared_prior=False, **options).fit(X, Y2)
    mean, std = model.predict(X, return_std=True)
    assert mean.shape == std.shape == Y2.shape
    assert np.isfinite(mean).all()
    assert (std > 0).all()
    assert model.sample_functions(3, random_state=0)(X).shape == (3, *Y2.shape)


@pytest.mark.parametrize("change", ["one row", "equal rows", "constant column", "far away"])
def test_difficult_tables(change):
    inputs, targets, new = X.copy(), Y.copy(), X
    if change == "one row":
        inputs, targets = inputs[:1], targets[:1]
    elif change == "equal rows":
        inputs[:] = inputs[0]
    elif change == "constant column":
        inputs[:, 1] = 3.0
    else:
        new = X * 1e12
    model = SIPRegressor(**TINY_SIP).fit(inputs, targets)
    mean, std = model.predict(new, return_std=True)
    assert np.isfinite(mean).all()
    assert (std > 0).all()
    assert np.isfinite(std).all()


def test_bad_numbers_of_inducing_inputs():
    with pytest.raises(ValueError, match="n_inducing=0 must be a whole number"):
        SIPRegressor(**{**TINY_SIP, "n_inducing": 0}).fit(X, Y)
