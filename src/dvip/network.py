"""The deep network: layers in a stack, what is added around them, and samples sent through."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from dvip.layers import Layer
from dvip.parameters import Fixed

__all__ = ["Block", "DeepNetwork", "propagation_matrix"]


class Block(eqx.Module):
    """A layer with what the network adds to it: its input to the mean, noise to the variance."""

    layer: Layer
    num_units: int = eqx.field(static=True)
    # The mean of unit h gains row h of `propagation` times the input; None adds nothing.
    propagation: Fixed | None = None
    # log σ²_{l,h}; None in the last layer, which has no inner noise.
    log_inner_noise: Float[Array, " units"] | None = None

    def propagated(
        self, inputs: Float[Array, "inputs batch"]
    ) -> Float[Array, "units batch"] | float:
        """What input propagation adds to the mean."""
        return 0.0 if self.propagation is None else self.propagation.value @ inputs

    def inner_noise(self) -> Float[Array, "units 1"] | float:
        """The variances σ²_{l,h}."""
        return 0.0 if self.log_inner_noise is None else jnp.exp(self.log_inner_noise)[:, None]

    def marginals(
        self, inputs: Float[Array, "inputs batch"]
    ) -> tuple[Float[Array, "units batch"], Float[Array, "units batch"]]:
        """Mean and variance of q(f^l | f^{l-1}): Equation 8 of the paper, input added."""
        mean, variance = self.layer.marginals(inputs)
        return mean + self.propagated(inputs), variance + self.inner_noise()

    def draw_function(self, key: PRNGKeyArray) -> tuple[PyTree[Array], Float[Array, "units 1"]]:
        """One draw of the units' functions and of their noise, which is constant over inputs."""
        layer_key, noise_key = jax.random.split(key)
        white = jax.random.normal(noise_key, (self.num_units, 1))
        return self.layer.draw_function(layer_key), white

    def evaluate(
        self,
        function: tuple[PyTree[Array], Float[Array, "units 1"]],
        inputs: Float[Array, "inputs batch"],
    ) -> Float[Array, "units batch"]:
        """The drawn functions at these inputs."""
        layer_function, white = function
        noise = jnp.sqrt(self.inner_noise()) * white
        return self.layer.evaluate(layer_function, inputs) + self.propagated(inputs) + noise


class DeepNetwork(eqx.Module):
    """Blocks in a row; the output of one is the input of the next."""

    blocks: tuple[Block, ...]

    @property
    def inner_widths(self) -> tuple[int, ...]:
        """The widths of all layers but the last."""
        return tuple(block.num_units for block in self.blocks[:-1])

    def propagate(
        self,
        inputs: Float[Array, "inputs batch"],
        white_noise: Float[Array, "inner_units samples #batch"],
    ) -> tuple[Float[Array, "units samples batch"], Float[Array, "units samples batch"]]:
        """Mean and variance of the last layer for each propagated sample.

        Row by row, `white_noise` holds the standard normal variables of all inner units. The first
        layer is evaluated once for each input; samples differ only behind it.
        """
        mean, variance = (moment[:, None] for moment in self.blocks[0].marginals(inputs))
        ends = np.cumsum(self.inner_widths)
        noises = jnp.split(white_noise, ends[:-1]) if len(ends) else []
        for block, white in zip(self.blocks[1:], noises, strict=True):
            samples = mean + jnp.sqrt(variance) * white
            shape = (block.num_units, *samples.shape[1:])
            columns = samples.reshape(samples.shape[0], -1)
            mean, variance = (moment.reshape(shape) for moment in block.marginals(columns))
        return mean, variance

    def kl(self) -> Float[Array, ""]:
        """Σ_l KL of the layers."""
        return sum((block.layer.kl() for block in self.blocks), jnp.zeros(()))

    def prior_regularisation(self) -> Float[Array, ""]:
        """What the priors of the layers cost, where they are regularised."""
        return sum((block.layer.prior_regularisation() for block in self.blocks), jnp.zeros(()))

    def redraw_noise(self, key: PRNGKeyArray) -> "DeepNetwork":
        """The network at the next training step: layers with fresh prior noise get a new draw."""
        keys = jax.random.split(key, len(self.blocks))
        layers = [
            block.layer.redraw_noise(key) for block, key in zip(self.blocks, keys, strict=True)
        ]
        return eqx.tree_at(lambda net: [block.layer for block in net.blocks], self, layers)

    def draw_function(self, key: PRNGKeyArray) -> list[PyTree[Array]]:
        """One whole function from the posterior: every layer's coefficients and noise."""
        keys = jax.random.split(key, len(self.blocks))
        return [block.draw_function(key) for block, key in zip(self.blocks, keys, strict=True)]

    def evaluate(
        self, function: list[PyTree[Array]], inputs: Float[Array, "inputs batch"]
    ) -> Float[Array, "units batch"]:
        """The drawn function at these inputs."""
        values = inputs
        for block, block_function in zip(self.blocks, function, strict=True):
            values = block.evaluate(block_function, values)
        return values


def propagation_matrix(
    inputs: Float[np.ndarray, "rows inputs"], num_units: int
) -> Float[np.ndarray, "units inputs"]:
    """The matrix of input propagation to that many units.

    The identity where widths agree, padded with zeros where they grow; where they shrink, the
    leading principal directions of the inputs.
    """
    num_rows, num_inputs = inputs.shape
    if num_units >= num_inputs:
        return np.eye(num_units, num_inputs)
    centred = inputs - inputs.mean(axis=0)
    if num_rows < num_inputs:  # thousands of columns: a matrix of their squared number is too much
        _, _, directions = np.linalg.svd(centred, full_matrices=False)
        leading = np.zeros((num_units, num_inputs))  # fewer rows than units leave some at zero
        leading[: len(directions)] = directions[:num_units]
    else:
        _, directions = np.linalg.eigh(centred.T @ centred)
        leading = directions[:, ::-1][:, :num_units].T
    # An eigenvector's sign is arbitrary: make its largest entry positive, the same everywhere.
    largest = np.take_along_axis(leading, np.abs(leading).argmax(axis=1)[:, None], axis=1)
    return leading * np.sign(largest)
