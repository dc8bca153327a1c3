"""`condition_on`: further rows in closed form, against linear regression and exact processes."""

import copy

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from examples import (
    SMALL_NETWORK,
    TINY,
    TINY_DEEP_GP,
    numpy_features,
    random_key,
    regression_data,
)

from dvip import DeepGPRegressor, DVIPRegressor, Poisson, load
from dvip.closed_form import conditioned
from dvip.conditioning import why_not_conditioned
from dvip.layers import SIPLayer
from dvip.likelihoods.gaussian import Gaussian, HeteroscedasticGaussian
from dvip.likelihoods.student_t import StudentT
from dvip.network import DeepNetwork, Stage
from dvip.objectives import DeepModel
from dvip.prediction import members_of, sample_noises
from dvip.runtime import precision
from dvip.sampled import SampledModel
from dvip.sum_kernel import GPData

X, Y = regression_data()
NEW_X, NEW_Y = regression_data(25, seed=3)


def prior_of(model):
    """The model as if it had seen no rows: the posterior of its last layer is the prior."""
    with precision(model.precision):
        path = lambda tree: tree.network.stages[-1].layer.posterior.q  # noqa: E731
        model.model_ = eqx.tree_at(path, model.model_, jnp.zeros_like(path(model.model_)))
    return model


def posterior_of(model):
    posterior = members_of(model.model_)[0].network.stages[-1].layer.posterior
    with precision(model.precision):
        mean, factor = np.asarray(posterior.mean, float), np.asarray(posterior.factor, float)
    return mean, factor @ np.swapaxes(factor, 1, 2)


def regression(features, targets, noise, weights):
    """Mean and covariance of coefficients that are standard normal a priori."""
    inverse = np.eye(len(features)) + (features * weights / noise) @ features.T
    return np.linalg.solve(inverse, features @ (weights * targets / noise)), np.linalg.inv(inverse)


@pytest.fixture(scope="module")
def shallow():
    return DVIPRegressor(**TINY, n_layers=1, precision="float64").fit(X, Y)


@pytest.fixture(scope="module")
def deep():
    return DVIPRegressor(**TINY, n_layers=2, n_members=2, precision="float64").fit(X, Y)


def test_one_layer_is_bayesian_linear_regression_on_all_rows(shallow):
    model, weights = prior_of(copy.copy(shallow)), np.linspace(0.5, 2, 85)
    every_x, every_y = np.concatenate([X, NEW_X]), np.concatenate([Y, NEW_Y])
    inputs = model.input_scaler_.transform(every_x)
    targets = model.target_scaler_.transform(every_y[:, None])[:, 0]
    with precision(model.precision):
        layer = model.model_.network.stages[-1].layer
        prior_mean, features = numpy_features(layer, inputs.T.astype(model.precision))
    noise = float(model.model_.likelihood.variance[0])
    mean, covariance = regression(
        features[0].astype(float), targets - prior_mean[0], noise, weights
    )
    in_parts = model.condition_on(X, Y, weights[:60]).condition_on(NEW_X, NEW_Y, weights[60:])
    for taught in (model.condition_on(every_x, every_y, weights), in_parts):
        found = posterior_of(taught)
        np.testing.assert_allclose(found[0][0], mean, atol=1e-4 * np.abs(mean).max())
        np.testing.assert_allclose(found[1][0], covariance, atol=1e-4)
        np.testing.assert_allclose(
            taught.predict(NEW_X),
            model.target_scaler_.mean
            + model.target_scaler_.scale * (features[0].T @ mean + prior_mean[0])[60:],
            rtol=1e-4,
        )
    assert np.array_equal(posterior_of(model)[0], np.zeros((1, 10)))


def test_a_weight_is_a_repetition_and_zero_is_none(deep):
    weights = np.where(np.arange(25) < 5, 2, np.where(np.arange(25) < 20, 1, 0))
    repeated = np.repeat(np.arange(25), weights)
    first, second = (
        deep.condition_on(NEW_X, NEW_Y, weights),
        deep.condition_on(NEW_X[repeated], NEW_Y[repeated]),
    )
    np.testing.assert_allclose(first.predict(X), second.predict(X), rtol=1e-5)
    assert first.n_samples_seen_ == 80
    assert second.n_samples_seen_ == 85


def test_a_deep_model_takes_the_step_that_maximises_the_bound(deep):
    """Against the bound itself: the gradient of the new posterior's parameters is zero."""
    alone = copy.copy(deep).set_params(n_members=None)
    alone.model_ = deep.model_.members[0]
    model = prior_of(alone)
    taught = model.condition_on(NEW_X, NEW_Y)
    inputs = model.input_scaler_.transform(NEW_X)
    targets = model.target_scaler_.transform(NEW_Y[:, None])
    with precision("float64"):
        noise = sample_noises([taught.model_], 9, [taught.seed_])[0]

        def bound(posterior):
            tree = eqx.tree_at(
                lambda tree: tree.network.stages[-1].layer.posterior, taught.model_, posterior
            )
            mean, variance = tree.network.propagate(jnp.asarray(inputs).T, noise)
            fit = tree.likelihood.expected_log_prob(jnp.asarray(targets).T, mean, variance)
            return jnp.sum(jnp.mean(fit, axis=0)) - posterior.kl()

        def slope(of):
            posterior = of.model_.network.stages[-1].layer.posterior
            return np.abs(jax.jit(jax.grad(bound))(posterior).q).max()

        assert slope(taught) < 1e-8
        assert slope(model) > 1


