"""The sparse implicit process layer: an implicit posterior of the functions' values at some inputs.

u_h = f_h(Z) are the values at M inducing inputs. q(u_h) is implicit: a network turns noise into
samples of it, and KL(q(u_h) | p(u_h)) comes from a classifier of samples. f_h given u_h is
Gaussian, with moments estimated from S prior functions: those of the linear model

    f(x) = m*(x) + φ(x)ᵀ a,  a ~ N(0, I),  u = f(Z) + jitter,

with m* the mean of the S functions and φ their centred values over √(S - 1). Everything is written
for the whitened v = L⁻¹ (u - m*(Z)), where L Lᵀ is the covariance of u. Given v, a has the mean
Aᵀ v and the covariance I - Aᵀ A with A = L⁻¹ φ(Z)ᵀ. No singular value of A exceeds 1, so float32
is enough. The KL of v is that of u, and its samples are samples of u standardised by the prior's
moments, as the classifier wants them.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from dvip.layers.implicit_posterior import DensityRatio, ImplicitPosterior
from dvip.layers.layer import Layer
from dvip.linear_algebra import inverse_factors, product
from dvip.parameters import Auxiliary, Fixed
from dvip.processes import ImplicitProcess

__all__ = ["SIPLayer"]


class Inducing(NamedTuple):
    """The prior at the inducing inputs. `outputs` is 1 for a process that the units share."""

    mean: Float[Array, "outputs inducing 1"]
    jitter_scale: Float[Array, "outputs 1 1"]
    whitening: Float[Array, "outputs inducing inducing"]
    projection: Float[Array, "outputs inducing samples"]

    @classmethod
    def of(
        cls,
        prior_mean: Float[Array, "outputs inducing"],
        features: Float[Array, "outputs samples inducing"],
    ) -> "Inducing":
        """L⁻¹ and A from m*(Z) and φ(Z)."""
        transposed = jnp.swapaxes(features, -1, -2)
        whitening, jitter = inverse_factors(jnp.matmul(transposed, features))
        projection = jnp.matmul(whitening, transposed)
        return cls(prior_mean[..., None], jnp.sqrt(jitter)[..., None], whitening, projection)


class SIPLayer(Layer):
    """H units that share inducing inputs; each has a posterior and classifiers of its own."""

    process: ImplicitProcess
    noise: Fixed
    inducing_inputs: Float[Array, "inputs inducing"]
    posterior: ImplicitPosterior
    classifiers: Auxiliary  # around a DensityRatio
    num_prior_samples: int = eqx.field(static=True)
    fresh_noise: bool = eqx.field(static=True)

    @classmethod
    @eqx.filter_jit
    def create(
        cls,
        process: ImplicitProcess,
        inducing_inputs: Float[Array, "inputs inducing"],
        num_units: int,
        num_prior_samples: int,
        *,
        q_scale: float,
        fresh_noise: bool = False,
        key: PRNGKeyArray,
    ) -> "SIPLayer":
        """A layer at its starting point: a random q(v) of about that scale around zero."""
        num_inputs, num_inducing = inducing_inputs.shape
        process_key, noise_key, posterior_key, classifier_key = jax.random.split(key, 4)
        process = process.initialise(num_inputs, process_key)
        return cls(
            process=process,
            noise=Fixed(process.draw_noise(noise_key, num_prior_samples)),
            inducing_inputs=inducing_inputs,
            posterior=ImplicitPosterior.create(num_units, num_inducing, q_scale, posterior_key),
            classifiers=Auxiliary(
                DensityRatio.create(num_units, num_inducing, q_scale, classifier_key)
            ),
            num_prior_samples=num_prior_samples,
            fresh_noise=fresh_noise,
        )

    def features(
        self, inputs: Float[Array, "inputs batch"]
    ) -> tuple[Float[Array, "outputs batch"], Float[Array, "outputs samples batch"]]:
        """The prior mean m*(x) and the features φ(x); `outputs` is 1 for a shared process."""
        prior_samples = self._prior_values(self.noise.value, inputs)
        prior_mean = jnp.mean(prior_samples, axis=1)
        scale = jnp.sqrt(self.num_prior_samples - 1)
        return prior_mean, (prior_samples - prior_mean[:, None]) / scale

    def _prior_values(
        self, noise: PyTree[Array], inputs: Float[Array, "inputs batch"]
    ) -> Float[Array, "outputs samples batch"]:
        values = self.process(noise, inputs)
        return values.reshape(-1, *values.shape[-2:])

    def draw_sample_noise(self, key: PRNGKeyArray, num_samples: int) -> PyTree[Array]:
        """The noise that becomes u."""
        return self.posterior.draw_noise(key, num_samples)

    def conditionals(
        self, inputs: Float[Array, "inputs samples_or_1 batch"], sample_noise: PyTree[Array]
    ) -> tuple[Float[Array, "units samples batch"], Float[Array, "units samples batch"]]:
        """m* + (A φ)ᵀ v and φᵀ φ - ‖A φ‖²."""
        num_columns = inputs.shape[1] * inputs.shape[2]
        columns = inputs.reshape(inputs.shape[0], num_columns)
        # One call of the process serves both: its functions are the same at both.
        prior_mean, features = self.features(jnp.hstack([columns, self.inducing_inputs]))
        inducing = Inducing.of(prior_mean[:, num_columns:], features[..., num_columns:])
        prior_mean, features = prior_mean[:, :num_columns], features[..., :num_columns]
        projected = product(inducing.projection, features)
        explained = jnp.sum(jnp.square(projected), axis=1)
        # A difference of near numbers, where an input is near an inducing one.
        variance = jnp.maximum(jnp.sum(jnp.square(features), axis=1) - explained, 0.0)

        whitened = self.posterior(sample_noise)
        by_sample = (-1, *inputs.shape[1:])
        if inputs.shape[1] == 1:  # the same inputs in all samples: a product
            mean = jnp.matmul(jnp.swapaxes(whitened, -1, -2), projected)
        else:
            projected = projected.reshape(*projected.shape[:2], *inputs.shape[1:])
            mean = jnp.sum(whitened[..., None] * projected, axis=1)
        mean = mean + prior_mean.reshape(by_sample)
        return mean, jnp.broadcast_to(variance.reshape(by_sample), mean.shape)

    def kl_estimate(
        self, key: PRNGKeyArray, inputs: Float[Array, "inputs batch"] | None = None
    ) -> Float[Array, ""]:
        """Σ_h KL(q(v_h) | p(v_h)) as the classifiers see it."""
        del inputs  # it has points of its own
        return self.classifiers.value.kl(self.posterior_samples(key))

    def auxiliary_loss(self, key: PRNGKeyArray) -> Float[Array, ""]:
        """That of the classifiers, of the samples that the estimate has with the same key."""
        normal_key, p_key = jax.random.split(key)
        from_q, from_p = self.posterior_samples(key), self.prior_samples(p_key)
        normal = jax.random.normal(normal_key, from_q.shape)
        return self.classifiers.value.loss(from_q, from_p, normal)

    def _num_kl_samples(self) -> int:
        """Enough to estimate covariances from."""
        return max(self.num_prior_samples, 2 * self.inducing_inputs.shape[1])

    def posterior_samples(self, key: PRNGKeyArray) -> Float[Array, "units inducing samples"]:
        """Samples of q(v)."""
        return self.posterior(self.posterior.draw_noise(key, self._num_kl_samples()))

    def prior_samples(self, key: PRNGKeyArray) -> Float[Array, "units inducing samples"]:
        """Samples of p(v): new prior functions, as a classifier could learn a hundred by heart."""
        noise_key, jitter_key = jax.random.split(key)
        noise = self.process.draw_noise(noise_key, self._num_kl_samples())
        values = jnp.swapaxes(self._prior_values(noise, self.inducing_inputs), -1, -2)
        inducing = Inducing.of(*self.features(self.inducing_inputs))
        jitter = inducing.jitter_scale * jax.random.normal(jitter_key, values.shape)
        whitened = jnp.matmul(inducing.whitening, values + jitter - inducing.mean)
        return jnp.broadcast_to(whitened, (self.posterior.num_units, *whitened.shape[1:]))

    def prior_regularisation(self) -> Float[Array, ""]:
        """That of the process."""
        return self.process.regularisation()

    def draw_function(self, key: PRNGKeyArray) -> PyTree[Array]:
        """Coefficients a_h given u_h ~ q(u_h), for each unit.

        A draw of a and of the jitter from the prior makes a v of its own; what it lacks of the v
        from q is added to a, times Aᵀ. This has the moments of a given v, exactly.
        """
        q_key, prior_key, jitter_key = jax.random.split(key, 3)
        whitened = self.posterior(self.posterior.draw_noise(q_key, 1))
        inducing = Inducing.of(*self.features(self.inducing_inputs))
        num_units, num_inducing, _ = whitened.shape
        prior = jax.random.normal(prior_key, (num_units, self.num_prior_samples, 1))
        white = jax.random.normal(jitter_key, (num_units, num_inducing, 1))
        jitter = jnp.matmul(inducing.whitening, inducing.jitter_scale * white)
        missing = whitened - jnp.matmul(inducing.projection, prior) - jitter
        return (prior + jnp.matmul(jnp.swapaxes(inducing.projection, -1, -2), missing))[..., 0]

    def evaluate(
        self, function: PyTree[Array], inputs: Float[Array, "inputs batch"]
    ) -> Float[Array, "units batch"]:
        """φ(x)ᵀ a_h + m*(x)."""
        prior_mean, features = self.features(inputs)
        return jnp.matmul(function[:, None], features)[:, 0] + prior_mean

    def redraw_noise(self, key: PRNGKeyArray) -> "SIPLayer":
        """New prior functions, where the prior noise is not fixed for the training."""
        if not self.fresh_noise:
            return self
        noise = Fixed(self.process.draw_noise(key, self.num_prior_samples))
        return eqx.tree_at(lambda layer: layer.noise, self, noise)
