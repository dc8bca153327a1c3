"""The methods that are compared, and the experiments of the paper as grids of them and datasets.

The order of a grid's runs is by split and seed first, so that an unfinished grid has something of
everything.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from types import MappingProxyType
from typing import Any

from dvip import DeepGPClassifier, DeepGPRegressor, DVIPClassifier, DVIPRegressor, SIPRegressor
from dvip.paper.datasets.catalogue import DATASETS
from dvip.paper.results import Run
from dvip.processes.bnn import BayesianNeuralNetwork
from dvip.processes.gp import GaussianProcess
from dvip.registry import ESTIMATORS, MODELS

__all__ = ["EXPERIMENTS", "METHODS", "Experiment", "Method"]

DVIP = {"regression": DVIPRegressor.paper, "classification": DVIPClassifier.paper}
DEEP_GP = {"regression": DeepGPRegressor, "classification": DeepGPClassifier}
SIP = {"regression": SIPRegressor}

DEPTHS = (2, 3, 4, 5)
PRIOR_SAMPLES = (10, 30, 40, 50)  # besides the default of 20
ARCHITECTURES = ((10, 10, 10), (20, 20))
# The width of layers that read images is the paper's. With the default rate of 0.01, long trainings
# on MNIST have a worse log-likelihood (benchmarks/results/images.md).
IMAGES = {"prior": "conv", "learning_rate": 0.003}
IMAGE_UNITS = 30


@dataclass(frozen=True)
class Method:
    """A row or column of a table: an estimator for each task, and its settings."""

    name: str
    label: str
    estimators: Mapping[str, Callable[..., Any]]
    settings: Mapping[str, Any] = field(default_factory=dict)

    def estimator(self, task: str, **settings: Any) -> Any:
        """A new estimator for a task; `settings` precede the method's own."""
        return self.estimators[task](**{**self.settings, **settings})


def _all_methods() -> list[Method]:
    methods = [
        Method("vip", "VIP", DVIP, {"n_layers": 1, "alpha": 0.5}),
        Method("vip-elbo", "VIP α=0", DVIP, {"n_layers": 1}),
        Method(
            "vip-200",
            "VIP 200",
            DVIP,
            {"n_layers": 1, "alpha": 0.5, "prior": BayesianNeuralNetwork(hidden=(200, 200))},
        ),
        Method(
            "vip-unconstrained",
            "VIP α=0, unconstrained",
            DVIP,
            {"n_layers": 1, "prior": BayesianNeuralNetwork(constrained=False)},
        ),
        Method("vip-gp", "VIP α=0, GP", DVIP, {"n_layers": 1, "prior": "gp"}),
        Method(
            "vip-gp-inducing",
            "VIP α=0, GP, inducing points",
            DVIP,
            {"n_layers": 1, "prior": "gp", "n_inducing": 100, "n_prior_samples": 2_000},
        ),
        Method("vip-conv", "VIP conv", DVIP, {"n_layers": 1, "alpha": 0.5, **IMAGES}),
        Method("sgp", "SGP", DEEP_GP, {"n_layers": 1}),
        Method("sip", "SIP", SIP),
    ]
    for depth in DEPTHS:
        layers = {"n_layers": depth}
        methods += [
            Method(f"dvip-{depth}", f"DVIP {depth}", DVIP, layers),
            Method(f"dvip-{depth}-gp", f"DVIP {depth}, GP", DVIP, {**layers, "prior": "gp"}),
            Method(
                f"dvip-{depth}-conv",
                f"DVIP {depth} conv",
                DVIP,
                {**layers, **IMAGES, "n_units": IMAGE_UNITS},
            ),
            Method(f"dvip-{depth}-alpha", f"DVIP {depth} α=0.5", DVIP, {**layers, "alpha": 0.5}),
            Method(f"dgp-{depth}", f"DGP {depth}", DEEP_GP, layers),
        ]
        for hidden in ARCHITECTURES:
            widths = "-".join(map(str, hidden))
            prior = BayesianNeuralNetwork(hidden=hidden)
            settings = {**layers, "prior": prior}
            methods.append(
                Method(f"dvip-{depth}-bnn-{widths}", f"DVIP {depth}, BNN {widths}", DVIP, settings)
            )
    methods.append(
        Method("dvip-3-gp-s40", "DVIP 3, GP, S=40", DVIP, {"prior": "gp", "n_prior_samples": 40})
    )
    methods += [
        Method(f"dvip-3-s{number}", f"DVIP 3, S={number}", DVIP, {"n_prior_samples": number})
        for number in PRIOR_SAMPLES
    ]
    return methods


