"""The methods that are compared, by name: which estimator, and how it differs from its defaults."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from dvip.estimators import (
    DeepGPClassifier,
    DeepGPRegressor,
    DVIPClassifier,
    DVIPRegressor,
    SIPRegressor,
)
from dvip.processes.bnn import BayesianNeuralNetwork

__all__ = ["METHODS", "Method"]

DVIP = {"regression": DVIPRegressor, "classification": DVIPClassifier}
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
    estimators: Mapping[str, type]
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


METHODS: Mapping[str, Method] = MappingProxyType({method.name: method for method in _all_methods()})
