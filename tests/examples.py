"""Small processes, posteriors and data that several test modules use."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray

from dvip import BayesianNeuralNetwork, ImplicitProcess, Predictive
from dvip.kernels import RBF, EmpiricalKernel, Kernel
from dvip.layers import ImplicitGPLayer, SampledGPLayer, SIPLayer, SparseGPLayer, VIPLayer
from dvip.network import DeepNetwork, build_network
from dvip.parameters import Fixed, combine, split_trainable

SMALL_NETWORK = BayesianNeuralNetwork(hidden=(4,))

# Settings of an estimator that trains in well under a second, once compiled.
TINY: dict[str, Any] = dict(
    inference="vi",
    n_prior_samples=10,
    prior=BayesianNeuralNetwork(hidden=(8,)),
    max_iter=200,
    batch_size=16,
    learning_rate=0.05,
    n_predictive_samples=9,
)
TINY_DEEP_GP: dict[str, Any] = dict(
    n_inducing=10, max_iter=200, batch_size=16, learning_rate=0.05, n_predictive_samples=9
)

TINY_SIP: dict[str, Any] = dict(
    n_inducing=8,
    n_prior_samples=20,
    prior=SMALL_NETWORK,
    max_iter=200,
    batch_size=16,
    n_training_samples=5,
    n_predictive_samples=9,
)


class RandomWaves(ImplicitProcess):
    """A user's own process: sums of cosine waves, with a learned wavelength and height."""

    num_waves: int = eqx.field(static=True, default=8)
    num_inputs: int = eqx.field(static=True, default=0)
    log_length: Float[Array, ""] | None = None
    log_height: Float[Array, ""] | None = None

    def initialise(self, num_inputs: int, key: PRNGKeyArray) -> "RandomWaves":
        return RandomWaves(self.num_waves, num_inputs, jnp.zeros(()), jnp.zeros(()))

    def draw_noise(self, key: PRNGKeyArray, num_samples: int) -> tuple[Array, Array, Array]:
        directions, heights, phases = jax.random.split(key, 3)
        return (
            jax.random.normal(directions, (num_samples, self.num_waves, self.num_inputs)),
            jax.random.normal(heights, (num_samples, self.num_waves, 1)),
            jax.random.uniform(phases, (num_samples, self.num_waves, 1), maxval=2 * jnp.pi),
        )

    def __call__(
        self, noise: tuple[Array, Array, Array], inputs: Float[Array, "inputs batch"]
    ) -> Float[Array, "samples batch"]:
        directions, heights, phases = noise
        waves = jnp.cos(directions @ inputs * jnp.exp(-self.log_length) + phases)
        scale = jnp.exp(self.log_height) * np.sqrt(2 / self.num_waves)
        return scale * jnp.sum(heights * waves, axis=1)


class Recording(ImplicitProcess):
    """A process that notes the shapes of the inputs that it is called with."""

    shapes: tuple = eqx.field(static=True)
    process: ImplicitProcess

    @classmethod
    def around(cls, process: ImplicitProcess) -> tuple["Recording", list[tuple[int, ...]]]:
        shapes: list[tuple[int, ...]] = []
        return cls((_SameAs(shapes),), process), shapes

    def initialise(self, num_inputs, key):
        return Recording(self.shapes, self.process.initialise(num_inputs, key))

    def draw_noise(self, key, num_samples):
        return self.process.draw_noise(key, num_samples)

    def __call__(self, noise, inputs):
        self.shapes[0].value.append(inputs.shape)
        return self.process(noise, inputs)


class _SameAs:
    """A mutable value that is equal to itself only, so that it can be a static field."""

    def __init__(self, value: Any):
        self.value = value


def random_key(seed: int) -> PRNGKeyArray:
    """A key of the kind that compiles fastest."""
    return jax.random.key(seed, impl="unsafe_rbg")


@eqx.filter_jit
def started(process: ImplicitProcess, num_inputs: int, seed: int = 0) -> ImplicitProcess:
    """The process for so many inputs, where it starts: one program, as all that is drawn below."""
    return process.initialise(num_inputs, random_key(seed))


@eqx.filter_jit
def noise_of(process: ImplicitProcess, num_samples: int, seed: int = 1) -> Any:
    """The noise of some of its functions."""
    return process.draw_noise(random_key(seed), num_samples)


@eqx.filter_jit
def values_of(process: ImplicitProcess, noise: Any, inputs: Any) -> Array:
    """The functions of that noise at inputs x batch."""
    return process(noise, jnp.asarray(inputs))


