"""Likelihoods of the registry: one protocol for all of them, against sampling."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats
from examples import assert_gradient
from references import EXAMPLES, NUM_ROWS, PARAMETERS, REFERENCES, of_task

from dvip import LogNormal
from dvip.likelihoods.counts import Counts
from dvip.likelihoods.probit import log_cdf
from dvip.registry import LIKELIHOODS
from dvip.runtime import precision

pytestmark = pytest.mark.usefixtures("double")

ALPHAS = (0.3, 1.0)
SMALL = (2e-4, 1e-4)
NUM_DRAWS = 100_000


def test_every_likelihood_has_a_reference():
    lacking = [name for name in LIKELIHOODS if not REFERENCES.get(name)]
    assert not lacking, f"Add log p(y | f) of {lacking} to REFERENCES of references.py."
    assert not set(REFERENCES) - set(LIKELIHOODS)


@pytest.fixture(scope="module", params=PARAMETERS)
def example(request, double):
    return EXAMPLES[request.param]()


@pytest.fixture(scope="module")
def moments(example):
    """Means and variances of f: units x rows."""
    random = np.random.default_rng(2)
    shape = (example.num_units, NUM_ROWS)
    return random.normal(size=shape), random.uniform(0.5, 1.5, size=shape)


@pytest.fixture(scope="module")
def draws(moments):
    mean, variance = moments
    white = np.random.default_rng(3).normal(size=(NUM_DRAWS, *mean.shape))
    return mean + np.sqrt(variance) * white


@pytest.fixture(scope="module")
def log_probs(example, draws):
    return example.log_prob(draws)


@eqx.filter_jit
def terms(likelihood, targets, mean, variance, alphas=(*ALPHAS, *SMALL)):
    """E[log p] and, by α, log E[p^α]: one program for all of them."""
    powers = {
        alpha: likelihood.log_expected_power(targets, mean, variance, alpha) for alpha in alphas
    }
    return likelihood.expected_log_prob(targets, mean, variance), powers


@eqx.filter_jit
def class_probabilities(likelihood, mean, variance):
    return likelihood.class_probabilities(mean, variance)


def arrays(*values):
    return tuple(map(jnp.asarray, values))


def test_expected_log_prob_against_sampling(example, moments, log_probs):
    result, _ = terms(example.likelihood, *arrays(example.targets, *moments))
    error = log_probs.std(axis=0) / np.sqrt(NUM_DRAWS)
    assert result.shape == (NUM_ROWS,)
    # Quadrature of a few numbers of points has an error of its own, far smaller.
    assert (np.abs(result - log_probs.mean(axis=0)) < 5 * error + 1e-3).all()


@pytest.mark.parametrize("alpha", ALPHAS)
def test_log_expected_power_against_sampling(example, moments, log_probs, alpha):
    result = terms(example.likelihood, *arrays(example.targets, *moments))[1][alpha]
    powers = np.exp(alpha * log_probs)
    expected = powers.mean(axis=0)
    error = powers.std(axis=0) / np.sqrt(NUM_DRAWS) / expected
    assert result.shape == (NUM_ROWS,)
    assert (np.abs(result - np.log(expected)) < 5 * error + 1e-3).all()


def test_small_powers_are_the_expected_log_prob(example, moments):
    """log E[p^α] = α E[log p] + O(α²)."""
    limit, powers = terms(example.likelihood, *arrays(example.targets, *moments))
    limit, halves = np.asarray(limit), [np.asarray(powers[alpha]) / alpha for alpha in SMALL]
    # Extrapolated to α = 0; what remains is of the order of α², and grows with the rates of counts.
    rtol = 5e-4 if isinstance(example.likelihood, Counts) else 3e-5
    np.testing.assert_allclose(2 * halves[1] - halves[0], limit, rtol=rtol)
    assert (halves[0] > halves[1]).all()  # Jensen: the energy grows with α
    assert (halves[1] > limit).all()


def test_moments_may_have_a_sample_axis(example, moments):
    """Several propagated samples of each row: the same numbers as sample by sample."""
    mean, variance = moments
    stacked = arrays(np.stack([mean, mean + 1], axis=1), np.stack([variance, 2 * variance], axis=1))
    targets = jnp.asarray(example.targets)
    both, powers = terms(example.likelihood, targets, *stacked, alphas=(0.3,))
    tilted = powers[0.3]
    assert both.shape == tilted.shape == (2, NUM_ROWS)
    for sample, (m, v) in enumerate([(mean, variance), (mean + 1, 2 * variance)]):
        alone, powers = terms(example.likelihood, targets, *arrays(m, v))
        np.testing.assert_allclose(both[sample], alone, rtol=1e-12)
        np.testing.assert_allclose(tilted[sample], powers[0.3], rtol=1e-12)


def test_gradients(example, moments):
    def value(arguments):
        likelihood, mean, variance = arguments
        targets = jnp.asarray(example.targets)
        first = likelihood.expected_log_prob(targets, mean, variance)
        second = likelihood.log_expected_power(targets, mean, variance, 0.5)
        return jnp.sum(first) + jnp.sum(jnp.sin(second))

    # Points of some quadratures move with the parameters, which the gradient does not see.
    family = type(example.likelihood).__name__
    moves = family.endswith("StudentT") or family in ("Poisson", "NegativeBinomial")
    rtol = 1e-2 if moves else 1e-5
    assert_gradient(value, (example.likelihood, *arrays(*moments)), rtol=rtol)


@pytest.mark.parametrize("example", of_task("classification"), indirect=True)
def test_class_probabilities_against_sampling(example, moments, draws):
    num_classes = max(2, example.num_units)
    probabilities = class_probabilities(example.likelihood, *arrays(*moments))
    assert probabilities.shape == (num_classes, NUM_ROWS)
    assert (probabilities > 0).all()
    np.testing.assert_allclose(probabilities.sum(axis=0), 1, rtol=1e-12)
    for number in range(num_classes):
        targets = np.full((1, NUM_ROWS), float(number))
        sampled = np.exp(example.log_prob(draws, targets))
        error = sampled.std(axis=0) / np.sqrt(NUM_DRAWS)
        difference = np.abs(probabilities[number] - sampled.mean(axis=0))
        assert (difference < 5 * error + 1e-4).all()


EXTREMES = [
    (mean, variance) for mean in (0.0, 1e3, -1e6, 1e8) for variance in (1e-30, 1e-4, 1e6, 1e12)
]


@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.slow)])
def test_extreme_moments_stay_finite(example, dtype):
    """Values and gradients, whatever training does to the moments."""
    means, variances = np.array(EXTREMES).T
    shape = (example.num_units, len(EXTREMES))
    mean = np.broadcast_to(means, shape) + np.arange(shape[0])[:, None]
    targets = np.broadcast_to(example.targets[:, :1], (len(example.targets), len(EXTREMES)))
    with precision(dtype):
        likelihood = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), example.likelihood)
        mean, variance, targets = (
            jnp.asarray(array, dtype)
            for array in (mean, np.broadcast_to(variances, shape), targets)
        )

        # The sum has the gradients of its terms, as each column has an entry of its own.
        @jax.jit
        @partial(jax.grad, argnums=(0, 1), has_aux=True)
        def gradients_and_values(mean, variance):
            first = likelihood.expected_log_prob(targets, mean, variance)
            second = likelihood.log_expected_power(targets, mean, variance, 0.5)
            values = [first, second]
            if likelihood.task == "classification":
                values.append(likelihood.class_probabilities(mean, variance))
            return jnp.sum(first + second), values

        gradients, (first, second, *others) = gradients_and_values(mean, variance)
        assert all(np.isfinite(array).all() for array in (first, second, *gradients))
        for probabilities in map(np.asarray, others):
            assert np.isfinite(probabilities).all()
            assert (probabilities >= 0).all()
            np.testing.assert_allclose(probabilities.sum(axis=0), 1, rtol=1e-5)


# The predictive side of regressions: from the moments of f to the distribution of y.

NUM_SAMPLES = 5
PROBABILITIES = (0.01, 0.3, 0.5, 0.9)
# Those whose predictive distribution has no further approximation.
EXACT = ("Gaussian", "LogNormal")


class Predicted:
    """A predictive distribution, and what it was made from."""

    def __init__(self, example):
        random = np.random.default_rng(5)
        self.example = example
        shape = (NUM_ROWS, example.num_units, NUM_SAMPLES)
        self.mean = random.normal(size=shape)
        self.variance = random.uniform(0.1, 1, size=shape)
        self.scale = random.uniform(0.5, 3, size=len(example.targets))
        self.offset = random.normal(size=len(example.targets))
        self.counts = not example.likelihood.standardised
        if self.counts:  # those of the link
            self.offset, self.scale = map(np.asarray, example.likelihood.link.value)
        self.positive = isinstance(example.likelihood, LogNormal)
        if self.positive:
            self.scale /= 6
        # Levels of the noise, or of a rate, stand for what is integrated.
        # Fewer of them stand for what is joint of several targets.
        exact = type(example.likelihood).__name__ in EXACT
        self.error = 2e-3 if exact else 2e-2 if len(example.targets) == 1 else 0.4
        self.distribution = example.likelihood.predictive(
            self.mean, self.variance, self.offset, self.scale
        )
        # Likely values, rows x targets, on the user's scale.
        self.y = self.distribution.sample(1, random_state=6)[0]

    def shifted(self, shift):
        """Other likely values."""
        if self.positive:
            return self.y * np.exp(shift / 3)
        return np.maximum(self.y + round(shift), 0) if self.counts else self.y + shift

    def log_prob(self, y):
        """log p(y), joint over the targets, from draws of f; and its standard error."""
        random = np.random.default_rng(7)
        draws = NUM_DRAWS // NUM_SAMPLES
        white = random.normal(size=(draws, *self.mean.shape))
        values = np.moveaxis(self.mean + np.sqrt(self.variance) * white, 3, 1)
        values = values.reshape(-1, NUM_ROWS, self.mean.shape[1]).swapaxes(1, 2)
        if self.counts:
            density = np.exp(self.example.log_prob(values, y.T))
            mean = density.mean(axis=0)
            return np.log(mean), density.std(axis=0) / np.sqrt(len(density)) / mean
        transform, step = self.example.likelihood.transform, 1e-6
        slope = (transform(y + step) - transform(y - step)) / (2 * step) / self.scale
        targets = (transform(y) - self.offset) / self.scale
        density = np.exp(self.example.log_prob(values, targets.T)) * slope.prod(axis=1)
        mean = density.mean(axis=0)
        return np.log(mean), density.std(axis=0) / np.sqrt(len(density)) / mean


@pytest.fixture(scope="module", params=of_task("regression"))
def predicted(request, double):
    return Predicted(EXAMPLES[request.param]())


@pytest.fixture(scope="module")
def grid(predicted):
    """Of each target alone: values of y, and density and P(Y <= y) there, rows x values."""
    grids = []
    for index in range(len(predicted.scale)):
        alone = predicted.distribution.target(index)
        low, high = alone.quantile([1e-7, 1 - 1e-7])
        centre, width = alone.quantile(0.5).mean(), alone.std.min()
        ends = np.arcsinh((np.array([low.min(), high.max()]) - centre) / width)
        y = centre + width * np.sinh(np.linspace(*ends, 1_001))  # closer in the middle
        if predicted.counts:
            y = np.arange(high.max() + 1)
        density = np.exp([alone.log_prob(value) for value in y]).T
        grids.append((alone, y, density, np.array([alone.cdf(value) for value in y]).T))
    return grids


def test_predictive_density_against_sampling(predicted):
    for shift in (-1.0, 0.0, 0.7) if predicted.error < 0.1 else (0.0,):
        y = predicted.shifted(shift)
        expected, error = predicted.log_prob(y)
        found = predicted.distribution.log_prob(y)
        assert found.shape == (NUM_ROWS,)
        assert (np.abs(found - expected) < 5 * error + predicted.error).all()


def test_predictive_density_is_one_in_all_and_the_slope_of_the_cdf(predicted, grid):
    for _, y, density, cdf in grid:
        if predicted.counts:
            np.testing.assert_allclose(np.cumsum(density, axis=1), cdf, atol=1e-12)
            continue
        steps = np.diff(y) * (density[:, 1:] + density[:, :-1]) / 2
        np.testing.assert_allclose(steps.sum(axis=1), 1, atol=1e-4)
        np.testing.assert_allclose(np.cumsum(steps, axis=1), cdf[:, 1:] - cdf[:, :1], atol=1e-4)


def test_predictive_quantiles_and_intervals(predicted):
    distribution = predicted.distribution
    quantiles = distribution.quantile(PROBABILITIES)
    assert quantiles.shape == (len(PROBABILITIES), *distribution.mean.shape)
    for p, quantile in zip(PROBABILITIES, quantiles, strict=True):
        if predicted.counts:
            assert (distribution.cdf(quantile) >= p).all()
            assert (distribution.cdf(quantile - 1) < p).all()
        else:
            np.testing.assert_allclose(distribution.cdf(quantile), p, rtol=1e-7)
    if predicted.counts:
        return
    low, high = distribution.interval(0.8)
    np.testing.assert_allclose(distribution.cdf(high) - distribution.cdf(low), 0.8, rtol=1e-7)


def test_predictive_samples(predicted):
    distribution = predicted.distribution
    draws = distribution.sample(NUM_DRAWS, random_state=0)
    assert draws.shape == (NUM_DRAWS, *distribution.mean.shape)
    error = distribution.std / np.sqrt(NUM_DRAWS)
    assert (np.abs(draws.mean(axis=0) - distribution.mean) < 5 * error).all()
    squares = np.square(draws - distribution.mean)
    error = squares.std(axis=0) / np.sqrt(NUM_DRAWS)
    assert (np.abs(squares.mean(axis=0) - distribution.std**2) < 5 * error).all()
    for quantile in distribution.quantile(PROBABILITIES):
        share, p = (draws <= quantile).mean(axis=0), distribution.cdf(quantile)
        assert (np.abs(share - p) < 5 * np.sqrt(p * (1 - p) / NUM_DRAWS)).all()


def test_predictive_variance_is_noise_and_function(predicted):
    parts = predicted.distribution.variance_parts()
    assert parts.noise.shape == parts.function.shape == predicted.distribution.mean.shape
    assert (parts.noise > 0).all()
    assert (parts.function > 0).all()
    np.testing.assert_allclose(sum(parts), predicted.distribution.std**2, rtol=1e-12)


def test_predictive_crps_is_its_definition(predicted, grid):
    """The integral of (F(x) - 1{x >= y}) squared."""
    scores = predicted.distribution.crps(predicted.y)
    for index, (alone, y, _, cdf) in enumerate(grid):
        observed = predicted.y[:, index]
        np.testing.assert_allclose(alone.crps(observed), scores[:, index], rtol=1e-12)
        squares = np.square(cdf - (y >= observed[:, None]))
        expected = (np.diff(y) * (squares[:, 1:] + squares[:, :-1]) / 2).sum(axis=1)
        if predicted.counts:
            expected = squares.sum(axis=1)
        np.testing.assert_allclose(scores[:, index], expected, rtol=1e-2)


def test_predictive_of_one_target_alone(predicted):
    whole = predicted.distribution
    for index in range(len(predicted.scale)):
        alone = whole.target(index)
        assert alone.shape == (whole.shape[0], whole.shape[-1])
        for of_alone, of_whole in zip(
            (alone.mean, alone.std, alone.cdf(0.3), alone.quantile(0.2)),
            (whole.mean, whole.std, whole.cdf(0.3), whole.quantile(0.2)),
            strict=True,
        ):
            np.testing.assert_allclose(of_alone, of_whole[:, index], rtol=1e-12)
    assert repr(whole).startswith(f"{type(whole).__name__}({NUM_ROWS} rows, ")
    assert len(repr(whole)) < 100


def test_functions_are_what_remains_without_noise(predicted):
    """As f has less and less variance, the median of y is the function's value."""
    likelihood = predicted.example.likelihood
    values = predicted.mean[..., 0][None]
    functions = likelihood.function_values(values, predicted.offset, predicted.scale)
    certain = likelihood.predictive(
        predicted.mean[..., :1],
        1e-12 + 0 * predicted.mean[..., :1],
        predicted.offset,
        predicted.scale,
    )
    assert functions.shape == (1, NUM_ROWS, len(predicted.scale))
    middle = certain.mean if predicted.counts else certain.quantile(0.5)
    np.testing.assert_allclose(functions[0], middle, rtol=1e-5)


def test_log_cdf_has_derivatives_far_below_zero():
    """In single precision, where Φ'/Φ has no digits left; it is -x - 1/x + O(1/x³)."""
    near, far = np.array([3.0, 0.0, -5.0]), np.array([-49.9, -50.1, -1e3, -1e5, -1e7])
    points = np.concatenate([near, far])
    ratios = np.exp(scipy.stats.norm.logpdf(near) - scipy.special.log_ndtr(near))
    slopes = np.concatenate([ratios, -far - 1 / far])
    with precision("float32"):
        both = jax.jit(jax.vmap(jax.value_and_grad(log_cdf)))
        values, found = both(jnp.asarray(points, "float32"))
    np.testing.assert_allclose(values, scipy.special.log_ndtr(points), rtol=1e-4)
    np.testing.assert_allclose(found, slopes, rtol=1e-4)
