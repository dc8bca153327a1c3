"""Docstrings: their examples run, and they list what there is."""

import doctest
import importlib
import inspect
import re
from pathlib import Path

import pytest

import dvip
from dvip.estimators import candidates
from dvip.estimators.sampled_functions import SampledFunctions
from dvip.optimise import Optimisation
from dvip.registry import ESTIMATORS, LIKELIHOODS, PRIORS

SOURCE = Path(dvip.__file__).parent
FILES = [path for path in sorted(SOURCE.rglob("*.py")) if ">>> " in path.read_text()]
MODULES = [".".join(path.relative_to(SOURCE.parent).with_suffix("").parts) for path in FILES]


def text_of(thing):
    return inspect.getdoc(thing) or ""


def sections(thing):
    """The sections of a docstring by title."""
    _, *parts = re.split(r"^(\w+)\n-+$", text_of(thing), flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def documented(thing):
    """Parameters of a docstring: what stands behind the colon, by name."""
    lines = re.findall(r"^(\w[\w, ]*?)(?: : (.*))?$", sections(thing)["Parameters"], re.MULTILINE)
    return {name: kind for names, kind in lines for name in names.split(", ")}


def parameters(function):
    names = inspect.signature(function).parameters
    return {name: names[name] for name in names if name != "self"}


# What takes long to compile.
SLOW = (
    "dvip.estimators.implicit_processes",
    "dvip.estimators.classification",
    "dvip.estimators.sparse_implicit",
    "dvip.estimators.deep_gp",
    "dvip.optimise",
    *(name for name in MODULES if ".neighbours." in name),
)
# What needs a package that is an extra.
OPTIONAL = {"dvip.skpro": "skpro"}


@pytest.mark.usefixtures("short_chains")
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in MODULES],
)
def test_examples(name, monkeypatch):
    for steps in ("STEPS", "STEPS_FOR_SOME", "STEPS_FOR_MANY"):  # whether they run, not how well
        monkeypatch.setattr(candidates, steps, 100)
    if name in OPTIONAL:
        pytest.importorskip(OPTIONAL[name], reason=f"{OPTIONAL[name]} is an extra")
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert result.attempted
    assert not result.failed


@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimators_document_their_parameters(name):
    found = documented(ESTIMATORS[name])
    expected = parameters(ESTIMATORS[name])
    assert list(found) == list(expected)
    for parameter, kind in found.items():
        default = expected[parameter].default
        shown = f'"{default}"' if isinstance(default, str) else str(default)
        shown = "optional" if default is None else f"default {shown}"
        assert kind.endswith(shown) or (default is None and "None" in kind), f"{parameter}: {kind}"


@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimators_list_the_names_of_the_registries(name):
    estimator = ESTIMATORS[name]
    kinds = documented(estimator)
    fitting = [key for key, cls in LIKELIHOODS.items() if cls.task == estimator.task]
    text = sections(estimator)["Parameters"].split("likelihood : ")[1]
    text = re.split(r"^\w+ : ", text, flags=re.MULTILINE)[0]
    assert set(re.findall(r'"([\w-]+)"', text)) == {"auto", *fitting}
    elsewhere = re.search(r"names? or (?:an )?objects? as\s+of `DVIP", text_of(estimator))
    if "prior" in kinds and elsewhere is None:
        names = re.search(r"a name \((.*?)\)", sections(estimator)["Parameters"], re.DOTALL)
        assert names is not None
        assert re.findall(r'"([\w-]+)"', names[1]) == list(PRIORS)


NEIGHBOURS = [name for name in ESTIMATORS if ".neighbours." in ESTIMATORS._homes[name]]


def said(estimator):
    """What stands below each parameter of a docstring, in words."""
    parts = re.split(r"^(\w+) : .*$", sections(estimator)["Parameters"], flags=re.MULTILINE)[1:]
    return {name: text.split() for name, text in zip(parts[::2], parts[1::2], strict=True)}


# Likelihoods have a test of their own; the others stand for something else in each method.
OF_THE_METHOD = ("likelihood", "max_iter", "prior", "prior_scale", "n_points", "n_functions")


@pytest.mark.parametrize("name", NEIGHBOURS)
def test_neighbours_say_the_same_of_the_same(name):
    words = said(ESTIMATORS[name])
    for other in NEIGHBOURS:
        for parameter, text in said(ESTIMATORS[other]).items():
            if parameter in words and parameter not in OF_THE_METHOD:
                assert words[parameter] == text, f"{parameter} of {name} and {other}"


@pytest.mark.parametrize("name", NEIGHBOURS)
def test_neighbours_tell_their_steps(name):
    estimator = ESTIMATORS[name]()
    told = re.findall(r"(?<=\s)[\d,]+\d", " ".join(said(estimator)["max_iter"]))
    fewest, rows, most = (int(number.replace(",", "")) for number in told)
    assert estimator._num_steps(rows // 10) == estimator._num_steps(rows) == fewest
    assert fewest < estimator._num_steps(2 * rows) < most
    assert estimator._num_steps(10**9) == most


METHODS = {
    **dict.fromkeys(ESTIMATORS, ("fit", "partial_fit", "predict", "save")),
    "Predictive": ("log_prob", "pdf", "cdf", "quantile", "interval", "crps", "sample", "target"),
    "TableEncoder": ("fit", "partial_fit", "transform", "get_feature_names_out", "from_json"),
}
FUNCTIONS = {
    **{
        f"{name}.{method}": getattr(getattr(dvip, name), method)
        for name, methods in METHODS.items()
        for method in methods
    },
    **{
        f"{name}.{method}": getattr(getattr(dvip, name), method)
        for name in ESTIMATORS
        for method in (
            *("predict_dist", "predict_interval", "predict_quantiles", "predict_var"),
            *("sample_functions", "predict_proba", "predict_log_proba", "predict_set"),
            *("condition_on", "suggest_rows"),
        )
        if hasattr(getattr(dvip, name), method)
    },
    **{
        f"Optimisation.{method}": getattr(Optimisation, method)
        for method in ("suggest", "observe", "save", "load")
    },
    "SampledFunctions.gradient": SampledFunctions.gradient,
    "load": dvip.load,
    "open_source": dvip.open_source,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_public_functions_document_parameters_and_results(name):
    function = FUNCTIONS[name]
    assert list(documented(function)) == list(parameters(function))
    returns = inspect.signature(function).return_annotation
    assert ("Returns" in sections(function)) == (returns is not None)
