"""Ensembles, left-out rows, time limits and calibration, as one model everywhere."""

import signal
import warnings

import numpy as np
import pytest
from examples import TINY, regression_data
from sklearn.exceptions import ConvergenceWarning

from dvip import ArraySource, DVIPClassifier, DVIPRegressor, load
from dvip.batches import ArrayData
from dvip.sources import streamed_rows
from dvip.training import members as members_module
from dvip.training.checkpoints import CheckpointFolder

X, Y = regression_data(num_rows=80)
LABELS = np.array(["low", "middle", "high"])[np.digitize(Y, np.quantile(Y, [0.3, 0.6]))]
NEW = X[:7] + 0.01
# One compilation for all: three members that leave out a third of the rows each.
ENSEMBLE = {**TINY, "n_layers": 2, "max_iter": 300, "n_members": 3, "calibrate": True}


def fit(cls=DVIPRegressor, y=Y, **options):
    return cls(**{**ENSEMBLE, **options}).fit(X, y)


@pytest.fixture(scope="module")
def regressor():
    return fit()


@pytest.fixture(scope="module")
def classifier():
    return fit(DVIPClassifier, LABELS)


def test_the_prediction_is_the_mean_of_the_members(regressor):
    assert len(regressor.model_.members) == 3
    inputs = regressor._scaled(NEW)
    means = [regressor._predicted(inputs, [m]).mean for m in regressor.model_.members]
    assert np.ptp(means, axis=0).min() > 0  # members differ
    together = regressor.predict(NEW)
    assert (together > np.min(means, axis=0)).all()
    assert (together < np.max(means, axis=0)).all()
    # Nine samples, three of each member, and the tail of the calibration.
    assert regressor.predict_dist(NEW).shape == (7, 10)


def test_functions_are_drawn_from_all_members(regressor):
    functions = regressor.sample_functions(5, random_state=0)
    values = functions(NEW)
    assert values.shape == (5, 7)
    np.testing.assert_array_equal(values, functions(NEW))
    assert len(np.unique(values[:, 0].round(6))) == 5
    assert regressor.sample_functions(2, random_state=0)(NEW).shape == (2, 7)


@pytest.mark.parametrize("kind", ["regressor", "classifier"])
def test_saved_as_one_model(request, kind, tmp_path):
    model = request.getfixturevalue(kind)
    model.save(tmp_path / "model")
    same = load(tmp_path / "model")
    np.testing.assert_array_equal(same.predict(NEW), model.predict(NEW))
    assert same.calibration_ == model.calibration_
    np.testing.assert_array_equal(same.validation_scores_, model.validation_scores_)
    if kind == "classifier":
        np.testing.assert_array_equal(same.predict_proba(NEW), model.predict_proba(NEW))


def test_members_do_not_depend_on_threads(regressor, monkeypatch):
    monkeypatch.setattr(members_module.os, "cpu_count", lambda: 1)
    np.testing.assert_array_equal(fit().predict(NEW), regressor.predict(NEW))


def test_scores_of_left_out_rows(regressor):
    member, step, score = regressor.validation_scores_.T
    assert set(member) == {0, 1, 2}
    assert step.max() == regressor.n_iter_ == 300
    assert np.isfinite(score).all()
    assert regressor.bound_history_.shape == (3, 6)


def test_calibration_changes_widths_and_not_means(regressor):
    scale, tail_weight, tail_scale, temperature = regressor.calibration_
    assert temperature == 1
    raw = regressor._predicted(regressor._scaled(NEW), regressor.model_.members)
    calibrated = regressor.predict_dist(NEW)
    np.testing.assert_allclose(calibrated.mean, raw.mean, rtol=1e-6)
    factor = scale * np.sqrt(1 - tail_weight + tail_weight * tail_scale**2)
    np.testing.assert_allclose(calibrated.std, factor * raw.std, rtol=1e-5)
    mean, std = regressor.predict(NEW, return_std=True)
    np.testing.assert_allclose(std, calibrated.std, rtol=1e-6)
    np.testing.assert_allclose(mean, calibrated.mean, rtol=1e-6)


def test_probabilities_are_calibrated(classifier):
    probabilities = classifier.predict_proba(NEW)
    raw = classifier._predicted(classifier._scaled(NEW), classifier.model_.members)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    powers = raw ** (1 / classifier.calibration_.temperature)
    np.testing.assert_allclose(probabilities, powers / powers.sum(axis=1, keepdims=True))
    np.testing.assert_array_equal(probabilities.argmax(axis=1), raw.argmax(axis=1))


def test_resumed_members_are_bit_equal(regressor, tmp_path, monkeypatch):
    """Cut off when the second member has written a checkpoint; one thread, to be sure of it."""
    original = CheckpointFolder.write

    def write(self, checkpoint):
        original(self, checkpoint)
        if self.folder.name == "member-2" and checkpoint.step == 150:
            raise OverflowError

    options = {"checkpoint_dir": tmp_path, "checkpoint_every": 50}
    with monkeypatch.context() as patch:
        patch.setattr(CheckpointFolder, "write", write)
        patch.setattr(members_module.os, "cpu_count", lambda: 1)
        with pytest.raises(OverflowError):
            DVIPRegressor.paper(**ENSEMBLE).fit(X, Y, **options)
    assert sorted(path.name for path in tmp_path.glob("member-*")) == ["member-1", "member-2"]
    resumed = DVIPRegressor.paper(**ENSEMBLE).fit(X, Y, **options, resume=True)
    np.testing.assert_array_equal(resumed.predict(NEW), regressor.predict(NEW))
    np.testing.assert_array_equal(resumed.validation_scores_, regressor.validation_scores_)
    assert resumed.calibration_ == regressor.calibration_


