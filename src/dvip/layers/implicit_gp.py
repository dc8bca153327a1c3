"""The sparse GP layer with an implicit posterior of the values at its inducing points.

Yu et al. 2019: the whitened values v_h ~ N(0, I) of a sparse GP (`sparse_gp.py`) have a posterior
that is all samples, v_h = g(ε; ψ) of a network g fed with noise ε, so that it may have any shape,
also several modes. Given v_h,

    f_h(x) | v_h ~ N(φᵀ v_h,  k(x, x) - φᵀφ),

and the bound's KL(q(v_h) | N(0, I)) = E_q[T(v_h)] comes from a classifier whose logit is T. As the
prior is the standard normal distribution itself, T has two parts of the three that
`implicit_posterior.py` speaks of: log q / r from a classifier, and log r / n in closed form.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from dvip.kernels import Kernel
from dvip.layers.implicit_posterior import DensityRatio, ImplicitPosterior
from dvip.layers.sparse_gp import InducingPointLayer, initial_inducing_points
from dvip.parameters import Auxiliary

__all__ = ["ImplicitGPLayer"]

# Samples that the KL is estimated from, for each value: enough for their covariance.
SAMPLES_OF_VALUE = 2


class ImplicitGPLayer(InducingPointLayer):
    """H units with common inducing points; each has a posterior and a classifier of its own."""

    posterior: ImplicitPosterior
    classifiers: Auxiliary  # around a DensityRatio

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
            ImplicitPosterior.create(num_units, num_inducing, q_scale, posterior_key),
            Auxiliary(
                DensityRatio.create(
                    num_units, num_inducing, q_scale, classifier_key, normal_prior=True
                )
            ),
        )

    def draw_sample_noise(self, key: PRNGKeyArray, num_samples: int) -> PyTree[Array]:
        """The noise that becomes v."""
        return self.posterior.draw_noise(key, num_samples)

    def conditionals(
        self, inputs: Float[Array, "inputs samples_or_1 batch"], sample_noise: PyTree[Array]
    ) -> tuple[Float[Array, "units samples batch"], Float[Array, "units samples batch"]]:
        """Those given the v of each sample."""
        return self.given(self.posterior(sample_noise), inputs)

    def posterior_samples(self, key: PRNGKeyArray) -> Float[Array, "units inducing samples"]:
        """Samples of q(v), as many as the KL needs."""
        number = SAMPLES_OF_VALUE * self.inducing.shape[1]
        return self.posterior(self.posterior.draw_noise(key, number))

    def kl_estimate(
        self, key: PRNGKeyArray, inputs: Float[Array, "inputs batch"] | None = None
    ) -> Float[Array, ""]:
        """Σ_h KL(q(v_h) | N(0, I)) as the classifiers see it."""
        del inputs
        return self.classifiers.value.kl(self.posterior_samples(key))

    def auxiliary_loss(self, key: PRNGKeyArray) -> Float[Array, ""]:
        """That of the classifiers, of the samples that the estimate has with the same key."""
        from_q = self.posterior_samples(key)
        normal = jax.random.normal(jax.random.fold_in(key, 1), from_q.shape)
        return self.classifiers.value.loss(from_q, None, normal)

    def draw_function(self, key: PRNGKeyArray) -> PyTree[Array]:
        """A function given values that are drawn from q(v)."""
        prior_key, posterior_key, jitter_key = jax.random.split(key, 3)
        values = self.posterior(self.posterior.draw_noise(posterior_key, 1))[..., 0]
        return self.function_given(values, prior_key, jitter_key)
