"""Layers whose units are the outputs of a network with random weights, and the weights' prior.

Every weight has the prior N(0, σ_p²/n) with n the inputs of its sum, every bias N(0, σ_p²).
"""

import abc
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from dvip.layers import Layer, Perceptrons

__all__ = [
    "RandomNetworks",
    "in_a_row",
    "jacobian",
    "log_prior_scales",
    "started",
    "whitened",
]


def started(
    num_networks: int, widths: Sequence[int], activation: str, key: PRNGKeyArray
) -> Perceptrons:
    """Networks at a random start, with standard normal biases of hidden units."""
    return Perceptrons.create(num_networks, widths, activation=activation, bias_scale=1.0, key=key)


def log_prior_scales(network: Perceptrons, scale: float) -> Perceptrons:
    """Of each weight scale / √inputs of its sum, of each bias `scale`, in logarithms."""
    log_scales = tuple(
        jnp.full_like(weights, math.log(scale / math.sqrt(weights.shape[-1])))
        for weights in network.weights
    )
    biases = tuple(jnp.full_like(biases, math.log(scale)) for biases in network.biases)
    return Perceptrons(log_scales, biases, network.activation)


def whitened(networks: Perceptrons, prior_scale: float) -> Float[Array, "networks weights"]:
    """The weights and biases of each network over their prior scales, in a row."""
    scales = log_prior_scales(networks, prior_scale)
    ratios = jax.tree.map(lambda leaf, log_scale: leaf * jnp.exp(-log_scale), networks, scales)
    leaves = jax.tree.leaves(ratios)
    return jnp.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], axis=1)


def in_a_row(network: Perceptrons, first: int = 0) -> Float[Array, " weights"]:
    """The weights and biases of one network from the layer `first` on."""
    return ravel_pytree((network.weights[first:], network.biases[first:]))[0]


def jacobian(
    network: Perceptrons, inputs: Float[Array, "inputs batch"], first: int = 0
) -> Float[Array, "batch units weights"]:
    """The derivatives of one network's outputs by its weights, which are as in `in_a_row`."""
    flat, unravel = ravel_pytree((network.weights[first:], network.biases[first:]))

    def values(flat: Float[Array, " weights"], column: Float[Array, " inputs"]) -> Array:
        weights, biases = unravel(flat)
        whole = Perceptrons(
            (*network.weights[:first], *weights),
            (*network.biases[:first], *biases),
            network.activation,
        )
        return whole(column[:, None])[0, :, 0]

    return jax.vmap(jax.jacrev(values), in_axes=(None, 1))(flat, inputs)


class RandomNetworks(Layer):
    """The outputs of one network are the units; given its weights, nothing else is random."""

    @abc.abstractmethod
    def networks(self, sample_noise: PyTree[Array]) -> Perceptrons:
        """The networks that this noise stands for, one for each sample."""

    def conditionals(
        self, inputs: Float[Array, "inputs samples_or_1 batch"], sample_noise: PyTree[Array]
    ) -> tuple[Float[Array, "units samples batch"], Float[Array, "units samples batch"]]:
        """f(x; w) for each sample of w, and no variance."""
        networks = self.networks(sample_noise)
        shared = inputs.shape[1] == 1
        values = networks(inputs[:, 0] if shared else jnp.moveaxis(inputs, 1, 0))
        values = jnp.moveaxis(values, 0, 1)
        return values, jnp.zeros_like(values)

    def draw_function(self, key: PRNGKeyArray) -> PyTree[Array]:
        """The noise of one network."""
        return self.draw_sample_noise(key, 1)

    def evaluate(
        self, function: PyTree[Array], inputs: Float[Array, "inputs batch"]
    ) -> Float[Array, "units batch"]:
        """That network's outputs."""
        return self.networks(function)(inputs)[0]
