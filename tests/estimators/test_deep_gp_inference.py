"""Deep GPs with random features, implicit posteriors and samples: mathematics, and the contract."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples import (
    TINY_DEEP_GP,
    make_sampled_gp_layer,
    perturbed,
    random_key,
    rbf_kernel,
    regression_data,
)

from dvip import ArraySource, DeepGPClassifier, DeepGPRegressor, load
from dvip.batches import ArrayData, Batch
from dvip.conditioning import conditioned
from dvip.layers import ImplicitGPLayer, RandomFeaturesLayer, SampledGPLayer, SparseGPLayer
from dvip.layers.implicit_posterior import MAX_BEND, BentGaussian
from dvip.likelihoods.gaussian import Gaussian
from dvip.network import DeepNetwork, Stage
from dvip.objectives import DeepModel
from dvip.runtime import precision
from dvip.training import CheckpointFolder
from dvip.training.stochastic_hmc import ChainSettings, sample_values, with_values

# Chains of a few hundred steps.
pytestmark = pytest.mark.filterwarnings("ignore:Early and late samples")

X, Y = regression_data()
# A mean and the logarithm of a scale, of one unit with one value.
QS = np.array([[[0.7], [-1.2]]])
DEEP = {**TINY_DEEP_GP, "n_layers": 2, "max_iter": 400}
VARIANTS = {
    "random": dict(features="random", n_layers=1),
    # (At the rate of the others it learns nothing in so few steps.)
    "implicit": dict(posterior="implicit", n_training_samples=5, learning_rate=0.01),
    "mcmc": dict(inference="mcmc", n_layers=1),
    "deep mcmc": dict(inference="mcmc"),
}
LAYERS = {
    "random": RandomFeaturesLayer,
    "implicit": ImplicitGPLayer,
    "mcmc": SampledGPLayer,
    "deep mcmc": SampledGPLayer,
}


class Stopped(Exception):
    """Ends a training."""


# The implicit posterior and deep chains take long to compile.
@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=[pytest.mark.slow] * (name in ("implicit", "deep mcmc")))
        for name in VARIANTS
    ],
)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def model(name):
    return DeepGPRegressor(**{**DEEP, **VARIANTS[name]}).fit(X, Y)


def test_learns(name, model):
    assert all(isinstance(stage.layer, LAYERS[name]) for stage in model.model_.network.stages)
    assert model.score(X, Y) > 0.5
    mean, std = model.predict(X, return_std=True)
    assert (np.abs(Y - mean) < 2 * std).mean() > 0.8
    assert np.isfinite(model.bound_history_).all()


def test_a_loaded_model_is_bit_equal(model, tmp_path):
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    for mine, theirs in zip(
        model.predict(X, return_std=True), loaded.predict(X, return_std=True), strict=True
    ):
        assert np.array_equal(mine, theirs)
    draws, same = (m.sample_functions(3, random_state=0)(X) for m in (model, loaded))
    assert np.array_equal(draws, same)


def test_a_resumed_training_is_bit_equal(name, model, monkeypatch, tmp_path):
    original, written = CheckpointFolder.write, []

    def write(self, checkpoint):
        original(self, checkpoint)
        written.append(checkpoint.step)
        if len(written) == 2:
            raise Stopped

    made = DeepGPRegressor(**{**DEEP, **VARIANTS[name]})
    options = dict(checkpoint_dir=tmp_path, checkpoint_every=1)
    with monkeypatch.context() as patch:
        patch.setattr(CheckpointFolder, "write", write)
        with pytest.raises(Stopped):
            made.fit(X, Y, **options)
    made.fit(X, Y, resume=True, **options)
    assert np.array_equal(made.predict(X), model.predict(X))
    other = "gaussian" if name == "implicit" else "implicit"
    unlike = DeepGPRegressor(**{**DEEP, "n_layers": made.n_layers}, posterior=other)
    with pytest.raises(ValueError, match="checkpoint"):
        unlike.fit(X, Y, resume=True, **options)


@pytest.mark.slow
def test_draws_have_the_moments_of_predictions(model):
    functions = model.sample_functions(1_000, random_state=0)
    many = DeepGPRegressor(**model.get_params()).set_params(n_predictive_samples=500)
    many.__dict__.update({key: value for key, value in vars(model).items() if key.endswith("_")})
    values = functions(X)
    error = values.std(axis=0) * np.sqrt(1 / 1_000 + 1 / 500)
    assert (np.abs(values.mean(axis=0) - many.predict(X)) < 6 * error).all()


@pytest.mark.slow
def test_labels_and_sources(name):
    labels = np.array(["low", "middle", "high"])[np.digitize(Y, np.quantile(Y, [0.3, 0.6]))]
    classifier = DeepGPClassifier(**{**DEEP, **VARIANTS[name]}).fit(X, labels)
    assert classifier.score(X, labels) > 0.55
    streamed = DeepGPRegressor(**{**DEEP, **VARIANTS[name]}).fit(ArraySource(X, Y))
    assert np.isfinite(streamed.predict(X)).all()


@pytest.mark.slow
def test_members_and_parts(name):
    made = DeepGPRegressor(**{**DEEP, **VARIANTS[name], "max_iter": 100}, n_members=2)
    if "mcmc" in name:
        with pytest.raises(ValueError, match=r"n_members=2 is not for inference='mcmc'"):
            made.fit(X, Y)
        with pytest.raises(ValueError, match="partial_fit visits rows once"):
            made.set_params(n_members=None).partial_fit(X, Y)
        return
    assert np.isfinite(made.fit(X, Y).predict(X)).all()
    assert np.isfinite(
        DeepGPRegressor(**{**DEEP, **VARIANTS[name]}).partial_fit(X, Y).predict(X)
    ).all()


def test_a_chain_that_has_no_time():
    options = {**DEEP, **VARIANTS["mcmc"], "max_iter": 10**6}
    made = DeepGPRegressor(**options, max_seconds=1)
    assert made.fit(X, Y).n_iter_ < 10**6
    assert np.isfinite(made.predict(X)).all()


def test_rows_taken_in_by_random_features(model, name):
    if name == "random":
        more = model.condition_on(X[:5], Y[:5] + 50)
        assert (more.predict(X[:5]) > model.predict(X[:5])).all()
    else:
        with pytest.raises(ValueError, match="is not Gaussian"):
            model.condition_on(X[:5], Y[:5])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(features="many"), "features='many' is not known: use one of inducing, random"),
        (dict(posterior=1), "posterior=1 is not known: use one of gaussian, implicit"),
        (dict(inference="exact"), "inference='exact' is not known: use one of vi, mcmc"),
        (dict(features="random", posterior="implicit"), "use features='inducing'"),
        (dict(features="random", inference="mcmc"), "leave out features and posterior"),
        (dict(alpha=0.5, inference="mcmc"), "alpha=0.5 is not for inference='mcmc'"),
    ],
)
def test_wrong_parameters(options, message):
    with pytest.raises(ValueError, match=message):
        DeepGPRegressor(**options).fit(X, Y)


@pytest.mark.parametrize(("num_inputs", "error"), [(3, 0.03), (20, 0.15)])
def test_random_features_have_the_covariance_of_the_kernel(num_inputs, error):
    @jax.jit
    def of_features(inputs):
        layer = RandomFeaturesLayer.create(
            num_inputs, 1, 2**9, variance=1.7, lengthscale=2.0, q_scale=1.0, key=random_key(0)
        )
        return layer.features(inputs)[1][0], layer.marginals(inputs)[1]

    inputs = np.random.default_rng(0).normal(size=(num_inputs, 6))
    with precision("float64"):
        features, variance = (np.asarray(array) for array in of_features(inputs))
    distances = np.square(inputs[:, :, None] - inputs[:, None]).sum(axis=0)
    expected = 1.7 * np.exp(-distances / 8)
    np.testing.assert_allclose(features.T @ features, expected, atol=error)
    np.testing.assert_allclose(variance, np.full((1, 6), 1.7), rtol=1e-9)


def _last_weights(layer):
    classifier = layer.classifier.value
    networks = (layer.posterior.bend.network, classifier.network.network)
    last = [array[-1] for network in networks for array in (network.weights, network.biases)]
    return [*last, classifier.linear, classifier.square]


@eqx.filter_jit
def _new_layer():
    return ImplicitGPLayer.create(rbf_kernel(), X, 1, 4, q_scale=0.5, key=random_key(0))


@eqx.filter_jit
def _kl_and_moments(layer):
    posterior = layer.posterior.gaussian
    return layer.kl_estimate(random_key(1)), posterior.factor[0], posterior.mean[0]


def test_the_kl_of_an_implicit_posterior_that_is_gaussian():
    """With networks of zero nothing is bent."""
    with precision("float64"):
        layer = perturbed(_new_layer(), size=0.1)
        layer = eqx.tree_at(_last_weights, layer, replace_fn=np.zeros_like)
        estimate, factor, mean = (np.asarray(array) for array in _kl_and_moments(layer))
    covariance = factor @ factor.T
    expected = np.trace(covariance) + mean @ mean - 4 - np.linalg.slogdet(covariance)[1]
    assert estimate == pytest.approx(0.5 * expected)


@jax.jit
def _kl_of_a_bent_gaussian():
    posterior = BentGaussian.create(1, 1, 0.3, random_key(0))
    parts = (jnp.asarray(QS), lambda z: 3 * z)
    posterior = eqx.tree_at(lambda q: (q.gaussian.q, q.bend), posterior, parts)
    z = posterior.draw_noise(random_key(1), 1_000)
    log_slope = jnp.log1p(3 * MAX_BEND * (1 - jnp.square(jnp.tanh(3 * z))))
    logit = 0.5 * (jnp.square(posterior.white(z)) - jnp.square(z)) - log_slope
    v = posterior(z)
    log_q = -0.5 * jnp.square(z) - log_slope - QS[0, 1, 0]
    difference = log_q + 0.5 * jnp.square(v)
    # Both are of the same samples, but for the part that one has in closed form.
    gaussian = posterior.gaussian.mean[0, 0] + jnp.exp(QS[0, 1, 0]) * z
    sampled = 0.5 * (jnp.square(gaussian) - jnp.square(z)) - QS[0, 1, 0]
    exact = jnp.mean(difference - sampled) + posterior.gaussian.kl()
    return posterior.kl(z, lambda u: logit), exact


def test_the_kl_of_a_bent_gaussian_with_a_perfect_classifier():
    """Of one value, whose density is known: that of the noise over the derivative."""
    with precision("float64"):
        found, exact = map(float, _kl_of_a_bent_gaussian())
    assert found == pytest.approx(exact)


@pytest.fixture(scope="module")
def chain():
    """Samples of one layer with fixed parameters, and the posterior in closed form."""
    random = np.random.default_rng(0)
    inputs = random.normal(size=(40, 3))
    targets = np.sin(inputs[:, :1]) + 0.3 * random.normal(size=(40, 1))
    data = ArrayData(inputs, targets, np.ones(40))
    settings = ChainSettings(12_000, 40, 0.0, 1, 0, step_size=0.05)
    with precision("float64"):
        start = SampledGPLayer.create(rbf_kernel(), inputs, 1, 5, 1_000)
        likelihood = Gaussian().initialise(1)
        model = DeepModel(DeepNetwork((Stage(start, 1),)), likelihood)
        result = sample_values(model, data, settings)
        exact = SparseGPLayer.create(rbf_kernel(), inputs, 1, 5, q_scale=1.0)
        exact = DeepModel(DeepNetwork((Stage(exact, 1),)), likelihood)
        noise = exact.network.draw_sample_noise(random_key(0), 1)
        exact = conditioned(exact, Batch(inputs, targets, np.ones(40)), noise)
    return result, exact


def test_samples_of_one_layer_have_the_moments_of_the_closed_form(chain):
    result, exact = chain
    samples = np.asarray(result.model.network.stages[0].layer.samples.value)[:, 0]
    posterior = exact.network.stages[0].layer.posterior
    with precision("float64"):
        mean, factor = np.asarray(posterior.mean[0]), np.asarray(posterior.factor[0])
    white = np.linalg.solve(factor, (samples - mean).T)
    # The errors of averages, from those of 40 stretches of the chain.
    for values, expected in ((white, 0), (white**2, 1)):
        stretches = values.reshape(5, 40, -1).mean(axis=-1)
        error = stretches.std(axis=1) / np.sqrt(40)
        assert (np.abs(stretches.mean(axis=1) - expected) < 5 * error + 0.02).all()
    products = white @ white.T / white.shape[1]
    np.testing.assert_allclose(products, np.eye(5), atol=0.2)


def test_nothing_is_trained_at_a_rate_of_zero(chain):
    result, exact = chain
    mine, theirs = (m.network.stages[0].layer for m in (result.model, exact))
    assert np.array_equal(mine.inducing, theirs.inducing)
    assert np.array_equal(result.model.likelihood.log_variance, exact.likelihood.log_variance)
    assert result.diagnostics.r_hat < 1.05


def test_each_layer_has_its_part_of_all_values():
    layers = [make_sampled_gp_layer(num_inputs, units) for num_inputs, units in ((3, 2), (2, 1))]
    stages = tuple(Stage(layer, len(layer.samples.value[0])) for layer in layers)
    values = np.arange(4 * 15.0).reshape(4, 15)
    model = with_values(DeepModel(DeepNetwork(stages), Gaussian()), jnp.asarray(values))
    inner, last = (stage.layer.samples.value for stage in model.network.stages)
    assert np.array_equal(inner, values[:, :10].reshape(4, 2, 5))
    assert np.array_equal(last, values[:, 10:].reshape(4, 1, 5))
