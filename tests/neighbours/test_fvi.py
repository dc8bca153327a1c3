"""Functional variational inference with generators, against closed forms."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples import random_key
from scipy import special, stats

from dvip import FVIRegressor
from dvip.neighbours.fvi import Generator, Posterior, grid_kl, log_density_bound

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


def test_grid_kl_of_linear_generators_is_exact():
    mean, scale = np.array([0.5, -1.0, 0.2]), np.array([0.3, 0.8, 1.2])
    q, p = (generator(seed, linear=True) for seed in (1, 2))
    posterior = Posterior(q, jnp.asarray(mean), jnp.log(jnp.asarray(scale)))
    zeros, ones = np.zeros(NUM_LATENTS), np.ones(NUM_LATENTS)
    exact = gaussian_kl(moments(q, mean, scale), moments(p, zeros, ones))
    estimate = jax.jit(lambda key: grid_kl(posterior, p, INPUTS, 2_000, key))
    estimates = [float(estimate(random_key(seed))) for seed in range(4)]
    assert np.mean(estimates) == pytest.approx(exact, rel=0.05)
    # The bound of log p(f) is log p(f) itself, for each f and whatever z is drawn.
    values = jax.random.normal(random_key(3), (10, INPUTS.shape[1]))
    bounds = jax.jit(log_density_bound)(p, INPUTS, values, random_key(4))
    expected = stats.multivariate_normal(*moments(p, zeros, ones)).logpdf(np.asarray(values))
    np.testing.assert_allclose(bounds, expected, rtol=2e-3)


def test_bounds_are_on_their_sides():
    """Of generators that are not linear, whose densities come from many samples of z."""
    p = generator(2, linear=False)
    draws = np.random.default_rng(5)
    latents = jnp.asarray(draws.normal(size=(20_000, NUM_LATENTS)), "float32")
    means, noise = np.asarray(eqx.filter_jit(p)(INPUTS, latents)), float(np.exp(p.log_noise))
    values = jnp.asarray(means[:20] + 0.3 * draws.normal(size=(20, 6)), "float32")
    squares = np.square(np.asarray(values)[:, None] - means).sum(axis=2) / noise
    logs = -0.5 * (squares + 6 * np.log(2 * np.pi * noise))
    exact = special.logsumexp(logs, axis=1) - np.log(len(latents))
    keys = jax.random.split(random_key(8), 200)
    bounds = jax.jit(jax.vmap(lambda key: log_density_bound(p, INPUTS, values, key)))(keys)
    gaps = exact - np.mean(bounds, axis=0)
    errors = np.std(bounds, axis=0) / np.sqrt(len(bounds))
    assert (gaps > -4 * errors - 0.1).all()
    assert 0 < np.median(gaps) < 1
    # The KL of q from itself is 0, its upper bound is above.
    posterior = Posterior(p, jnp.zeros(NUM_LATENTS), jnp.zeros(NUM_LATENTS))
    assert jax.jit(lambda key: grid_kl(posterior, p, INPUTS, 2_000, key))(random_key(7)) > 0


@pytest.mark.slow
def test_prior_generator_learns_the_process():
    X = np.random.default_rng(0).normal(size=(80, 1))
    options = dict(prior="linear", hidden=(10,), max_iter=1_000, learning_rate=0.02, n_latents=3)
    layer = FVIRegressor(**options).fit(X, np.sin(2 * X[:, 0])).model_.network.stages[0].layer
    generator = jax.tree.map(lambda leaf: leaf[0], layer.prior.value)
    points = jnp.linspace(-1.5, 1.5, 5)[None]
    process = layer.process.value
    wanted = np.cov(np.asarray(process(process.draw_noise(random_key(8), 4_000), points)).T)
    latents = jax.random.normal(random_key(9), (4_000, 3))
    found = np.cov(np.asarray(generator(points, latents)).T)
    assert np.linalg.norm(found - wanted) < 0.6 * np.linalg.norm(wanted)


def test_parameters_that_make_no_sense():
    X, y = np.zeros((10, 1)), np.zeros(10)
    with pytest.raises(ValueError, match="n_latents=0 must be a whole number"):
        FVIRegressor(n_latents=0).fit(X, y)
    with pytest.raises(ValueError, match="give two numbers"):
        FVIRegressor(n_points=20).fit(X, y)
    with pytest.raises(ValueError, match="use 2 or more"):
        FVIRegressor(n_functions=1).fit(X, y)
    with pytest.raises(ValueError, match="use another"):
        FVIRegressor(prior="conv").fit(X, y)