def _neighbours() -> list[Method]:
    """Other ways to infer functions; most have a classifier as well."""

    def method(model: str, label: str, name: str | None = None, **settings: Any) -> Method:
        estimators = {task: ESTIMATORS[cls] for task, cls in MODELS[model].items()}
        return Method(name or model, label, estimators, settings)

    def deep_gp(name: str, label: str, **settings: Any) -> Method:
        return Method(name, label, DEEP_GP, {"n_layers": 2, **settings})

    return [
        Method("dvip", "DVIP, default", {"regression": DVIPRegressor}),
        # Functions of a second layer are evaluated at the samples of the first: fewer will do.
        Method("sip-2", "SIP 2", SIP, {"n_layers": 2, "n_training_samples": 5}),
        method("deep-kernel", "deep kernel"),
        method("fbnn", "fBNN"),
        method("fbnn", "fBNN, rows only", "fbnn-rows", n_points=(50, 0)),
        method("fbnn", "fBNN, BNN prior", "fbnn-bnn", prior="bnn"),
        method("fvi", "FVI"),
        method("fvi", "FVI, fixed GP prior", "fvi-fixed", prior=GaussianProcess()),
        method("linearised", "Laplace"),
        method("linearised", "function-space VI", "function-space", method="function-space"),
        method("repulsive", "repulsive, functions"),
        method("repulsive", "repulsive, weights", "repulsive-weights", repulsion="weights"),
        deep_gp("dgp-2-mcmc", "DGP 2, sampled", inference="mcmc"),
        deep_gp("dgp-2-random", "DGP 2, random features", features="random"),
        deep_gp("dgp-2-implicit", "DGP 2, implicit", posterior="implicit"),
        method("mean-field", "mean field"),
        method("dropout", "dropout"),
        method("deep-ensemble", "deep ensemble"),
    ]


METHODS: Mapping[str, Method] = MappingProxyType(
    {method.name: method for method in (*_all_methods(), *_neighbours())}
)


# Where a set has one published test part, its runs differ by the seed; where its splits are random,
# the paper has so many of them.
NUM_SEEDS = 10
NUM_RANDOM_SPLITS = 20

REGRESSION = ("nll", "rmse", "crps")
CLASSIFICATION = ("accuracy", "log_likelihood", "auc")

UCI = ("boston", "energy", "concrete", "wine-red", "power", "kin8nm", "naval", "protein")

SMALL = ("boston", "energy", "concrete", "wine-red", "yacht")
LARGE = ("power", "kin8nm", "naval", "protein")
GAPS = ("boston", "energy", "concrete", "yacht")
GAP_SETS = tuple(f"{name}-gap" for name in GAPS)
ONE_INPUT = ("co2", "toy")

# Our names of methods, and the name and variant that the paper has for each.
PaperNames = Mapping[str, tuple[str, str]]


def _named(names: str, variant: str = "") -> dict[str, tuple[str, str]]:
    """Methods that the paper calls what we call them."""
    return {name: (METHODS[name].label, variant) for name in names.split()}


DVIPS = "dvip-2 dvip-3 dvip-4 dvip-5"
DGPS = "dgp-2 dgp-3 dgp-4 dgp-5"
NEIGHBOURS = [method.name for method in _neighbours() if method.name != "dvip"]
# Variants that serve one verdict each (`verdicts.py`), and the sets that it looks at.
VARIANTS = {
    **dict.fromkeys(("dvip-2-gp", "sip-2", "fbnn-bnn", "fvi-fixed"), (*SMALL, "toy")),
    "fbnn-rows": (*GAP_SETS, *ONE_INPUT),
}


