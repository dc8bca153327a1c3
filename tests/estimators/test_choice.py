"""The default, which chooses: what is tried, what is held, and the mixture as one model."""

import copy
import time
import warnings

import numpy as np
import pytest
from examples import regression_data
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from dvip import (
    BayesianNeuralNetwork,
    DVIPClassifier,
    DVIPRegressor,
    StudentT,
    TrainingDiverged,
)
from dvip.closed_form import ClosedFormGP
from dvip.estimators import choice
from dvip.estimators.candidates import (
    DEEP,
    Candidate,
    classification_candidates,
    regression_candidates,
)
from dvip.estimators.stacks import ChoosingRegressor
from dvip.sampled_gp import SampledGP

# A candidate with networks trains in about a second, once compiled.
QUICK = dict(
    max_iter=60, n_members=2, n_prior_samples=5, batch_size=16, n_predictive_samples=10, n_layers=1
)
X, Y = regression_data(num_rows=160)
CLOSED_FORMS = ["gp", "sampled gp", "constant"]
# Where nothing is to be learned, all candidates are about as good.
NOTHING = np.random.default_rng(7).normal(size=160)


def names(model):
    return [judgement.name for judgement in model.choice_]


@pytest.fixture(scope="module")
def mixture():
    """Of a Gaussian process and networks, each with some weight."""
    model = DVIPRegressor(**QUICK).fit(X, NOTHING)
    assert len(model.parts_) >= 2
    assert model.choice_[0].weight > 0
    assert model.choice_[-1].weight > 0
    return model


@pytest.fixture(scope="module")
def smooth():
    """Of a smooth function: networks of 60 steps know nothing of it."""
    return DVIPRegressor(**QUICK).fit(X, Y)


@pytest.fixture(scope="module")
def process():
    """Of 40 rows, on which nothing but a Gaussian process is tried."""
    return DVIPRegressor().fit(X[:40], Y[:40])


# What is tried.


def candidates(estimator, num_rows, num_inputs=3):
    estimator.known_errors_, estimator.target_shape_ = False, ()
    return estimator._candidates(num_rows, num_inputs)


def test_candidates_by_the_number_of_rows():
    numbers = (1, 149, 150, 249, 250, 400, 401, 5_000)
    tried = {rows: candidates(DVIPRegressor(), rows) for rows in numbers}
    found = {rows: [candidate.name for candidate in each] for rows, each in tried.items()}
    assert found[1] == found[149] == CLOSED_FORMS
    assert found[150] == found[249] == [*CLOSED_FORMS, "bnn"]
    assert found[250] == found[400] == ["gp", "sampled gp", "deep bnn", "wide bnn"]
    assert found[401] == ["gp", "deep bnn", "wide bnn"]
    assert found[5_000] == ["gp", "wide bnn", "wide bnn, varying noise"]
    assert tried[150][3].settings["prior"].constrained
    assert not tried[401][1].settings["prior"].constrained
    steps = [candidates(DVIPRegressor(), rows)[1].settings["max_iter"] for rows in (10_000, 40_000)]
    assert steps[1] == 2 * steps[0]


def test_candidates_that_differ_in_nothing_are_tried_once():
    """Wide networks of two layers, as they are given, are no other than the deep ones."""
    given = dict(n_layers=1, n_prior_samples=5, prior="bnn", n_training_samples=1)
    model = DVIPRegressor(**{**QUICK, **given})
    data = np.random.default_rng(0).normal(size=(300, 2))
    assert names(model.fit(data, data[:, 0])) == ["deep bnn"]


@pytest.mark.parametrize(
    "given",
    [
        {"n_layers": 2},
        {"prior": "bnn"},
        {"n_inducing": 10},
        {"likelihood": "poisson"},
        {"likelihood": "student-t"},
        {"likelihood": StudentT()},
        {"likelihood": "heteroscedastic"},
    ],
    ids=str,
)
def test_what_is_given_excludes_the_gaussian_process(given):
    for num_rows in (10, 200):
        assert [each.name for each in candidates(DVIPRegressor(**given), num_rows)] == ["bnn"]


@pytest.mark.parametrize(
    "given",
    [{"n_layers": 1}, {"alpha": 0.5}, {"likelihood": "gaussian"}, {"max_iter": 10}],
    ids=str,
)
def test_what_is_given_keeps_the_gaussian_process(given):
    found = [each.name for each in candidates(DVIPRegressor(**given), 10)]
    assert found == CLOSED_FORMS


def test_many_inputs_exclude_the_gaussian_process():
    found = candidates(DVIPRegressor(), 100, choice.MAX_INPUTS_OF_GP + 1)
    assert [candidate.name for candidate in found] == ["bnn"]