@pytest.mark.faults
@pytest.mark.usefixtures("heeded_ctrl_c")
def test_a_signal_stops_all_members(tmp_path, monkeypatch):
    """It takes effect once every thread has ended its piece and written a checkpoint."""
    original = CheckpointFolder.write

    def write(self, checkpoint):
        original(self, checkpoint)
        if checkpoint.step == 100:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(members_module.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(CheckpointFolder, "write", write)
    model = DVIPRegressor.paper(**{**ENSEMBLE, "max_iter": 30_000})
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, Y, checkpoint_dir=tmp_path, checkpoint_every=50)
    assert not hasattr(model, "model_")
    assert len(list(tmp_path.glob("member-*/step-*"))) >= 1


def test_a_member_that_fails_ends_the_training(monkeypatch):
    original = members_module.train

    def train(model, data, settings, *others, **options):
        if settings.seed != seed:
            raise MemoryError("no more")
        return original(model, data, settings, *others, **options)

    model = DVIPRegressor.paper(**ENSEMBLE)
    model._start_training()
    seed = model.seed_  # of the first member
    monkeypatch.setattr(members_module, "train", train)
    with pytest.raises(MemoryError, match="no more"):
        model.fit(X, Y)


def test_members_on_all_rows():
    model = fit(calibrate=False, n_layers=1)
    assert not hasattr(model, "calibration_")
    assert not hasattr(model, "validation_scores_")
    assert model.predict(NEW).shape == (7,)


def test_batch_by_batch():
    model = DVIPRegressor.paper(**{**ENSEMBLE, "calibrate": False, "n_layers": 1})
    for part in np.array_split(np.arange(80), 4):
        model.partial_fit(X[part], Y[part])
    assert len(model.model_.members) == 3
    assert model.n_samples_seen_ == 80
    assert np.isfinite(model.predict(NEW)).all()
    with pytest.raises(ValueError, match="partial_fit"):
        DVIPRegressor.paper(**ENSEMBLE).partial_fit(X, Y)


def test_streamed(monkeypatch):
    """Pages of neighbouring rows are what a member leaves out."""
    monkeypatch.setattr(streamed_rows, "PAGE_BYTES", 64)
    model = DVIPRegressor.paper(**ENSEMBLE).fit(ArraySource(X, Y))
    assert model.calibration_.scale > 0
    assert np.isfinite(model.predict(NEW)).all()


def test_rows_that_several_members_leave_out():
    model = fit(validation_fraction=2 / 3)
    groups = {without for without, _ in model._left_out_rows(_data(model))}
    assert groups == {(0, 2), (0, 1), (1, 2)}
    assert model.calibration_.scale > 0


def _data(model):
    return ArrayData(model._scaled(X), Y[:, None], np.ones(len(Y)))


@pytest.mark.slow
def test_several_targets():
    both = np.column_stack([Y, 100 * Y[::-1]])
    model = fit(y=both)
    lower, upper = model.predict_dist(NEW).interval(0.9)
    assert lower.shape == (7, 2)
    assert (lower < upper).all()


def test_a_single_model_is_stopped_and_calibrated():
    random = np.random.default_rng(0)
    noise = random.normal(size=80)  # nothing to learn
    model = fit(y=noise, n_members=None, validation_fraction=0.25, max_iter=20_000)
    assert model.n_iter_ < 20_000
    scores = model.validation_scores_[:, 2]
    assert scores.argmax() < len(scores) - 1
    assert model.bound_history_.ndim == 1
    assert model.calibration_.scale > 0


def test_a_time_limit():
    with pytest.warns(ConvergenceWarning, match="max_seconds=1 ended the training after"):
        model = fit(n_members=None, calibrate=False, max_iter=10**6, max_seconds=1)
    assert 0 < model.n_iter_ < 10**6
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(n_members=None, calibrate=False, max_seconds=1_000)


def test_training_that_was_too_short():
    """A straight line, learned slowly: still improving at the end."""
    options = {"n_layers": 1, "max_iter": 1200, "learning_rate": 0.001, "n_members": None}
    with pytest.warns(ConvergenceWarning, match="a larger max_iter"):
        fit(y=X[:, 0], **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_members": 0}, "n_members=0 must be a whole number"),
        ({"n_members": 60}, "80 rows are too few to leave out 2% of them for each member"),
        ({"calibrate": "yes"}, "calibrate='yes' must be True or False"),
        ({"validation_fraction": 1.5}, "validation_fraction=1.5 must be a number between 0 and 1"),
        ({"validation_fraction": 0.001}, "80 rows are too few to leave out 0%"),
        ({"max_seconds": -1}, "max_seconds=-1 must be a positive number"),
        ({"max_seconds": float("nan")}, "max_seconds=nan must be a positive number"),
        ({"likelihood": "poisson"}, "calibrate=True corrects the scale .* Poisson does not allow"),
    ],
)
def test_mistakes(options, message):
    with pytest.raises(ValueError, match=message):
        fit(**options)


def test_one_class_left():
    labels = np.array(["many"] * 78 + ["few"] * 2)
    with pytest.raises(ValueError, match="all of one class: use fewer members"):
        fit(DVIPClassifier, labels, n_members=2, validation_fraction=0.9)
