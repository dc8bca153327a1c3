"""How long trainings take by default, and what is left by those that fail."""

import jax
import numpy as np
import pytest
from examples import TINY, TINY_DEEP_GP, regression_data
from sklearn.exceptions import NotFittedError

from dvip import (
    ArraySource,
    CheckpointError,
    DeepGPRegressor,
    DVIPClassifier,
    DVIPRegressor,
    SIPRegressor,
    TrainingDiverged,
)
from dvip.estimators.builder import default_max_iter
from dvip.runtime import use_compilation_cache

X, Y = regression_data()
SHALLOW = {**TINY, "n_layers": 1}


@pytest.mark.parametrize(
    ("num_rows", "steps"), [(1, 50_000), (2_000, 50_000), (8_000, 100_000), (10**9, 200_000)]
)
def test_more_rows_get_more_steps(num_rows, steps):
    assert default_max_iter(num_rows, 50_000, 200_000) == steps


def test_steps_of_sip_are_for_each_layer():
    assert SIPRegressor()._num_steps(1_000) == 3_000
    assert SIPRegressor(n_layers=2)._num_steps(1_000) == 6_000
    assert SIPRegressor(n_layers=2)._num_steps(8_000) == 12_000
    assert SIPRegressor(n_layers=2, max_iter=7)._num_steps(8_000) == 7


@pytest.mark.parametrize(
    ("estimator", "options", "steps"),
    [
        (DVIPRegressor, SHALLOW, (50_000, 200_000)),
        (DeepGPRegressor, {**TINY_DEEP_GP, "n_layers": 2}, (10_000, 50_000)),
    ],
)
def test_steps_are_chosen_from_the_rows_unless_given(monkeypatch, estimator, options, steps):
    def choose(num_rows, fewest, most):
        assert (fewest, most) == steps
        for number in steps:
            assert f"{number:,}" in estimator.__doc__
        return num_rows + 140

    monkeypatch.setattr("dvip.estimators.builder.default_max_iter", choose)
    model = estimator(**{**options, "max_iter": None})
    assert model.fit(X, Y).n_iter_ == 200


# Trainings that fail.


def interrupted(*arguments, **options):
    raise KeyboardInterrupt


def failing_fits(inputs, targets, folder):
    """Ways to train a model on other data that fail, by name."""
    other, checkpoints = 100 * inputs, {"checkpoint_dir": folder}
    return {
        "bad parameter": lambda model: model.set_params(batch_size=0).fit(other, targets),
        "bad layers, another width": lambda model: model.set_params(shared_prior="no").fit(
            other[:, :2], targets
        ),
        "interrupted": lambda model: model.fit(other, targets),
        "interrupted stream": lambda model: model.fit(ArraySource(other, targets)),
        "other checkpoints": lambda model: model.fit(other, targets, **checkpoints, resume=True),
        "interrupted batch": lambda model: model.partial_fit(
            inputs, targets, **({"classes": [0, 1]} if hasattr(model, "predict_proba") else {})
        ),
    }


@pytest.mark.parametrize(
    ("cls", "targets"),
    [(DVIPRegressor, Y), (DVIPClassifier, (Y > 100).astype(int))],
    ids=["regressor", "classifier"],
)
def test_a_training_that_fails_changes_nothing(cls, targets, tmp_path, monkeypatch):
    fitted = cls(**SHALLOW).fit(X, targets, checkpoint_dir=tmp_path)
    before, expected = dict(vars(fitted)), fitted.predict(X)
    for name, fails in failing_fits(X, targets, tmp_path).items():
        unfitted = cls(**SHALLOW)
        with monkeypatch.context() as patch:
            if name.startswith("interrupted"):
                patch.setattr("dvip.estimators.base.train_members", interrupted)
                patch.setattr("dvip.estimators.base.train_once", interrupted)
            for model in (fitted, unfitted):
                with pytest.raises((ValueError, CheckpointError, KeyboardInterrupt)):
                    fails(model)
        fitted.set_params(**SHALLOW, shared_prior=None)
        after = vars(fitted)
        assert after.keys() == before.keys(), name
        assert all(after[key] is before[key] for key in before if key.endswith("_")), name
        assert np.array_equal(fitted.predict(X), expected)
        with pytest.raises(NotFittedError):
            unfitted.predict(X)


def test_a_training_that_diverges_keeps_its_model_and_scales():
    model = DVIPRegressor.paper(**SHALLOW).fit(X, Y)
    with pytest.raises(TrainingDiverged):
        model.set_params(learning_rate=1e6).fit(100 * X, Y)
    np.testing.assert_allclose(model.input_scaler_.mean, 100 * X.mean(axis=0))
    assert np.isfinite(model.predict(100 * X)).all()


def test_a_compilation_cache_that_cannot_be_written_is_done_without(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    before = jax.config.values["jax_compilation_cache_dir"]
    jax.config.update("jax_compilation_cache_dir", None)
    try:
        for folder, used in ((tmp_path / "file" / "compiled", False), (tmp_path / "new", True)):
            monkeypatch.setenv("DVIP_COMPILATION_CACHE", str(folder))
            use_compilation_cache()
            expected = str(folder) if used else None
            assert jax.config.values["jax_compilation_cache_dir"] == expected
    finally:
        jax.config.update("jax_compilation_cache_dir", before)