def test_classifiers_try_no_process_in_closed_form():
    classifier = DVIPClassifier()
    for number, likelihood in ((2, "probit"), (3, "softmax")):
        classifier.classes_ = np.arange(number)
        tried = classifier._candidates(20, 3)
        assert [candidate.name for candidate in tried] == ["linear", "bnn"]
        assert all(candidate.settings["likelihood"] == likelihood for candidate in tried)
        assert len(classifier._candidates(20, 100)) == 1  # lines would be too many


def test_what_is_given_holds_for_every_part(mixture):
    assert names(mixture) == [*CLOSED_FORMS, "bnn"]
    closed, deep = mixture.parts_[0], mixture.parts_[-1]
    assert isinstance(closed.model_, ClosedFormGP)
    assert len(deep.model_.members) == 2
    assert (deep.n_layers, deep.max_iter, deep.n_prior_samples) == (1, 60, 5)
    assert (deep.alpha, deep.inference, deep.calibrate) == (1.0, "vi", True)
    assert deep.n_iter_ <= 60
    assert mixture.get_params()["alpha"] is None  # what was not given stays so
    assert not hasattr(mixture, "model_")


COUNTS = np.random.default_rng(0).poisson(3, 160)


@pytest.mark.parametrize(
    ("given", "y"),
    [
        pytest.param(given, y, marks=[pytest.mark.slow] * slow, id=str(given))
        for slow, given, y in [
            (False, dict(likelihood="poisson"), COUNTS),
            (True, dict(calibrate=False), Y),
            (True, dict(n_inducing=8), Y),
            (True, dict(prior=BayesianNeuralNetwork(hidden=(6,))), Y),
            (True, dict(likelihood="log-normal"), np.exp(Y / 100)),
            (True, dict(likelihood="student-t"), Y),
            (True, dict(validation_fraction=0.2), Y),
            (True, dict(n_members=1), Y),
            (True, dict(precision="float64"), Y),
        ]
    ],
)
def test_parameters_that_are_given_work(given, y):
    model = DVIPRegressor(**{**QUICK, **given}).fit(X, y)
    for part in model.parts_:
        for name, value in given.items():
            assert getattr(part, name) == value
    distribution = model.predict_dist(X[:9])
    assert np.isfinite(distribution.log_prob(y[:9])).all()
    assert np.isfinite(model.sample_functions(3, random_state=0)(X[:9])).all()
    assert hasattr(model, "calibration_") == (len(names(model)) > 1 and model.calibrate is None)


def test_weights_are_probabilities(mixture, process):
    for model in (mixture, process):
        weights = [judgement.weight for judgement in model.choice_]
        assert sum(weights) == pytest.approx(1, abs=1e-12)
        assert len(model.parts_) == sum(weight > 0 for weight in weights)
    assert process.choice_[0].weight + process.choice_[1].weight > 0.8


def test_a_better_candidate_weighs_more(smooth):
    """A smooth function is what the Gaussian process is for."""
    closed, sampled, constant, deep = smooth.choice_
    for process in (closed, sampled):
        assert process.score > max(constant.score, deep.score + 0.5)
    assert closed.weight + sampled.weight > 0.9
    assert smooth.score(X, Y) > 0.8


def test_a_process_with_sampled_kernels(process):
    """It is a part like others: mixed, and drawn from."""
    kept = [each.name for each in process.choice_ if each.weight > 0]
    part, inputs = process.parts_[kept.index("sampled gp")], process._scaled(X)
    assert isinstance(part.model_, SampledGP)
    assert len(part.model_.members) == 2
    of_members = [
        part._of_moments([member.moments(inputs)], None) for member in part.model_.members
    ]
    mixed = part._of_moments([member.moments(inputs) for member in part.model_.members], None)
    np.testing.assert_allclose(mixed.mean, np.mean([each.mean for each in of_members], axis=0))


def test_nobody_waits_for_a_process_that_failed(monkeypatch):
    """Networks that are to be compared with it stop, and its error is the fit's."""

    def fails(*arguments):
        raise MemoryError("no room")

    monkeypatch.setattr("dvip.estimators.stacks.fit_closed_form", fails)
    with pytest.raises(MemoryError, match="no room"):
        DVIPRegressor(**{**QUICK, "max_iter": 1_000}).fit(X, Y)


HOPELESS = {**QUICK, "max_iter": 1_000, "learning_rate": 1e-4}


def test_networks_without_hope_end_early():
    """Y is smooth and without noise: networks of few steps are far from what the process knows."""
    assert DVIPRegressor(**HOPELESS).fit(X, Y).n_iter_ == 500


@pytest.mark.slow
def test_networks_with_hope_do_not(monkeypatch):
    monkeypatch.setattr("dvip.training.schedule.HOPELESS", np.inf)
    assert DVIPRegressor(**HOPELESS).fit(X, Y).n_iter_ == 1_000


