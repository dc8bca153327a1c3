"""Sparse implicit processes: the Gaussian conditional, the classifier's KL, the estimator."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from examples import SMALL_NETWORK, TINY_SIP, make_sip_layer, random_key, regression_data

from dvip import SIPRegressor, load
from dvip.batches import Batch
from dvip.layers.implicit_posterior import DensityRatio, ImplicitPosterior, whitened
from dvip.layers.sip import SIPLayer
from dvip.linear_algebra import FIRST_JITTER
from dvip.objectives import training_loss
from dvip.processes import PerUnit
from dvip.runtime import precision

NUM_INPUTS, NUM_ROWS = 3, 4
INPUTS = np.random.default_rng(1).normal(size=(NUM_INPUTS, NUM_ROWS))
X, Y = regression_data()
# Programs that run once take far longer to compile than to run.
QUICKLY = {"xla_backend_optimization_level": 0}


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
# The conditionals, which both are made of, have been compared by then.
FEWER = [
    pytest.param(process, id=name, marks=[pytest.mark.slow] * (name == "shared"))
    for name, process in PROCESSES.items()
]


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("process", PROCESSES.values(), ids=PROCESSES.keys())
def test_conditionals_against_covariance_matrices(process):
    layer = make_sip_layer(process)
    noise = layer.draw_sample_noise(random_key(0), 3)

    @eqx.filter_jit
    def evaluated(layer, inputs):
        return layer.posterior(noise), *layer.conditionals(inputs[:, None], noise)

    whitened, means, variances = map(np.asarray, evaluated(layer, jnp.asarray(INPUTS)))
    for unit in range(2):
        for sample in range(3):
            mean, covariance = numpy_conditional(layer, whitened[unit, :, sample], unit)
            np.testing.assert_allclose(means[unit, sample], mean, rtol=1e-8)
            np.testing.assert_allclose(variances[unit, sample], np.diag(covariance), rtol=1e-8)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("process", FEWER)
def test_draws_have_the_covariance_between_inputs(process):
    """With a q that always gives the same u, draws are those of the Gaussian conditional."""
    layer = make_sip_layer(process)

    def noisy(layer):
        return layer.posterior.linear, layer.posterior.networks.weights[-1]

    layer = eqx.tree_at(noisy, layer, replace_fn=jnp.zeros_like)
    whitened = np.asarray(layer.posterior.networks.biases[-1])[..., 0]
    num_draws = 20_000

    @eqx.filter_jit
    def drawn(layer, keys):
        functions = jax.vmap(layer.draw_function)(keys)
        return jax.vmap(lambda function: layer.evaluate(function, jnp.asarray(INPUTS)))(functions)

    draws = np.asarray(drawn(layer, jax.random.split(random_key(1), num_draws)))
    for unit in range(2):
        mean, covariance = numpy_conditional(layer, whitened[unit], unit)
        variance = np.diag(covariance)
        assert (
            np.abs(draws[:, unit].mean(axis=0) - mean) < 5 * np.sqrt(variance / num_draws)
        ).all()
        error = np.sqrt((np.outer(variance, variance) + covariance**2) / num_draws)
        assert (np.abs(np.cov(draws[:, unit].T) - covariance) < 5 * error).all()


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("process", FEWER)
def test_prior_samples_have_zero_mean_and_unit_covariance(process):
    inducing = jnp.asarray(np.random.default_rng(0).normal(size=(NUM_INPUTS, 5)))
    layer = SIPLayer.create(process, inducing, 2, 4_000, q_scale=1.0, key=random_key(0))
    samples = np.asarray(eqx.filter_jit(SIPLayer.prior_samples)(layer, random_key(2)))
    assert samples.shape == (2, 5, 4_000)
    for unit in range(2):
        np.testing.assert_allclose(samples[unit].mean(axis=1), 0, atol=0.12)
        np.testing.assert_allclose(np.cov(samples[unit]), np.eye(5), atol=0.3)


def test_posterior_starts_near_independent_values():
    for scale, num_values in ((1.0, 5), (0.01, 150)):

        @jax.jit
        def draw(key, scale=scale, num_values=num_values):
            posterior = ImplicitPosterior.create(2, num_values, scale, key)
            return posterior(posterior.draw_noise(random_key(1), 4_000))

        samples = np.asarray(draw(random_key(0)))
        assert samples.shape == (2, num_values, 4_000)
        for unit in range(2):
            covariance = np.cov(samples[unit]) / scale**2
            np.testing.assert_allclose(covariance, np.eye(num_values), atol=0.15)


# The KL from a classifier.

NUM_CLASSIFIER_STEPS = 400


def estimate_kl(draw_q, draw_p, num_values, start_scale=1.0):
    """The estimate before and after training, for two units."""
    start = DensityRatio.create(2, num_values, start_scale, random_key(0))
    adam = optax.adam(optax.cosine_decay_schedule(0.02, NUM_CLASSIFIER_STEPS))

    def samples(key, number):
        white = jax.random.normal(key, (3, 2, num_values, number))
        return draw_q(white[0]), draw_p(white[1]), white[2]

    @jax.jit
    def trained():
        def step(carry, key):
            ratio, state = carry
            updates, state = adam.update(
                jax.grad(DensityRatio.loss)(ratio, *samples(key, 100)), state
            )
            return (optax.apply_updates(ratio, updates), state), None

        keys = jax.random.split(random_key(1), NUM_CLASSIFIER_STEPS)
        return jax.lax.scan(step, (start, adam.init(start)), keys)[0][0]

    estimate = jax.jit(lambda ratio: ratio.kl(samples(random_key(2), 20_000)[0]))
    return estimate(start), estimate(trained())


def test_kl_of_gaussians_is_the_exact_one():
    """A correlated q of its own for each unit, far from p: telling them apart teaches nothing."""
    random = np.random.default_rng(0)
    factors = 0.3 * random.normal(size=(2, 6, 6)) + 0.05 * np.eye(6)
    means = random.normal(size=(2, 6))
    exact = 0.0
    for mean, factor in zip(means, factors, strict=True):
        covariance = factor @ factor.T
        log_determinant = np.linalg.slogdet(covariance)[1]
        exact += 0.5 * (np.trace(covariance) + mean @ mean - 6 - log_determinant)
    factors, means = jnp.asarray(factors, jnp.float32), jnp.asarray(means, jnp.float32)
    before, after = estimate_kl(
        lambda white: means[..., None] + factors @ white, lambda white: white, 6
    )
    assert exact > 13
    assert abs(after - exact) < 0.02 * exact
    assert abs(before - exact) < 0.02 * exact  # the classifiers have nothing to learn


def test_determinants_from_few_samples_have_no_bias():
    factors = jnp.asarray(np.random.default_rng(0).normal(size=(2, 6, 6)), jnp.float32)

    @jax.jit
    def estimates(keys):
        draw = lambda key: whitened(factors @ jax.random.normal(key, (2, 6, 9)))  # noqa: E731
        return jax.vmap(draw)(keys)

    samples, estimated = map(np.asarray, estimates(jax.random.split(random_key(0), 4_000)))
    exact = 2 * np.linalg.slogdet(np.asarray(factors, np.float64))[1]
    errors = estimated.std(axis=0) / np.sqrt(4_000)
    assert (np.abs(estimated.mean(axis=0) - exact) < 4 * errors).all()
    assert (errors < 0.05).all()
    np.testing.assert_allclose(np.cov(samples[0, 1]), np.eye(6), atol=1e-3)


@pytest.mark.slow
def test_kl_of_other_distributions():
    """Against quadrature. q has two peaks and p is skewed: no Gaussian is near to them."""

    def log_normal(values, mean, scale):
        return -0.5 * ((values - mean) / scale) ** 2 - np.log(scale * np.sqrt(2 * np.pi))

    # q: N(±0.9, 0.3²) with the same weights. p: v = (e^{0.5 z} - c) / d, with moments 0 and 1.
    c, d = np.exp(0.125), np.sqrt((np.exp(0.25) - 1) * np.exp(0.25))
    grid = np.linspace(-2.0, 2.0, 4_001)
    inside = grid[d * grid + c > 1e-3]
    log_q = np.logaddexp(log_normal(inside, -0.9, 0.3), log_normal(inside, 0.9, 0.3)) - np.log(2)
    z = 2 * np.log(d * inside + c)
    log_p = log_normal(z, 0, 1) + np.log(2 * d / (d * inside + c))
    exact = np.trapezoid(np.exp(log_q) * (log_q - log_p), inside)

    def draw_q(white):
        side = jnp.where(jnp.arange(white.shape[-1]) % 2 == 0, 0.9, -0.9)
        return side + 0.3 * white

    before, after = estimate_kl(draw_q, lambda white: (jnp.exp(0.5 * white) - c) / d, 1)
    assert abs(before - 2 * exact) > 0.5 * exact
    assert abs(after - 2 * exact) < 0.15 * 2 * exact


# The estimator.


@pytest.fixture(scope="module")
def fitted():
    return SIPRegressor(**TINY_SIP).fit(X, Y)


def test_bound_and_classifiers_have_gradients_of_their_own(fitted):
    model, leaves = fitted.model_, jax.tree.leaves
    kl_key = jax.random.split(jax.random.split(random_key(1))[1], 1)[0]

    @eqx.filter_jit(compiler_options=QUICKLY)
    def loss_and_gradient(model, weight):
        batch = Batch(jnp.asarray(X[:5]), jnp.asarray(Y[:5, None]) / 100, jnp.ones(5))
        noise = model.network.draw_sample_noise(random_key(0), 3)
        options = {"num_data": 60.0, "alpha": 0.5, "kl_weight": weight}
        differentiate = eqx.filter_value_and_grad(training_loss, has_aux=True)
        return differentiate(model, batch, noise, random_key(1), **options)

    @eqx.filter_jit(compiler_options=QUICKLY)
    def own_loss(layer):
        return (
            eqx.filter_value_and_grad(lambda part: part.auxiliary_loss(kl_key))(layer),
            layer.kl_estimate(kl_key),
        )

    layer = model.network.stages[0].layer
    doubled = eqx.tree_at(
        lambda model: model.network.stages[0].layer.classifiers,
        model,
        jax.tree.map(lambda leaf: 2 * leaf, layer.classifiers),
    )
    with precision("float32"):
        (loss, value), gradient = loss_and_gradient(model, jnp.array(1.0))
        (_, without_kl), other = loss_and_gradient(model, jnp.array(0.0))
        _, again = loss_and_gradient(doubled, jnp.array(0.0))
        (own, expected), kl = own_loss(layer)
    gradient, other, again = (part.network.stages[0].layer for part in (gradient, other, again))
    np.testing.assert_allclose(loss, own - value / 60, rtol=1e-4)
    np.testing.assert_allclose(without_kl - value, kl, rtol=1e-3)
    for part in (gradient, other):  # whatever the weight of the KL
        pairs = zip(leaves(part.classifiers), leaves(expected.classifiers), strict=True)
        assert all(np.allclose(ours, theirs, rtol=1e-3, atol=1e-5) for ours, theirs in pairs)
    assert all((leaf != 0).any() for leaf in leaves(expected.classifiers))
    # Without its KL the bound does not know the classifiers, and their loss trains nothing else.
    for ours, theirs in zip(leaves(other.posterior), leaves(again.posterior), strict=True):
        assert np.array_equal(ours, theirs)
        assert (ours != 0).any()


def test_learns(fitted):
    assert fitted.score(X, Y) > 0.5
    dist = fitted.predict_dist(X)
    assert dist.means.shape == (len(X), 9)  # a mixture, with one layer only
    assert (dist.means.std(axis=1) > 0).all()
    functions = fitted.sample_functions(200, random_state=0)(X[:5])
    function = dist.variance_parts()[1][:5]
    assert (np.abs(functions.mean(axis=0) - dist.mean[:5]) < 2 * np.sqrt(function)).all()


def test_is_the_same_again(fitted):
    again = SIPRegressor(**TINY_SIP).fit(X, Y)
    assert np.array_equal(again.predict(X), fitted.predict(X))
    rows = [3, 40]
    np.testing.assert_allclose(fitted.predict(X[rows]), fitted.predict(X)[rows], rtol=1e-5)


def test_a_loaded_model_is_bit_equal(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    for mine, theirs in zip(
        fitted.predict(X, return_std=True), loaded.predict(X, return_std=True), strict=True
    ):
        assert np.array_equal(mine, theirs)


@pytest.mark.slow  # half a minute to compile
def test_several_targets_and_layers():
    Y2 = regression_data(num_targets=2)[1]
    options = {**TINY_SIP, "max_iter": 20, "n_training_samples": 2}
    model = SIPRegressor(n_layers=2, **options).fit(X, Y2)
    mean, std = model.predict(X, return_std=True)
    assert mean.shape == std.shape == Y2.shape
    assert np.isfinite(mean).all()
    assert (std > 0).all()
    assert model.sample_functions(3, random_state=0)(X).shape == (3, *Y2.shape)


@pytest.mark.slow
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
