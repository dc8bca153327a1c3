"""Layers: a prior over functions and the approximate posterior of its units. One file each."""

from dvip.layers.layer import GaussianLayer, Layer, WhitenedGaussian
from dvip.layers.perceptrons import Perceptrons
from dvip.layers.sip import SIPLayer
from dvip.layers.sparse_gp import SparseGPLayer
from dvip.layers.vip import KnownVIPLayer, VIPLayer

__all__ = [
    "GaussianLayer",
    "KnownVIPLayer",
    "Layer",
    "Perceptrons",
    "SIPLayer",
    "SparseGPLayer",
    "VIPLayer",
    "WhitenedGaussian",
]