def perturbed(module: Any, seed: int = 0, size: float = 0.4) -> Any:
    """The module with Gaussian noise on every trained array."""
    trained, rest = split_trainable(module)
    random = np.random.default_rng(seed)

    def moved(leaf: Array) -> Array:  # in NumPy, which need not be compiled
        return jnp.asarray(np.asarray(leaf) + size * random.normal(size=leaf.shape), leaf.dtype)

    return combine(jax.tree.map(moved, trained), rest)


def make_layer(
    process: ImplicitProcess, num_inputs: int = 3, num_units: int = 2, seed: int = 0, **options: Any
) -> VIPLayer:
    """A layer with six prior samples, its parameters and posterior away from the start."""
    options = {"q_scale": 0.7, **options}
    key = random_key(seed)
    return perturbed(VIPLayer.create(process, num_inputs, num_units, 6, key=key, **options), seed)


def make_sparse_layer(
    kernel: Kernel, num_inputs: int = 3, num_units: int = 2, seed: int = 0
) -> SparseGPLayer:
    """A layer with six inducing points, its parameters and posterior away from the start."""
    inputs = np.random.default_rng(seed).normal(size=(20, num_inputs))
    return perturbed(SparseGPLayer.create(kernel, inputs, num_units, 6, q_scale=0.7), seed)


def rbf_kernel(num_inputs: int = 3) -> RBF:
    """A kernel whose draws have few waves, so that many can be drawn."""
    kernel = RBF.create(num_inputs, variance=1.5, lengthscale=1.3)
    return RBF(kernel.log_variance, kernel.log_lengthscales, num_frequencies=8)


def empirical_kernel(process: ImplicitProcess, **options: Any) -> EmpiricalKernel:
    """A kernel from nine prior functions of three inputs."""
    return EmpiricalKernel.create(process, 3, 9, key=random_key(0), **options)


def make_sip_layer(
    process: ImplicitProcess, num_inputs: int = 3, num_units: int = 2, seed: int = 0, **options: Any
) -> SIPLayer:
    """A layer with five inducing inputs and nine prior samples, away from its starting point."""
    inducing = np.random.default_rng(seed).normal(size=(num_inputs, 5))
    key = random_key(seed)
    layer = SIPLayer.create(
        process, jnp.asarray(inducing), num_units, 9, q_scale=1.0, key=key, **options
    )
    return perturbed(layer, seed, 0.1)


def make_implicit_gp_layer(num_inputs: int = 3, num_units: int = 2) -> ImplicitGPLayer:
    """A layer with five inducing points, away from its starting point."""
    inputs = np.random.default_rng(0).normal(size=(20, num_inputs))
    key, kernel = random_key(0), rbf_kernel(num_inputs)
    layer = ImplicitGPLayer.create(kernel, inputs, num_units, 5, q_scale=1.0, key=key)
    return perturbed(layer, 0, 0.1)


def make_sampled_gp_layer(num_inputs: int = 3, num_units: int = 2) -> SampledGPLayer:
    """A layer with seven samples at five inducing points."""
    random = np.random.default_rng(0)
    inputs, kernel = random.normal(size=(20, num_inputs)), rbf_kernel(num_inputs)
    layer = perturbed(SampledGPLayer.create(kernel, inputs, num_units, 5, 7), 0, 0.1)
    samples = Fixed(jnp.asarray(random.normal(size=(7, num_units, 5))))
    return eqx.tree_at(lambda layer: layer.samples, layer, samples)


def make_network(
    inputs: np.ndarray,
    widths: tuple[int, ...],
    propagate_inputs: bool | tuple[bool, ...] = True,
    process: ImplicitProcess = SMALL_NETWORK,
    seed: int = 0,
) -> DeepNetwork:
    """A network of layers with six prior samples, away from its starting point.

    Its inner noise is large, so that it matters.
    """

    def layer(index: int, inputs: np.ndarray, num_units: int, key: PRNGKeyArray) -> VIPLayer:
        return VIPLayer.create(process, inputs.shape[1], num_units, 6, q_scale=0.5, key=key)

    if isinstance(propagate_inputs, bool):
        propagate_inputs = (propagate_inputs,) * len(widths)
    network = build_network(inputs, widths, layer, propagate_inputs, seed)
    network = eqx.tree_at(
        lambda net: [stage.log_inner_noise for stage in net.stages[:-1]],
        network,
        [jnp.full_like(stage.log_inner_noise, -1.0) for stage in network.stages[:-1]],
    )
    return perturbed(network, seed + 1, 0.3)


