"""Repulsive ensembles: kernel, and particles at rest, against what is known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples import random_key

from dvip import RepulsiveEnsembleRegressor
from dvip.batches import Batch
from dvip.layers import Perceptrons
from dvip.likelihoods.gaussian import Gaussian
from dvip.neighbours.repulsive import ParticleLayer, log_kernel_density
from dvip.network import DeepNetwork, Stage
from dvip.objectives import DeepModel, bound

random = np.random.default_rng(0)


def test_the_kernel_density_of_particles():
    points = random.normal(size=(4, 3)).astype(np.float32)
    squares = np.square(points[:, None] - points[None]).sum(axis=-1)
    width = np.median(squares[np.triu_indices(4, 1)]) / np.log(4)
    kernel = np.exp(-squares / width)
    expected = np.log(kernel.sum(axis=1))
    np.testing.assert_allclose(log_kernel_density(jnp.asarray(points)), expected, rtol=1e-5)
    # The others stand still: ∇_i log Σ_j k(g_i, g_j) = Σ_j k_ij · -2 (g_i - g_j) / h / Σ_j k_ij.
    push = -2 * (points[:, None] - points[None]) / width
    wanted = (kernel[..., None] * push).sum(axis=1) / kernel.sum(axis=1)[:, None]
    gradient = jax.grad(lambda g: log_kernel_density(g).sum())(jnp.asarray(points))
    np.testing.assert_allclose(gradient, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("repulsion", ["weights", "functions"])
def test_particles_come_to_rest_as_the_posterior(repulsion):
    """A line with a slope and an offset: blurred by the kernel, particles have its covariance."""
    num_particles, num_rows, noise, prior_scale = 60, 20, 0.5, 2.0
    x = random.normal(size=num_rows)
    x = (x - x.mean()) / x.std()
    y = 0.7 * x - 0.3 + noise * random.normal(size=num_rows)
    design = np.stack([x, np.ones(num_rows)], axis=1)
    precision = 2 * design.T @ design / noise**2 + np.eye(2) / prior_scale**2
    covariance = np.linalg.inv(precision)
    posterior_mean = 2 * covariance @ design.T @ y / noise**2

    particles = Perceptrons.create(num_particles, (1, 1), key=random_key(0))
    layer = ParticleLayer(particles, prior_scale, repulsion)
    likelihood = Gaussian(jnp.full(1, 2 * np.log(noise)))
    # The batch stands for twice as many rows.
    batch = Batch(*(jnp.asarray(part, jnp.float32) for part in (x[:, None], y[:, None], x * 0 + 1)))
    sample_noise = DeepNetwork((Stage(layer, 1),)).draw_sample_noise(
        random_key(0), 3 * num_particles
    )
    first = jax.tree.map(lambda part: part[0], sample_noise.split(3))

    def objective(particles):
        network = DeepNetwork((Stage(ParticleLayer(particles, prior_scale, repulsion), 1),))
        model = DeepModel(network, likelihood)
        return bound(model, batch, first, random_key(0), num_data=2.0 * num_rows)

    @jax.jit
    def flow(particles):
        def step(particles, _):
            gradient = jax.grad(objective)(particles)
            # The bound is a mean over particles: each follows M times its gradient.
            rate = 0.1 * num_particles * noise**2 / num_rows
            return jax.tree.map(lambda w, g: w + rate * g, particles, gradient), None

        return jax.lax.scan(step, particles, length=500)[0]

    at_rest = flow(particles)
    weights = np.stack([at_rest.weights[0][:, 0, 0], at_rest.biases[0][:, 0, 0]], axis=1)
    np.testing.assert_allclose(weights.mean(axis=0), posterior_mean, atol=0.02)
    squares = np.square(weights[:, None] - weights[None]).sum(axis=-1)
    blur = np.median(squares[np.triu_indices(num_particles, 1)]) / np.log(num_particles) / 2
    blurred = np.cov(weights.T) + blur * np.eye(2)
    np.testing.assert_allclose(np.diag(blurred), np.diag(covariance), rtol=0.12)


def test_each_step_sees_each_network_once():
    layer = ParticleLayer(Perceptrons.create(3, (2, 4, 1), key=random_key(0)), 1.0)
    noise = DeepNetwork((Stage(layer, 1),)).draw_sample_noise(random_key(0), 12).split(4)
    assert np.array_equal(noise.layers[0], np.tile(np.arange(3), (4, 1)))
    settings = RepulsiveEnsembleRegressor(n_networks=7)
    settings.seed_ = 0
    assert settings._settings(10).num_samples == 7


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (RepulsiveEnsembleRegressor(repulsion="all"), "use one of functions, weights"),
        (RepulsiveEnsembleRegressor(n_networks=1), "use more"),
    ],
)
def test_parameters_that_make_no_sense(model, words):
    with pytest.raises(ValueError, match=words):
        model.fit(np.zeros((5, 1)), np.arange(5.0))
