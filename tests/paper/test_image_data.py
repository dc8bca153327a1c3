"""Images as published and as generated; files that are damaged or absurd."""

import gzip
from functools import partial

import numpy as np
import pytest
from data_files import check_rows, offline, rows_of, write

from dvip.data import DataError, load_split
from dvip.paper.datasets import images as generated

pytestmark = pytest.mark.usefixtures("empty_cache")


def idx(array):
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return bytes([0, 0, 8, array.ndim]) + sizes + array.astype(np.uint8).tobytes()


ABSURD = bytes([0, 0, 8, 3]) + 12 * b"\xff" + bytes(100)


@pytest.fixture
def mnist(folder, random):
    arrays = {
        "train-images-idx3-ubyte": random.integers(0, 256, (5, 28, 28)),
        "train-labels-idx1-ubyte": np.array([3, 1, 4, 1, 5]),
        "t10k-images-idx3-ubyte": random.integers(0, 256, (2, 28, 28)),
        "t10k-labels-idx1-ubyte": np.array([9, 0]),
    }
    for name, array in arrays.items():
        write(folder / f"mnist/{name}.gz", gzip.compress(idx(array)))
    return arrays


def test_mnist(folder, mnist):
    train, labels, test, test_labels = mnist.values()
    # One of the files is there unpacked.
    packed = folder / "mnist/t10k-images-idx3-ubyte.gz"
    write(packed.with_suffix(""), gzip.decompress(packed.read_bytes()))
    packed.unlink()
    split = load_split("mnist", 7, folder)
    np.testing.assert_allclose(split.inputs, train.reshape(5, 784) / 255, rtol=1e-6)
    np.testing.assert_allclose(split.test_inputs, test.reshape(2, 784) / 255, rtol=1e-6)
    assert split.targets.tolist() == labels.tolist()
    assert split.test_targets.tolist() == test_labels.tolist()
    assert (split.inputs.dtype, split.targets.dtype) == (np.float32, np.int64)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (lambda images: gzip.compress(idx(images))[:-40], "cannot be read, it may be damaged"),
        (lambda images: idx(images)[:-40], "has 3,880 values, its header says 3,920"),
        (lambda images: idx(images)[:9], "is not an IDX file of bytes in 3 dimensions"),
        (lambda images: idx(images) + b"0", "has 3,921 or more values, its header says 3,920"),
        (lambda images: gzip.compress(idx(images) + bytes(10**8)), "has 3,921 or more values"),
        (
            lambda images: gzip.compress(ABSURD),
            "its header says 79,[0-9,]+ values, at most 268,435,",
        ),
        (
            lambda images: ABSURD,
            "its header says 79,[0-9,]+ values, at most 268,435,456 make sense",
        ),
        (lambda images: b"", "is not an IDX file"),
        (lambda images: gzip.compress(idx(images[0])), "is not an IDX file of bytes in 3 dim"),
        (lambda images: idx(images[:4]), "has 4 images, but .* 5 labels"),
        (lambda images: idx(images[:, :27]), "have 756 columns, expected are 784"),
    ],
)
def test_damaged_images(folder, mnist, content, message):
    images = mnist["train-images-idx3-ubyte"]
    write(folder / "mnist/train-images-idx3-ubyte.gz", content(images))
    with pytest.raises(ValueError, match=message):
        load_split("mnist", 0, folder)


def test_rectangles(folder, random):
    table = random.uniform(0, 1, (6, 785)).round(6)
    table[:, -1] = [0, 1, 1, 0, 1, 0]
    train, test = ("rectangles/rectangles_im_train.amat", "rectangles/rectangles_im_test.amat")
    write(folder / train, rows_of(table[:4], " "))
    write(folder / test, rows_of(table[4:], " ").replace("\n", " \n"))  # a space at the end
    split = load_split("rectangles", 0, folder)
    check_rows(split, table, range(4), range(4, 6))
    assert split.targets.dtype == np.int64
    write(folder / test, rows_of(table[4:, 1:], " "))
    with pytest.raises(DataError, match="has 784 values a row, expected are 784 pixels and a lab"):
        load_split("rectangles", 0, folder)


def filled_shape(inside):
    """Height and width of what is inside, if it is a rectangle smaller than the image."""
    height, width = (int(inside.any(axis=axis).sum()) for axis in (1, 0))
    return (height, width) if 0 < inside.sum() == height * width < inside.size else None


def is_allowed(height, width):
    fraction = height * width / 784
    return min(height, width) >= 10 and abs(height - width) >= 5 and 0.25 <= fraction <= 0.75


def test_generated_rectangles_are_labelled_by_their_shape(monkeypatch):
    # A black and a white photograph: a rectangle on the other colour can be measured.
    photographs = np.stack([np.zeros((40, 50), np.uint8), np.full((40, 50), 255, np.uint8)])
    monkeypatch.setattr(generated, "_photographs", lambda: photographs)
    monkeypatch.setattr(generated, "IMAGES_AT_ONCE", 150)
    read = partial(generated.generate_rectangles, num_train=300, num_test=100)
    split = read(None, 0)
    images = np.vstack([split.inputs, split.test_inputs]).reshape(-1, 28, 28)
    labels = np.concatenate([split.targets, split.test_targets])
    assert len(split.targets) == 300
    measured = 0
    for image, label in zip(images, labels, strict=True):
        assert set(np.unique(image)) <= {0.0, 1.0}
        # What is left beside a rectangle that spans the image is a rectangle too.
        shapes = [shape for shape in map(filled_shape, (image == 0, image == 1)) if shape]
        allowed = [shape for shape in shapes if is_allowed(*shape)]
        assert all(label == (height > width) for height, width in allowed)
        assert bool(allowed) == bool(shapes)
        measured += bool(allowed)
    assert measured > 150  # about half have the colour of their background
    assert 0.4 < labels.mean() < 0.6
    assert all(np.array_equal(a, b) for a, b in zip(split, read(None, 0), strict=True))
    assert not np.array_equal(split.inputs, read(None, 1).inputs)


def test_generated_rectangles_are_patches_of_photographs():
    split = offline("rectangles-generated", num_train=20, num_test=10).load(2)
    assert split.inputs.shape == (20, 784)
    assert split.test_inputs.shape == (10, 784)
    assert (split.inputs.dtype, split.targets.dtype) == (np.float32, np.int64)
    assert split.inputs.min() >= 0
    assert 0.5 < split.inputs.max() <= 1
    assert split.inputs.std(axis=1).min() > 0