@dataclass(frozen=True)
class Experiment:
    """A grid of datasets and methods, and what is reported of it."""

    name: str
    title: str
    datasets: tuple[str, ...]
    methods: PaperNames
    metrics: tuple[str, ...]
    # Where some methods are run, if not everywhere, unless datasets are asked for by name.
    datasets_of: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # Training steps, where they are not the estimator's default.
    max_iter: int | None = None
    # At most so many splits or seeds of a dataset, unless others are asked for: of all, or of some.
    num_repeats: int | None = None
    repeats_of: Mapping[str, int] = field(default_factory=dict)
    # Who printed the figures that ours are put beside.
    source: str = "the paper"
    # Times are the result: one run at a time, whatever the number of cores.
    timed: bool = False

    def runs(
        self,
        datasets: Sequence[str] = (),
        methods: Sequence[str] = (),
        splits: Sequence[int] = (),
        seeds: Sequence[int] = (),
        max_iter: int | None = None,
    ) -> list[Run]:
        """The runs of the grid, or those of given datasets, methods, splits and seeds.

        Datasets that do not have a split are left out, unless they are asked for by name.
        """
        _check_among("dataset", datasets, self.datasets, self.name)
        _check_among("method", methods, tuple(self.methods), self.name)
        for dataset, split in product(datasets, splits):
            if split not in _splits(dataset):
                last = _splits(dataset)[-1]
                raise ValueError(f"{dataset} has no split {split}: its last is {last}.")
        chosen = [
            Run(dataset, method, split, seed, max_iter or self.max_iter, self.timed)
            for dataset in datasets or self.datasets
            for split, seed in self._repeats(dataset, splits, seeds)
            for method in methods or self.methods
            if datasets or dataset in self.datasets_of.get(method, self.datasets)
        ]
        if not chosen:
            raise ValueError(f"No dataset of {self.name} has a split {splits[0]}.")
        return sorted(chosen, key=lambda run: (run.seed, run.split))

    def _repeats(
        self, dataset: str, splits: Sequence[int], seeds: Sequence[int]
    ) -> list[tuple[int, int]]:
        default_splits = _splits(dataset)
        default_seeds = range(NUM_SEEDS if len(default_splits) == 1 else 1)
        chosen = [split for split in splits if split in default_splits]
        repeats = list(product(chosen if splits else default_splits, seeds or default_seeds))
        most = self.repeats_of.get(dataset, self.num_repeats)
        return repeats if splits or seeds else repeats[:most]


def _splits(dataset: str) -> range:
    return range(DATASETS[dataset].num_splits or NUM_RANDOM_SPLITS)


def _check_among(what: str, given: Sequence[str], known: Sequence[str], experiment: str) -> None:
    unknown = [name for name in given if name not in known]
    if unknown:
        raise ValueError(
            f"{experiment} has no {what} {unknown[0]!r}; choose from {', '.join(known)}."
        )


