"""Saved models: bit-equal after loading, and safe to replace."""

import errno
import os
import shutil

import equinox as eqx
import numpy as np
import pandas as pd
import pytest
from examples import TINY, TINY_DEEP_GP, TINY_SIP, RandomWaves, regression_data

from dvip import (
    BayesianNeuralNetwork,
    DeepGPClassifier,
    DeepGPRegressor,
    DVIPClassifier,
    DVIPRegressor,
    GaussianProcess,
    ModelFileError,
    NeuralSampler,
    RobustMax,
    SIPRegressor,
    WarpedGaussianProcess,
    load,
)

X, Y = regression_data()
Y2 = regression_data(num_targets=2)[1]
SHALLOW = {**TINY, "n_layers": 1}
DEEP = {**TINY, "n_layers": 2}
DEEP_GP = {**TINY_DEEP_GP, "n_layers": 2}
FRAME = pd.DataFrame(X, columns=["height", "größe", "x y"])
HIGH = (Y > 100).astype(int)


def fit(cls=DVIPRegressor, y=Y, inputs=X, defaults=SHALLOW, **options):
    return getattr(cls, "paper", cls)(**{**defaults, **options}).fit(inputs, y)


MODELS = {
    "regressor": lambda: fit(),
    "deep regressor": lambda: fit(defaults=DEEP),
    "several targets": lambda: fit(y=Y2),
    "double precision": lambda: fit(precision="float64"),
    "data frame": lambda: fit(inputs=FRAME),
    "generator as seed": lambda: fit(random_state=np.random.RandomState(3)),
    "narrow, with arrays and numbers of NumPy": lambda: fit(
        defaults=DEEP, n_units=np.array([2]), n_training_samples=np.int64(3), max_iter=np.int64(200)
    ),
    "a prior for each unit": lambda: fit(
        defaults=DEEP, shared_prior=False, input_propagation=False
    ),
    "gp with options": lambda: fit(
        prior=GaussianProcess("matern32", 5, "orthogonal", lengthscale=0.7)
    ),
    "other priors with options": lambda: fit(
        defaults=DEEP,
        prior=[
            WarpedGaussianProcess(num_frequencies=5, num_steps=2),
            NeuralSampler((4, 3), "relu", num_noise=3),
        ],
    ),
    "regularised prior": lambda: fit(
        prior=BayesianNeuralNetwork((3,), constrained=False, regularised=True)
    ),
    "soft constraint": lambda: fit(prior=BayesianNeuralNetwork((3,), strength=30)),
    "text labels": lambda: fit(DVIPClassifier, np.array(["no", "yes"])[HIGH]),
    "object labels": lambda: fit(DVIPClassifier, np.array(["no", "größer"], dtype=object)[HIGH]),
    "whole number labels": lambda: fit(DVIPClassifier, np.array([-5, 10**12])[HIGH]),
    "boolean labels": lambda: fit(DVIPClassifier, Y > 100),
    "labels that are days": lambda: fit(
        DVIPClassifier, np.array(["1969-12-31", "2024-02-29"], dtype="datetime64[D]")[HIGH]
    ),
    "labels that are durations": lambda: fit(
        DVIPClassifier, np.array([3, 10**15], dtype="timedelta64[ns]")[HIGH]
    ),
    "float labels": lambda: fit(DVIPClassifier, np.array([1.0, 2.0])[HIGH]),
    "three classes": lambda: fit(DVIPClassifier, np.digitize(Y, [90, 110]), defaults=DEEP),
    "deep gp": lambda: fit(DeepGPRegressor, defaults=DEEP_GP),
    "deep gp, double precision": lambda: fit(
        DeepGPRegressor, y=Y2, defaults=DEEP_GP, precision="float64", n_units=2
    ),
    "deep gp classifier": lambda: fit(DeepGPClassifier, HIGH, defaults=DEEP_GP),
    "inducing points": lambda: fit(defaults=DEEP, n_inducing=7),
    "sip": lambda: fit(SIPRegressor, defaults=TINY_SIP),
    "own likelihood setting": lambda: fit(DVIPClassifier, HIGH, likelihood=RobustMax(error=0.05)),
}


