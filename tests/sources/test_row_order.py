"""The order of rows, and reading ahead of the training."""

import threading
import time

import numpy as np
import pytest
from rows_in_files import INPUTS, ROWS, SETTINGS, arrays, opened, small_pages, sources

from dvip import DVIPRegressor, TrainingDiverged
from dvip.batches import ALL, Part
from dvip.sources import NumberTargets, cached_rows
from dvip.sources.streamed_rows import Paging, ShuffledPages
from dvip.training import ArrayData, read_ahead


def in_pages(num_rows, pages=None):
    """Rows that are their numbers, in pages as `small_pages` makes them."""
    paging = Paging.of(num_rows, 8)

    def read(pages):
        return np.concatenate([np.arange(*np.cumsum(paging.rows_of(int(page)))) for page in pages])

    return ShuffledPages(paging, np.arange(paging.num_pages) if pages is None else pages, read)


@pytest.mark.parametrize("num_rows", [1, 7, 8, 200, 203])
def test_every_row_once_an_epoch(monkeypatch, num_rows):
    small_pages(monkeypatch)
    order = in_pages(num_rows)
    assert order.num_rows == num_rows
    epochs = np.concatenate(list(order.rows(3, 0, 3 * num_rows))).reshape(3, num_rows)
    assert np.array_equal(np.sort(epochs), np.tile(np.arange(num_rows), (3, 1)))
    assert len(np.unique(epochs, axis=0)) == 3 or num_rows == 1


def test_order_depends_on_seed_and_position_alone(monkeypatch):
    small_pages(monkeypatch)
    whole = np.concatenate(list(in_pages(203).rows(3, 0, 500)))
    order = in_pages(203)
    for start, count in ((490, 10), (0, 1), (30, 60), (195, 20), (0, 500)):
        again = np.concatenate(list(order.rows(3, start, count)))
        assert np.array_equal(again, whole[start : start + count])
    other = np.concatenate(list(order.rows(4, 0, 500)))
    assert not np.array_equal(other, whole)


def test_neighbours_of_the_file_are_spread():
    """With pages and buffers of the real size, a sorted file gives batches like a random order."""
    num_rows, batch = 400_000, 100
    paging = Paging.of(num_rows, 116)
    order = ShuffledPages(
        paging,
        np.arange(paging.num_pages),
        lambda pages: np.concatenate(
            [np.arange(*np.cumsum(paging.rows_of(int(page)))) for page in pages]
        ),
    )
    rows = np.concatenate(list(order.rows(0, 0, num_rows))).reshape(-1, batch) / num_rows
    # The variance of a batch's mean is that of independent rows, within a few per cent.
    assert np.var(rows.mean(axis=1)) == pytest.approx(1 / 12 / batch, rel=0.1)
    means = rows.mean(axis=1)
    assert abs(np.corrcoef(means[1:], means[:-1])[0, 1]) < 0.07


def test_batches_of_a_file(files, monkeypatch):
    small_pages(monkeypatch)
    source = sources(files)["t.parquet"]
    with cached_rows(source, NumberTargets(), "float64") as (path, content):
        data = opened(path, content)
        whole = data.batches(5, 0, 60, 16)
        assert whole.inputs.shape == (60, 16, INPUTS)
        assert whole.targets.shape == (60, 16, 1)
        assert (whole.weights == 1).all()
        for first, count in ((0, 1), (31, 9), (59, 1)):
            part = data.batches(5, first, count, 16)
            assert np.array_equal(part.inputs, whole.inputs[first : first + count])
            assert np.array_equal(part.targets, whole.targets[first : first + count])
        every = data.rows(0, 0, ROWS).inputs[:, 1]
        parts = [Part(index, 3) for index in range(3)]
        # Far more than an epoch of each: the rows that it ever has.
        seen = [set(data.rows(0, 0, ROWS, part).inputs[:, 1].tolist()) for part in parts]
        assert set.union(*seen) == set(every.tolist())
        assert sum(map(len, seen)) == len(set(every.tolist()))  # no row in two parts
        assert data.batches(5, 2, 4, 12, parts[1]).inputs.shape == (4, 4, INPUTS)
        again = opened(path, content)
        assert data.fingerprint() == again.fingerprint()
        again.close()
        data.close()


def test_rows_in_memory_remember_their_epoch():
    """The order is drawn once an epoch, not for every piece of it."""
    drawn = []

    def order(num_rows, seed, epoch):
        drawn.append(epoch)
        return np.random.default_rng((seed, epoch)).permutation(num_rows)

    arrays = (np.zeros((100, 1)), np.zeros((100, 1)), np.ones(100))
    fresh = ArrayData(*arrays)
    assert fresh.order(9, 0, 0) is fresh.order(9, 0, 0)
    ArrayData(*arrays, order=order).batches(0, 0, 15, 10)
    assert drawn == [0, 1]


def test_pieces_come_in_order_and_not_too_far_ahead():
    begun = []

    def read(piece):
        begun.append(piece)
        return 10 * piece

    reader = read_ahead(read, range(9))
    assert next(reader) == 0
    time.sleep(0.05)
    assert len(begun) <= 4
    assert list(reader) == [10 * piece for piece in range(1, 9)]
    assert begun == list(range(9))


def test_errors_of_the_reading_thread_are_raised_as_they_are():
    def read(piece):
        if piece == 3:
            raise KeyError("gone")
        return piece

    reader = read_ahead(read, range(9))
    assert [next(reader) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(KeyError, match="gone"):
        next(reader)
    assert not readers()


def readers():
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name.startswith("dvip-read-ahead")]


class Failing(ArrayData):
    """Data that cannot be read from some step on."""

    def batches(self, seed, step, num_steps, batch_size, part=ALL):
        if step >= 400:
            raise OSError("the disk is gone")
        return super().batches(seed, step, num_steps, batch_size, part)


def test_training_ends_with_the_error_and_without_a_thread(monkeypatch):
    monkeypatch.setattr("dvip.estimators.base.ArrayData", Failing)
    with pytest.raises(OSError, match="the disk is gone"):
        DVIPRegressor.paper(**{**SETTINGS, "max_iter": 1000}).fit(*arrays())
    assert not readers()


def test_no_thread_outlives_a_training_that_diverged():
    model = DVIPRegressor.paper(**{**SETTINGS, "max_iter": 1000, "learning_rate": 1e6})
    with pytest.raises(TrainingDiverged):
        model.fit(*arrays())
    assert not readers()
