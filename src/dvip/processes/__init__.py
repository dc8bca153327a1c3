"""Implicit processes: priors over functions. One file each; `registry.py` has their names."""

from dvip.processes.process import DataUnits, ImplicitProcess, PerUnit, mean_and_features

__all__ = ["DataUnits", "ImplicitProcess", "PerUnit", "mean_and_features"]