def predictions(model):
    inputs = FRAME if hasattr(model, "feature_names_in_") else X
    if hasattr(model, "predict_proba"):
        return [model.predict(inputs), model.predict_proba(inputs)]
    return model.predict(inputs, return_std=True)


def equal(first, second):
    return all(
        a.dtype == b.dtype and np.array_equal(a, b)
        for a, b in zip(predictions(first), predictions(second), strict=True)
    )


# Other programs, saved in the same way. (Each prior is saved in tests/processes, a sparse implicit
# process in tests/layers.)
SLOW = {
    "a prior for each unit",
    "other priors with options",
    "regularised prior",
    "soft constraint",
    "deep gp, double precision",
    "deep gp classifier",
    "sip",
    "inducing points",
    "narrow, with arrays and numbers of NumPy",
    "three classes",
}


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(make, id=name, marks=[pytest.mark.slow] * (name in SLOW))
        for name, make in MODELS.items()
    ],
)
def test_loaded_models_predict_bit_equally(make, tmp_path):
    model = make()
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert type(loaded) is type(model)
    assert equal(loaded, model)
    for name in ("n_iter_", "n_features_in_", "seed_"):
        assert getattr(loaded, name) == getattr(model, name)
    assert np.array_equal(loaded.bound_history_, model.bound_history_)
    if hasattr(model, "feature_names_in_"):
        assert np.array_equal(loaded.feature_names_in_, model.feature_names_in_)
    # A loaded model is an estimator like any other: it can be saved and fitted again.
    loaded.save(tmp_path / "again")
    assert equal(load(tmp_path / "again"), model)


def test_loaded_models_draw_the_same_functions(saved, model):
    functions, same = (m.sample_functions(5, random_state=0) for m in (model, load(saved)))
    assert np.array_equal(functions(X), same(X))


def test_files_are_json_and_safetensors(saved):
    assert sorted(path.suffix for path in saved.iterdir()) == [".json", ".safetensors"]


def test_own_prior(tmp_path):
    model = fit(prior=RandomWaves())
    model.save(tmp_path / "model")
    with pytest.raises(ModelFileError, match=r"load\(path, prior=RandomWaves\(...\)\)"):
        load(tmp_path / "model")
    assert equal(load(tmp_path / "model", prior=RandomWaves()), model)
    wrong_ones = {
        r"RandomWaves\(num_waves=3\) was given": RandomWaves(num_waves=3),
        r"but Waves\(height=2\.0\) was given": Waves(height=2.0),
        r"BayesianNeuralNetwork with .* was given": BayesianNeuralNetwork(),
        "'bnn' was given": "bnn",
        "3 was given": 3,
    }
    for match, wrong in wrong_ones.items():
        with pytest.raises(ModelFileError, match=rf"trained with prior=RandomWaves\(\).*{match}"):
            load(tmp_path / "model", prior=wrong)
    with pytest.raises(ModelFileError, match="needs no likelihood of your own"):
        load(tmp_path / "model", prior=RandomWaves(), likelihood=RobustMax())


class Waves(RandomWaves):
    """Another process with arrays of the same shapes."""

    height: float = eqx.field(static=True, default=1.0)


def test_options_of_an_own_prior_that_change_no_shape(tmp_path):
    model = fit(prior=Waves(height=2.0))
    model.save(tmp_path / "model")
    assert equal(load(tmp_path / "model", prior=Waves(height=2.0)), model)
    with pytest.raises(ModelFileError, match=r"Waves\(height=2\.0\), but Waves\(\) was given"):
        load(tmp_path / "model", prior=Waves())