def brute_force_samples(
    network: DeepNetwork, inputs: np.ndarray, num_samples: int, seed: int
) -> np.ndarray:
    """f^L, units x samples, at one input: coefficients and inner noise drawn for each sample."""
    random = np.random.default_rng(seed)
    values = np.repeat(inputs, num_samples, axis=1)
    for stage in network.stages:
        layer = stage.layer
        prior_mean, features = numpy_features(layer, values)
        white = random.normal(size=(num_samples, *layer.q_mean.shape, 1))
        coefficients = np.asarray(layer.q_mean) + (np.asarray(layer.q_factor) @ white)[..., 0]
        function = np.einsum("nhs,hsn->hn", coefficients, features) + prior_mean
        if stage.log_inner_noise is not None:
            std = np.exp(0.5 * np.asarray(stage.log_inner_noise))[:, None]
            function = function + std * random.normal(size=function.shape)
        if stage.propagation is not None:
            function = function + np.asarray(stage.propagation.value) @ values
        values = function
    return values


def with_posterior(layer: VIPLayer, mean: np.ndarray, factor: np.ndarray) -> VIPLayer:
    """The layer with q(a_h) = N(mean_h, factor_h factor_hᵀ), however its parameters express it."""
    trained, rest = split_trainable(layer)
    posterior = eqx.tree_at(lambda part: part.process, trained, None)
    rest = combine(rest, eqx.tree_at(lambda part: part.process, _nothing(trained), trained.process))
    flat, unravel = ravel_pytree(posterior)

    def moments(flat: Array) -> Array:
        changed = combine(unravel(flat), rest)
        return jnp.concatenate([changed.q_mean.ravel(), changed.q_factor.ravel()])

    wanted = np.concatenate([mean.ravel(), factor.ravel()])
    jacobian = jax.jit(jax.jacrev(moments))
    for _ in range(50):  # Newton's method
        error = wanted - np.asarray(moments(flat))
        if np.abs(error).max() < 1e-14:
            break
        flat = flat + np.linalg.lstsq(np.asarray(jacobian(flat)), error)[0]
    np.testing.assert_allclose(moments(flat), wanted, atol=1e-13)
    return combine(unravel(flat), rest)


def _nothing(tree: Any) -> Any:
    return jax.tree.map(lambda _: None, tree)


def numpy_features(layer: VIPLayer, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """m*(x), units x batch, and φ(x), units x samples x batch, from the prior samples."""
    samples = np.asarray(layer.process(layer.noise.value, jnp.asarray(inputs)))
    num_units = layer.q_mean.shape[0]
    samples = np.broadcast_to(samples, (num_units, *samples.shape[-2:]))
    mean = samples.mean(axis=1)
    return mean, (samples - mean[:, None]) / np.sqrt(samples.shape[1])


def assert_gradient(
    function: Callable[[Any], Array], argument: Any, seed: int = 0, rtol: float = 1e-5
) -> Any:
    """The gradient, after comparing it along random directions with central differences."""
    trained, rest = eqx.partition(argument, eqx.is_inexact_array)
    flat, unravel = ravel_pytree(trained)

    def value(flat: Array) -> Array:
        return function(combine(unravel(flat), rest))

    value_and_gradient = jax.jit(jax.value_and_grad(value))
    gradient = np.asarray(value_and_gradient(flat)[1])
    step = 1e-5
    for direction in np.random.default_rng(seed).normal(size=(3, *flat.shape)):
        up, down = (float(value_and_gradient(flat + s * step * direction)[0]) for s in (1, -1))
        np.testing.assert_allclose(
            gradient @ direction, (up - down) / (2 * step), rtol=rtol, atol=0.1 * rtol
        )
    return unravel(jnp.asarray(gradient))


def numbers_of(mixture: Predictive) -> tuple[np.ndarray, ...]:
    """What a mixture tells, but for draws."""
    y = 4.3
    quantities = (mixture.mean, mixture.std, *mixture.variance_parts(), mixture.log_prob(y))
    return (*quantities, mixture.cdf(y), mixture.quantile(0.3), mixture.crps(y))


def regression_data(
    num_rows: int = 60, num_inputs: int = 3, num_targets: int | None = None, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """A smooth function with noise; on odd scales, which estimators are to take care of."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(num_rows, num_inputs))
    shifts = np.arange(num_targets or 1)
    noise = 0.1 * random.normal(size=(num_rows, len(shifts)))
    y = np.sin(1.5 * X[:, :1] + shifts) + 0.5 * X[:, -1:] + noise
    y = 100 + 30 * y
    return 5 + 2 * X, y if num_targets else y[:, 0]