def test_many_classes_and_targets_have_functions_enough():
    def functions(found):
        return {name: given["n_prior_samples"] for name, given in found if name != "linear"}

    few, many = (classification_candidates(1_000, 5, number) for number in (3, 15))
    assert functions(few) == {"deep bnn": 20, "wide bnn": 10}
    assert functions(many) == {"deep bnn": 30, "wide bnn": 30}
    assert set(functions(classification_candidates(10**6, 5, 15)).values()) == {30}
    for rows in (1_000, 10_000):
        found = regression_candidates(rows, 200, closed_form=False)
        assert set(functions(found).values()) == {60}


def test_a_part_of_no_weight_is_left_out(monkeypatch):
    monkeypatch.setattr(choice, "LEAST_WEIGHT", 0.99)
    model = DVIPRegressor().fit(X[:5], NOTHING[:5])
    assert len(model.parts_) == 1
    assert sorted(judgement.weight for judgement in model.choice_) == [0, 0, 1]


def test_several_deep_candidates(monkeypatch):
    """Candidates are settings: others are tried as well, each with its own checkpoints."""
    settings = {**DEEP, "max_iter": 60}
    tried = [
        Candidate(f"bnn {width}", {**settings, "prior": BayesianNeuralNetwork(hidden=(width,))})
        for width in (3, 6)
    ]
    monkeypatch.setattr(ChoosingRegressor, "_candidates", lambda *_: tried)
    model = DVIPRegressor(**QUICK).fit(X, NOTHING)
    assert names(model) == ["bnn 3", "bnn 6"]
    assert np.isfinite(model.predict_dist(X).log_prob(NOTHING)).all()


# The mixture as one model.


def test_the_same_seed_gives_the_same_model_and_verbose_tells_the_choice(mixture, capsys):
    again = DVIPRegressor(**QUICK, verbose=True).fit(X, NOTHING)
    told = capsys.readouterr().err.strip().splitlines()
    (line,) = [line for line in told if "hosen" in line]
    assert "gp" in line
    assert "bnn" in line
    assert again.choice_ == mixture.choice_
    ours, theirs = (model.predict_dist(X) for model in (mixture, again))
    np.testing.assert_array_equal(ours.means, theirs.means)
    np.testing.assert_array_equal(ours.std, theirs.std)


def test_another_seed_gives_another_model_and_tells_nothing(process, capsys):
    other = DVIPRegressor(random_state=1).fit(X[:40], Y[:40])
    assert not np.array_equal(process.predict(X), other.predict(X))
    assert capsys.readouterr().err == ""


def test_the_distribution_is_the_mixture_of_the_parts(mixture):
    inputs = mixture._scaled(X)
    samples = -(-10 // len(mixture.parts_))
    parts = [part._distribution(inputs, None, samples) for part in mixture.parts_]
    weights = mixture._weights
    mean = np.average([part.mean for part in parts], axis=0, weights=weights)
    distribution = mixture.predict_dist(X)
    np.testing.assert_allclose(distribution.mean, mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(distribution.weights.sum(), 1)
    second = np.average(
        [np.square(part.std) + np.square(part.mean - mean) for part in parts],
        axis=0,
        weights=weights,
    )
    # Training rows are at no distance; the mixture is calibrated once more.
    ratios = distribution.std / np.sqrt(second)
    np.testing.assert_allclose(ratios, ratios[0], rtol=1e-5)


@pytest.mark.parametrize("name", ["mixture", "process"])
def test_predictions_agree_however_they_are_asked_for(name, request, monkeypatch):
    model = request.getfixturevalue(name)
    distribution = model.predict_dist(X)
    monkeypatch.setattr("dvip.estimators.stacks.COMPONENTS_AT_ONCE", 300)
    mean, std = model.predict(X, return_std=True)
    np.testing.assert_allclose(mean, distribution.mean, rtol=1e-6)
    np.testing.assert_allclose(std, distribution.std, rtol=1e-6)
    np.testing.assert_allclose(model.predict(X[3:5]), mean[3:5], rtol=1e-6)
    np.testing.assert_array_equal(distribution.distance, model.distance(X))


def uncalibrated(model):
    """The same without what corrects distributions, but no functions."""
    plain = copy.copy(model)
    plain.parts_ = tuple(copy.copy(part) for part in model.parts_)
    plain.n_predictive_samples = 1_000
    for each in (plain, *plain.parts_):
        for name in ("calibration_", "neighbourhood_"):
            each.__dict__.pop(name, None)
    return plain


@pytest.mark.parametrize("name", ["mixture", "process"])
def test_functions_have_the_moments_of_the_distribution(name, request):
    model, inputs = request.getfixturevalue(name), X[:5] + 1
    values = model.sample_functions(6_000, random_state=0)(inputs)
    assert values.shape == (6_000, 5)
    distribution = uncalibrated(model).predict_dist(inputs)
    variance = distribution.variance_parts()[1]
    error = 5 * np.sqrt(variance / 6_000)
    np.testing.assert_allclose(values.mean(axis=0), distribution.mean, atol=error.max(), rtol=0.01)
    np.testing.assert_allclose(values.var(axis=0), variance, rtol=0.25)


def test_functions_are_the_same_each_time(mixture):
    functions = mixture.sample_functions(7, random_state=3)
    np.testing.assert_allclose(functions(X)[:, 3:6], functions(X[3:6]), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(functions(X), mixture.sample_functions(7, random_state=3)(X))


def test_time_is_limited(smooth):  # so that all is compiled
    began = time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = DVIPRegressor(**{**QUICK, "max_iter": 10**7}, max_seconds=2).fit(X, Y)
    assert time.monotonic() - began < 25
    assert np.isfinite(model.predict(X)).all()


# Mistakes.


def test_unknown_inference():
    for estimator in (DVIPRegressor(inference="nonsense"), DVIPClassifier(inference=3)):
        with pytest.raises(
            ValueError, match=r"inference=.* is not known: use one of auto, vi, mcmc, exact"
        ):
            estimator.fit(X, Y > 100)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"n_layers": 2}, "leave out n_layers"),
        ({"prior": "bnn"}, "leave out prior"),
        ({"n_inducing": 3}, "leave out n_inducing"),
        ({"likelihood": "poisson"}, "leave out likelihood"),
        ({"likelihood": "student-t"}, "leave out likelihood"),
    ],
    ids=str,
)
def test_exact_inference_is_for_one_process(given, told):
    with pytest.raises(ValueError, match=told):
        DVIPRegressor(inference="exact", **given).fit(X, Y)