def test_heavy_tails_do_not_follow_an_outlier():
    kind = "heteroscedastic-student-t"
    model = DVIPRegressor(**TINY, n_layers=1, likelihood=kind).fit(X, Y)
    wrong = np.append(NEW_Y, 1e4)
    rows = np.concatenate([NEW_X, NEW_X[:1]])
    taught, normal = model.condition_on(rows, wrong), model.condition_on(NEW_X, NEW_Y)
    apart = np.abs(taught.predict(NEW_X) - normal.predict(NEW_X)).max()
    assert apart < 0.1 * Y.std()
    assert np.abs(model.predict(NEW_X) - normal.predict(NEW_X)).max() > 0


def test_what_is_believed_of_a_row_with_heavy_tails():
    """E[λ] / σ² given E[(y - f)²], by quadrature over λ."""
    likelihood = StudentT(jnp.array([-0.7]), jnp.array([1.1]))
    freedom, variance = float(likelihood.freedom[0]), float(likelihood.variance[0])
    factor = np.linspace(1e-6, 30, 200_001)
    log_prior = (freedom / 2 - 1) * np.log(factor) - freedom * factor / 2
    squares = (2.5 - 1.0) ** 2 + 0.3
    weights = np.exp(log_prior + 0.5 * np.log(factor) - factor * squares / variance / 2)
    expected = (factor * weights).sum() / weights.sum() / variance
    one = np.ones((1, 1, 1))
    found = likelihood.expected_precisions(np.array([[2.5]]), one, 0.3 * one)
    np.testing.assert_allclose(found.item(), expected, rtol=1e-4)


def test_noise_that_depends_on_the_inputs_counts_by_its_precision():
    likelihood = HeteroscedasticGaussian(jnp.array([-1.0]), jnp.array([0.8]))
    mean = np.array([0.3, 0.5]).reshape(2, 1, 1)
    variance = np.array([0.2, 0.4]).reshape(2, 1, 1)
    found = likelihood.expected_precisions(np.array([[1.0]]), mean, variance).item()
    g = 0.5 + np.sqrt(0.4) * np.random.default_rng(0).standard_normal(10**6)
    expected = np.mean(np.exp(1 - 4 * np.tanh(0.8 * g / 4)))
    np.testing.assert_allclose(found, expected, rtol=5e-3)


@pytest.fixture(scope="module")
def exact():
    return DVIPRegressor(inference="exact", precision="float64").fit(X, Y)


def test_a_gaussian_process_is_as_if_it_had_seen_all_rows(exact):
    scaled = [
        (exact.input_scaler_.transform(x), exact.target_scaler_.transform(y[:, None]))
        for x, y in ((X, Y), (NEW_X, NEW_Y))
    ]
    inputs, targets = (np.concatenate(part) for part in zip(*scaled, strict=True))
    model, _ = conditioned(exact.model_.kernel, GPData(inputs, targets, np.ones(85)), [], inputs)
    places = exact.input_scaler_.transform(np.random.default_rng(7).normal(5, 3, size=(40, 3)))
    expected = model.moments(places)
    taught = exact.condition_on(NEW_X[:10], NEW_Y[:10]).condition_on(NEW_X[10:], NEW_Y[10:])
    found = taught.model_.moments(places)
    np.testing.assert_allclose(found.mean, expected.mean, atol=1e-4)
    np.testing.assert_allclose(found.variance, expected.variance, atol=1e-4)
    assert len(taught.model_.inducing) == 85
    twice = taught.condition_on(NEW_X, NEW_Y)  # known places need no further points
    assert len(twice.model_.inducing) == 85
    assert (twice.model_.moments(places).variance <= found.variance + 1e-6).all()


def test_it_saves_loads_predicts_and_draws(exact, deep, tmp_path):
    for number, model in enumerate((exact, deep)):
        taught = model.condition_on(NEW_X, NEW_Y)
        taught.save(tmp_path / str(number))
        again = load(tmp_path / str(number))
        for ask in (
            lambda each: each.predict_dist(NEW_X).quantile(0.9),
            lambda each: each.sample_functions(3, random_state=0)(NEW_X),
            lambda each: each.condition_on(X[:4], Y[:4]).predict(NEW_X),
        ):
            np.testing.assert_array_equal(ask(again), ask(taught))
        assert not np.allclose(taught.predict(NEW_X), model.predict(NEW_X), rtol=1e-4)


