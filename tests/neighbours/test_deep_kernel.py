"""Deep kernels: against an exact Gaussian process of the network's features."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples import perturbed, random_key
from scipy.stats import norm
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF as ExactRBF

from dvip import DeepKernelClassifier, DeepKernelRegressor
from dvip.batches import Batch
from dvip.conditioning import conditioned
from dvip.likelihoods.gaussian import Gaussian
from dvip.neighbours.deep_kernel import DeepKernelLayer
from dvip.network import DeepNetwork, Stage
from dvip.objectives import DeepModel, bound

random = np.random.default_rng(0)
X = random.normal(size=(15, 3))
Y = np.sin(X[:, :1]) + 0.1 * random.normal(size=(15, 1))
NEW = random.normal(size=(7, 3))


@pytest.fixture(scope="module")
def model(double):
    """At its start, with all rows as inducing points."""
    layer = DeepKernelLayer.create((3, 6, 2), "tanh", X, 1, len(X), 0.5, random_key(0))
    return DeepModel(DeepNetwork((Stage(layer, 1),)), Gaussian().initialise(1))


def numpy_features(layer, rows):
    first, second = (np.asarray(weights[0]) for weights in layer.network.weights)
    return (second @ np.tanh(first @ rows.T)).T


def test_rows_taken_in_at_the_start_make_the_exact_process(model):
    noise = model.network.draw_sample_noise(random_key(1), 1)
    rows = Batch(X, Y, np.ones(len(X)))
    layer = model.network.stages[0].layer
    variance = float(model.likelihood.variance[0])
    taught = conditioned(model, rows, noise).network.stages[0].layer
    exact = GaussianProcessRegressor(ExactRBF(np.sqrt(2)), alpha=variance, optimizer=None)
    exact.fit(numpy_features(layer, X), Y[:, 0])
    mean, std = exact.predict(numpy_features(layer, NEW), return_std=True)
    found, spread = eqx.filter_jit(type(taught).marginals)(taught, jnp.asarray(NEW.T))
    np.testing.assert_allclose(found[0], mean, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(spread[0], std**2, rtol=1e-4, atol=1e-5)


def test_the_bound_reaches_the_network(model):
    rows = Batch(*map(jnp.asarray, (X, Y, np.ones(len(X)))))
    noise = model.network.draw_sample_noise(random_key(1), 1)

    def value(model):  # without what the weights themselves cost
        cost = model.network.prior_regularisation()
        return bound(model, rows, noise, random_key(2), num_data=float(len(X))) + cost

    slopes = jax.tree.leaves(
        eqx.filter_jit(eqx.filter_grad(value))(perturbed(model)).network.stages[0].layer.network
    )
    assert len(slopes) == 4
    assert all((slope != 0).any() for slope in slopes)


def test_weights_cost_what_their_prior_says(model):
    layer = perturbed(model.network.stages[0].layer)
    log_density = sum(
        norm.logpdf(array, scale=0.5 / np.sqrt(columns)).sum()
        - norm.logpdf(np.zeros(array.shape), scale=0.5 / np.sqrt(columns)).sum()
        for weights, biases in zip(layer.network.weights, layer.network.biases, strict=True)
        for array, columns in ((weights, weights.shape[-1]), (biases, 1))
    )
    np.testing.assert_allclose(layer.prior_regularisation(), -log_density)


def test_rows_can_be_taken_in_and_the_start_is_random():
    settings = dict(hidden=(5,), n_inducing=8, n_features=2, max_iter=100, batch_size=15)
    fitted = DeepKernelRegressor(**settings).fit(X, Y[:, 0])
    more = fitted.condition_on(NEW, np.full(7, 5.0))
    assert (more.predict(NEW) > fitted.predict(NEW) + 0.5).all()
    assert fitted.model_.network.stages[0].layer.process.inducing.shape == (2, 8)


@pytest.mark.parametrize("cls", [DeepKernelRegressor, DeepKernelClassifier])
@pytest.mark.parametrize("name", ["n_features", "n_inducing", "hidden"])
def test_wrong_numbers(cls, name):
    value = (0,) if name == "hidden" else 0
    with pytest.raises(ValueError, match=rf"{name}=0 must be a whole number of at least 1"):
        cls(**{name: value}).fit(X, np.arange(15) % 2)


@pytest.mark.parametrize("value", [0.0, -1, "wide"])
def test_wrong_scale_of_weights(value):
    with pytest.raises(ValueError, match=r"prior_scale=.* must be a positive number"):
        DeepKernelRegressor(prior_scale=value).fit(X, Y[:, 0])


def test_the_classifiers_text_says_its_likelihood():
    assert "robust-max for more" in DeepKernelClassifier.__doc__
