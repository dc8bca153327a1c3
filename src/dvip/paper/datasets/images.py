"""Images: MNIST's files, rectangles as published and as generated; and a toy function."""

import gzip
import math
from pathlib import Path

import numpy as np
import pandas as pd

from dvip.paper.datasets.dataset import DataError, Find, Split
from dvip.tables.formats import readable

__all__ = ["generate_rectangles", "generate_toy", "read_amat", "read_idx"]

# The two first bytes of an IDX file are zero, the third says that its values are bytes.
UNSIGNED_BYTES = 0x08
GZIP = b"\x1f\x8b"
# Five times MNIST; a few bytes of gzip may declare, and unpack to, any number.
MAX_VALUES = 2**28


def read_idx(find: Find, split: int, *, train: tuple[str, str], test: tuple[str, str]) -> Split:
    """Images and labels of two parts; pixels from 0 to 1."""
    return Split(*_images_and_labels(find, *train), *_images_and_labels(find, *test))


def read_amat(find: Find, split: int, *, train: str, test: str, num_pixels: int) -> Split:
    """Rows of pixels from 0 to 1 with the label behind them."""
    return Split(*_amat_rows(find(train), num_pixels), *_amat_rows(find(test), num_pixels))


def _images_and_labels(find: Find, images: str, labels: str) -> tuple[np.ndarray, np.ndarray]:
    pixels, classes = _idx_array(find(images), 3), _idx_array(find(labels), 1)
    if len(pixels) != len(classes):
        raise DataError(f"{images} has {len(pixels)} images, but {labels} {len(classes)} labels.")
    scaled = pixels.reshape(len(pixels), -1).astype(np.float32)
    scaled /= 255
    return scaled, classes.astype(np.int64)


def _idx_array(path: Path, num_dimensions: int) -> np.ndarray:
    """The values of an IDX file, packed or not; of one more than its header says, to notice it."""
    size = 4 + 4 * num_dimensions
    with readable(path), open(path, "rb") as raw:
        packed = raw.read(2) == GZIP
        raw.seek(0)
        with gzip.GzipFile(fileobj=raw) if packed else raw as file:
            header = file.read(size)
            if header[:4] != bytes([0, 0, UNSIGNED_BYTES, num_dimensions]) or len(header) < size:
                raise DataError(
                    f"{path} is not an IDX file of bytes in {num_dimensions} dimensions."
                )
            shape = np.frombuffer(header[4:], dtype=">u4").tolist()
            number = math.prod(shape)
            if number > MAX_VALUES:
                raise DataError(
                    f"{path} is damaged: its header says {number:,} values, at most {MAX_VALUES:,} "
                    "make sense."
                )
            values = file.read(number + 1)
    if len(values) != number:
        more = "or more " if len(values) > number else ""
        raise DataError(
            f"{path} is damaged: it has {len(values):,} {more}values, its header says {number:,}."
        )
    return np.frombuffer(values, dtype=np.uint8).reshape(shape)


def _amat_rows(path: Path, num_pixels: int) -> tuple[np.ndarray, np.ndarray]:
    with readable(path):
        table = pd.read_csv(path, sep=r"\s+", header=None, dtype=np.float32).to_numpy()
    if table.shape[1] != num_pixels + 1:
        raise DataError(
            f"{path} has {table.shape[1]} values a row, expected are {num_pixels} pixels and a "
            "label."
        )
    return table[:, :-1], table[:, -1].astype(np.int64)


# Rectangles that are generated: is a rectangle taller than wide?
#
# Like the public set, rectangle and background are filled with different patches of photographs,
# here of the two that come with scikit-learn. Sides are 10 pixels or more and differ by 5 or more;
# the rectangle covers from a quarter to three quarters of the image.

SIZE = 28
SHORTEST_SIDE, LEAST_DIFFERENCE = 10, 5
LEAST_AREA, MOST_AREA = SIZE**2 / 4, 3 * SIZE**2 / 4
# Images that are made at a time: the patches of all of them would take a gigabyte.
IMAGES_AT_ONCE = 5_000


def generate_rectangles(find: Find, split: int, *, num_train: int, num_test: int) -> Split:
    """Images with pixels from 0 to 1, and whether the rectangle is taller than wide.

    The number of the split is the seed. Nothing is read but the photographs.
    """
    random = np.random.default_rng(split)
    photographs = _photographs()
    images = np.empty((num_train + num_test, SIZE, SIZE), np.float32)
    labels = np.empty(len(images), np.int64)
    for start in range(0, len(images), IMAGES_AT_ONCE):
        part = slice(start, start + IMAGES_AT_ONCE)
        number = len(labels[part])
        inside, labels[part] = _rectangles(random, number)
        rectangle, background = (_patches(random, photographs, number) for _ in range(2))
        images[part] = np.where(inside, rectangle, background)
    images /= 255
    pixels = images.reshape(len(images), -1)
    train, test = slice(num_train), slice(num_train, None)
    return Split(pixels[train], labels[train], pixels[test], labels[test])


def _photographs() -> np.ndarray:
    """Grey photographs of the same size, as bytes: (photographs, height, width)."""
    from sklearn.datasets import load_sample_images  # takes as long as all other imports together

    colours = np.stack(load_sample_images().images)
    return colours.mean(axis=-1).astype(np.uint8)


def _patches(random: np.random.Generator, photographs: np.ndarray, number: int) -> np.ndarray:
    windows = np.lib.stride_tricks.sliding_window_view(photographs, (SIZE, SIZE), axis=(1, 2))
    return windows[tuple(random.integers(0, limit, number) for limit in windows.shape[:3])]


def _rectangles(random: np.random.Generator, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Which pixels are inside a rectangle, (number, SIZE, SIZE), and whether it is a tall one.

    Heights and widths are uniform over those that are allowed, as are places in the image.
    """
    heights, widths = np.mgrid[SHORTEST_SIDE : SIZE + 1, SHORTEST_SIDE : SIZE + 1].reshape(2, -1)
    areas = heights * widths
    allowed = (
        (abs(heights - widths) >= LEAST_DIFFERENCE) & (areas >= LEAST_AREA) & (areas <= MOST_AREA)
    )
    chosen = random.choice(np.flatnonzero(allowed), number)
    rows = _within(random, heights[chosen])
    columns = _within(random, widths[chosen])
    return rows[:, :, None] & columns[:, None, :], heights[chosen] > widths[chosen]


def _within(random: np.random.Generator, lengths: np.ndarray) -> np.ndarray:
    """Which of SIZE pixels in a line are within a stretch at a random place: (number, SIZE)."""
    starts = random.integers(0, SIZE - lengths, endpoint=True)
    distances = np.arange(SIZE) - starts[:, None]
    return (distances >= 0) & (distances < lengths[:, None])


NOISE = 0.15
# Inputs are uniform over these intervals; test inputs fill the gap between them too.
LEFT, RIGHT = (-3.0, -0.8), (0.8, 3.0)


def generate_toy(find: Find, split: int, *, num_train: int, num_test: int) -> Split:
    """y = sin 2x + x/3 + noise. The number of the split is the seed."""
    random = np.random.default_rng(split)
    halves = [random.uniform(*half, num_train // 2) for half in (LEFT, RIGHT)]
    x, test_x = np.concatenate(halves), random.uniform(LEFT[0], RIGHT[1], num_test)
    y, test_y = (
        np.sin(2 * inputs) + inputs / 3 + NOISE * random.standard_normal(len(inputs))
        for inputs in (x, test_x)
    )
    return Split(x[:, None], y, test_x[:, None], test_y)
