"""Gaussian process priors by random features: kernels against scikit-learn's, moments, the warp."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples import noise_of, perturbed, random_key, started, values_of
from scipy.stats import kurtosis
from sklearn.gaussian_process.kernels import RBF, Matern

from dvip import GaussianProcess, WarpedGaussianProcess
from dvip.processes.gp import CONSTRUCTIONS, KERNELS, cos_sin, draw_frequencies
from dvip.runtime import precision

pytestmark = pytest.mark.usefixtures("double")

NUM_INPUTS = 3
INPUTS = np.random.default_rng(1).normal(size=(NUM_INPUTS, 12))


@pytest.mark.parametrize(("dtype", "error"), [(np.float32, 1e-6), (np.float64, 1e-14)])
def test_cosines_and_sines(dtype, error):
    turns = np.linspace(-3, 3, 100_001).astype(dtype)
    cosine, sine = map(np.asarray, jax.jit(cos_sin)(turns))
    assert cosine.dtype == sine.dtype == dtype
    angles = 2 * np.pi * turns.astype(np.float64)
    np.testing.assert_allclose(cosine, np.cos(angles), atol=error, rtol=0)
    np.testing.assert_allclose(sine, np.sin(angles), atol=error, rtol=0)


def test_slopes_of_cosines_and_sines():
    turns = np.linspace(-2, 2, 1_001)
    slopes = jax.jit(lambda turns: jax.jvp(cos_sin, (turns,), (jnp.ones(1_001),))[1])
    cosine, sine = slopes(jnp.asarray(turns))
    angles = 2 * np.pi * turns
    np.testing.assert_allclose(cosine, -2 * np.pi * np.sin(angles), atol=1e-13)
    np.testing.assert_allclose(sine, 2 * np.pi * np.cos(angles), atol=1e-13)


def exact_kernel(process, inputs):
    """The kernel of the Gaussian process that is approximated."""
    lengthscales = np.exp(np.asarray(process.log_lengthscales))
    orders = {"matern12": 0.5, "matern32": 1.5, "matern52": 2.5}
    if process.kernel == "rbf":
        kernel = RBF(lengthscales)
    else:
        kernel = Matern(lengthscales, nu=orders[process.kernel])
    return np.exp(2 * np.asarray(process.log_amplitude)) * kernel(inputs.T)


@eqx.filter_jit
def kernel_of_frequencies(process, frequencies, inputs):
    """The kernel of the functions with these frequencies: heights of one wave each, all waves."""
    features = process((frequencies, jnp.eye(2 * process.num_frequencies)), inputs)
    return features.T @ features


@eqx.filter_jit
def draw_noise(process, key):
    return process.draw_noise(key, 1)


def drawn_kernel(process, inputs=INPUTS, seed=1):
    frequencies, _ = draw_noise(process, random_key(seed))
    return np.asarray(kernel_of_frequencies(process, frequencies, jnp.asarray(inputs)))


def trained(num_inputs=NUM_INPUTS, **options):
    """A process whose length-scales differ."""
    return perturbed(started(GaussianProcess(**options), num_inputs))


@pytest.mark.parametrize(
    ("kernel", "construction"),
    [
        *((kernel, "qmc") for kernel in KERNELS),
        pytest.param("rbf", "orthogonal", marks=pytest.mark.slow),
        ("matern12", "orthogonal"),
        ("matern32", "random"),
    ],
)
def test_kernel_with_many_frequencies(kernel, construction):
    process = trained(kernel=kernel, construction=construction, num_frequencies=1024)
    exact = exact_kernel(process, INPUTS)
    # A cosine of a random frequency has a variance of at most one half; others do no worse.
    error = 4 * exact[0, 0] * np.sqrt(0.5 / 1024)
    drawn = drawn_kernel(process)
    np.testing.assert_allclose(drawn, exact, atol=error, rtol=0)
    np.testing.assert_allclose(np.diag(drawn), np.diag(exact), rtol=1e-10)  # cos² + sin² = 1
    assert exact[0, 1:].max() > 4 * error  # or nothing would be shown


@pytest.mark.parametrize("num_inputs", [1, 8])
def test_error_falls_with_the_number_of_frequencies(num_inputs):
    """And is smaller for evenly spread frequencies than for random ones."""
    x, y = np.random.default_rng(2).normal(size=(2, 100, num_inputs)) / np.sqrt(num_inputs)
    exact = np.exp(-0.5 * np.square(x - y).sum(axis=1))
    keys = jax.random.split(random_key(0), 10)

    def error(construction, num_frequencies):
        arguments = (num_frequencies, num_inputs, "rbf", construction)
        draw = jax.jit(jax.vmap(lambda key: draw_frequencies(key, *arguments)))
        kernels = np.cos((x - y) @ np.swapaxes(draw(keys), 1, 2)).mean(axis=2)
        return np.sqrt(np.mean(np.square(kernels - exact)))

    errors = {name: [error(name, m) for m in (16, 256)] for name in CONSTRUCTIONS}
    for few, many in errors.values():
        assert few > 2.5 * many  # four times, for random ones
    factor = {1: 10, 8: 1.4}[num_inputs]
    assert errors["random"][-1] > factor * errors["qmc"][-1]
    assert errors["random"][-1] > factor * errors["orthogonal"][-1]


@pytest.mark.parametrize(
    ("kernel", "construction"), [("rbf", "random"), ("rbf", "qmc"), ("matern12", "qmc")]
)
def test_the_kernel_is_right_on_average(kernel, construction):
    """Few frequencies, but many draws of them; drawn in one go, as for the units of a layer."""
    process = trained(kernel=kernel, construction=construction, num_frequencies=8)
    keys = jax.random.split(random_key(3), 4_000)

    def drawn(key):
        frequencies, _ = process.draw_noise(key, 1)
        return kernel_of_frequencies(process, frequencies, jnp.asarray(INPUTS[:, :4]))

    kernels = np.asarray(jax.jit(jax.vmap(drawn))(keys))
    deviation = kernels.mean(axis=0) - exact_kernel(process, INPUTS[:, :4])
    error = kernels.std(axis=0) / np.sqrt(len(keys))
    off_diagonal = ~np.eye(4, dtype=bool)
    assert (np.abs(deviation) < 5 * error)[off_diagonal].all()


def test_orthogonal_frequencies():
    draw = jax.jit(draw_frequencies, static_argnums=(1, 2, 3, 4))
    frequencies = np.asarray(draw(random_key(0), 10, 4, "rbf", "orthogonal"))
    products = frequencies @ frequencies.T
    for first in (0, 4, 8):
        block = products[first : first + 4, first : first + 4]
        np.testing.assert_allclose(block, np.diag(np.diag(block)), atol=1e-10)
    assert np.abs(products[:4, 4:8]).max() > 0.1
    wide = np.asarray(draw(random_key(0), 3, 200, "rbf", "orthogonal"))
    assert wide.shape == (3, 200)
    np.testing.assert_allclose(wide @ wide.T, np.diag(np.diag(wide @ wide.T)), atol=1e-8)


def test_functions_are_gaussian_with_that_kernel():
    many = 40_000
    process = trained(num_frequencies=8)
    noise = noise_of(process, many, seed=4)
    values = np.asarray(values_of(process, noise, INPUTS[:, :3]))
    covariance = drawn_kernel(process, INPUTS[:, :3], seed=4)
    variance = np.diag(covariance)
    assert (np.abs(values.mean(axis=0)) < 5 * np.sqrt(variance / many)).all()
    error = np.sqrt((np.outer(variance, variance) + covariance**2) / many)
    assert (np.abs(np.cov(values.T) - covariance) < 5 * error).all()
    assert (np.abs(kurtosis(values)) < 5 * np.sqrt(24 / many)).all()


def test_where_lengthscales_start():
    for lengthscale, expected in ((None, np.sqrt(5)), (0.7, 0.7)):
        process = GaussianProcess(lengthscale=lengthscale).initialise(5, random_key(0))
        np.testing.assert_allclose(np.exp(process.log_lengthscales), np.full(5, expected))


def test_single_precision_is_finite_and_close():
    process = trained(kernel="matern12")
    exact = exact_kernel(process, INPUTS)
    halved = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), process)
    with precision("float32"):
        process = jax.tree.map(jnp.asarray, halved)
        drawn = drawn_kernel(process, INPUTS.astype(np.float32))
    assert drawn.dtype == np.float32
    np.testing.assert_allclose(drawn, exact, atol=0.15 * exact[0, 0])


@pytest.mark.parametrize("process", [GaussianProcess, WarpedGaussianProcess])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel": "linear"}, "kernel='linear'.*matern32"),
        ({"construction": "sobol"}, "construction='sobol'.*qmc"),
        ({"num_frequencies": 0}, "num_frequencies=0"),
        ({"lengthscale": 0.0}, r"lengthscale=0\.0"),
        ({"lengthscale": float("nan")}, "lengthscale=nan"),
    ],
)
def test_bad_options(process, options, message):
    with pytest.raises(ValueError, match=message):
        process(**options)


# The warp.


def warped(**options):
    return started(WarpedGaussianProcess(num_frequencies=8, **options), 3)


def test_the_warp_is_increasing_and_starts_near_the_identity():
    grid = jnp.linspace(-6, 6, 2_001)[None]
    start, evaluated = warped().warp, eqx.filter_jit(lambda warp, grid: warp(grid))
    assert np.abs(evaluated(start, grid) - grid).max() < 0.05
    for seed in range(5):
        moved = np.asarray(evaluated(perturbed(start, seed, 1.5), grid))
        assert (np.diff(moved) > 0).all()
        assert np.abs(np.diff(moved, 2)).max() > 1e-6  # it is no line


def test_warped_functions_are_the_warp_of_the_functions():
    process = perturbed(warped(num_steps=2), 3)
    noise = noise_of(process, 4)
    inside = np.asarray(values_of(process.process, noise, INPUTS))
    heights, slopes = np.exp(process.warp.log_heights), np.exp(process.warp.log_slopes)
    expected = inside.copy()
    for height, slope, shift in zip(heights, slopes, process.warp.shifts, strict=True):
        expected += height * np.tanh(slope * (inside + float(shift)))
    np.testing.assert_allclose(values_of(process, noise, INPUTS), expected, rtol=1e-12)


def test_a_warp_has_steps():
    with pytest.raises(ValueError, match="num_steps=0"):
        WarpedGaussianProcess(num_steps=0)