def test_objects_that_the_model_does_not_need(saved):
    for unneeded in ("bnn", BayesianNeuralNetwork(hidden=(8,)), RandomWaves()):
        with pytest.raises(ModelFileError, match="needs no prior of your own: leave out prior="):
            load(saved, prior=unneeded)


def test_own_prior_for_each_layer(tmp_path):
    priors = (RandomWaves(), RandomWaves(num_waves=3))
    model = fit(defaults=DEEP, prior=priors)
    model.save(tmp_path / "model")
    assert equal(load(tmp_path / "model", prior=priors), model)
    for wrong in (priors[:1], priors[::-1], priors[0]):
        with pytest.raises(ModelFileError, match="was trained with prior="):
            load(tmp_path / "model", prior=wrong)


def test_own_prior_for_one_layer(tmp_path):
    model = fit(defaults=DEEP, prior=("bnn", RandomWaves()))
    model.save(tmp_path / "model")
    for prior in (RandomWaves(), ("bnn", RandomWaves())):
        assert equal(load(tmp_path / "model", prior=prior), model)
    with pytest.raises(ModelFileError, match="was trained with prior="):
        load(tmp_path / "model", prior=("gp", RandomWaves()))


# Saving over what is there.


@pytest.fixture(scope="module")
def model():
    return fit(defaults=DEEP)


@pytest.fixture
def saved(model, tmp_path):
    model.save(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def other():
    return fit(defaults=DEEP, random_state=5)


def no_space(*arguments):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("function", ["replace", "fsync"])
@pytest.mark.parametrize("after", [0, 1], ids=["at the arrays", "at the manifest"])
def test_a_failed_save_keeps_the_old_model(saved, model, other, monkeypatch, function, after):
    original, calls = getattr(os, function), []

    def fails(*arguments):
        calls.append(arguments)
        return original(*arguments) if len(calls) <= after else no_space()

    with monkeypatch.context() as patch:
        patch.setattr(os, function, fails)
        with pytest.raises(OSError, match="No space left"):
            other.save(saved)
    assert equal(load(saved), model)
    assert not [path for path in saved.iterdir() if path.name.endswith(".tmp")]
    # With space again, the new model takes its place and nothing is left of the old.
    other.save(saved)
    assert equal(load(saved), other)
    assert len(list(saved.iterdir())) == 2


def test_saving_again_replaces(saved, model, other):
    other.save(saved)
    assert equal(load(saved), other)
    assert not equal(load(saved), model)
    assert len(list(saved.iterdir())) == 2


@pytest.mark.parametrize(
    "changed",
    [
        {"n_layers": 3},
        {"n_units": 7},
        {"n_prior_samples": 11},
        {"prior": "gp"},
        {"prior": "magic"},
        {"prior": BayesianNeuralNetwork(hidden=(8,), activation="relu")},
        {"input_propagation": False},
        {"fresh_noise": True},
        {"precision": "float64"},
    ],
    ids=str,
)
def test_parameters_that_do_not_describe_the_model_are_not_saved(saved, model, changed):
    changed_model = load(saved).set_params(**changed)
    with pytest.raises(ValueError, match="changed after the model was trained"):
        changed_model.save(saved)
    assert equal(load(saved), model)


def test_other_parameters_may_change_before_saving(saved, model):
    changed = load(saved).set_params(n_predictive_samples=7, learning_rate=0.5, max_iter=3)
    changed.save(saved)
    assert load(saved).get_params() == changed.get_params()
    assert equal(load(saved), changed)


def test_folders_in_between_are_made(model, tmp_path):
    model.save(tmp_path / "a" / "b")
    assert equal(load(str(tmp_path / "a" / "b")), model)


def test_other_files_are_not_mixed_with_a_model(model, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="other files"):
        model.save(tmp_path)
    with pytest.raises(FileExistsError, match="is a file"):
        model.save(tmp_path / "notes.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_moved_folder(saved, model, tmp_path):
    shutil.move(saved, tmp_path / "elsewhere")
    assert equal(load(tmp_path / "elsewhere"), model)
