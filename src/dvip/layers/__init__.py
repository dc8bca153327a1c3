"""Layers: a prior over functions and the approximate posterior of its units. One file each."""

from dvip.layers.implicit_gp import ImplicitGPLayer
from dvip.layers.layer import GaussianLayer, Layer, WhitenedGaussian
from dvip.layers.perceptrons import Perceptrons
from dvip.layers.random_features import RandomFeaturesLayer
from dvip.layers.sampled_values import SampledGPLayer
from dvip.layers.sip import SIPLayer
from dvip.layers.sparse_gp import SparseGPLayer
from dvip.layers.vip import KnownVIPLayer, VIPLayer

__all__ = [
    "GaussianLayer",
    "ImplicitGPLayer",
    "KnownVIPLayer",
    "Layer",
    "Perceptrons",
    "RandomFeaturesLayer",
    "SIPLayer",
    "SampledGPLayer",
    "SparseGPLayer",
    "VIPLayer",
    "WhitenedGaussian",
]