_ALL = (
    Experiment(
        "uci",
        "Regression on eight UCI datasets",
        UCI,
        _named(f"sgp vip vip-200 sip {DVIPS} {DGPS}"),
        REGRESSION,
    ),
    Experiment(
        "co2",
        "Gaps in the CO2 record of Mauna Loa",
        ("co2",),
        _named("dvip-2 dgp-2 sgp"),
        (*REGRESSION, "coverage_95"),
        num_repeats=1,
    ),
    Experiment(
        "large-regression",
        "Regression on large datasets",
        ("year", "airline", "taxi", "flights", "taxi-sample"),
        _named(f"sgp vip {DVIPS} dgp-3"),
        REGRESSION,
    ),
    Experiment(
        "images",
        "Images, with a convolutional first layer",
        ("mnist", "rectangles", "rectangles-generated"),
        {
            **_named("sgp dgp-2 dgp-3"),
            "vip-conv": ("VIP", "conv first layer"),
            **{
                f"dvip-{depth}-conv": (f"DVIP {depth}", "conv first layer") for depth in range(2, 6)
            },
        },
        CLASSIFICATION,
        max_iter=20_000,
    ),
    Experiment(
        "large-classification",
        "Classification of large datasets",
        ("susy", "higgs", "higgs-subset"),
        _named(f"sgp vip {DVIPS} dgp-4 dgp-5"),
        CLASSIFICATION,
    ),
    Experiment(
        "prior-constraint",
        "The constrained against the unconstrained prior",
        ("boston", "energy", "toy"),
        {
            "vip-elbo": ("VIP", "constrained BNN, alpha=0"),
            "vip-unconstrained": ("VIP", "unconstrained BNN, alpha=0"),
        },
        (*REGRESSION, *(f"{metric}_train" for metric in REGRESSION)),
    ),
    Experiment(
        "prior-samples",
        "The number S of prior samples",
        ("power", "protein"),
        {
            "dvip-3-s10": ("DVIP 3", "S=10"),
            "dvip-3": ("DVIP 3", "S=20"),
            **{f"dvip-3-s{number}": ("DVIP 3", f"S={number}") for number in (30, 40, 50)},
        },
        (*REGRESSION, "cpu_seconds"),
    ),
    Experiment(
        "prior-architecture",
        "The architecture of the prior BNN",
        ("power", "protein"),
        {
            f"dvip-{depth}-bnn-{widths}": (f"DVIP {depth}", f"BNN {widths}")
            for widths in ("10-10-10", "20-20")
            for depth in (2, 3, 4)
        },
        REGRESSION,
    ),
    Experiment(
        "gp-prior-year",
        "A GP prior on Year",
        ("year",),
        {
            "vip-elbo": ("VIP", "BNN"),
            "vip-gp": ("VIP", "GP prior, linear regression"),
            "vip-gp-inducing": ("VIP", "GP prior, inducing points"),
            "sgp": ("SGP", ""),
        },
        (*REGRESSION, "cpu_seconds"),
    ),
    Experiment(
        "gp-prior",
        "A GP prior against the BNN prior and deep GPs",
        ("kin8nm", "protein"),
        {
            "vip-elbo": ("VIP", "BNN prior"),
            **_named(DVIPS, "BNN prior"),
            "vip-gp": ("VIP", "GP prior"),
            **{f"dvip-{depth}-gp": (f"DVIP {depth}", "GP prior") for depth in range(2, 6)},
            "dvip-3-gp-s40": ("DVIP 3", "GP prior, S=40"),
            **_named(f"sgp {DGPS}"),
        },
        (*REGRESSION, "cpu_seconds"),
    ),
    Experiment(
        "alpha",
        "The α-energy against the ELBO in deep models (not in the paper)",
        ("boston", "energy"),
        _named("dvip-2 dvip-2-alpha dvip-3 dvip-3-alpha"),
        REGRESSION,
        max_iter=20_000,
        num_repeats=5,
    ),
    Experiment(
        "inducing-points",
        "Implicit processes with inducing points beside sparse GPs (not in the paper)",
        ("energy", "kin8nm"),
        _named("vip-gp vip-gp-inducing sgp"),
        (*REGRESSION, "cpu_seconds"),
        max_iter=5_000,
        num_repeats=3,
    ),
    Experiment(
        "neighbours",
        "Other ways to infer functions (not in the paper)",
        (*SMALL, *LARGE, *GAP_SETS, *ONE_INPUT),
        _named("dvip vip dvip-2 dvip-3 dvip-2-gp sgp dgp-2 sip " + " ".join(NEIGHBOURS)),
        (*REGRESSION, "coverage_95", "cpu_seconds"),
        datasets_of=VARIANTS,
        num_repeats=5,
        repeats_of={**dict.fromkeys(LARGE, 2), **dict.fromkeys(ONE_INPUT, 1)},
        source="their own paper",
    ),
    Experiment(
        "timing",
        "Time of 2,000 training steps, without compilation",
        UCI,
        _named(f"sgp vip vip-200 sip {DVIPS} {DGPS}"),
        ("seconds", "cpu_seconds"),
        max_iter=2_000,
        num_repeats=1,
        timed=True,
    ),
)

EXPERIMENTS: Mapping[str, Experiment] = MappingProxyType(
    {experiment.name: experiment for experiment in _ALL}
)
