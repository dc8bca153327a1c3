"""Priors that are programs, curves or sums in an estimator: fits, parts, pictures, saving."""

import json

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.base import clone

from dvip import (
    ArraySource,
    CurvePrior,
    DVIPClassifier,
    DVIPRegressor,
    GaussianProcess,
    JaxSimulatorPrior,
    Linear,
    ModelFileError,
    Monotone,
    Periodic,
    SimulatorPrior,
    SIPRegressor,
    load,
)

# Settings of models that train in a second, once compiled.
QUICK = dict(
    inference="vi",
    n_layers=1,
    n_prior_samples=12,
    max_iter=150,
    batch_size=16,
    learning_rate=0.05,
    n_predictive_samples=7,
)
RANDOM = np.random.default_rng(0)
TABLE = pd.DataFrame({"x": RANDOM.normal(size=60), "time": RANDOM.uniform(2000, 2010, 60)})
Y = np.sin(np.pi * TABLE["time"].to_numpy()) + 0.5 * TABLE["x"].to_numpy()


def wave(inputs, rng):
    return rng.normal() * np.sin(np.pi * inputs[:, 0] + rng.uniform(0, 2 * np.pi))


def jax_wave(inputs, height, phase):
    return height * jnp.sin(jnp.pi * inputs[:, 0] + phase)


SIMULATOR = SimulatorPrior(wave).on("time") + Linear()


@pytest.fixture(scope="module")
def simulated():
    return DVIPRegressor(prior=SIMULATOR, **QUICK).fit(TABLE, Y)


@pytest.fixture(scope="module")
def summed():
    prior = "linear + periodic(period=2, on='time', num_frequencies=8) + gp(num_frequencies=8)"
    return DVIPRegressor(prior=prior, **{**QUICK, "max_iter": 600}).fit(TABLE, Y)


@pytest.fixture(scope="module")
def curved():
    grid = np.linspace(2000, 2010, 101)
    curves = [np.sin(np.pi * grid + phase) for phase in np.linspace(0, 6, 9)]
    prior = CurvePrior(grid, curves).on("time") + Linear()
    return DVIPRegressor(prior=prior, **QUICK).fit(TABLE, Y)


@pytest.fixture(params=["summed", "curved", "simulated"])
def fitted(request):
    return request.getfixturevalue(request.param)


def test_a_season_is_found_and_goes_on(summed):
    beyond = pd.DataFrame({"x": np.zeros(40), "time": np.linspace(2010, 2014, 40)})
    error = summed.predict(beyond) - np.sin(np.pi * beyond["time"])
    assert np.sqrt(np.mean(np.square(error))) < 0.25


def test_a_model_is_saved_and_loaded_bit_by_bit(fitted, tmp_path):
    fitted.save(tmp_path / "m")
    own = {"prior": SIMULATOR} if hasattr(fitted, "simulations_") else {}
    same = load(tmp_path / "m", **own)
    rows = TABLE.iloc[:9]
    expected = fitted.predict_dist(rows).quantile(0.3)
    assert np.array_equal(same.predict_dist(rows).quantile(0.3), expected)
    functions = fitted.sample_prior_functions(3, rows, 1)
    assert np.array_equal(same.sample_prior_functions(3, rows, 1), functions)
    clone(same).fit(TABLE, Y)  # what was loaded can be fitted again
    assert repr(clone(same).prior) == repr(clone(fitted).prior)


def test_curves_are_arrays_of_the_model(curved, tmp_path):
    curved.save(tmp_path / "m")
    parameters = json.loads((tmp_path / "m" / "model.json").read_text())["content"]["parameters"]
    described = json.dumps(parameters["prior"])
    assert "array" in described
    assert len(described) < 1_500
    prior = load(tmp_path / "m").prior.processes[0].process
    assert np.array_equal(prior.curves.value, curved.prior.processes[0].process.curves.value)


