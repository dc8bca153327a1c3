"""Likelihoods: one protocol for all of them, against sampling; each against integration."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples import assert_gradient, perturbed
from scipy.integrate import quad
from scipy.special import log_ndtr, ndtr
from scipy.stats import norm

from dvip import Gaussian, Probit, RobustMax
from dvip.likelihoods import Likelihood
from dvip.runtime import precision

pytestmark = pytest.mark.usefixtures("double")

ALPHAS = (0.3, 1.0)
NUM_DRAWS = 100_000
NUM_ROWS = 4


def gaussian(num_targets, variance):
    return Gaussian(jnp.full(num_targets, np.log(variance)))


class Example(NamedTuple):
    likelihood: Likelihood
    targets: np.ndarray  # outputs x rows
    num_units: int

    def log_prob(self, values):
        """log p(y | f) in NumPy; `values` are draws x units x rows."""
        if isinstance(self.likelihood, Gaussian):
            variance = np.exp(np.asarray(self.likelihood.log_variance))[:, None]
            squares = np.square(self.targets - values) / variance
            return -0.5 * (squares + np.log(2 * np.pi * variance)).sum(axis=1)
        if isinstance(self.likelihood, Probit):
            return log_ndtr((2 * self.targets - 1) * values).sum(axis=1)
        error = self.likelihood.error
        hit = values.argmax(axis=1) == self.targets[0]
        return np.log(np.where(hit, 1 - error, error / (self.num_units - 1)))


# A new likelihood is covered by adding it here.
EXAMPLES = {
    "gaussian": lambda: Example(perturbed(gaussian(1, 0.3)), np.array([[0.0, 1.0, -2.0, 0.3]]), 1),
    "gaussian, three targets": lambda: Example(
        perturbed(gaussian(3, 0.3)), np.random.default_rng(1).normal(size=(3, NUM_ROWS)), 3
    ),
    "probit": lambda: Example(Probit(), np.array([[0.0, 1.0, 1.0, 0.0]]), 1),
    "robust-max, three classes": lambda: Example(
        RobustMax(error=0.05), np.array([[0.0, 1.0, 2.0, 0.0]]), 3
    ),
    "robust-max, ten classes": lambda: Example(
        RobustMax(error=0.01), np.array([[0.0, 9.0, 5.0, 0.0]]), 10
    ),
}


CLASSIFICATIONS = [name for name in EXAMPLES if not name.startswith("gaussian")]


@pytest.fixture(scope="module", params=EXAMPLES)
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


@eqx.filter_jit
def expected_log_prob(likelihood, targets, mean, variance):
    return likelihood.expected_log_prob(targets, mean, variance)


@eqx.filter_jit
def log_expected_power(likelihood, targets, mean, variance, alpha):
    return likelihood.log_expected_power(targets, mean, variance, alpha)


@eqx.filter_jit
def class_probabilities(likelihood, mean, variance):
    return likelihood.class_probabilities(mean, variance)


def arrays(*values):
    return tuple(map(jnp.asarray, values))


def test_expected_log_prob_against_sampling(example, moments, draws):
    result = expected_log_prob(example.likelihood, *arrays(example.targets, *moments))
    log_prob = example.log_prob(draws)
    error = log_prob.std(axis=0) / np.sqrt(NUM_DRAWS)
    assert result.shape == (NUM_ROWS,)
    # Quadrature of a few numbers of points has an error of its own, far smaller.
    assert (np.abs(result - log_prob.mean(axis=0)) < 5 * error + 1e-3).all()


@pytest.mark.parametrize("alpha", ALPHAS)
def test_log_expected_power_against_sampling(example, moments, draws, alpha):
    result = log_expected_power(example.likelihood, *arrays(example.targets, *moments), alpha)
    powers = np.exp(alpha * example.log_prob(draws))
    expected = powers.mean(axis=0)
    error = powers.std(axis=0) / np.sqrt(NUM_DRAWS) / expected
    assert result.shape == (NUM_ROWS,)
    assert (np.abs(result - np.log(expected)) < 5 * error + 1e-3).all()


def test_small_powers_are_the_expected_log_prob(example, moments):
    """log E[p^α] = α E[log p] + O(α²)."""
    arguments = arrays(example.targets, *moments)
    limit = np.asarray(expected_log_prob(example.likelihood, *arguments))
    halves = [
        np.asarray(log_expected_power(example.likelihood, *arguments, alpha)) / alpha
        for alpha in (2e-4, 1e-4)
    ]
    # Extrapolated to α = 0; what remains is of the order of α².
    np.testing.assert_allclose(2 * halves[1] - halves[0], limit, rtol=1e-5)
    assert (halves[0] > halves[1]).all()  # Jensen: the energy grows with α
    assert (halves[1] > limit).all()


def test_moments_may_have_a_sample_axis(example, moments):
    """Several propagated samples of each row: the same numbers as sample by sample."""
    mean, variance = moments
    stacked = arrays(np.stack([mean, mean + 1], axis=1), np.stack([variance, 2 * variance], axis=1))
    targets = jnp.asarray(example.targets)
    both = expected_log_prob(example.likelihood, targets, *stacked)
    tilted = log_expected_power(example.likelihood, targets, *stacked, 0.5)
    assert both.shape == tilted.shape == (2, NUM_ROWS)
    for sample, (m, v) in enumerate([(mean, variance), (mean + 1, 2 * variance)]):
        alone = expected_log_prob(example.likelihood, targets, *arrays(m, v))
        np.testing.assert_allclose(both[sample], alone, rtol=1e-12)
        alone = log_expected_power(example.likelihood, targets, *arrays(m, v), 0.5)
        np.testing.assert_allclose(tilted[sample], alone, rtol=1e-12)


def test_gradients(example, moments):
    def value(arguments):
        likelihood, mean, variance = arguments
        targets = jnp.asarray(example.targets)
        first = likelihood.expected_log_prob(targets, mean, variance)
        second = likelihood.log_expected_power(targets, mean, variance, 0.5)
        return jnp.sum(first) + jnp.sum(jnp.sin(second))

    assert_gradient(value, (example.likelihood, *arrays(*moments)))


@pytest.mark.parametrize("example", CLASSIFICATIONS, indirect=True)
def test_class_probabilities_against_sampling(example, moments, draws):
    num_classes = max(2, example.num_units)
    probabilities = class_probabilities(example.likelihood, *arrays(*moments))
    assert probabilities.shape == (num_classes, NUM_ROWS)
    assert (probabilities > 0).all()
    np.testing.assert_allclose(probabilities.sum(axis=0), 1, rtol=1e-12)
    for number in range(num_classes):
        targets = np.full((1, NUM_ROWS), float(number))
        sampled = np.exp(example._replace(targets=targets).log_prob(draws))
        error = sampled.std(axis=0) / np.sqrt(NUM_DRAWS)
        difference = np.abs(probabilities[number] - sampled.mean(axis=0))
        assert (difference < 5 * error + 1e-4).all()


EXTREMES = [
    (mean, variance) for mean in (0.0, 1e3, -1e6, 1e8) for variance in (1e-30, 1e-4, 1e6, 1e12)
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
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

        @jax.jit
        def terms(mean, variance):
            return jnp.stack(
                [
                    likelihood.expected_log_prob(targets, mean, variance),
                    likelihood.log_expected_power(targets, mean, variance, 0.5),
                ]
            )

        assert np.isfinite(terms(mean, variance)).all()
        # The sum has the gradients of its terms, as each column has an entry of its own.
        gradients = jax.jit(jax.grad(lambda *m: jnp.sum(terms(*m)), argnums=(0, 1)))
        assert all(np.isfinite(gradient).all() for gradient in gradients(mean, variance))
        if not isinstance(example.likelihood, Gaussian):
            probabilities = np.asarray(class_probabilities(likelihood, mean, variance))
            assert np.isfinite(probabilities).all()
            assert (probabilities >= 0).all()
            np.testing.assert_allclose(probabilities.sum(axis=0), 1, rtol=1e-5)


# Against numerical integration.


def _integral(function, mean, variance, points=()):
    """E[function(f)] for f ~ N(mean, variance)."""
    std = np.sqrt(variance)
    inside = [p for p in (np.asarray(points) - mean) / std if abs(p) < 12]
    value, _ = quad(
        lambda t: norm.pdf(t) * function(mean + std * t),
        -12,
        12,
        points=inside or None,
        limit=400,
        epsabs=1e-13,
    )
    return value


MEANS_AND_VARIANCES = [(0.3, 0.5), (-1.2, 2.0), (2.5, 0.01), (-4.0, 1.0)]


@pytest.mark.parametrize(("mean", "variance"), MEANS_AND_VARIANCES)
def test_gaussian_against_integration(mean, variance):
    noise, target = 0.4, 0.7
    arguments = (gaussian(1, noise), *arrays([[target]], [[mean]], [[variance]]))

    def log_prob(f):
        return norm.logpdf(target, f, np.sqrt(noise))

    expected = _integral(log_prob, mean, variance)
    np.testing.assert_allclose(expected_log_prob(*arguments), [expected], rtol=1e-10)
    for alpha in ALPHAS:
        tilted = np.log(_integral(lambda f, a=alpha: np.exp(a * log_prob(f)), mean, variance))
        np.testing.assert_allclose(log_expected_power(*arguments, alpha), [tilted], rtol=1e-9)


@pytest.mark.parametrize("label", [0.0, 1.0])
@pytest.mark.parametrize(("mean", "variance"), MEANS_AND_VARIANCES)
def test_probit_against_integration(mean, variance, label):
    sign = 2 * label - 1
    arguments = (Probit(), *arrays([[label]], [[mean]], [[variance]]))
    expected = _integral(lambda f: log_ndtr(sign * f), mean, variance)
    np.testing.assert_allclose(expected_log_prob(*arguments), [expected], rtol=1e-6)
    for alpha in ALPHAS:
        tilted = np.log(_integral(lambda f, a=alpha: ndtr(sign * f) ** a, mean, variance))
        np.testing.assert_allclose(log_expected_power(*arguments, alpha), [tilted], rtol=1e-5)
    probabilities = class_probabilities(Probit(), *arrays([[mean]], [[variance]]))
    expected = _integral(lambda f: ndtr(sign * f), mean, variance)
    np.testing.assert_allclose(probabilities[int(label)], [expected], rtol=1e-9)


@pytest.mark.parametrize(
    ("means", "variances"),
    [
        ([0.0, 0.5, -0.3], [1.0, 1.0, 1.0]),
        ([0.0, 0.5, -0.3], [0.5, 0.8, 1.2]),
        ([2.0, -1.0], [0.3, 0.3]),
        ([0.1, 0.0, 0.2, 0.3], [0.02, 0.03, 0.02, 0.04]),
    ],
)
def test_robust_max_against_integration(means, variances):
    error = 0.02
    likelihood, num_classes = RobustMax(error=error), len(means)
    miss = error / (num_classes - 1)
    moments = arrays(np.array(means)[:, None], np.array(variances)[:, None])

    def probability_of_largest(c):
        others = [(m, v) for j, (m, v) in enumerate(zip(means, variances, strict=True)) if j != c]
        return _integral(
            lambda f: np.prod([ndtr((f - m) / np.sqrt(v)) for m, v in others]),
            means[c],
            variances[c],
        )

    largest = np.array([probability_of_largest(c) for c in range(num_classes)])
    np.testing.assert_allclose(largest.sum(), 1, rtol=1e-9)
    probabilities = class_probabilities(likelihood, *moments)
    np.testing.assert_allclose(
        probabilities[:, 0], largest * (1 - error) + (1 - largest) * miss, rtol=1e-4
    )
    for c in range(num_classes):
        arguments = (likelihood, jnp.asarray([[float(c)]]), *moments)
        expected = largest[c] * np.log(1 - error) + (1 - largest[c]) * np.log(miss)
        np.testing.assert_allclose(expected_log_prob(*arguments), [expected], rtol=1e-4)
        tilted = np.log(largest[c] * (1 - error) ** 0.5 + (1 - largest[c]) * miss**0.5)
        np.testing.assert_allclose(log_expected_power(*arguments, 0.5), [tilted], rtol=1e-4)


def test_targets_have_noise_of_their_own():
    """Several targets: the sum of what each gives alone."""
    log_variance = np.array([-1.0, 0.5])
    random = np.random.default_rng(4)
    targets, mean = random.normal(size=(2, 2, 3))
    variance = random.uniform(0.1, 1, size=(2, 3))
    together = Gaussian(jnp.asarray(log_variance))
    alone = [Gaussian(jnp.asarray(log_variance[[unit]])) for unit in range(2)]
    for function, extra in ((expected_log_prob, ()), (log_expected_power, (0.5,))):
        parts = [
            function(alone[h], *arrays(targets[[h]], mean[[h]], variance[[h]]), *extra)
            for h in range(2)
        ]
        result = function(together, *arrays(targets, mean, variance), *extra)
        np.testing.assert_allclose(result, parts[0] + parts[1], rtol=1e-12)


def test_probit_is_for_two_classes():
    with pytest.raises(ValueError, match=r"two classes.*3.*robustmax"):
        Probit().num_latents(3)


@pytest.mark.parametrize("error", [0.0, 1.0, -0.1, float("nan")])
def test_robust_max_needs_a_probability(error):
    with pytest.raises(ValueError, match="error="):
        RobustMax(error=error)
