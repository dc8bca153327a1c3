"""Models that the default chose: saved, tampered with, stopped and resumed."""

import copy
import pickle
import warnings

import numpy as np
import pytest
from examples import RandomWaves, regression_data
from sealing import seal, unsealed
from test_model_fuzz import assert_short, mutated

from dvip import (
    ArraySource,
    CheckpointError,
    DVIPClassifier,
    DVIPRegressor,
    ModelFileError,
    load,
)
from dvip.estimators import candidates
from dvip.estimators.stacks import ChoosingRegressor
from dvip.training.checkpoints import CheckpointFolder, steps_of

pytestmark = pytest.mark.usefixtures("short_chains")

QUICK = dict(
    max_iter=60, n_members=2, n_prior_samples=5, batch_size=16, n_predictive_samples=10, n_layers=1
)
X, Y = regression_data(num_rows=70)
NOTHING = np.random.default_rng(7).normal(size=70)
LABELS = np.where(X[:, 0] > 5, "high", "low")
COUNTS = np.random.default_rng(0).poisson(3, 70)


@pytest.fixture(scope="module", autouse=True)
def _two_candidates():
    """Networks from 60 rows on, and no constant: a mixture of 70 rows is of two parts."""
    tried = ChoosingRegressor._candidates
    others = (candidates.CONSTANT, candidates.SAMPLED_GP)

    def fewer(self, num_rows, num_inputs):
        found = tried(self, num_rows, num_inputs)
        return [each for each in found if num_rows < 60 or each.name not in others]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(candidates, "FEW_ROWS", 60)
        patch.setattr(ChoosingRegressor, "_candidates", fewer)
        yield


@pytest.fixture(scope="module")
def mixture():
    model = DVIPRegressor(**QUICK).fit(X, NOTHING)
    assert len(model.parts_) == 2
    return model


MODELS = {
    "gaussian process": lambda: DVIPRegressor().fit(X[:5], Y[:5]),
    "one row": lambda: DVIPRegressor().fit(X[:1], Y[:1]),
    "exact": lambda: DVIPRegressor(inference="exact", calibrate=True).fit(X, Y),
    "several targets": lambda: DVIPRegressor(**QUICK).fit(X, np.stack([NOTHING, -NOTHING], 1)),
    "known errors": lambda: DVIPRegressor(**QUICK).fit(X, NOTHING, noise_std=0.5),
    "counts": lambda: DVIPRegressor(**QUICK, likelihood="poisson").fit(X, COUNTS),
    "classes": lambda: DVIPClassifier(**QUICK).fit(X, LABELS),
    "few classes": lambda: DVIPClassifier(**{**QUICK, "n_members": None}).fit(
        X[:3], ["a", "b", "a"]
    ),
    "not calibrated": lambda: DVIPRegressor(**QUICK, calibrate=False).fit(X, NOTHING),
    "one batch": lambda: DVIPRegressor(n_layers=1, n_prior_samples=5).partial_fit(X, Y),
}


def assert_same(first, second):
    """Bit for bit, in all that can be asked for."""
    assert type(first) is type(second)
    assert repr(getattr(first, "choice_", None)) == repr(getattr(second, "choice_", None))
    assert getattr(first, "calibration_", None) == getattr(second, "calibration_", None)
    pairs = [(first.predict(X), second.predict(X))]
    if hasattr(first, "predict_proba"):
        pairs.append((first.predict_proba(X), second.predict_proba(X)))
    else:
        one, other = (model.predict_dist(X + 2) for model in (first, second))
        pairs += [
            (one.mean, other.mean),
            (one.std, other.std),
            (one.cdf(one.mean), other.cdf(one.mean)),
        ]
    pairs.append(tuple(model.sample_functions(5, random_state=1)(X) for model in (first, second)))
    if hasattr(first, "neighbourhood_"):
        pairs.append((first.distance(X + 2), second.distance(X + 2)))
    for one, other in pairs:
        np.testing.assert_array_equal(one, other)


# Other programs, saved in the same way.
SLOW = {"several targets", "counts", "few classes", "known errors", "one batch"}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW))
        for name in ("mixture", *MODELS)
    ],
)
def test_loaded_models_are_bit_equal(name, tmp_path, mixture):
    model = mixture if name == "mixture" else MODELS[name]()
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert_same(model, loaded)
    loaded.save(tmp_path / "again")
    assert_same(model, load(tmp_path / "again"))


