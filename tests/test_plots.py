"""Pictures of calibration: their counts against NumPy, and the files."""

import numpy as np
import pytest

from dvip.distributions import CountMixture, GaussianMixture
from dvip.metrics import ClassificationScores, RegressionScores
from dvip.plots import calibration_figure, check_picture, image, write_picture

RANDOM = np.random.default_rng(0)


def standard_normal(shape):
    return GaussianMixture(np.zeros((*shape, 1)), np.zeros((*shape, 1)), np.ones(()))


def judged_numbers(y, blocks=3):
    judged = RegressionScores()
    for part in np.array_split(y, blocks):
        judged.add(standard_normal(part.shape), part)
    return judged


def judged_labels(probabilities, labels, blocks=3):
    judged = ClassificationScores(range(probabilities.shape[1]))
    for part in np.array_split(np.arange(len(labels)), blocks):
        judged.add(probabilities[part], labels[part])
    return judged


@pytest.mark.parametrize("shape", [(5_000,), (2_000, 2)])
def test_levels_and_coverage_are_those_of_all_rows(shape):
    """Of targets that are wider than promised; several targets are pooled."""
    y = 1.5 * RANDOM.normal(size=shape)
    judged = judged_numbers(y)
    levels = standard_normal(shape).cdf(y)
    np.testing.assert_array_equal(judged.levels, np.histogram(levels, 200, (0, 1))[0])
    promised, observed = judged.coverage()
    expected = [np.mean(np.abs(levels - 0.5) < p / 2) for p in promised]
    np.testing.assert_allclose(observed, expected, atol=1e-12)
    assert promised[0] == observed[0] == 0
    assert promised[-1] == observed[-1] == 1
    metrics = judged.metrics()
    for percent in (50, 90, 95):
        assert metrics[f"coverage_{percent}"] == pytest.approx(observed[percent], abs=1e-9)
    # The normal distribution knows: P(|Y| < 1.645) of a deviation of 1.5 is 0.727.
    assert observed[90] == pytest.approx(0.727, abs=0.02)


def test_levels_of_an_honest_model_are_flat():
    judged = judged_numbers(RANDOM.normal(size=200_000))
    assert np.abs(judged.levels / 1_000 - 1).max() < 0.2
    promised, observed = judged.coverage()
    assert np.abs(promised - observed).max() < 0.005


def test_levels_of_honest_counts_are_flat():
    """Also of small counts, whose cdf has few values; intervals hold what they promise."""
    rates = RANDOM.gamma(2.0, size=(50_000, 1))
    y = RANDOM.poisson(rates[:, 0])
    judged = RegressionScores()
    judged.add(CountMixture(rates), y)
    assert judged.levels.sum() == pytest.approx(len(y))
    assert np.abs(judged.levels / 250 - 1).max() < 0.1
    promised, observed = judged.coverage()
    assert np.abs(promised - observed).max() < 0.01
    assert judged.metrics()["coverage_90"] == pytest.approx(0.9, abs=0.01)


def test_confidences_are_those_of_all_rows():
    probabilities = RANDOM.dirichlet(np.ones(3), size=4_000)
    labels = np.array([RANDOM.choice(3, p=row) for row in probabilities])
    judged = judged_labels(probabilities, labels)
    confidence, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == labels
    edges = np.linspace(0, 1, 16)
    for counts, weights in (
        (judged.confidence_counts, None),
        (judged.right_counts, right.astype(float)),
        (judged.confidence_sums, confidence),
    ):
        expected = np.histogram(confidence, edges, weights=weights)[0]
        np.testing.assert_allclose(counts, expected, atol=1e-9)
    gaps = np.abs(judged.confidence_sums - judged.right_counts).sum() / len(labels)
    assert judged.metrics()["ece"] == pytest.approx(gaps)
    held = judged.confidence_counts > 100
    accuracy = judged.right_counts[held] / judged.confidence_counts[held]
    honest = judged.confidence_sums[held] / judged.confidence_counts[held]
    assert np.abs(accuracy - honest).max() < 0.15


def test_what_a_figure_draws():
    """The bars are relative frequencies; the line is the coverage; the metrics are there."""
    y = RANDOM.normal(size=1_000)
    judged = judged_numbers(y)
    figure = calibration_figure(judged, "model on $1 of rows")
    left, right = figure.axes
    heights = np.array([bar.get_height() for bar in left.patches[-20:]])
    expected = np.histogram(standard_normal(y.shape).cdf(y), 20, (0, 1))[0] / 50
    np.testing.assert_allclose(heights, expected)
    np.testing.assert_allclose(right.lines[1].get_xydata(), np.column_stack(judged.coverage()))
    texts = " ".join(text.get_text() for text in figure.texts)
    assert f"rmse {judged.metrics()['rmse']:.3g}" in texts
    few = judged_labels(np.array([[0.9, 0.1], [0.2, 0.8]]), np.array([0, 0]), blocks=1)
    reliability = calibration_figure(few).axes[0].lines[1].get_xydata()
    np.testing.assert_allclose(reliability, [[0.8, 0], [0.9, 1]])


def test_files_of_every_kind(tmp_path):
    judged = judged_numbers(RANDOM.normal(size=50))
    starts = {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}
    for kind, start in starts.items():
        path = tmp_path / f"picture.{kind.upper()}"
        write_picture(calibration_figure(judged), path)
        assert path.read_bytes().startswith(start)
        assert image(calibration_figure(judged), kind) == path.read_bytes()  # no dates
    assert len(list(tmp_path.iterdir())) == 3


def test_files_that_cannot_be(tmp_path):
    (tmp_path / "folder.png").mkdir()
    for name, message in (
        ("picture.jpg", r"end in \.png"),
        ("picture", r"end in \.png"),
        ("nowhere/picture.png", "no folder"),
        ("folder.png", "is a folder"),
    ):
        with pytest.raises(ValueError, match=message):
            check_picture(tmp_path / name)
    check_picture(tmp_path / "picture.svg")
