"""The deep network: layers in a stack, what is added around them, and samples sent through."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree, Shaped

from dvip.layers import KnownVIPLayer, Layer, VIPLayer
from dvip.parameters import Fixed
from dvip.runtime import random_key

__all__ = [
    "MAX_INNER_WIDTH",
    "DeepNetwork",
    "MakeLayer",
    "SampleNoise",
    "Stage",
    "build_network",
    "default_widths",
    "propagation_matrix",
]


class SampleNoise(NamedTuple):
    """All that is random in samples sent through a network."""

    # Standard normal variables of all inner units, layer by layer; one column serves every row.
    # Samples are the first axis: split into steps, they stay where they are.
    inner: Float[Array, "samples inner_units batch_or_1"]
    # The noise of each layer's own.
    layers: tuple[PyTree[Array], ...]

    @property
    def num_samples(self) -> int:
        """How many samples they are."""
        return self.inner.shape[0]

    def split(self, num_parts: int) -> "SampleNoise":
        """The samples in equal parts, along a new first axis."""
        num_samples = max(1, self.num_samples // num_parts)
        inner = self.inner.reshape(num_parts, num_samples, *self.inner.shape[1:])

        def parts(leaf: Shaped[Array, "*shape samples"]) -> Array:
            return jnp.moveaxis(leaf.reshape(*leaf.shape[:-1], num_parts, -1), -2, 0)

        return SampleNoise(inner, jax.tree.map(parts, self.layers))


class Stage(eqx.Module):
    """A layer with what the network adds to it: its input to the mean, noise to the variance."""

    layer: Layer
    num_units: int = eqx.field(static=True)
    # The mean of unit h gains row h of `propagation` times the input; None adds nothing.
    propagation: Fixed | None = None
    # log σ²_{l,h}; None in the last layer, which has no inner noise.
    log_inner_noise: Float[Array, " units"] | None = None

    def propagated(
        self, inputs: Float[Array, "inputs *shape"]
    ) -> Float[Array, "units *shape"] | float:
        """What input propagation adds to the mean."""
        if self.propagation is None:
            return 0.0
        matrix = self.propagation.value
        # (Behind the inputs of the first layer there may be what else its process reads.)
        columns = inputs[: matrix.shape[1]].reshape(matrix.shape[1], -1)
        return (matrix @ columns).reshape(-1, *inputs.shape[1:])

    def inner_noise(self) -> Float[Array, "units 1"] | float:
        """The variances σ²_{l,h}."""
        return 0.0 if self.log_inner_noise is None else jnp.exp(self.log_inner_noise)[:, None]

    # Traced once for all layers of the same shapes. (The annotations lack the options of jax.jit.)
    @eqx.filter_jit(inline=True)  # type: ignore[call-overload]
    def conditionals(
        self, inputs: Float[Array, "inputs samples_or_1 batch"], sample_noise: PyTree[Array]
    ) -> tuple[Float[Array, "units samples batch"], Float[Array, "units samples batch"]]:
        """Mean and variance of q(f^l | f^{l-1}): Equation 8 of the paper, input added."""
        mean, variance = self.layer.conditionals(inputs, sample_noise)
        noise = jnp.expand_dims(self.inner_noise(), -1)
        return mean + self.propagated(inputs), variance + noise

    def draw_function(
        self, key: PRNGKeyArray, shared_key: PRNGKeyArray
    ) -> tuple[PyTree[Array], Float[Array, "units 1"]]:
        """One draw of the units' functions and of their noise, which is constant over inputs."""
        layer_key, noise_key = jax.random.split(key)
        white = jax.random.normal(noise_key, (self.num_units, 1))
        return self.layer.draw_with_others(layer_key, shared_key), white

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
    """Stages in a row; the output of one is the input of the next."""

    stages: tuple[Stage, ...]

    @property
    def inner_widths(self) -> tuple[int, ...]:
        """The widths of all layers but the last."""
        return tuple(stage.num_units for stage in self.stages[:-1])

    def draw_sample_noise(
        self, key: PRNGKeyArray, num_samples: int, num_rows: int = 1
    ) -> SampleNoise:
        """The noise of that many samples; of one, where all samples would be the same.

        The inner noise is independent for each of `num_rows` rows, or with one the same for all.
        """
        layers = tuple(
            stage.layer.draw_sample_noise(jax.random.fold_in(key, index), num_samples)
            for index, stage in enumerate(self.stages)
        )
        differ = bool(self.inner_widths) or bool(jax.tree.leaves(layers))
        shape = (num_samples if differ else 1, sum(self.inner_widths), num_rows)
        return SampleNoise(jax.random.normal(key, shape), layers)

    def propagate(
        self, inputs: Float[Array, "inputs batch"], noise: SampleNoise
    ) -> tuple[Float[Array, "units samples batch"], Float[Array, "units samples batch"]]:
        """Mean and variance of the last layer for each propagated sample."""
        return self.stages[-1].conditionals(self.last_inputs(inputs, noise), noise.layers[-1])

    def last_inputs(
        self, inputs: Float[Array, "inputs batch"], noise: SampleNoise
    ) -> Float[Array, "last_inputs samples_or_1 batch"]:
        """What each propagated sample brings to the last layer.

        The inputs are the same in all samples, so that a first layer without noise of its own is
        evaluated once for each; its samples differ only behind it.
        """
        values = inputs[:, None]
        ends = np.cumsum(self.inner_widths)
        inner = jnp.moveaxis(noise.inner, 0, 1)
        whites = jnp.split(inner, ends[:-1]) if len(ends) else []
        for stage, white, own in zip(self.stages[:-1], whites, noise.layers[:-1], strict=True):
            mean, variance = stage.conditionals(values, own)
            values = mean + jnp.sqrt(variance) * white
        return values

    def known(self) -> "DeepNetwork":
        """The network with coefficients that are known, all zero, and without inner noise."""
        stages = []
        for stage in self.stages:
            if not isinstance(stage.layer, VIPLayer):
                raise ValueError(
                    f"A {type(stage.layer).__name__} has no coefficients that could be sampled: "
                    "use inference='vi', or leave out n_inducing."
                )
            layer = stage.layer.with_coefficients(jnp.zeros_like(stage.layer.q_mean))
            stages.append(Stage(layer, stage.num_units, stage.propagation))
        return DeepNetwork(tuple(stages))

    @property
    def known_layers(self) -> tuple[KnownVIPLayer, ...]:
        """The layers, which are all known."""
        layers = tuple(stage.layer for stage in self.stages)
        return tuple(layer for layer in layers if isinstance(layer, KnownVIPLayer))

    def known_values(self, inputs: Float[Array, "inputs batch"]) -> Float[Array, "units batch"]:
        """The last layer's units, where all layers are known."""
        values = inputs
        for stage, layer in zip(self.stages, self.known_layers, strict=True):
            values = layer.marginals(values)[0] + stage.propagated(values)
        return values

    def kl(
        self, key: PRNGKeyArray, inputs: Float[Array, "inputs batch"] | None = None
    ) -> Float[Array, ""]:
        """Σ_l KL of the layers, or their estimates; `inputs` are those of the training step."""
        keys = jax.random.split(key, len(self.stages))
        of_layers = [inputs] + [None] * (len(self.stages) - 1)
        kls = [
            stage.layer.kl_estimate(key, rows)
            for stage, key, rows in zip(self.stages, keys, of_layers, strict=True)
        ]
        return sum(kls, jnp.zeros(()))

    def auxiliary_loss(self, key: PRNGKeyArray) -> Float[Array, ""]:
        """The sum of the layers' own losses, of what the KL with the same key is estimated from."""
        keys = jax.random.split(key, len(self.stages))
        pairs = zip(self.stages, keys, strict=True)
        return sum((stage.layer.auxiliary_loss(key) for stage, key in pairs), jnp.zeros(()))

    def prior_regularisation(self) -> Float[Array, ""]:
        """What the priors of the layers cost, where they are regularised."""
        return sum((stage.layer.prior_regularisation() for stage in self.stages), jnp.zeros(()))

    def redraw_noise(self, key: PRNGKeyArray) -> "DeepNetwork":
        """The network at the next training step: layers with fresh prior noise get a new draw."""
        keys = jax.random.split(key, len(self.stages))
        layers = [
            stage.layer.redraw_noise(key) for stage, key in zip(self.stages, keys, strict=True)
        ]
        return eqx.tree_at(lambda net: [stage.layer for stage in net.stages], self, layers)

    def draw_function(self, key: PRNGKeyArray) -> list[PyTree[Array]]:
        """One whole function from the posterior: every layer's coefficients and noise."""
        keys = jax.random.split(key, len(self.stages))
        pairs = zip(self.stages, keys, strict=True)
        return [stage.draw_function(own, key) for stage, own in pairs]

    def draw_functions(self, key: PRNGKeyArray, num_functions: int) -> list[PyTree[Array]]:
        """Several of them, along a first axis."""
        return jax.vmap(self.draw_function)(jax.random.split(key, num_functions))

    def evaluate(
        self, function: list[PyTree[Array]], inputs: Float[Array, "inputs batch"]
    ) -> Float[Array, "units batch"]:
        """The drawn function at these inputs."""
        values = inputs
        for stage, stage_function in zip(self.stages, function, strict=True):
            values = stage.evaluate(stage_function, values)
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
    stages = []
    for index, num_units in enumerate(widths):
        layer = make_layer(index, inputs, num_units, random_key(seed, index, impl="rbg"))
        if index == len(widths) - 1:
            stages.append(Stage(layer, num_units))
            break
        matrix = propagation_matrix(inputs, num_units).astype(inputs.dtype)
        stages.append(
            Stage(
                layer,
                num_units,
                Fixed(jax.device_put(matrix)) if propagate_inputs[index] else None,
                jax.device_put(np.full(num_units, INITIAL_LOG_INNER_NOISE, inputs.dtype)),
            )
        )
        inputs = inputs @ matrix.T
    return DeepNetwork(tuple(stages))