def test_an_own_prior(tmp_path):
    """Which a file cannot hold: of the parts, either."""
    model = DVIPRegressor(**QUICK, prior=RandomWaves()).fit(X, NOTHING)
    model.save(tmp_path / "model")
    with pytest.raises(ModelFileError, match=r"load\(path, prior=RandomWaves"):
        load(tmp_path / "model")
    assert_same(model, load(tmp_path / "model", prior=RandomWaves()))


def test_a_pickle(mixture):
    assert_same(mixture, pickle.loads(pickle.dumps(mixture)))
    assert_same(mixture, copy.deepcopy(mixture))


def test_loaded_models_can_be_fitted_again(tmp_path, mixture):
    mixture.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert loaded.get_params() == mixture.get_params()
    assert_same(loaded.fit(X, NOTHING), mixture)


@pytest.mark.slow
def test_a_model_of_a_thousand_rows_is_small(tmp_path, monkeypatch):
    monkeypatch.setattr("dvip.sum_kernel.MAX_FITTED", 250)
    inputs, y = regression_data(num_rows=1_000)
    model = DVIPRegressor(**QUICK).fit(inputs, y)
    model.save(tmp_path / "model")
    size = sum(path.stat().st_size for path in (tmp_path / "model").iterdir())
    assert size < 5e6
    np.testing.assert_array_equal(load(tmp_path / "model").predict(inputs), model.predict(inputs))


# Files that were changed and sealed again.


@pytest.fixture(scope="module")
def saved(tmp_path_factory, mixture):
    folder = tmp_path_factory.mktemp("saved")
    mixture.save(folder / "model")
    return unsealed(folder / "model")


def judged(*weights):
    return [["gp", -1.0, weights[0]], *(["bnn", -1.0, weight] for weight in weights[1:])]


