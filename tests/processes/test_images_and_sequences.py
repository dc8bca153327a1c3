"""Convolutional and recurrent processes against NumPy; images and sequences in the estimators."""

import copy
import math
from typing import Any

import numpy as np
import pytest
from examples import noise_of, perturbed, random_key, started, values_of
from scipy.signal import correlate2d
from scipy.special import expit
from sklearn.datasets import load_digits
from sklearn.model_selection import cross_val_score

from dvip import (
    BayesianNeuralNetwork,
    Convolutional,
    DVIPClassifier,
    DVIPRegressor,
    Recurrent,
    load,
)
from dvip.estimators.scales import Standardiser
from dvip.processes import PerUnit
from dvip.runtime import precision

# Values.


def random_process(process, num_inputs, num_samples=3):
    process = perturbed(started(process, num_inputs))
    return process, noise_of(process, num_samples)


def entries(part, noise):
    return np.asarray(part.mean) + np.exp(np.asarray(part.log_scale)) * np.asarray(noise)


def direct_convolution(weights, biases, image, activation, border):
    """Channels x height x width: convolution, activation and pooling, one after the other."""
    if border:
        image = np.pad(image, ((0, 0), (1, 1), (1, 1)))
    maps = []
    for taps, bias in zip(weights.reshape(len(weights), len(image), 3, 3), biases, strict=True):
        both = zip(image, taps, strict=True)
        convolved = sum(correlate2d(plane, tap, mode="valid") for plane, tap in both)
        activated = activation(convolved + bias)
        height, width = activated.shape[0] // 2, activated.shape[1] // 2
        blocks = activated[: 2 * height, : 2 * width].reshape(height, 2, width, 2)
        maps.append(blocks.max(axis=(1, 3)))
    return np.array(maps)


def slowly(*case):
    """A case whose options others have together."""
    return pytest.param(*case, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("shape", "border", "options"),
    [
        ((11, 12, 2), False, {}),
        ((10, 13, 1), False, {"activation": "cos", "num_units": 2}),
        ((9, 6, 2), True, {"activation": "tanh", "bayesian_filters": True}),
        slowly((4, 5, 1), True, {"bayesian_filters": True, "num_units": 2}),
        ((12, 12, 1), True, {"padding": "same"}),
        slowly((7, 5, 3), False, {"filters": (5,)}),
    ],
    ids=str,
)
def test_convolutional_values(shape, border, options):
    activations = {"relu": lambda x: np.maximum(x, 0), "tanh": np.tanh, "cos": np.cos}
    images = np.random.default_rng(0).normal(size=(2, *shape))
    with precision("float64"):
        process, noise = random_process(
            Convolutional(**{"filters": (2, 3), **options, "image_shape": shape}), math.prod(shape)
        )
        values = np.asarray(values_of(process, noise, images.reshape(2, -1).T))
    values = values.reshape(-1, *values.shape[-2:])
    filter_noise, dense_noise = noise
    weights = entries(process.dense.weights, dense_noise[0])
    biases = entries(process.dense.biases, dense_noise[1])
    for unit, sample, row in np.ndindex(values.shape):
        features = np.moveaxis(images[row], 2, 0)
        for index, layer in enumerate(process.layers):
            parts = (layer.weights, layer.biases)
            if process.bayesian_filters:
                pairs = zip(parts, filter_noise[index], strict=True)
                parts = tuple(entries(part, white[sample]) for part, white in pairs)
            features = direct_convolution(
                np.asarray(parts[0]),
                np.asarray(parts[1]),
                features,
                activations[process.activation],
                border,
            )
        expected = weights[unit, sample] @ features.ravel() + biases[unit, sample, 0]
        np.testing.assert_allclose(values[unit, sample, row], expected, rtol=1e-10)


def test_features_of_the_papers_images():
    process = Convolutional().initialise(784, random_key(0))
    assert process.image_shape == (28, 28, 1)
    assert process.dense.weights.mean.shape == (1, 1, 200)


@pytest.mark.parametrize("constrained", [True, False])
def test_recurrent_values(constrained):
    length, channels, hidden = 5, 2, 3
    sequences = np.random.default_rng(0).normal(size=(4, length, channels))
    with precision("float64"):
        process, noise = random_process(
            Recurrent(hidden, constrained, (length, channels)), length * channels
        )
        values = np.asarray(values_of(process, noise, sequences.reshape(4, -1).T))
    for sample, row in np.ndindex(values.shape):
        (W, b), (U, d), (V, e) = (
            [entries(layer.weights, white[sample]), entries(layer.biases, white_bias[sample])[:, 0]]
            for layer, (white, white_bias) in zip(process.layers, noise, strict=True)
        )
        h = np.zeros(hidden)
        for x in sequences[row]:
            (Wz, Wr, Wc), (Uz, Ur, Uc) = np.split(W @ x + b, 3), np.split(U @ h + d, 3)
            z, r = expit(Wz + Uz), expit(Wr + Ur)
            h = z * h + (1 - z) * np.tanh(Wc + r * Uc)
        np.testing.assert_allclose(values[sample, row], (V @ h + e)[0], rtol=1e-10)


