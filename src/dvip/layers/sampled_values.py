"""The sparse GP layer whose values at its inducing points are samples of their posterior.

Given the whitened values v_h (`sparse_gp.py`), f_h(x) ~ N(m + φᵀ v_h, k(x, x) - φᵀφ). A posterior
of all layers' values together is a list of samples here: the s-th of one layer belongs to the s-th
of the others. While they are sampled, the list has one entry.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from dvip.kernels import Kernel
from dvip.layers.sparse_gp import InducingPointLayer, initial_inducing_points
from dvip.parameters import Fixed

__all__ = ["SampledGPLayer"]


class SampledGPLayer(InducingPointLayer):
    """H units with common inducing points and, for each, samples of the values there."""

    samples: Fixed  # samples x units x inducing

    @classmethod
    def create(
        cls,
        kernel: Kernel,
        inputs: Float[np.ndarray, "rows inputs"],
        num_units: int,
        num_inducing: int,
        num_samples: int,
    ) -> "SampledGPLayer":
        """Z amid the inputs; all values are zero."""
        return cls(
            kernel,
            jnp.asarray(initial_inducing_points(inputs, num_inducing)),
            Fixed(jnp.zeros((num_samples, num_units, num_inducing))),
        )

    def draw_sample_noise(self, key: PRNGKeyArray, num_samples: int) -> Int[Array, " samples"]:
        """Which of the samples: at equal distances, the same in all layers."""
        del key
        places = (np.arange(num_samples) + 0.5) * len(self.samples.value) / num_samples
        return jnp.asarray(places.astype(np.int32))

    def conditionals(
        self, inputs: Float[Array, "inputs samples_or_1 batch"], sample_noise: PyTree[Array]
    ) -> tuple[Float[Array, "units samples batch"], Float[Array, "units samples batch"]]:
        """Those given the chosen samples of v."""
        return self.given(jnp.moveaxis(self.samples.value[sample_noise], 0, -1), inputs)

    def kl_estimate(
        self, key: PRNGKeyArray, inputs: Float[Array, "inputs batch"] | None = None
    ) -> Float[Array, ""]:
        """-log N(v | 0, I) but for a constant, the mean over samples: what a density loses."""
        del key, inputs
        return 0.5 * jnp.sum(jnp.square(self.samples.value)) / len(self.samples.value)

    def draw_function(self, key: PRNGKeyArray) -> PyTree[Array]:
        """A function given one of the samples."""
        return self.draw_with_others(key, jax.random.fold_in(key, 1))

    def draw_with_others(self, key: PRNGKeyArray, shared_key: PRNGKeyArray) -> PyTree[Array]:
        """A function given the sample that the other layers take, too."""
        prior_key, jitter_key = jax.random.split(key)
        index = jax.random.randint(shared_key, (), 0, len(self.samples.value))
        return self.function_given(self.samples.value[index], prior_key, jitter_key)
