"""What training maximises: the ELBO (Equation 7 of the paper) and the α-energy (Equation 5)."""

from typing import Generic, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, PRNGKeyArray

from dvip.likelihoods import Likelihood
from dvip.network import DeepNetwork

__all__ = ["Batch", "DeepModel", "bound"]


class Batch(NamedTuple):
    """Rows of the data, with the weight of each."""

    inputs: Float[Array, "batch inputs"]
    targets: Float[Array, "batch outputs"]
    weights: Float[Array, " batch"]


LikelihoodType = TypeVar("LikelihoodType", bound=Likelihood, covariant=True)


class DeepModel(eqx.Module, Generic[LikelihoodType]):
    """A deep prior with its posterior, and the likelihood of the data."""

    network: DeepNetwork
    likelihood: LikelihoodType


def data_fit(
    model: DeepModel, batch: Batch, key: PRNGKeyArray, alpha: float, num_samples: int
) -> Float[Array, " batch"]:
    """The data term of each row, over `num_samples` propagated samples.

    α = 0: E[log p(y | f)]. Otherwise (1/α) log E[p(y | f)^α]: the last layer is integrated
    exactly, the layers before it by a log-mean-exp over samples. With one layer there is nothing to
    sample and both are exact (up to the likelihood's quadrature).
    """
    network = model.network
    num_rows = batch.inputs.shape[0]
    shape = (sum(network.inner_widths), num_samples if network.inner_widths else 1, num_rows)
    white_noise = jax.random.normal(key, shape, batch.inputs.dtype)
    mean, variance = network.propagate(batch.inputs.T, white_noise)
    targets = batch.targets.T
    if alpha == 0:
        return jnp.mean(model.likelihood.expected_log_prob(targets, mean, variance), axis=0)
    tilted = model.likelihood.log_expected_power(targets, mean, variance, alpha)
    return (logsumexp(tilted, axis=0) - jnp.log(tilted.shape[0])) / alpha


def bound(
    model: DeepModel,
    batch: Batch,
    key: PRNGKeyArray,
    *,
    num_data: float | Float[Array, ""],
    alpha: float = 0.0,
    num_samples: int = 1,
) -> Float[Array, ""]:
    """An estimate from one batch of Σ_n data_fit_n - Σ_l KL_l - (regularisation of the priors).

    The batch stands for all `num_data` rows, so for α = 0 the estimate is unbiased. The
    regularisation is zero unless a prior asks for it; with it the bound is that of a model whose
    prior parameters are penalised, still below the log-evidence.
    """
    redraw_key, sample_key = jax.random.split(key)
    model = eqx.tree_at(lambda m: m.network, model, model.network.redraw_noise(redraw_key))
    fit = data_fit(model, batch, sample_key, alpha, num_samples)
    scale = num_data / batch.inputs.shape[0]
    cost = model.network.kl() + model.network.prior_regularisation()
    return scale * jnp.sum(batch.weights * fit) - cost
