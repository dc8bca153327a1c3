"""Samples of a posterior as a model: coefficients and parameters of each, the rest once.

A sample is a network whose layers are known, so that it is one function, with a likelihood of its
own. Whoever predicts asks a sampled model as it asks a trained one.
"""

from typing import Any, Generic, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from dvip.distributions import Predictive
from dvip.likelihoods import Classification, Likelihood, Regression
from dvip.network import DeepNetwork, Stage
from dvip.parameters import combine

__all__ = ["ChosenSamples", "SampledModel", "SampledNetwork", "spread"]

LikelihoodType = TypeVar("LikelihoodType", bound=Likelihood, covariant=True)


class ChosenSamples(NamedTuple):
    """Which of the samples a prediction is made of: what is random in a trained network."""

    indices: Int[Array, " samples"]

    @property
    def num_samples(self) -> int:
        """How many they are."""
        return len(self.indices)


def spread(number: int, num_samples: int) -> Int[np.ndarray, " chosen"]:
    """That many of the samples, or all there are, at equal distances: of all chains alike."""
    chosen = min(number, num_samples)
    return ((np.arange(chosen) + 0.5) * num_samples / chosen).astype(np.int32)


class SampledNetwork(eqx.Module):
    """Networks that are known, which differ in their parameters only."""

    # In every array the first axis is that of the samples, one chain after another.
    parameters: DeepNetwork
    fixed: DeepNetwork

    @property
    def num_samples(self) -> int:
        """How many there are."""
        return len(jax.tree.leaves(self.parameters)[0])

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Those of a sample, without parameters."""
        return self.fixed.stages

    def draw_sample_noise(
        self, key: PRNGKeyArray, num_samples: int, num_rows: int = 1
    ) -> ChosenSamples:
        """Samples at equal distances; nothing is random about them."""
        del key, num_rows
        return ChosenSamples(jnp.asarray(spread(num_samples, self.num_samples)))

    def propagate(
        self, inputs: Float[Array, "inputs batch"], noise: ChosenSamples
    ) -> tuple[Float[Array, "units samples batch"], Float[Array, "units samples batch"]]:
        """The units of each chosen sample, without a variance."""
        values = jax.vmap(lambda function: self.evaluate(function, inputs), out_axes=1)(
            _at(self.parameters, noise.indices)
        )
        return values, jnp.zeros_like(values)

    def draw_functions(self, key: PRNGKeyArray, num_functions: int) -> PyTree[Array]:
        """Samples in random order, none twice before all were there."""
        rounds = -(-num_functions // self.num_samples)
        orders = [
            jax.random.permutation(jax.random.fold_in(key, number), self.num_samples)
            for number in range(rounds)
        ]
        return _at(self.parameters, jnp.concatenate(orders)[:num_functions])

    def evaluate(
        self, function: DeepNetwork, inputs: Float[Array, "inputs batch"]
    ) -> Float[Array, "units batch"]:
        """The units of a sample, given by its parameters."""
        return combine(function, self.fixed).known_values(inputs)


class SampledModel(eqx.Module, Generic[LikelihoodType]):
    """Samples of a posterior, each a network that is known with its likelihood.

    `parameters` and `fixed` are those of a `DeepModel`; the former have a first axis of samples.
    """

    parameters: Any
    fixed: Any

    @property
    def network(self) -> SampledNetwork:
        """The networks of all samples."""
        return SampledNetwork(self.parameters.network, self.fixed.network)

    @property
    def likelihood(self) -> LikelihoodType:
        """That of the first sample: for what does not depend on its parameters."""
        return combine(_at(self.parameters.likelihood, 0), self.fixed.likelihood)

    @property
    def num_samples(self) -> int:
        """How many there are."""
        return self.network.num_samples

    def predictive(
        self,
        mean: Float[np.ndarray, "rows units samples"],
        variance: Float[np.ndarray, "rows units samples"],
        offset: Float[np.ndarray, " outputs"],
        scale: Float[np.ndarray, " outputs"],
        **known: Any,
    ) -> Predictive:
        """The distribution of y, from the moments of samples at equal distances."""
        chosen = spread(mean.shape[-1], self.num_samples)
        parameters = _at(self.parameters.likelihood, chosen)
        likelihood: Any = self.likelihood
        assert isinstance(likelihood, Regression)  # only these have predictive distributions
        if likelihood.takes_samples or not jax.tree.leaves(parameters):
            last = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, -1), parameters)
            joint = combine(last, self.fixed.likelihood)
            return joint.predictive(mean, variance, offset, scale, **known)
        likelihoods = [
            combine(_at(parameters, index), self.fixed.likelihood) for index in range(len(chosen))
        ]
        return Predictive.mixture(
            [
                each.predictive(mean[..., [index]], variance[..., [index]], offset, scale, **known)
                for index, each in enumerate(likelihoods)
            ]
        )

    def class_probabilities(
        self, inputs: Float[Array, "inputs batch"], noise: ChosenSamples
    ) -> Float[Array, "classes batch"]:
        """p(y = c) for each class c, the mean over the chosen samples."""

        def of_sample(parameters: Any) -> Float[Array, "classes batch"]:
            sample = combine(parameters, self.fixed)
            assert isinstance(sample.likelihood, Classification)
            values = sample.network.known_values(inputs)
            return sample.likelihood.class_probabilities(values, jnp.zeros_like(values))

        return jnp.mean(jax.vmap(of_sample)(_at(self.parameters, noise.indices)), axis=0)


def _at(tree: Any, indices: Any) -> Any:
    """Some of the samples."""
    return jax.tree.map(lambda leaf: leaf[indices], tree)