def test_a_function_is_needed_at_loading_and_must_be_the_same(simulated, tmp_path):
    simulated.save(tmp_path / "m")
    with pytest.raises(ModelFileError, match=r"SimulatorPrior.* cannot hold: pass all"):
        load(tmp_path / "m")
    with pytest.raises(ModelFileError, match="was trained with"):
        load(tmp_path / "m", prior=SimulatorPrior(wave) + Linear())
    alone = DVIPRegressor(prior=SimulatorPrior(wave), **QUICK).fit(TABLE[["time"]], Y)
    alone.save(tmp_path / "alone")
    with pytest.raises(ModelFileError, match=r"load\(path, prior=SimulatorPrior\(...\)\)"):
        load(tmp_path / "alone")

    def other(inputs, rng):
        return wave(inputs, rng) + 1

    other.__name__ = other.__qualname__ = "wave"
    model = load(tmp_path / "alone", prior=SimulatorPrior(other))
    with pytest.raises(ValueError, match="be that of the training"):
        model.predict(pd.DataFrame({"time": [2001.23]}))


def test_same_seed_same_model_and_same_values_whatever_rows_are_asked_for(simulated):
    again = clone(simulated).fit(TABLE, Y)
    rows = TABLE.iloc[:20]
    np.testing.assert_array_equal(again.predict(rows), simulated.predict(rows))
    shuffled = rows.iloc[::-1]
    np.testing.assert_allclose(simulated.predict(shuffled)[::-1], again.predict(rows), rtol=1e-5)
    assert np.isfinite(simulated.sample_functions(3, 0)(rows)).all()


def test_parts_add_up_to_the_prediction(fitted):
    parts = fitted.predict_parts(TABLE)
    assert list(parts)[-1] == "offset"
    assert "linear" in parts
    total = sum(mean for mean, _ in parts.values())
    np.testing.assert_allclose(total, fitted.predict(TABLE), atol=1e-5)
    assert all((std >= 0).all() for _, std in parts.values())


def test_a_part_is_that_of_its_column(summed):
    moved = TABLE.assign(x=TABLE["x"] + 1)
    name = "periodic of time"
    first, second = (summed.predict_parts(rows)[name][0] for rows in (TABLE, moved))
    np.testing.assert_array_equal(first, second)


@pytest.mark.slow
def test_a_monotone_prior_keeps_predictions_almost_monotone():
    random = np.random.default_rng(1)
    X = random.uniform(-2, 2, size=(60, 2))
    y = np.tanh(X[:, 0]) + np.sin(2 * X[:, 1]) + 0.2 * random.normal(size=60)
    line = np.linspace(-2, 2, 50)
    rows = [np.stack([line, np.full(50, value)], axis=1) for value in (-1.5, -1, 0, 1, 1.5)]
    options = {"inference": "vi", "n_layers": 1, "max_iter": 3_000}
    steepest = {}
    for name, prior in (("monotone", Monotone(increasing=[0])), ("bnn", "bnn")):
        model = DVIPRegressor(prior=prior, **options).fit(X, y)
        steepest[name] = -np.min([np.diff(model.predict(each)) for each in rows])
    assert steepest["monotone"] < 0.1 * steepest["bnn"]


@pytest.mark.slow
def test_a_period_is_learned_from_nearby():
    random = np.random.default_rng(0)
    X = random.uniform(0, 20, size=(200, 1))
    y = np.sin(np.pi * X[:, 0]) + 0.1 * random.normal(size=200)
    prior = Periodic(period=2.1, learned=True)
    model = DVIPRegressor(prior=prior, inference="vi", n_layers=1, max_iter=2_000).fit(X, y)
    period = np.exp(model.model_.network.stages[0].layer.process.log_period)
    np.testing.assert_allclose(period, 2, rtol=1e-3)


# Looking before fitting.