def test_known_errors_count():
    errors = np.linspace(1, 20, 60)
    for settings in ({"inference": "exact"}, {**TINY, "n_layers": 1}):
        model = DVIPRegressor(**settings).fit(X, Y, noise_std=errors)
        close, vague = (
            model.condition_on(NEW_X[:1], NEW_Y[:1] + 30, noise_std=error) for error in (0.1, 1e4)
        )
        before = model.predict(NEW_X[:1])
        np.testing.assert_allclose(vague.predict(NEW_X[:1]), before, rtol=1e-3)
        assert close.predict(NEW_X[:1]) > before + 0.5
        with pytest.raises(ValueError, match="known errors: pass noise_std"):
            model.condition_on(NEW_X, NEW_Y)


@pytest.mark.slow
def test_a_mixture_of_models_teaches_each():
    """Of rows that tell nothing, so that a Gaussian process and networks are all kept."""
    random = np.random.default_rng(0)
    x, y = random.uniform(size=(160, 2)), random.standard_normal(160)
    quick = dict(max_iter=60, n_members=2, n_prior_samples=5, batch_size=16, n_layers=1)
    model = DVIPRegressor(**quick, n_predictive_samples=8, precision="float64").fit(x, y)
    assert len(model.parts_) > 1
    far = np.full((4, 2), 3.0) + np.arange(4)[:, None] / 100
    before, distance = model.predict_dist(far), model.distance(far)
    taught = model.condition_on(np.repeat(far, 5, axis=0), np.full(20, 9.0))
    after = taught.predict_dist(far)
    assert np.all(np.abs(after.mean - 9) < np.abs(before.mean - 9))
    assert np.all(taught.distance(far) < 0.01 * distance)
    assert taught.choice_ == model.choice_
    assert taught.n_samples_seen_ == 180
    for old, new in zip(model.parts_, taught.parts_, strict=True):
        assert old.model_ is not new.model_
    functions, step = taught.sample_functions(20, random_state=0), 1e-5 * np.eye(2)
    differences = [(functions(x[:3] + e) - functions(x[:3] - e)) / 2e-5 for e in step]
    found = functions.gradient(x[:3])
    np.testing.assert_allclose(found, np.stack(differences, axis=-1), rtol=1e-4, atol=1e-3)


def test_tables_are_encoded_as_for_predictions():
    random = np.random.default_rng(0)
    table = pd.DataFrame({"a": random.normal(size=50), "b": random.choice(["u", "v"], 50)})
    y = np.where(table["b"] == "u", 1.0, -1.0) + 0.1 * table["a"]
    model = DVIPRegressor(inference="exact").fit(table, y)
    new = pd.DataFrame({"b": ["u", "v"], "a": [3.0, -3.0]})
    taught = model.condition_on(new, [5.0, -5.0])
    assert np.abs(taught.predict(new) - [5, -5]).max() < np.abs(model.predict(new) - [5, -5]).max()
    with pytest.raises(ValueError, match="pass a DataFrame"):
        model.condition_on([[1.0, 2.0]], [1.0])


@pytest.mark.slow
def test_deep_gps_take_in_rows():
    model = DeepGPRegressor(**TINY_DEEP_GP, n_layers=2).fit(X, Y)
    taught = model.condition_on(NEW_X, NEW_Y)
    errors = [np.square(each.predict(NEW_X) - NEW_Y).mean() for each in (model, taught)]
    assert errors[1] < errors[0]


@pytest.mark.slow
def test_several_targets_and_logarithms():
    x, y = regression_data(40, num_targets=2)
    model = DVIPRegressor(**TINY, n_layers=2, likelihood="log-normal", shared_prior=False)
    model.fit(x, y)
    taught = model.condition_on(x[:8], 2 * y[:8])
    assert (taught.predict(x[:8]) > model.predict(x[:8])).all()


def test_what_cannot_be_done_says_why(exact, shallow):
    counts = copy.copy(shallow)
    counts.model_ = DeepModel(shallow.model_.network, Poisson())
    with pytest.raises(ValueError, match=r"Poisson is not Gaussian.* Fit all rows again"):
        counts.condition_on(NEW_X, NEW_Y)
    layer = eqx.filter_eval_shape(
        SIPLayer.create, SMALL_NETWORK, np.zeros((3, 5)), 2, 9, q_scale=1.0, key=random_key(0)
    )
    implicit = DeepModel(DeepNetwork((Stage(layer, 2),)), Gaussian())
    assert "SIPLayer is not Gaussian" in why_not_conditioned(implicit)
    assert "sampled" in why_not_conditioned(SampledModel(None, None))
    for rows, y, words in (
        (NEW_X[:, :2], NEW_Y, "2 features"),
        (NEW_X, NEW_Y[:3], "inconsistent numbers"),
        (NEW_X[:0], NEW_Y[:0], "0 sample"),
        (np.full((1, 3), np.nan), [1.0], "NaN"),
        (NEW_X, np.full(25, np.inf), "infinity"),
        (NEW_X, np.stack([NEW_Y] * 2, axis=1), "the shape"),
    ):
        with pytest.raises(ValueError, match=words):
            exact.condition_on(rows, y)
    with pytest.raises(ValueError, match="leave out noise_std"):
        exact.condition_on(NEW_X, NEW_Y, noise_std=0.1)
    with pytest.raises(ValueError, match=r"non-zero|is zero"):
        exact.condition_on(NEW_X, NEW_Y, np.zeros(25))
