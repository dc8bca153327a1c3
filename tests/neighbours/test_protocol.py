"""The neighbours are models like all others: one protocol for their layers and estimators."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples import random_key
from sklearn.utils.estimator_checks import parametrize_with_checks

import dvip
from dvip import ArraySource, load
from dvip.network import SampleNoise
from dvip.prediction import members_of
from dvip.registry import ESTIMATORS, MODELS
from dvip.training import CheckpointFolder

random = np.random.default_rng(0)
X = random.normal(size=(60, 2))
Y = 10 * np.sin(X[:, 0]) + X[:, 1] + 100 + random.normal(size=60)
LABELS = np.array(["low", "middle", "high"])[np.digitize(Y, [97, 104])]

NETWORK = dict(hidden=(8,), max_iter=180, batch_size=16, n_predictive_samples=9)
# Settings that train in a moment, by the name in `--model` or by a name of a variant.
# A new neighbour is added here.
TINY = {
    "deep-kernel": {**NETWORK, "n_inducing": 10},
    "mean-field": NETWORK,
    "dropout": NETWORK,
    "deep-ensemble": dict(NETWORK, n_networks=3),
    "repulsive": dict(NETWORK, n_networks=3),
    "linearised": NETWORK,
    "fbnn": {**NETWORK, "n_functions": 10, "n_points": (6, 4)},
    "fvi": {**NETWORK, "n_functions": 3, "n_points": (6, 4), "n_latents": 3},
}
# Other settings of a model: its name, and what differs.
VARIANTS: dict[str, tuple[str, dict]] = {
    "repulsive-weights": ("repulsive", dict(repulsion="weights")),
    "linearised-function-space": ("linearised", dict(method="function-space")),
    "fbnn with an implicit prior": ("fbnn", {"prior": "bnn"}),
    "fvi with an implicit prior": ("fvi", {"prior": "bnn"}),
}
NEIGHBOURS = {
    name: kinds
    for name, kinds in MODELS.items()
    if any(".neighbours." in ESTIMATORS._homes[cls] for cls in kinds.values())
}
ALL = {
    **{name: (name, {}) for name in TINY},
    **VARIANTS,
}


# What takes long to compile is not run with every change: what one fit of a model can tell is run
# for one model of each kind, what takes a fit of its own for fewer of them.
ALWAYS = ("mean-field", "linearised", "repulsive", "deep-kernel")


def cases(always, names=ALL):
    """The models, some of which are looked at less often."""
    return [pytest.param(name, marks=[pytest.mark.slow] * (name not in always)) for name in names]


def each(*always, names=ALL):
    """A case for each of the models."""
    return pytest.mark.parametrize("name", cases(always, names))


def made(name, task="regression", **options):
    model, own = ALL[name]
    cls = ESTIMATORS[MODELS[model][task]]
    return cls(**{**TINY[model], **own, **options})


class Stopped(Exception):
    """Ends a training."""


@pytest.fixture(scope="module", params=cases(ALWAYS))
def name(request):
    return request.param


@pytest.fixture(scope="module")
def model(name):
    return made(name).fit(X, Y)


def test_every_neighbour_is_here():
    assert set(TINY) == set(NEIGHBOURS)
    assert {cls for kinds in NEIGHBOURS.values() for cls in kinds.values()} <= set(dvip.__all__)


def test_predictions_are_distributions(model):
    dist = model.predict_dist(X)
    assert np.isfinite(dist.log_prob(Y)).all()
    mean, std = model.predict(X, return_std=True)
    assert (std > 0).all()
    np.testing.assert_allclose(mean, dist.mean, rtol=1e-5)
    lower, upper = dist.interval(0.9)
    assert (lower < upper).all()


def test_another_seed_is_another_model(name, model):
    assert not np.array_equal(made(name, random_state=1).fit(X, Y).predict(X), model.predict(X))


def test_a_loaded_model_is_bit_equal(model, tmp_path):
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    for mine, theirs in zip(
        model.predict(X, return_std=True), loaded.predict(X, return_std=True), strict=True
    ):
        assert np.array_equal(mine, theirs)
    draws, same = (m.sample_functions(3, random_state=0)(X) for m in (model, loaded))
    assert np.array_equal(draws, same)
    loaded.save(tmp_path / "again")
    assert np.array_equal(load(tmp_path / "again").predict(X), model.predict(X))


def test_a_resumed_training_is_bit_equal(name, model, monkeypatch, tmp_path):
    original = CheckpointFolder.write

    def write(self, checkpoint):
        original(self, checkpoint)
        raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr(CheckpointFolder, "write", write)
        with pytest.raises(Stopped):
            made(name).fit(X, Y, checkpoint_dir=tmp_path, checkpoint_every=1)
    resumed = made(name).fit(X, Y, checkpoint_dir=tmp_path, checkpoint_every=1, resume=True)
    assert np.array_equal(resumed.predict(X), model.predict(X))
    assert resumed.n_iter_ == model.n_iter_


def test_draws_have_the_moments_of_predictions(name, model):
    """Of the mean at each row, within what so many draws and samples allow."""
    many = made(name).set_params(n_predictive_samples=400)
    many.__dict__.update({key: value for key, value in vars(model).items() if key.endswith("_")})
    draws = model.sample_functions(400, random_state=1)(X)
    error = draws.std(axis=0) / np.sqrt(400)
    assert (np.abs(draws.mean(axis=0) - many.predict(X)) < 8 * error + 1e-3 * Y.std()).all()


def test_conditionals_of_samples_with_inputs_of_their_own(model):
    """The inputs of sample 0, 1, 2 are 0, 1, 2 columns further."""
    layer = members_of(model.model_)[0].network.stages[0].layer
    inputs = X[:4].T.astype(np.float32)
    shifted = np.stack([np.roll(inputs, -shift, axis=1) for shift in range(3)], axis=1)

    @eqx.filter_jit
    def evaluated(layer):
        noise = layer.draw_sample_noise(random_key(2), 3)
        both = (jnp.asarray(inputs)[:, None], jnp.asarray(shifted))
        return noise, *(layer.conditionals(columns, noise) for columns in both)

    noise, moments, of_own = evaluated(layer)
    assert (moments[1] >= 0).all()
    for moment, expected in zip(of_own, moments, strict=True):
        for shift in range(3):
            of_sample = expected[:, min(shift, expected.shape[1] - 1)]
            wanted = np.roll(of_sample, -shift, axis=1)
            np.testing.assert_allclose(moment[:, shift], wanted, rtol=1e-3, atol=1e-4)
    assert isinstance(model.model_.network.draw_sample_noise(random_key(0), 2), SampleNoise)
    assert all(leaf.shape[-1] == 3 for leaf in jax.tree.leaves(noise))


@each("mean-field")
def test_rows_can_be_streamed_and_come_in_parts(name):
    streamed = made(name).fit(ArraySource(X, Y))
    assert np.isfinite(streamed.predict(X)).all()
    parts = made(name)
    for rows in (slice(0, 30), slice(30, 60)):
        parts.partial_fit(X[rows], Y[rows])
    assert np.isfinite(parts.predict(X)).all()


@each("mean-field")
def test_members_that_stop_by_left_out_rows(name):
    together = made(name, n_members=2, validation_fraction=0.2, calibrate=True).fit(X, Y)
    assert np.isfinite(together.predict(X)).all()
    assert len(members_of(together.model_)) == 2


CLASSIFIERS = [name for name, (model, _) in ALL.items() if "classification" in MODELS[model]]


@each("mean-field", names=CLASSIFIERS)
def test_labels(name, tmp_path):
    model = made(name, "classification").fit(X, LABELS)
    probabilities = model.predict_proba(X)
    assert probabilities.shape == (60, 3)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)
    assert set(model.predict(X)) <= set(LABELS)
    model.save(tmp_path / "model")
    assert np.array_equal(load(tmp_path / "model").predict_proba(X), probabilities)


CHECKED = dict(max_iter=200, batch_size=10, learning_rate=0.05, n_predictive_samples=5)
# Those whose steps compare functions: with few of them, at few points.
FEW_FUNCTIONS = {
    "fbnn": dict(n_functions=4, n_points=(3, 2)),
    "fvi": dict(n_functions=2, n_points=(3, 2), n_latents=2),
}


# The checks are about the interface, which is that of the class: variants have no other.
@pytest.mark.slow
@parametrize_with_checks(
    [
        made(name, task, **CHECKED, **FEW_FUNCTIONS.get(name, {}))
        for name in TINY
        for task in MODELS[name]
    ]
)
def test_sklearn_check(estimator, check):
    check(estimator)
