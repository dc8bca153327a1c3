"""The sparse GP layer with an implicit posterior of the values at its inducing points.

Yu et al. 2019: the whitened values v_h ~ N(0, I) of a sparse GP (`sparse_gp.py`) have a posterior
that is all samples, what a network makes of noise, so that it may have any shape. Given v_h,

    f_h(x) | v_h ~ N(φᵀ v_h,  k(x, x) - φᵀφ),

and KL(q(v_h) | N(0, I)) comes from a classifier. The posterior is a Gaussian whose noise is bent,
v_h = m_h + L_h (z + g(z)): the classifier has to tell no more than what bending did, and the rest
of the KL is in closed form (`BentGaussian` of `implicit_posterior.py`). One network bends the noise
of all units of the layer, and one classifier serves them all; both know which unit it is. No matrix
is factorised but that of the kernel.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from dvip.kernels import Kernel
from dvip.layers.implicit_posterior import BentGaussian, UnitClassifier
from dvip.layers.sparse_gp import InducingPointLayer, initial_inducing_points
from dvip.parameters import Auxiliary

__all__ = ["ImplicitGPLayer"]

# Samples of each unit that the KL is estimated from, and the classifier learns from, at a step.
NUM_KL_SAMPLES = 20


class ImplicitGPLayer(InducingPointLayer):
    """H units with common inducing points, a common bend and a common classifier."""

    posterior: BentGaussian
    classifier: Auxiliary  # around a UnitClassifier

    @classmethod
    def create(
        cls,
        kernel: Kernel,
        inputs: Float[np.ndarray, "rows inputs"],
        num_units: int,
        num_inducing: int,
        *,
        q_scale: float,
        key: PRNGKeyArray,
    ) -> "ImplicitGPLayer":
        """A layer at its starting point: a random q(v) of about that scale around zero."""
        posterior_key, classifier_key = jax.random.split(key)
        return cls(
            kernel,
            jnp.asarray(initial_inducing_points(inputs, num_inducing)),
            BentGaussian.create(num_units, num_inducing, q_scale, posterior_key),
            Auxiliary(UnitClassifier.create(num_units, num_inducing, classifier_key)),
        )

    def draw_sample_noise(self, key: PRNGKeyArray, num_samples: int) -> PyTree[Array]:
        """The noise that becomes v."""
        return self.posterior.draw_noise(key, num_samples)

    def conditionals(
        self, inputs: Float[Array, "inputs samples_or_1 batch"], sample_noise: PyTree[Array]
    ) -> tuple[Float[Array, "units samples batch"], Float[Array, "units samples batch"]]:
        """Those given the v of each sample."""
        return self.given(self.posterior(sample_noise), inputs)

    def kl_estimate(
        self, key: PRNGKeyArray, inputs: Float[Array, "inputs batch"] | None = None
    ) -> Float[Array, ""]:
        """Σ_h KL(q(v_h) | N(0, I)) as the classifier sees it."""
        del inputs
        noise = self.posterior.draw_noise(key, NUM_KL_SAMPLES)
        return self.posterior.kl(noise, self.classifier.value)

    def auxiliary_loss(self, key: PRNGKeyArray) -> Float[Array, ""]:
        """That of the classifier, of the samples that the estimate has with the same key."""
        noise = self.posterior.draw_noise(key, NUM_KL_SAMPLES)
        normal = jax.random.normal(jax.random.fold_in(key, 1), noise.shape)
        return self.classifier.value.loss(self.posterior.white(noise), normal)

    def draw_function(self, key: PRNGKeyArray) -> PyTree[Array]:
        """A function given values that are drawn from q(v)."""
        prior_key, posterior_key, jitter_key = jax.random.split(key, 3)
        values = self.posterior(self.posterior.draw_noise(posterior_key, 1))[..., 0]
        return self.function_given(values, prior_key, jitter_key)
