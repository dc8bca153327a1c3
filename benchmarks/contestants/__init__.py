"""Who is compared: estimators with `fit(X, y)` and `predict_dist(X)`, a `GaussianMixture`.

Each is imported only when it is made, so that a process holds one library at a time.
"""

from importlib.util import find_spec
from typing import Any

__all__ = [
    "CATBOOST",
    "DEEP_GP",
    "DVIP",
    "DVIP_GP",
    "ENSEMBLE",
    "EXACT_GP",
    "NGBOOST",
    "OWN_DEEP_GP",
    "is_installed",
    "make",
]

DVIP = "dvip"
DVIP_GP = "dvip, GP prior"
OWN_DEEP_GP = "dvip's deep GP"
DEEP_GP = "GPyTorch deep GP"
EXACT_GP = "scikit-learn GP"
NGBOOST = "NGBoost"
CATBOOST = "CatBoost"
ENSEMBLE = "MLP ensemble"


def is_installed(name: str) -> bool:
    return name not in PACKAGES or find_spec(PACKAGES[name]) is not None


# What `pip install ".[peers]"` brings.
PACKAGES = {DEEP_GP: "gpytorch", NGBOOST: "ngboost", CATBOOST: "catboost"}


def make(name: str, settings: dict[str, Any]) -> Any:
    """An unfitted estimator."""
    if name == DVIP:
        from dvip import DVIPRegressor as Estimator
    elif name == DVIP_GP:
        from dvip import DVIPRegressor as Estimator

        settings = {"prior": "gp", **settings}
    elif name == OWN_DEEP_GP:
        from dvip import DeepGPRegressor as Estimator
    elif name == DEEP_GP:
        from contestants.gpytorch_deep_gp import DeepGPRegressor as Estimator
    elif name == EXACT_GP:
        from contestants.sklearn_gp import ExactGPRegressor as Estimator
    elif name == NGBOOST:
        from contestants.ngboost_trees import NGBoostRegressor as Estimator
    elif name == CATBOOST:
        from contestants.catboost_trees import CatBoostUncertainty as Estimator
    elif name == ENSEMBLE:
        from contestants.mlp_ensemble import MLPEnsemble as Estimator
    else:
        raise ValueError(f"{name!r} is not a contestant.")
    return Estimator(**settings)
