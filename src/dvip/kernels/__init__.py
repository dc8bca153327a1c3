"""Kernels: the moments that a sparse GP layer takes as its prior. One file each."""

from dvip.kernels.empirical import EmpiricalKernel
from dvip.kernels.kernel import Covariances, Kernel
from dvip.kernels.rbf import RBF

__all__ = ["RBF", "Covariances", "EmpiricalKernel", "Kernel"]
