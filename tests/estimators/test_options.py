"""Every option of the estimators has its effect, and values that make no sense are refused."""

import jax
import numpy as np
import pytest
from examples import TINY, RandomWaves, regression_data

from dvip import BayesianNeuralNetwork, DVIPClassifier, DVIPRegressor, Probit, RobustMax
from dvip.processes import PerUnit
from dvip.registry import PRIORS

X, Y = regression_data()
LABELS = np.array(["low", "middle", "high"])[np.digitize(Y, np.quantile(Y, [0.3, 0.6]))]
SHALLOW = {**TINY, "n_layers": 1}
DEEP = {**TINY, "n_layers": 2}


def same_model(first, second):
    pairs = zip(jax.tree.leaves(first.model_), jax.tree.leaves(second.model_), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


@pytest.fixture(scope="module")
def defaults():
    """What models without further options predict."""
    return [DVIPRegressor.paper(**each).fit(X, Y).predict(X) for each in (SHALLOW, DEEP)]


OPTIONS = {
    "units, propagation and a prior of each layer": (
        dict(
            n_layers=3,
            n_units=(4, 2),
            input_propagation=(False, True),
            prior=(RandomWaves(), "bnn", "bnn"),
        ),
        lambda net: (
            net.inner_widths == (4, 2)
            and [stage.propagation is None for stage in net.stages] == [True, False, True]
            and [type(stage.layer.process) for stage in net.stages]
            == [RandomWaves, BayesianNeuralNetwork, BayesianNeuralNetwork]
        ),
    ),
    "one number of units": (
        dict(n_layers=2, n_units=2, n_training_samples=3),
        lambda net: net.inner_widths == (2,),
    ),
    "a prior for each unit, no propagation, fresh noise": (
        dict(n_layers=2, shared_prior=False, input_propagation=False, fresh_noise=True),
        lambda net: all(
            isinstance(stage.layer.process, PerUnit)
            and stage.propagation is None
            and stage.layer.fresh_noise
            for stage in net.stages
        ),
    ),
    "alpha": (dict(n_layers=1, alpha=0.5), lambda net: True),
    "alpha of a deep model": (dict(n_layers=2, alpha=1), lambda net: True),
    "double precision": (
        dict(n_layers=1, precision="float64"),
        lambda net: all(leaf.dtype == np.float64 for leaf in jax.tree.leaves(net)),
    ),
    "own prior": (
        dict(n_layers=1, prior=RandomWaves()),
        lambda net: isinstance(net.stages[0].layer.process, RandomWaves),
    ),
    **{
        f"prior {name}": (
            dict(n_layers=1, prior=name),
            lambda net, process=process: type(net.stages[0].layer.process) is process,
        )
        for name, process in PRIORS.items()
        # One reads images: test_images_and_sequences.py. The other learns nothing by itself.
        if name not in ("conv", "constant")
    },
    "regularised prior": (
        dict(n_layers=1, prior=BayesianNeuralNetwork((8,), constrained=False, regularised=True)),
        lambda net: net.prior_regularisation() > 0,
    ),
}
# What other options, and the tests of the processes, show as well.
SLOW = {"one number of units", "alpha of a deep model", "own prior"}
SLOW |= {name for name in OPTIONS if name.startswith("prior ")} - {"prior gp"}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param(*case, id=name, marks=[pytest.mark.slow] * (name in SLOW))
        for name, case in OPTIONS.items()
    ],
)
def test_options(defaults, options, expected):
    """Each option has its effect on the network and the fit, and the model still learns."""
    model = DVIPRegressor.paper(**{**TINY, **options}).fit(X, Y)
    assert expected(model.model_.network)
    assert model.score(X, Y) > 0.2
    mean, std = model.predict(X, return_std=True)
    assert (std > 0).all()
    for default in defaults:
        assert not np.array_equal(mean, default)
    assert model.n_iter_ == TINY["max_iter"]


def test_likelihoods():
    binary = DVIPClassifier.paper(**SHALLOW).fit(X, Y > 100)
    named = DVIPClassifier.paper(**SHALLOW, likelihood="probit").fit(X, Y > 100)
    own = DVIPClassifier.paper(**SHALLOW, likelihood=Probit()).fit(X, Y > 100)
    assert same_model(named, binary)
    assert same_model(own, binary)
    robust = DVIPClassifier.paper(**SHALLOW, likelihood=RobustMax(error=0.05)).fit(X, Y > 100)
    probabilities = robust.predict_proba(X)
    # Never surer than the errors it reckons with.
    assert probabilities.min() > 0.05 - 1e-6
    assert robust.score(X, Y > 100) > 0.75
    with pytest.raises(ValueError, match=r"two classes.*robustmax"):
        DVIPClassifier.paper(**SHALLOW, likelihood="probit").fit(X, LABELS)


BAD_PARAMETERS = [
    ("n_layers", 0),
    ("n_layers", 2.0),
    ("n_prior_samples", 0),
    ("n_prior_samples", 1),
    ("prior", "magic"),
    ("prior", 3),
    ("prior", BayesianNeuralNetwork),
    ("prior", ("bnn",)),
    ("prior", ()),
    ("alpha", -0.1),
    ("alpha", 1.5),
    ("alpha", float("nan")),
    ("alpha", "half"),
    ("max_iter", 0),
    ("max_iter", True),
    ("batch_size", 0),
    ("batch_size", "all"),
    ("learning_rate", 0),
    ("learning_rate", float("inf")),
    ("learning_rate", "fast"),
    ("n_predictive_samples", 0),
    ("n_training_samples", 0),
    ("n_training_samples", 1.5),
    ("n_units", 0),
    ("n_units", 2.5),
    ("n_units", (2, 2)),
    ("n_units", (2.5,)),
    ("n_units", "wide"),
    ("input_propagation", "yes"),
    ("input_propagation", None),
    ("input_propagation", (True, True)),
    ("precision", "float16"),
    ("precision", None),
    ("random_state", "seed"),
]


@pytest.mark.parametrize(("name", "value"), BAD_PARAMETERS)
def test_bad_parameters(name, value):
    with pytest.raises(ValueError, match=f"{name}|seed") as caught:
        DVIPRegressor.paper(**{**DEEP, name: value}).fit(X, Y)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize("value", ["logit", 3, None, Probit])
def test_bad_likelihoods(value):
    with pytest.raises(ValueError, match="likelihood="):
        DVIPClassifier.paper(**SHALLOW, likelihood=value).fit(X, Y > 100)
