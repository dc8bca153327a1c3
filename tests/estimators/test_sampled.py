"""inference="mcmc": estimators whose posterior is sampled."""

import numpy as np
import pytest
from examples import TINY, regression_data
from sklearn.exceptions import ConvergenceWarning

from dvip import DVIPClassifier, DVIPRegressor, GaussianProcess, load
from dvip.sampled import SampledModel
from dvip.sources import ArraySource
from dvip.training.checkpoints import CheckpointFolder

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

X, Y = regression_data(num_inputs=2)
SMALL = dict(
    inference="mcmc",
    n_chains=2,
    n_layers=2,
    n_prior_samples=6,
    prior=GaussianProcess(num_frequencies=8),
    max_iter=400,
    likelihood="heteroscedastic",
)


@pytest.fixture(scope="module")
def fitted():
    return DVIPRegressor(**SMALL).fit(X, Y)


def test_predictions_are_mixtures_of_the_samples(fitted):
    assert isinstance(fitted.model_, SampledModel)
    assert fitted.model_.num_samples == 200
    distribution = fitted.predict_dist(X)
    assert distribution.shape == (60, 100)
    noise, function = distribution.variance_parts()
    assert (noise > 0).all()
    assert (function > 0).all()
    mean, std = fitted.predict(X, return_std=True)
    np.testing.assert_allclose(mean, distribution.mean)
    np.testing.assert_allclose(std, distribution.std)
    assert np.corrcoef(mean, Y)[0, 1] > 0.9
    assert distribution.log_prob(Y).mean() > -4.5  # that of a constant mean is -4.9
    # A prediction for a row does not depend on the others.
    np.testing.assert_allclose(fitted.predict(X[:1]), mean[:1], rtol=1e-5)


def test_functions_are_samples(fitted):
    functions = fitted.sample_functions(200, random_state=0)(X)
    assert functions.shape == (200, 60)
    # All samples, each once.
    means = fitted.set_params(n_predictive_samples=200).predict(X)
    fitted.set_params(n_predictive_samples=100)
    np.testing.assert_allclose(functions.mean(axis=0), means, rtol=1e-4)
    again = fitted.sample_functions(3, random_state=0)
    assert np.array_equal(again(X), again(X))
    assert fitted.sample_functions(201, random_state=0)(X[:2]).shape == (201, 2)


def test_diagnostics_and_history(fitted):
    diagnostics = fitted.diagnostics_
    assert diagnostics.num_steps == fitted.n_iter_ == 400
    assert diagnostics.num_chains == len(fitted.bound_history_) == 2
    assert 0.9 < diagnostics.r_hat < 10
    assert diagnostics.energy_error >= 0
    assert np.isfinite(fitted.bound_history_).all()


