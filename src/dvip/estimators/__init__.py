"""The scikit-learn face of the models; `registry.py` has their names."""

from dvip.estimators.serialisation import load

__all__ = ["load"]
