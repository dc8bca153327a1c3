"""Functional variational inference with generators, against closed forms."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples import random_key
from scipy import special, stats

from dvip import FVIRegressor
from dvip.neighbours.fitted_gp import NOISE, FittedGP
from dvip.neighbours.generators import Generator, GeneratorPosterior, LinearGenerator, grid_kl
from dvip.sum_kernel import SumKernel

INPUTS = jax.random.normal(random_key(0), (2, 6))
NUM_LATENTS = 3


def generator(seed, *, linear):
    @eqx.filter_jit
    def create(key):
        made = Generator.create(1, (2, 8, 1 + NUM_LATENTS), "tanh", key)
        return jax.tree.map(lambda leaf: leaf[0], made)

    made = create(random_key(seed))
    if not linear:
        return made
    first = made.network.weights[0].at[:, 2:].set(0.0)
    return eqx.tree_at(lambda made: made.network.weights[0], made, first)


def moments(generator, mean, scale):
    """Of the values of a generator that is linear in z."""
    places = np.vstack([np.zeros(NUM_LATENTS), np.eye(NUM_LATENTS)])
    start, *ends = np.asarray(
        eqx.filter_jit(generator)(INPUTS, jnp.asarray(places, "float32")), float
    )
    slopes = np.stack([end - start for end in ends], 1)
    noise = float(np.exp(generator.log_noise)) * np.eye(len(start))
    return start + slopes @ mean, (slopes * scale**2) @ slopes.T + noise


def gaussian_kl(q, p):
    difference, inverse = p[0] - q[0], np.linalg.inv(p[1])
    ratio = np.linalg.slogdet(p[1])[1] - np.linalg.slogdet(q[1])[1]
    trace = np.trace(inverse @ q[1])
    return 0.5 * (trace + difference @ inverse @ difference - len(difference) + ratio)


MEAN, SCALE = np.array([0.5, -1.0, 0.2]), np.array([0.3, 0.8, 1.2])


def fitted_gp():
    """A process, and the mean and covariance of its values."""
    kernel = SumKernel.usual(2)
    points = np.asarray(INPUTS, float).T
    covariance = kernel(points, points) + NOISE**2 * np.eye(len(points))
    prior = FittedGP(jnp.asarray(kernel.parameters, "float32"))
    return prior, (np.zeros(len(points)), covariance)


def linear_generator():
    """The same for a generator that is linear in z; the covariance is that of many draws of z."""
    prior = LinearGenerator.create((2, 8, 1 + NUM_LATENTS), "tanh", random_key(2))
    mean, *slopes = np.asarray(prior.network(INPUTS)[0], float)
    latents = np.random.default_rng(0).normal(size=(200_000, NUM_LATENTS))
    values = mean + latents @ np.stack(slopes) / np.sqrt(NUM_LATENTS)
    noise = float(np.exp(prior.log_noise)) + NOISE**2
    return prior, (mean, np.cov(values.T) + noise * np.eye(len(mean)))


@pytest.mark.parametrize("made", [fitted_gp, linear_generator])
def test_grid_kl_of_a_linear_generator_is_exact(made):
    prior, moments_of_prior = made()
    q = generator(1, linear=True)
    posterior = GeneratorPosterior(q, jnp.asarray(MEAN), jnp.log(jnp.asarray(SCALE)))
    exact = gaussian_kl(moments(q, MEAN, SCALE), moments_of_prior)
    estimate = jax.jit(lambda key: grid_kl(posterior, prior.log_density, INPUTS, 4_000, key))
    estimates = [float(estimate(random_key(seed))) for seed in range(4)]
    assert np.mean(estimates) == pytest.approx(exact, rel=0.05)
    values = jax.random.normal(random_key(3), (10, INPUTS.shape[1]))
    found = jax.jit(lambda values: prior.log_density(INPUTS, values))(values)
    expected = stats.multivariate_normal(*moments_of_prior).logpdf(np.asarray(values))
    np.testing.assert_allclose(found, expected, rtol=0.02)


def test_grid_kl_of_other_generators_is_an_upper_bound():
    """Of q's part, E_q[log q(f)]: densities of values of q, which is not linear in z, come from
    many samples of z."""
    q = generator(2, linear=False)
    first = q.network.weights[0].at[:, 2:].multiply(3)
    q = eqx.tree_at(lambda q: q.network.weights[0], q, first)
    draws = np.random.default_rng(5)
    latents = jnp.asarray(draws.normal(size=(20_000, NUM_LATENTS)), "float32")
    means, noise = np.asarray(eqx.filter_jit(q)(INPUTS, latents)), float(np.exp(q.log_noise))
    values = means[:1_000] + noise**0.5 * draws.normal(size=(1_000, 6))
    cross = values @ means.T
    squares = np.square(values).sum(axis=1)[:, None] + np.square(means).sum(axis=1) - 2 * cross
    logs = -0.5 * (squares / noise + 6 * np.log(2 * np.pi * noise))
    # Without the sample itself, which would count too much.
    np.fill_diagonal(logs, -np.inf)
    log_q = special.logsumexp(logs, axis=1) - np.log(len(latents) - 1)
    exact, error = log_q.mean(), log_q.std() / np.sqrt(len(log_q))
    posterior = GeneratorPosterior(q, jnp.zeros(NUM_LATENTS), jnp.zeros(NUM_LATENTS))

    def nothing(points, values):
        return jnp.zeros(len(values))

    estimate = jax.jit(lambda key: grid_kl(posterior, nothing, INPUTS, 20_000, key))
    assert exact + 3 * error < estimate(random_key(7)) < exact + 1


@pytest.mark.slow
@pytest.mark.parametrize("prior", ["linear", "bnn"])
def test_prior_generator_learns_the_process(prior):
    X = np.random.default_rng(0).normal(size=(80, 1))
    options = dict(max_iter=2_000, learning_rate=0.01, n_latents=5)
    model = FVIRegressor(prior=prior, **options).fit(X, np.sin(2 * X[:, 0]))
    imitation = model.model_.network.stages[0].layer.prior
    points = jnp.linspace(-1.5, 1.5, 5)[None]
    process = imitation.process.value
    wanted = np.cov(np.asarray(process(process.draw_noise(random_key(8), 4_000), points)).T)
    _, found = imitation.generator.value.moments(points)
    assert np.linalg.norm(found - wanted) < 0.3 * np.linalg.norm(wanted)


@pytest.mark.slow
def test_a_wave_is_not_explained_as_noise():
    random = np.random.default_rng(0)
    X = random.uniform(-2, 2, size=(60, 1))
    y = 5 + np.sin(2 * X[:, 0]) + 0.1 * random.normal(size=60)
    model = FVIRegressor(max_iter=1_500).fit(X, y)
    mean, std = model.predict(np.array([[0.5], [1.0]]), return_std=True)
    np.testing.assert_allclose(mean, 5 + np.sin([1.0, 2.0]), atol=0.2)
    assert (std < 0.4).all()


def test_parameters_that_make_no_sense():
    X, y = np.zeros((10, 1)), np.zeros(10)
    with pytest.raises(ValueError, match="n_latents=0 must be a whole number"):
        FVIRegressor(n_latents=0).fit(X, y)
    with pytest.raises(ValueError, match="give two numbers"):
        FVIRegressor(n_points=20).fit(X, y)
    with pytest.raises(ValueError, match="n_functions=0 must be a whole number"):
        FVIRegressor(n_functions=0).fit(X, y)
    with pytest.raises(ValueError, match="use another"):
        FVIRegressor(prior="conv").fit(X, y)