def test_prior_functions_before_a_fit_are_on_the_scale_that_is_known():
    model = DVIPRegressor(prior="linear")
    functions = model.sample_prior_functions(400, TABLE, 0)
    assert functions.shape == (400, 60)
    assert 0.7 < functions.std() < 3
    scaled = model.sample_prior_functions(400, TABLE, 0, y=100 + 10 * Y)
    target = 100 + 10 * Y
    np.testing.assert_allclose(scaled, functions * target.std() + target.mean(), rtol=1e-4)
    again = model.sample_prior_functions(400, TABLE, 0)
    assert np.array_equal(again, functions)
    assert not np.allclose(model.sample_prior_functions(400, TABLE, 1), functions)
    assert not hasattr(model, "model_")
    at = model.sample_prior_functions(400, TABLE, 0, at=TABLE.iloc[:3])
    np.testing.assert_allclose(at, functions[:, :3], rtol=1e-5)


def test_functions_of_a_simulator_are_its_own_before_a_fit():
    functions = DVIPRegressor(prior=SimulatorPrior(wave)).sample_prior_functions(
        5, TABLE[["time"]], 0
    )
    sine, cosine = np.sin(np.pi * TABLE["time"]), np.cos(np.pi * TABLE["time"])
    basis = np.stack([sine, cosine], axis=1)
    residual = functions.T - basis @ np.linalg.lstsq(basis, functions.T)[0]
    assert np.abs(residual).max() < 1e-4


def test_prior_functions_after_a_fit_have_what_was_learned(summed):
    functions = summed.sample_prior_functions(200, TABLE, 0)
    process = summed.model_.network.stages[0].layer.process
    noise = process.draw_noise(_key(3), 200)
    scaled = summed.input_scaler_.transform(TABLE.to_numpy(), "float32")
    expected = np.asarray(process(noise, jnp.asarray(scaled.T))) * summed.target_scaler_.scale
    assert 0.7 < functions.std() / expected.std() < 1.4


def _key(seed):
    from dvip.runtime import random_key

    return random_key(seed)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (DVIPRegressor(prior="linear", inference="vi", n_layers=2), (3, 60)),
        (DVIPClassifier(prior="linear"), (3, 60, 1)),
        (DVIPRegressor(prior="linear", likelihood="poisson"), (3, 60)),
        (DVIPRegressor(prior="linear", likelihood="heteroscedastic"), (3, 60)),
    ],
)
def test_prior_functions_of_other_models(model, shape):
    functions = model.sample_prior_functions(3, TABLE, 0)
    assert functions.shape == shape
    assert np.isfinite(functions).all()


# Other models, and what cannot be.