def test_units_share_filters_and_nothing_else():
    process = Convolutional().one_for_each_unit(2).initialise(64, random_key(0))
    assert process.layers[0].weights.shape == (4, 9)
    first, second = process.draw_noise(random_key(1), 50)[1][0]
    assert abs(np.corrcoef(first.ravel(), second.ravel())[0, 1]) < 0.1
    assert process.dense.weights.mean.shape[0] == 2


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Convolutional(filters=()), r"filters=\(\)"),
        (lambda: Convolutional(activation="swish"), "activation='swish'"),
        (lambda: Convolutional(padding="full"), "padding='full'"),
        (lambda: Convolutional(image_shape=(28, 28)), "height, width, channels"),
        (lambda: Convolutional(image_shape=(3, 9, 1)), r"3 x 9 x 1 are too small.*filters=\(4,\)"),
        (lambda: Convolutional(padding="valid", image_shape=(8, 8, 1)), "padding="),
        (lambda: Recurrent(hidden=0), "hidden=0"),
        (lambda: Recurrent(sequence_shape=(3,)), "length, channels"),
    ],
)
def test_bad_options(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# Estimators. One shape of images and one of sequences, so that few models are compiled.

DIGITS = load_digits(n_class=3)
IMAGES, LABELS = DIGITS.images[:200], DIGITS.target[:200]
SEQUENCES = np.random.default_rng(0).normal(size=(60, 4, 2))
NEXT = 10 * SEQUENCES[:, -1, 0] + SEQUENCES[:, -2, 1]
SETTINGS: dict[str, Any] = dict(
    n_layers=2, n_units=4, n_prior_samples=6, max_iter=200, batch_size=20, n_predictive_samples=5
)


@pytest.fixture(scope="module")
def of_images():
    return DVIPClassifier.paper(**SETTINGS, prior="conv").fit(IMAGES, LABELS)


@pytest.fixture(scope="module")
def of_sequences():
    return DVIPRegressor.paper(**SETTINGS, prior="recurrent", learning_rate=0.05).fit(
        SEQUENCES, NEXT
    )


def stages(fitted, **options):
    """The stages of the same estimator with other options, at their starting point."""
    model = copy.copy(fitted).set_params(**options)
    return model.build_model(np.zeros((5, 64), np.float32)).network.stages


def test_they_learn(of_images, of_sequences):
    assert of_images.score(IMAGES, LABELS) > 0.8
    assert of_sequences.score(SEQUENCES, NEXT) > 0.5
    assert of_images.n_features_in_ == 64
    assert of_images.input_shape_ == (8, 8)
    assert of_sequences.input_shape_ == (4, 2)


def test_only_the_first_layer_reads_them(of_images, of_sequences):
    for model, process in ((of_images, Convolutional), (of_sequences, Recurrent)):
        first, second = model.model_.network.stages
        assert type(first.layer.process) is process
        assert type(second.layer.process) is BayesianNeuralNetwork
        assert first.propagation is None
    deeper = stages(of_images, n_layers=3)
    assert [stage.propagation is None for stage in deeper] == [True, False, True]


def test_natural_and_flat_inputs_give_the_same_model(of_images, of_sequences):
    probabilities = of_images.predict_proba(IMAGES)
    for images in (IMAGES.reshape(200, 64), IMAGES[..., None], IMAGES.tolist()):
        assert np.array_equal(of_images.predict_proba(images), probabilities)
    same = DVIPClassifier.paper(**SETTINGS, prior="conv").fit(IMAGES.reshape(200, 64), LABELS)
    assert np.array_equal(same.predict_proba(IMAGES), probabilities)
    functions = of_images.sample_functions(2, random_state=0)
    assert np.array_equal(functions(IMAGES), functions(IMAGES.reshape(200, 64)))

    flat = SEQUENCES.reshape(60, 8)
    mean = of_sequences.predict(SEQUENCES)
    assert np.array_equal(of_sequences.predict(flat), mean)
    told = {**SETTINGS, "prior": Recurrent(sequence_shape=(4, 2)), "learning_rate": 0.05}
    assert np.array_equal(DVIPRegressor.paper(**told).fit(flat, NEXT).predict(SEQUENCES), mean)


@pytest.mark.slow  # folds have numbers of rows of their own, which are compiled for
def test_scikit_learns_tools_take_images():
    scores = cross_val_score(DVIPClassifier.paper(**SETTINGS, prior="conv"), IMAGES, LABELS, cv=2)
    assert (scores > 0.7).all()


def test_loaded_models_predict_bit_equally(of_images, of_sequences, tmp_path):
    for model, X in ((of_images, IMAGES), (of_sequences, SEQUENCES)):
        model.save(tmp_path / "model")
        loaded = load(tmp_path / "model")
        assert loaded.input_shape_ == model.input_shape_
        predictions = (getattr(m, "predict_proba", m.predict)(X) for m in (model, loaded))
        assert np.array_equal(*predictions)
        with pytest.raises(ValueError, match="expected"):
            loaded.predict(X[:, :3])


@pytest.mark.slow  # to compile another model
def test_a_loaded_model_has_the_options_of_its_prior(tmp_path):
    own = Convolutional(filters=(2,), activation="cos", image_shape=(8, 8, 1))
    model = DVIPClassifier.paper(**SETTINGS, prior=own).fit(IMAGES.reshape(200, 64), LABELS)
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert loaded.input_shape_ == model.input_shape_
    assert np.array_equal(loaded.predict_proba(IMAGES), model.predict_proba(IMAGES))


def test_who_shares_prior_functions(of_images):
    def processes(**options):
        return [stage.layer.process for stage in stages(of_images, **options)]

    first, second = processes()
    assert first.num_units == 4
    assert isinstance(second, BayesianNeuralNetwork)
    first, second = processes(shared_prior=True)
    assert first.num_units is None
    first, second = processes(shared_prior=(True, False))
    assert first.num_units is None
    assert isinstance(second, PerUnit)
    first, second = processes(prior="recurrent", shared_prior=False)
    assert isinstance(first, PerUnit)
    for bad in ("yes", (True,), 1):
        with pytest.raises(ValueError, match="shared_prior="):
            processes(shared_prior=bad)


def test_one_mean_and_scale_for_each_channel():
    random = np.random.default_rng(0)
    pixels = random.normal([[[1.0, -50.0]]], [[[2.0, 0.1]]], size=(30, 3, 4, 2))
    pixels[:, 0] = 0.0  # constant pixels, which are not what is scaled by
    weights = random.integers(1, 4, size=30).astype(float)
    scaler = Standardiser.fit(pixels.reshape(30, -1), weights, num_channels=2)
    repeated = np.repeat(pixels, weights.astype(int), axis=0).reshape(-1, 2)
    np.testing.assert_allclose(scaler.mean.reshape(12, 2), np.tile(repeated.mean(axis=0), (12, 1)))
    np.testing.assert_allclose(scaler.scale.reshape(12, 2), np.tile(repeated.std(axis=0), (12, 1)))

    black = Standardiser.fit(np.zeros((5, 4)), np.ones(5), num_channels=1)
    assert (black.scale == 1).all()


def test_estimators_scale_by_channel(of_images, of_sequences):
    assert len(np.unique(of_images.input_scaler_.scale)) == 1
    assert len(np.unique(of_sequences.input_scaler_.scale)) == 2


BAD_FITS = [
    ("conv", IMAGES.reshape(200, 64)[:, :60], r"60 columns.*no square.*image_shape="),
    ("conv", IMAGES.reshape(200, 2, 2, 4, 4), r"\(rows, height, width, channels\)"),
    ("conv", IMAGES[:, :3], "3 x 8 x 1 are too small"),
    (Convolutional(image_shape=(4, 16, 1)), IMAGES, "8 x 8 x 1, expected 4 x 16 x 1"),
    (Convolutional(image_shape=(9, 9, 1)), IMAGES.reshape(200, 64), "64 columns.*81 pixels"),
    (("bnn", "conv"), IMAGES.reshape(200, 64), "only the first layer"),
    ("recurrent", IMAGES[..., None], r"\(rows, length, channels\)"),
    (Recurrent(sequence_shape=(8, 4)), IMAGES, r"\(8, 8\), expected \(8, 4\)"),
    (Recurrent(sequence_shape=(8, 4)), IMAGES.reshape(200, 64), "64 columns.*32 numbers"),
    ("bnn", IMAGES, 'expected <= 2.*prior="conv".*prior="recurrent"'),
    ("conv", np.full((200, 8, 8), np.nan), "NaN"),
    ("conv", np.full((200, 8, 8), "a"), "string"),
    ("conv", IMAGES[:0], "0 sample"),
    ("conv", IMAGES[:100], "inconsistent"),
    ("conv", IMAGES[0, 0], "1D array"),
    ("conv", None, "array"),
]


@pytest.mark.parametrize(("prior", "X", "message"), BAD_FITS, ids=lambda value: str(value)[:20])
def test_bad_shapes(prior, X, message):
    with pytest.raises(ValueError, match=message) as caught:
        DVIPClassifier.paper(**SETTINGS, prior=prior).fit(X, LABELS)
    assert len(str(caught.value)) < 1_000


def test_bad_shapes_at_prediction(of_images, of_sequences):
    for X, message in (
        (IMAGES.reshape(200, 4, 16), "4 x 16 x 1, expected 8 x 8 x 1"),
        (IMAGES[:, :7], "7 x 8 x 1, expected 8 x 8 x 1"),
        (IMAGES.reshape(200, 4, 4, 4), "4 x 4 x 4, expected 8 x 8 x 1"),
        (IMAGES.reshape(200, 64)[:, :63], "63 features"),
    ):
        with pytest.raises(ValueError, match=message):
            of_images.predict(X)
    with pytest.raises(ValueError, match=r"\(5, 2\), expected \(4, 2\)"):
        of_sequences.predict(np.zeros((3, 5, 2)))
    table = DVIPRegressor.paper(**{**SETTINGS, "max_iter": 1}).fit(SEQUENCES.reshape(60, 8), NEXT)
    with pytest.raises(ValueError, match='prior="recurrent"'):
        table.predict(SEQUENCES)
