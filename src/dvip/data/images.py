"""Images in their public formats: IDX (MNIST) and .amat (Rectangles), as rows of pixels."""

import gzip
import math
from pathlib import Path

import numpy as np
import pandas as pd

from dvip.data.dataset import Find, Split
from dvip.data.errors import DataError
from dvip.tables.reading import readable

__all__ = ["read_amat", "read_idx"]

# The two first bytes of an IDX file are zero, the third says that its values are bytes.
UNSIGNED_BYTES = 0x08
GZIP = b"\x1f\x8b"


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
    with readable(path):
        content = path.read_bytes()
        if content.startswith(GZIP):
            content = gzip.decompress(content)
    start = 4 + 4 * num_dimensions
    if content[:4] != bytes([0, 0, UNSIGNED_BYTES, num_dimensions]) or len(content) < start:
        raise DataError(f"{path} is not an IDX file of bytes in {num_dimensions} dimensions.")
    shape = np.frombuffer(content[4:start], dtype=">u4").tolist()
    if len(content) - start != math.prod(shape):
        raise DataError(
            f"{path} is damaged: it has {len(content) - start:,} values, its header says "
            f"{math.prod(shape):,}."
        )
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)


def _amat_rows(path: Path, num_pixels: int) -> tuple[np.ndarray, np.ndarray]:
    with readable(path):
        table = pd.read_csv(path, sep=r"\s+", header=None, dtype=np.float32).to_numpy()
    if table.shape[1] != num_pixels + 1:
        raise DataError(
            f"{path} has {table.shape[1]} values a row, expected are {num_pixels} pixels and a "
            "label."
        )
    return table[:, :-1], table[:, -1].astype(np.int64)
