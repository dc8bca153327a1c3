"""What training maximises: the ELBO (Equation 7 of the paper) and the α-energy (Equation 5)."""

from typing import Any, Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, PRNGKeyArray

from dvip.batches import Batch
from dvip.distributions import Predictive
from dvip.likelihoods import Classification, Likelihood, Regression
from dvip.network import DeepNetwork, SampleNoise
from dvip.parameters import constant_auxiliary, constant_but_auxiliary

__all__ = ["DeepModel", "Ensemble", "bound", "log_joint", "training_loss"]


LikelihoodType = TypeVar("LikelihoodType", bound=Likelihood, covariant=True)


class DeepModel(eqx.Module, Generic[LikelihoodType]):
    """A deep prior with its posterior, and the likelihood of the data."""

    network: DeepNetwork
    likelihood: LikelihoodType

    def predictive(
        self,
        mean: Float[np.ndarray, "rows units samples"],
        variance: Float[np.ndarray, "rows units samples"],
        offset: Float[np.ndarray, " outputs"],
        scale: Float[np.ndarray, " outputs"],
        **known: Any,
    ) -> Predictive:
        """The distribution of y, from the moments of the propagated samples."""
        assert isinstance(self.likelihood, Regression)  # only these have predictive distributions
        return self.likelihood.predictive(mean, variance, offset, scale, **known)

    def class_probabilities(
        self, inputs: Float[Array, "inputs batch"], noise: SampleNoise
    ) -> Float[Array, "classes batch"]:
        """p(y = c) for each class c, the mean over the propagated samples."""
        assert isinstance(self.likelihood, Classification)  # only these have classes
        mean, variance = self.network.propagate(inputs, noise)
        return jnp.mean(self.likelihood.class_probabilities(mean, variance), axis=1)

    def known(self) -> "DeepModel[LikelihoodType]":
        """The model with coefficients that are known, all zero: where samples start."""
        return DeepModel(self.network.known(), self.likelihood)


class Ensemble(eqx.Module, Generic[LikelihoodType]):
    """Models that were trained apart; the prediction is the mean of their distributions."""

    members: tuple[DeepModel[LikelihoodType], ...]


def data_fit(
    model: DeepModel, batch: Batch, noise: SampleNoise, alpha: float
) -> Float[Array, " batch"]:
    """The data term of each row, over the propagated samples of this noise.

    α = 0: E[log p(y | f)]. Otherwise (1/α) log E[p(y | f)^α]: the last layer, given its noise, is
    integrated exactly, all before it by a log-mean-exp over samples. Where nothing is to sample, as
    in one layer with a Gaussian posterior, both are exact (up to the likelihood's quadrature).
    """
    mean, variance = model.network.propagate(batch.inputs.T, noise)
    targets = batch.targets.T
    if alpha == 0:
        return jnp.mean(model.likelihood.expected_log_prob(targets, mean, variance), axis=0)
    tilted = model.likelihood.log_expected_power(targets, mean, variance, alpha)
    return (logsumexp(tilted, axis=0) - jnp.log(tilted.shape[0])) / alpha


def bound(
    model: DeepModel,
    batch: Batch,
    noise: SampleNoise,
    key: PRNGKeyArray,
    *,
    num_data: float | Float[Array, ""],
    alpha: float = 0.0,
    kl_weight: float | Float[Array, ""] = 1.0,
) -> Float[Array, ""]:
    """An estimate from one batch of Σ_n data_fit_n - Σ_l KL_l - (regularisation of the model).

    The batch stands for all `num_data` rows, so for α = 0 the estimate is unbiased. `noise` is that
    of the samples sent through the network, from `draw_sample_noise`; the key is for what layers
    draw besides. The regularisation is zero unless a prior or the likelihood asks for it; it only
    lowers the bound. The KL may have a weight other than 1 while a training warms up.
    """
    model, kl_key = _at_a_step(model, key)
    fit = data_fit(model, batch, noise, alpha)
    scale = num_data / batch.inputs.shape[0]
    kl = model.network.kl(kl_key, batch.inputs.T)
    cost = kl_weight * kl + model.network.prior_regularisation()
    cost = cost + model.likelihood.regularisation()
    return scale * jnp.sum(batch.weights * fit) - cost


def log_joint(model: DeepModel, rows: Batch) -> Float[Array, ""]:
    """log p(y, a, θ) of a model whose layers are known, but for a constant: what is sampled.

    Of all rows, each with its weight. The prior of the coefficients a is in it; of the parameters θ
    of priors and likelihood only what regularises them.
    """
    values = model.network.known_values(rows.inputs.T)
    fit = jnp.sum(rows.weights * model.likelihood.log_prob(rows.targets.T, values))
    cost = sum((layer.kl() for layer in model.network.known_layers), jnp.zeros(()))
    cost = cost + model.network.prior_regularisation() + model.likelihood.regularisation()
    return fit - cost


def _at_a_step(model: DeepModel, key: PRNGKeyArray) -> tuple[DeepModel, PRNGKeyArray]:
    """The model with the prior noise of a step, and the key of its KL."""
    redraw_key, kl_key = jax.random.split(key)
    network = model.network.redraw_noise(redraw_key)
    return eqx.tree_at(lambda model: model.network, model, network), kl_key


def training_loss(
    model: DeepModel,
    batch: Batch,
    noise: SampleNoise,
    key: PRNGKeyArray,
    *,
    num_data: float | Float[Array, ""],
    alpha: float = 0.0,
    kl_weight: float | Float[Array, ""] = 1.0,
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """What a step of the training descends, and the bound.

    It is minus the bound, for each row of the data, and the layers' auxiliary losses: these train
    the auxiliary parameters and nothing else, the bound everything else.
    """
    value = bound(
        constant_auxiliary(model),
        batch,
        noise,
        key,
        num_data=num_data,
        alpha=alpha,
        kl_weight=kl_weight,
    )
    same, kl_key = _at_a_step(constant_but_auxiliary(model), key)
    return -value / num_data + same.network.auxiliary_loss(kl_key), value
