"""Implicit processes: priors over functions. One file each; `registry.py` has their names."""

from dvip.processes.process import ImplicitProcess, PerUnit, mean_and_features

__all__ = ["ImplicitProcess", "PerUnit", "mean_and_features"]
