"""Each likelihood against numerical integration, and its own checks."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from references import gaussian
from scipy.integrate import quad
from scipy.special import log_ndtr, ndtr
from scipy.stats import norm

from dvip import Gaussian, Probit, RobustMax

pytestmark = pytest.mark.usefixtures("double")

ALPHAS = (0.3, 1.0)


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
