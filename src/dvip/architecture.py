"""From widths to a network: which layer gets which inputs, propagation, inner noise."""

from collections.abc import Callable, Sequence

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from dvip.keys import random_key
from dvip.layers import Layer
from dvip.network import Block, DeepNetwork, propagation_matrix
from dvip.parameters import Fixed

__all__ = ["MAX_INNER_WIDTH", "MakeLayer", "build_network", "default_widths"]

# Inner layers are as wide as the inputs, up to this.
MAX_INNER_WIDTH = 30
INITIAL_LOG_INNER_NOISE = -5.0


# Makes the layer of a given place in the network, from its index, what input propagation alone
# would bring to it as inputs, its number of units, and a random key.
MakeLayer = Callable[[int, np.ndarray, int, PRNGKeyArray], Layer]


def default_widths(num_inputs: int, num_layers: int, num_outputs: int) -> tuple[int, ...]:
    """min(inputs, 30) units in every inner layer, then one unit for each output."""
    return (min(num_inputs, MAX_INNER_WIDTH),) * (num_layers - 1) + (num_outputs,)


def build_network(
    inputs: Float[np.ndarray, "rows inputs"],
    widths: Sequence[int],
    make_layer: MakeLayer,
    propagate_inputs: Sequence[bool],
    seed: int,
) -> DeepNetwork:
    """A network at its starting point. The last layer has no propagation and no inner noise."""
    blocks = []
    for index, num_units in enumerate(widths):
        layer = make_layer(index, inputs, num_units, random_key(seed, index, impl="rbg"))
        if index == len(widths) - 1:
            blocks.append(Block(layer, num_units))
            break
        matrix = propagation_matrix(inputs, num_units).astype(inputs.dtype)
        blocks.append(
            Block(
                layer,
                num_units,
                Fixed(jax.device_put(matrix)) if propagate_inputs[index] else None,
                jax.device_put(np.full(num_units, INITIAL_LOG_INNER_NOISE, inputs.dtype)),
            )
        )
        inputs = inputs @ matrix.T
    return DeepNetwork(tuple(blocks))