@pytest.mark.slow
@pytest.mark.parametrize(
    "prior", [SIMULATOR, "linear + periodic(period=2, on='time') + gp(num_frequencies=8)"]
)
@pytest.mark.parametrize(
    "options",
    [
        {"n_layers": 2},
        {"n_layers": 3, "shared_prior": False},
        {"n_members": 2, "calibrate": True},
        {"inference": "mcmc", "max_iter": 100},
        {"inference": "auto", "n_layers": None, "max_iter": 100},
        {"likelihood": "heteroscedastic"},
        {"precision": "float64"},
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore")
def test_every_way_to_fit(prior, options, tmp_path):
    model = DVIPRegressor(prior=prior, **{**QUICK, **options}).fit(TABLE, Y)
    model.save(tmp_path / "m")
    own = {} if isinstance(prior, str) else {"prior": prior}
    rows = TABLE.iloc[:7]
    same = load(tmp_path / "m", **own)
    assert np.array_equal(same.predict(rows), model.predict(rows))
    assert np.isfinite(model.predict(rows)).all()
    assert model.sample_prior_functions(2, rows, 0).shape == (2, 7)


@pytest.mark.slow
@pytest.mark.parametrize("prior", [SIMULATOR, "additive", JaxSimulatorPrior])
def test_classes_several_targets_and_rows_in_parts(prior, tmp_path):
    if prior is JaxSimulatorPrior:
        both = {"height": stats.norm(), "phase": stats.uniform(0, 6)}
        prior = JaxSimulatorPrior(jax_wave, both)
    labels = np.where(Y > 0, "up", "down")
    classifier = DVIPClassifier(prior=prior, **QUICK).fit(TABLE, labels)
    assert classifier.predict_proba(TABLE).shape == (60, 2)
    both = DVIPRegressor(prior=prior, **QUICK).fit(TABLE, np.stack([Y, -Y], axis=1))
    assert both.predict(TABLE).shape == (60, 2)
    online = DVIPRegressor(prior=prior, **QUICK)
    for rows in (slice(0, 30), slice(30, 60)):
        online.partial_fit(TABLE.iloc[rows], Y[rows])
    assert np.isfinite(online.predict(TABLE)).all()


@pytest.mark.slow
def test_a_training_goes_on_from_its_checkpoint(tmp_path):
    options = {**QUICK, "max_iter": 400}
    whole = DVIPRegressor(prior=SIMULATOR, **options).fit(TABLE, Y)
    folder = {"checkpoint_dir": tmp_path / "c", "checkpoint_every": 200}
    DVIPRegressor(prior=SIMULATOR, **options).fit(TABLE, Y, **folder)
    resumed = DVIPRegressor(prior=SIMULATOR, **options).fit(TABLE, Y, **folder, resume=True)
    assert np.array_equal(resumed.predict(TABLE), whole.predict(TABLE))


def _streamed():
    source = ArraySource(TABLE.to_numpy(), Y)
    object.__setattr__(source, "in_memory", False)
    return source


@pytest.mark.parametrize(
    ("fit", "message"),
    [
        (lambda: DVIPRegressor(prior=SIMULATOR, n_inducing=5, **QUICK), "n_inducing=5 needs"),
        (lambda: DVIPRegressor(prior=SIMULATOR, fresh_noise=True, **QUICK), "fresh_noise=True"),
        (lambda: SIPRegressor(prior=SIMULATOR), "n_inducing=50 needs"),
        (
            lambda: DVIPRegressor(prior=["gp", SIMULATOR], **{**QUICK, "n_layers": 2}),
            "reads columns of the data, which only the first layer sees",
        ),
        (lambda: DVIPRegressor(prior="linear + magic"), "prior='magic' is not known"),
        (lambda: DVIPRegressor(prior=GaussianProcess().on("tme"), **QUICK), "no such column"),
        (lambda: DVIPRegressor(prior=3), "prior=3 is not known"),
        (
            lambda: DVIPRegressor(prior=CurvePrior([0, 1], [[0, 1], [1, 0]]), **QUICK),
            "say which",
        ),
    ],
)
def test_what_cannot_be(fit, message):
    with pytest.raises(ValueError, match=message):
        fit().fit(TABLE, Y)


def test_a_simulator_needs_its_rows_in_memory():
    with pytest.raises(ValueError, match="must be in memory"):
        DVIPRegressor(prior=SIMULATOR, **QUICK).fit(_streamed())


def test_parts_of_several_layers_are_refused(simulated):
    two = clone(simulated).set_params(n_layers=2)
    two.__dict__.update({k: v for k, v in vars(simulated).items() if k.endswith("_")})
    with pytest.raises(ValueError, match="use n_layers=1"):
        two.predict_parts(TABLE)
    with pytest.raises(ValueError, match="n=0 must be"):
        simulated.sample_prior_functions(0, TABLE)


def test_a_failed_fit_leaves_nothing_behind():
    model = DVIPRegressor(prior=SimulatorPrior(lambda inputs, rng: 1 / 0), **QUICK)
    with pytest.raises(ValueError, match="ZeroDivisionError"):
        model.fit(TABLE, Y)
    assert not hasattr(model, "simulations_")
