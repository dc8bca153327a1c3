"""Likelihoods of numbers: against integration where it is hard, in models, and bad targets."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples import TINY
from scipy import stats

from dvip import (
    DVIPRegressor,
    Gaussian,
    HeteroscedasticGaussian,
    HeteroscedasticStudentT,
    LogNormal,
    NegativeBinomial,
    Poisson,
    StudentT,
    load,
)
from dvip.estimators.scales import Standardiser
from dvip.processes.process import PerGroup
from dvip.registry import LIKELIHOODS
from dvip.runtime import precision

REGRESSIONS = [name for name in LIKELIHOODS if LIKELIHOODS[name].task == "regression"]
NEW = [name for name in REGRESSIONS if name != "gaussian"]
IDENTITY = (np.zeros(1), np.ones(1))
ALPHAS = (0.3, 0.5, 1.0)


def integral(log_prob, target, mean, variance, alpha):
    """log E[p(y | f)^α] on fine grids around the mean of f and around the target."""
    std, steps = np.sqrt(variance), np.linspace(-11, 11, 20_001)
    f = np.unique(np.concatenate([mean + std * steps, target + 1e-3 * np.sinh(steps)]))
    exponents = stats.norm.logpdf(f, mean, std) + alpha * log_prob(f)
    largest = exponents.max()
    return np.log(np.trapezoid(np.exp(exponents - largest), f)) + largest


@eqx.filter_jit
def log_expected_power(likelihood, targets, mean, variance, alpha):
    return likelihood.log_expected_power(targets, mean, variance, alpha)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("freedom", [2.5, 4.0, 30.0])
def test_student_t_against_integration(alpha, freedom, double):
    """Variances of f far below and above σ² = 1, and outliers."""
    likelihood = StudentT(jnp.zeros(1), jnp.log(jnp.array([freedom - 2])))
    distances, variances = map(
        np.ravel, np.meshgrid([0.0, 2.0, 15.0, 300.0], [1e-4, 1e-2, 1.0, 1e2, 1e4])
    )
    moments = (jnp.zeros((1, len(distances))), jnp.asarray(variances[None]))
    found = log_expected_power(likelihood, jnp.asarray(distances[None]), *moments, alpha)
    expected = [
        integral(lambda f, y=y: stats.t.logpdf(y, freedom, f), y, 0.0, v, alpha)
        for y, v in zip(distances, variances, strict=True)
    ]
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=3e-3)


@pytest.mark.parametrize("family", ["poisson", "negative binomial"])
def test_large_counts_in_single_precision(family):
    """Of a few thousand; rates that fit and rates that do not."""
    means = np.log(5_000) + np.array([-2.0, -0.1, 0.0, 0.5])
    with precision("float32"):
        likelihood = Poisson().linked(*IDENTITY)
        if family == "negative binomial":
            start = jnp.log(jnp.array([5.0]))
            likelihood = NegativeBinomial(log_concentration=start).linked(*IDENTITY)
        for variance in (1e-4, 0.1, 2.0):
            arguments = (np.full((1, 4), 5e3), means[None], np.full((1, 4), variance))
            for alpha in ALPHAS:
                found = log_expected_power(likelihood, *map(jnp.float32, arguments), alpha)

                def log_prob(f):
                    rate = np.exp(f)
                    if family == "poisson":
                        return stats.poisson.logpmf(5_000, rate)
                    return stats.nbinom.logpmf(5_000, 5, 5 / (5 + rate))

                expected = [integral(log_prob, np.log(5e3), m, variance, alpha) for m in means]
                np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-3)


def cases(names, always):
    """The likelihoods, some of which are looked at less often: they take long to compile."""
    return [pytest.param(name, marks=[pytest.mark.slow] * (name not in always)) for name in names]


# Both parts of the last one are here by themselves.
@pytest.mark.parametrize("name", cases(REGRESSIONS, {*REGRESSIONS} - {"heteroscedastic-student-t"}))
def test_gradients_of_outliers_are_finite(name):
    """Parameters included, in single precision."""
    with precision("float32"):
        likelihood = LIKELIHOODS[name]().initialise(1).linked(*IDENTITY)
        units = likelihood.num_latents(1)
        distances, variances = map(np.ravel, np.meshgrid([0.0, 1e3, 1e5], [1e-12, 1.0, 1e8]))
        mean, variance = (jnp.zeros((units, 9)), jnp.tile(jnp.float32(variances), (units, 1)))

        @eqx.filter_jit
        @eqx.filter_grad
        def gradient(arguments, alpha):
            likelihood, mean, variance = arguments
            targets = jnp.float32(distances[None])
            power = likelihood.log_expected_power(targets, mean, variance, alpha)
            return jnp.sum(power) - likelihood.regularisation()

        for alpha in (0.05, 1.0):
            leaves = jax.tree.leaves(gradient((likelihood, mean, variance), alpha))
            assert all(np.isfinite(leaf).all() for leaf in leaves)


def test_many_degrees_of_freedom_are_gaussian(double):
    log_variance = jnp.array([-0.3])
    heavy, gaussian = StudentT(log_variance, jnp.log(jnp.array([98.0]))), Gaussian(log_variance)
    arguments = tuple(map(jnp.asarray, ([[0.5, 1.0]], [[0.1, -0.4]], [[0.2, 2.0]])))
    for alpha in ALPHAS:
        found = log_expected_power(heavy, *arguments, alpha)
        expected = log_expected_power(gaussian, *arguments, alpha)
        np.testing.assert_allclose(found, expected, atol=0.02)


def test_a_known_function_leaves_a_student_t_distribution(double):
    """Density, quantiles and variance; one sample stands for many components."""
    freedom = 3.5
    likelihood = StudentT(jnp.zeros(1), jnp.log(jnp.array([freedom - 2])))
    certain = likelihood.predictive(np.zeros((1, 1, 1)), np.zeros((1, 1, 1)), *IDENTITY).target(0)
    exact = stats.t(freedom)
    assert certain.shape[-1] >= 100
    np.testing.assert_allclose(certain.std, exact.std(), rtol=1e-9)
    for p in (1e-4, 0.01, 0.3, 0.9, 0.999):
        np.testing.assert_allclose(certain.quantile(p), exact.ppf(p), rtol=0.02)
    for y in (0.0, 2.0, 10.0, 50.0):
        np.testing.assert_allclose(certain.log_prob(y), exact.logpdf(y), atol=0.1)


@pytest.mark.parametrize(
    "likelihood", [Gaussian(), HeteroscedasticGaussian(), StudentT(), HeteroscedasticStudentT()]
)
def test_known_errors_add_to_the_noise(likelihood, double):
    assert likelihood.takes_errors
    likelihood = likelihood.initialise(1)
    units = likelihood.num_latents(1)
    larger = eqx.tree_at(lambda noise: noise.log_variance, likelihood, jnp.log(jnp.array([1.49])))
    if units == 2:  # the noise is the same everywhere
        zero = jnp.zeros(1)
        likelihood, larger = (
            eqx.tree_at(lambda noise: noise.gain, each, zero) for each in (likelihood, larger)
        )
    moments = (jnp.ones((units, 3)), jnp.full((units, 3), 0.2))
    targets = np.array([[0.3, 2.0, -4.0]])
    with_errors = jnp.asarray(np.concatenate([targets, np.full((1, 3), 0.7)]))

    @eqx.filter_jit
    def terms(noise, targets):
        powers = [noise.log_expected_power(targets, *moments, alpha) for alpha in (0.05, 1.0)]
        return *powers, noise.expected_log_prob(targets, *moments)

    pairs = zip(terms(likelihood, with_errors), terms(larger, jnp.asarray(targets)), strict=True)
    for found, expected in pairs:
        np.testing.assert_allclose(found, expected, rtol=1e-9)
    predictive = [np.ones((3, units, 2)), np.full((3, units, 2), 0.2), np.ones(1), np.full(1, 2.0)]
    found = likelihood.predictive(*predictive, errors=np.full((3, 1), 1.4))
    np.testing.assert_allclose(found.std, larger.predictive(*predictive).std, rtol=1e-9)


INPUTS = np.random.default_rng(0).normal(size=(60, 2))
COUNTS = np.random.default_rng(1).poisson(np.exp(1 + 0.5 * INPUTS))  # 60 x 2


@pytest.mark.parametrize("name", cases(NEW, always=("heteroscedastic", "poisson")))
def test_models_of_several_targets(name, tmp_path):
    """Trained, predicted row by row, weighted, saved and loaded."""
    options = {**TINY, "max_iter": 30, "alpha": 1.0, "n_training_samples": 2, "likelihood": name}
    targets = COUNTS + (name == "log-normal")
    weights = np.arange(len(INPUTS)) % 2
    num_layers = 2 if name == "heteroscedastic-student-t" else 1
    model = DVIPRegressor.paper(n_layers=num_layers, **options)
    model.fit(INPUTS, targets, sample_weight=weights)
    whole = model.predict_dist(INPUTS[:9])
    assert whole.mean.shape == (9, 2)
    assert np.isfinite(whole.log_prob(targets[:9])).all()
    assert np.isfinite(whole.crps(targets[:9])).all()
    alone = model.predict_dist(INPUTS[4:5])
    np.testing.assert_allclose(alone.quantile(0.9), whole.quantile(0.9)[4:5], rtol=1e-5)
    mean, std = model.predict(INPUTS[:9], return_std=True)
    np.testing.assert_allclose(mean, whole.mean, rtol=1e-6)
    np.testing.assert_allclose(std, whole.std, rtol=1e-6)
    assert model.sample_functions(3, random_state=0)(INPUTS[:5]).shape == (3, 5, 2)
    model.save(tmp_path / "model")
    again = load(tmp_path / "model").predict_dist(INPUTS[:9])
    assert np.array_equal(again.quantile(0.2), whole.quantile(0.2))


def test_the_noise_has_functions_of_its_own():
    """Groups of units; those of a group share functions."""
    group = PerGroup(TINY["prior"], 2, 4)
    process = group.initialise(2, jax.random.key(0))
    assert isinstance(process, PerGroup)

    @eqx.filter_jit
    def drawn(process, inputs):
        return process(process.draw_noise(jax.random.key(0), 5), inputs)

    functions = drawn(process, jnp.asarray(INPUTS.T, jnp.float32))
    assert functions.shape == (4, 5, 60)
    assert np.array_equal(functions[0], functions[1])
    assert np.array_equal(functions[2], functions[3])
    assert not np.allclose(functions[0], functions[2])
    for likelihood, groups in (("heteroscedastic", PerGroup), ("gaussian", type(TINY["prior"]))):
        model = DVIPRegressor.paper(n_layers=2, likelihood=likelihood, **TINY)
        model.input_shape_, model.input_scaler_ = (2,), Standardiser(np.zeros(2), np.ones(2))
        assert isinstance(model._process_of(1, 4), groups)
        assert not isinstance(model._process_of(0, 4), PerGroup)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("log-normal", -1.0, r"not positive, such as -1 in row 3.*likelihood='gaussian'"),
        ("log-normal", 0.0, r"not positive, such as 0 in row 3"),
        ("poisson", -2.0, r"negative values, such as -2 in row 3.*'gaussian'"),
        ("negative-binomial", 1.5, r"fractions, such as 1.5 in row 3.*'log-normal'"),
        ("poisson", 2e6, r"above a million"),
    ],
)
def test_impossible_targets(name, value, message):
    targets = np.ones(60)
    targets[3] = value
    with pytest.raises(ValueError, match=message):
        DVIPRegressor.paper(likelihood=name, **TINY).fit(INPUTS, targets)


def test_the_link_of_counts():
    """From mean and deviation alone; zero counts and constant ones have one, too."""
    offset, scale = Poisson().scales(np.array([50.0, 2.0, 0.0]), np.array([40.0, 1.0, 1.0]))
    np.testing.assert_allclose(offset, np.log([50.0, 2.0, 0.01]))
    np.testing.assert_allclose(scale, [np.sqrt(np.log1p((1600 - 50) / 2500)), 0.3, 2.0])


def test_positive_predictions():
    targets = np.exp(INPUTS[:, 0])
    model = DVIPRegressor.paper(n_layers=1, likelihood=LogNormal(), **TINY | {"max_iter": 20})
    distribution = model.fit(INPUTS, targets).predict_dist(INPUTS)
    assert (distribution.quantile(1e-6) > 0).all()


@pytest.mark.parametrize("name", ["poisson", "negative-binomial"])
def test_counts_are_learned_with_the_elbo(name):
    """Its gradients at the start, where rates are far off, do not spoil what follows."""
    model = DVIPRegressor.paper(n_layers=1, likelihood=name, **TINY | {"max_iter": 300})
    mean = model.fit(INPUTS, COUNTS[:, 0]).predict(INPUTS)
    np.testing.assert_allclose(model.target_scaler_.mean, np.log(COUNTS[:, 0].mean()))
    assert np.mean(np.abs(mean - np.exp(1 + 0.5 * INPUTS[:, 0]))) < 1.2