CHANGES = {
    "weights of more than 1": lambda a: a["choice_"].update(judgements=judged(0.6, 0.6)),
    "a negative weight": lambda a: a["choice_"].update(judgements=judged(1.5, -0.5)),
    "no number": lambda a: a["choice_"].update(judgements=judged(float("nan"), 0.5)),
    "a word": lambda a: a["choice_"].update(judgements=judged("0.5", 0.5)),
    "a truth value": lambda a: a["choice_"].update(judgements=judged(True, 0.0)),
    "one weight for two parts": lambda a: a["choice_"].update(judgements=judged(1.0)),
    "three weights": lambda a: a["choice_"].update(judgements=judged(0.5, 0.25, 0.25)),
    "no weights": lambda a: a["choice_"].update(judgements=[]),
    "short judgements": lambda a: a["choice_"].update(judgements=[["gp"], ["bnn"]]),
    "judgements of another kind": lambda a: a["choice_"].update(judgements=3),
    "a score that is a list": lambda a: a["choice_"]["judgements"][0].__setitem__(1, [1]),
    "a name that is a number": lambda a: a["choice_"]["judgements"][0].__setitem__(0, 3),
    "no choice": lambda a: a.pop("choice_"),
    "no parts": lambda a: a.pop("parts_"),
    "parts of another kind": lambda a: a["parts_"].update(parts={"0": 1}),
    "an empty list of parts": lambda a: a["parts_"].update(parts=[]),
    "a part too many": lambda a: a["parts_"]["parts"].append(a["parts_"]["parts"][0]),
    "a part less": lambda a: a["parts_"]["parts"].pop(),
    "parts in another order": lambda a: a["parts_"]["parts"].reverse(),
    "a part without a model": lambda a: a["parts_"]["parts"][0]["attributes"].pop("model_"),
    "another kind of model": lambda a: a["parts_"]["parts"][0]["attributes"].update(
        model_={"kind": "model"}
    ),
    "another inference": lambda a: a["parts_"]["parts"][0]["parameters"].update(inference="x"),
    "a part that chooses": lambda a: a["parts_"]["parts"][1]["parameters"].update(inference="auto"),
    "other members": lambda a: a["parts_"]["parts"][1]["parameters"].update(n_members=3),
    "huge networks": lambda a: a["parts_"]["parts"][1]["parameters"].update(n_prior_samples=10**9),
    "another likelihood": lambda a: a["parts_"]["parts"][1]["parameters"].update(
        likelihood="poisson"
    ),
    "no neighbourhood": lambda a: a.pop("neighbourhood_"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_manifests_are_refused(saved, tmp_path, change):
    content, arrays = copy.deepcopy(saved[0]), saved[1]
    CHANGES[change](content["attributes"])
    seal(tmp_path, content, arrays)
    with pytest.raises(ModelFileError) as error:
        load(tmp_path)
    assert_short(error.value, tmp_path)


def changed(array, how):
    match how:
        case "shorter":
            return array[:-1]
        case "another type":
            return array.astype(np.float16)
        case "no number":
            return np.full_like(array, np.nan)
        case "more dimensions":
            return array[None]


ARRAYS = [
    *(f"parts_.0.model_.{name}" for name in ("parameters", "inducing", "factor", "mean")),
    *(f"neighbourhood_.{name}" for name in ("rows", "slopes", "numbers")),
]


@pytest.mark.parametrize("how", ["missing", "another type", "no number", "more dimensions"])
@pytest.mark.parametrize("name", ARRAYS)
def test_changed_arrays_are_refused(saved, tmp_path, name, how):
    content, arrays = saved[0], dict(saved[1])
    array = arrays.pop(name)
    if how != "missing":
        arrays[name] = changed(array, how)
    seal(tmp_path, content, arrays)
    with pytest.raises(ModelFileError) as error:
        load(tmp_path)
    assert_short(error.value, tmp_path)


@pytest.mark.parametrize("prefix", ["parts_.0.", "parts_.2.", "parts_.1.model_.", "more"])
def test_further_arrays_are_refused(saved, tmp_path, prefix):
    seal(tmp_path, saved[0], {**saved[1], f"{prefix}more": np.zeros(3)})
    with pytest.raises(ModelFileError):
        load(tmp_path)


def test_random_changes(saved, tmp_path):
    """Refused in a line, or read: then all that it predicts is a number."""
    refused = 0
    for seed in range(60):
        folder = tmp_path / str(seed)
        folder.mkdir()
        content, arrays = mutated(*saved, seed)
        seal(folder, content, arrays)
        if content.get("arrays") != saved[0]["arrays"]:
            seal(folder, content)
        try:
            model = load(folder)
        except ModelFileError as error:
            assert_short(error, folder)
            refused += 1
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            mean, std = model.predict(X, return_std=True)
            functions = model.sample_functions(2, random_state=0)(X)
        assert all(np.isfinite(part).all() for part in (mean, std, functions)), seed
    assert 30 < refused < 60


# Trainings that are stopped.


class Stopped(Exception):
    """The end of a training that is cut off."""


LONG = {**QUICK, "max_iter": 400}


def fit(folder=None, y=NOTHING, inputs=X, cls=DVIPRegressor, resume=False, **options):
    keywords = {} if folder is None else {"checkpoint_every": 1, "resume": resume}
    estimator = cls(**{**LONG, **options})
    return estimator.fit(inputs, y, checkpoint_dir=folder, **keywords)


@pytest.fixture
def stopped(tmp_path, monkeypatch):
    """What cuts off a training at its second checkpoint; gives the folder."""

    def stop(**options):
        original, written = CheckpointFolder.write, []

        def write(self, checkpoint):
            original(self, checkpoint)
            written.append(checkpoint.step)
            if len(written) == 2:
                raise Stopped

        with monkeypatch.context() as patch:
            patch.setattr(CheckpointFolder, "write", write)
            with pytest.raises(Stopped):
                fit(tmp_path / "checkpoints", **options)
        return tmp_path / "checkpoints"

    return stop


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="regressor"),
        pytest.param({"cls": DVIPClassifier, "y": LABELS}, id="classifier", marks=pytest.mark.slow),
        pytest.param(
            {"inputs": ArraySource(X, NOTHING), "y": None}, id="source", marks=pytest.mark.slow
        ),
    ],
)
def test_resumed_trainings_end_bit_equal(stopped, options, tmp_path, monkeypatch):
    monkeypatch.setenv("DVIP_ROW_CACHE", str(tmp_path / "rows"))
    folder = stopped(**options)
    assert steps_of(folder)
    assert not any(folder.glob("step-*"))
    assert list(folder.glob("part-1/member-*/step-*"))
    undisturbed = fit(**options)
    assert_same(fit(folder, resume=True, **options), undisturbed)
    assert_same(fit(folder, resume=True, **options), undisturbed)  # of which nothing is left to do


def test_a_seed_that_was_drawn_is_found_again(stopped):
    folder = stopped(random_state=None)
    first = fit(folder, resume=True, random_state=None)
    assert_same(fit(folder, resume=True, random_state=None), first)


def test_nothing_else_is_resumed(stopped):
    folder = stopped()
    with pytest.raises(CheckpointError, match="the data differ"):
        fit(folder, y=NOTHING + X[:, 0], resume=True)
    with pytest.raises(CheckpointError, match="n_prior_samples was 5 and is 6"):
        fit(folder, n_prior_samples=6, resume=True)
    with pytest.raises(CheckpointError):
        fit(folder)  # without resume
