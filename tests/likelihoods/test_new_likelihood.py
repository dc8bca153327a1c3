"""A new likelihood is its own file and a line in the registry: everything finds it by its name."""

import sys

import equinox as eqx
import numpy as np
import pytest
from examples import TINY

from dvip import DVIPClassifier, DVIPRegressor, GaussianMixture, Regression, load
from dvip.likelihoods import gaussian_expectation, log_gaussian_expectation
from dvip.registry import LIKELIHOODS

INPUTS = np.random.default_rng(0).normal(size=(40, 2))
TARGETS = np.column_stack([INPUTS.sum(axis=1), 3 + INPUTS[:, 0]])


class KnownNoise(Regression):
    """Gaussian noise of a variance that is known, on the scale of the model."""

    variance: float = eqx.field(static=True, default=0.1)

    def _log_density(self, targets, moments):
        targets = targets.reshape(len(targets), *(1,) * (moments.ndim - 2), -1)
        return lambda f: -0.5 * ((targets - f) ** 2 / self.variance + np.log(2 * np.pi))

    def expected_log_prob(self, targets, mean, variance):
        log_density = self._log_density(targets, mean)
        return gaussian_expectation(log_density, mean, variance).sum(axis=0)

    def log_expected_power(self, targets, mean, variance, alpha):
        log_density = self._log_density(targets, mean)
        power = log_gaussian_expectation(lambda f: alpha * log_density(f), mean, variance)
        return power.sum(axis=0)

    def predictive(self, mean, variance, offset, scale):
        means = mean * scale[:, None] + offset[:, None]
        square = np.square(scale)[:, None]
        return GaussianMixture(means, variance * square, self.variance * square[:, 0])


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setitem(sys.modules, "known_noise", sys.modules[__name__])
    monkeypatch.setitem(LIKELIHOODS._homes, "known", "known_noise:KnownNoise")


@pytest.mark.parametrize("likelihood", ["known", KnownNoise(0.2)], ids=["name", "object"])
def test_estimators_and_files_know_it(likelihood, registered, tmp_path):
    options = {**TINY, "max_iter": 20, "alpha": 0.5, "likelihood": likelihood}
    model = DVIPRegressor.paper(n_layers=1, **options).fit(INPUTS, TARGETS)
    noise, _ = model.predict_dist(INPUTS).variance_parts()
    known = 0.1 if likelihood == "known" else 0.2
    expected = known * np.broadcast_to(np.var(TARGETS, axis=0), noise.shape)
    np.testing.assert_allclose(noise, expected, rtol=1e-6)
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.get_params()["likelihood"] == likelihood
    assert np.array_equal(again.predict(INPUTS), model.predict(INPUTS))


def test_errors_list_it(registered):
    with pytest.raises(ValueError, match=r"'cauchy'.*\bknown\b"):
        DVIPRegressor.paper(likelihood="cauchy").fit(INPUTS, TARGETS)


@pytest.mark.parametrize(
    ("estimator", "likelihood"), [(DVIPClassifier, KnownNoise()), (DVIPRegressor, "probit")]
)
def test_a_likelihood_of_another_task_is_refused(estimator, likelihood):
    with pytest.raises(ValueError, match=r"is for \w+, DVIP\w+ for \w+: choose another"):
        estimator(likelihood=likelihood).fit(INPUTS, INPUTS[:, 0] > 0)