def test_saved_models_are_equal_and_small(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert np.array_equal(again.predict(X), fitted.predict(X))
    assert str(again.diagnostics_) == str(fitted.diagnostics_)
    functions = (model.sample_functions(4, random_state=1)(X) for model in (again, fitted))
    assert np.array_equal(*functions)
    again.save(tmp_path / "again")
    numbers = sum(path.stat().st_size for path in (tmp_path / "model").iterdir())
    # Two layers of three units of six coefficients, their parameters and the noise's.
    assert numbers < 200 * 40 * 4 * 1.5


def test_same_seed_same_model(fitted):
    again = DVIPRegressor(**SMALL).fit(X, Y)
    assert np.array_equal(again.predict(X), fitted.predict(X))
    other = DVIPRegressor(**SMALL, random_state=1).fit(X, Y)
    assert not np.array_equal(other.predict(X), fitted.predict(X))


class Stopped(Exception):
    """The end of a chain that is cut off."""


@pytest.mark.parametrize(
    "at",
    [
        pytest.param(3, id="tuning", marks=pytest.mark.slow),
        pytest.param(9, id="tuned", marks=pytest.mark.slow),
        pytest.param(12, id="drawing"),
    ],
)
def test_resumed_chains_are_equal(fitted, tmp_path, monkeypatch, at):
    original, written = CheckpointFolder.write, []

    def write(self, checkpoint):
        original(self, checkpoint)
        written.append(checkpoint)
        if len(written) == at:
            raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr(CheckpointFolder, "write", write)
        with pytest.raises(Stopped):
            DVIPRegressor(**SMALL).fit(X, Y, checkpoint_dir=tmp_path, checkpoint_every=1)
    again = DVIPRegressor(**SMALL).fit(X, Y, checkpoint_dir=tmp_path, resume=True)
    assert np.array_equal(again.predict(X), fitted.predict(X))
    assert np.array_equal(again.bound_history_, fitted.bound_history_)
    assert str(again.diagnostics_) == str(fitted.diagnostics_)


def test_known_errors_make_predictions_wider(fitted):
    wider = fitted.predict_dist(X[:5], noise_std=20.0).std
    np.testing.assert_allclose(wider**2, fitted.predict_dist(X[:5]).std ** 2 + 400, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "likelihood",
    ["student-t", "heteroscedastic-student-t", "negative-binomial"],
)
def test_other_noise(likelihood):
    y = np.round(np.abs(Y - 100) / 10)
    options = {**SMALL, "likelihood": likelihood, "max_iter": 100, "n_layers": 1}
    model = DVIPRegressor(**options).fit(X, y)
    distribution = model.predict_dist(X)
    assert np.isfinite(distribution.log_prob(y)).all()
    assert distribution.shape[1] < 120
    assert model.predict(X).shape == y.shape


@pytest.mark.slow
def test_classes():
    labels = np.array(["a", "b", "c"])[np.digitize(X[:, 0], [4, 6])]
    options = {**SMALL, "likelihood": "auto", "n_chains": 1, "max_iter": 200, "n_layers": 1}
    model = DVIPClassifier(**options).fit(X, labels)
    probabilities = model.predict_proba(X)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)
    assert (model.predict(X) == labels).mean() > 0.8
    assert model.sample_functions(3)(X).shape == (3, 60, 3)


# Takes long to compile.
@pytest.mark.slow
def test_little_time_is_kept_to():
    options = {**SMALL, "max_iter": 10**7, "n_layers": 1, "likelihood": "gaussian"}
    with pytest.warns(ConvergenceWarning, match="ended the chains early"):
        model = DVIPRegressor(**options, max_seconds=1e-3).fit(X, Y)
    assert model.n_iter_ < 10**7


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inference": "laplace"}, "use one of auto, vi, mcmc, exact"),
        ({"n_chains": 0}, "n_chains=0"),
        ({"n_members": 2}, "n_members=2 is not for inference='mcmc'"),
        ({"validation_fraction": 0.2}, "validation_fraction=0.2 is not for"),
        ({"calibrate": True, "likelihood": "gaussian"}, "calibrate=True is not for"),
        ({"n_inducing": 10}, "n_inducing=10 is not for"),
        ({"fresh_noise": True}, "fresh_noise=True is not for"),
        ({"alpha": 0.5}, "alpha=0.5 is not for"),
    ],
)
def test_what_cannot_be_sampled_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        DVIPRegressor(**{**SMALL, **options}).fit(X, Y)


def test_rows_must_be_in_memory_and_come_at_once():
    with pytest.raises(ValueError, match="partial_fit visits rows once"):
        DVIPRegressor(**SMALL).partial_fit(X, Y)
    source = ArraySource(X, Y)
    if not source.in_memory:
        with pytest.raises(ValueError, match="needs all rows in memory"):
            DVIPRegressor(**SMALL).fit(source)
    labels = (X[:, 0] > 5).astype(int) + (X[:, 0] > 6)
    with pytest.raises(ValueError, match="has no gradient to learn by"):
        DVIPClassifier(**{**SMALL, "likelihood": "robustmax"}).fit(X, labels)


def test_variational_models_are_as_before():
    model = DVIPRegressor.paper(**TINY, n_layers=1).fit(*regression_data())
    assert not hasattr(model, "diagnostics_")