def test_exact_inference_is_for_regressions():
    with pytest.raises(ValueError, match="inference='exact' is for regressions"):
        DVIPClassifier(inference="exact").fit(X, Y > 100)


def test_exact_inference():
    model = DVIPRegressor(inference="exact").fit(X, Y)
    assert isinstance(model.model_, ClosedFormGP)
    assert not hasattr(model, "parts_")
    assert not hasattr(model, "calibration_")
    assert model.score(X, Y) > 0.9
    assert model.predict_dist(X).distance is None
    with pytest.raises(ValueError, match="inference='auto'"):
        model.distance(X)
    calibrated = DVIPRegressor(inference="exact", calibrate=True).fit(X, Y)
    assert calibrated.calibration_.scale > 0


def test_partial_fit_trains_one_model_and_no_mixture(mixture):
    for model in (mixture, DVIPRegressor(inference="exact")):
        with pytest.raises(ValueError, match="inference='vi'"):
            model.partial_fit(X, Y)
    before = mixture.predict(X)
    with pytest.raises(ValueError, match="inference='vi'"):
        mixture.partial_fit(X, Y)
    np.testing.assert_array_equal(mixture.predict(X), before)
    model = DVIPRegressor(**{**QUICK, "n_members": None}).partial_fit(X, Y).partial_fit(X, Y)
    assert model.n_samples_seen_ == 320
    assert np.isfinite(model.predict(X)).all()
    model.fit(X[:5], Y[:5])  # which chooses anew
    assert not hasattr(model, "model_")
    assert np.isfinite(model.predict(X)).all()


def test_another_fit_forgets_the_mixture(mixture):
    model = copy.deepcopy(mixture)
    model.set_params(inference="vi", n_members=None).fit(X, Y)
    assert not any(hasattr(model, name) for name in choice.FITTED if name != "model_")
    assert model.predict_dist(X).distance is None


def test_a_candidate_that_diverges_is_left_out():
    with pytest.warns(ConvergenceWarning, match="'bnn' diverged"):
        model = DVIPRegressor(**QUICK, learning_rate=1e20).fit(X, Y)
    assert names(model) == CLOSED_FORMS
    assert model.score(X, Y) > 0.8


def test_nothing_is_left_where_all_candidates_diverge():
    model = DVIPRegressor(**QUICK, prior="bnn", learning_rate=1e20)
    with pytest.raises(TrainingDiverged):
        model.fit(X, Y)
    with pytest.raises(NotFittedError):
        model.predict(X)
    fitted = DVIPRegressor(**QUICK, prior="bnn").fit(X, Y)
    before = fitted.predict(X)
    with pytest.raises(TrainingDiverged):
        fitted.set_params(learning_rate=1e20).fit(X[:50] + 9, Y[:50])
    np.testing.assert_array_equal(fitted.predict(X), before)
