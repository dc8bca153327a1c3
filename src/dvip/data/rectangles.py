"""Rectangles that are generated: is a rectangle taller than wide?

Like the public set, rectangle and background are filled with different patches of photographs,
here of the two that come with scikit-learn. Sides are 10 pixels or more and differ by 5 or more;
the rectangle covers from a quarter to three quarters of the image.
"""

import numpy as np

from dvip.data.dataset import Find, Split

__all__ = ["generate_rectangles"]

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
