"""Reliability of intervals and of classes: on distributions whose calibration is known."""

import numpy as np
import pytest

from dvip.paper.execution import LEVELS, class_calibration, interval_calibration


def test_uniform_cdfs_are_calibrated():
    cdf = (np.arange(2_000) + 0.5) / 2_000
    calibration = interval_calibration(cdf)
    assert calibration["pit"] == [100] * 20
    np.testing.assert_allclose(calibration["coverage"], LEVELS, atol=1e-9)


def test_overconfident_cdfs_are_seen():
    calibration = interval_calibration(np.array([0.0, 1.0, 0.5, 0.001]))
    assert calibration["coverage"][-1] == 0.25
    assert calibration["pit"][0] == 2


def test_calibration_of_classes():
    calibration = class_calibration(np.array([0.95, 0.99, 0.4]), np.array([True, False, True]))
    assert sum(calibration["rows"]) == 3
    assert calibration["correct"][-1] == 1
    assert calibration["confidence"][-1] == pytest.approx(1.94)
