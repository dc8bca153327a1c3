"""A page for a model: one file, nobody's texts are markup, its numbers are those of the model."""

import re
import shutil
import subprocess

import numpy as np
import pandas as pd
import pytest
from examples import regression_data

from dvip import DVIPClassifier, DVIPRegressor
from dvip.metrics import regression_metrics
from dvip.report import findings_of

pytestmark = pytest.mark.usefixtures("short_chains")

SETTINGS = {"n_layers": 1, "n_prior_samples": 5, "n_predictive_samples": 5, "max_iter": 60}
EVIL = "<script>alert(1)</script> $x_{"
X, Y = regression_data(90)
TABLE = pd.DataFrame(
    {
        EVIL: X[:, 0],
        "kind": np.where(X[:, 1] > 5, '"><img src=x>', "a&b"),
        "age": X[:, 2],
        "name": [f"P{row}" for row in range(90)],
    }
)


@pytest.fixture(scope="module")
def model():
    with pytest.warns(UserWarning, match="left out"):
        fitted = DVIPRegressor.paper(**SETTINGS).fit(TABLE[:60], Y[:60])
    fitted.target_names_ = ("<b>price</b>",)
    return fitted


@pytest.fixture(scope="module")
def page(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "page.html"
    written = model.report(TABLE[60:], Y[60:], path, training=(TABLE[:60], Y[:60]))
    assert path.read_text() == written
    return path


def visible(page):
    """The text between the tags, without the style."""
    text = re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)
    return re.sub(r"<[^>]*>", " ", text)


def test_one_file_that_needs_no_network_and_fits_a_phone(page):
    text = page.read_text()
    assert 'name="viewport"' in text
    assert len(text) < 3e6
    assert not re.search(r'(?:src|href)="(?!data:)', text)
    assert not re.search(r"@import|url\(|<link|<iframe", text)
    tables = text.count("<table")
    assert tables >= 3
    assert text.count('<div class="wide"><table') == tables


def test_texts_of_users_are_escaped(page):
    text = page.read_text()
    assert "<script" not in text
    assert "<img src=x" not in text
    assert "<b>price" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt; $x_{" in text
    assert "a&amp;b" in text


def test_numbers_are_those_of_the_model(model, page):
    shown = visible(page.read_text())
    metrics = regression_metrics(model.predict_dist(TABLE[60:]), Y[60:])
    for name, value in metrics.items():
        assert re.search(rf"\b{name}\s+{re.escape(f'{value:.4g}')}\b", shown), name
    assert "mean of y" in shown
    assert "trained on the same rows as the model" in shown
    std = model.predict(TABLE[60:], return_std=True)[1]
    least_sure = TABLE.index[60 + int(std.argmax())]
    assert re.search(rf"how sure .*? measured[^±]*?\b{least_sure}\s+±", shown, re.DOTALL)
    assert "is text with 60 different values" in shown
    assert "from dvip import load" in shown


def test_the_mean_is_judged_as_a_mean_should_be(model):
    """Its error is the deviation from the mean of the training rows."""
    found = findings_of(model, TABLE[60:], Y[60:], training=(TABLE[:60], Y[:60]))
    expected = np.sqrt(np.mean(np.square(Y[60:] - Y[:60].mean())))
    assert found.scores["mean of y"]["rmse"] == pytest.approx(expected)
    inside = np.abs(Y[60:] - Y[:60].mean()) <= 1.6449 * Y[:60].std(ddof=1)
    assert found.scores["mean of y"]["coverage_90"] == pytest.approx(inside.mean())


def test_the_same_model_has_the_same_page(model, page):
    again = model.report(TABLE[60:], Y[60:], training=(TABLE[:60], Y[:60]))
    assert again == page.read_text()


def test_rows_unlike_the_training():
    inputs = np.vstack([X[:60], [[500.0, 5.0, 5.0]]])
    fitted = DVIPRegressor(inference="auto", max_iter=60).fit(X[:60], Y[:60])
    found = findings_of(fitted, inputs, np.append(Y[:60], 100.0))
    assert found.num_far >= 1
    assert found.far[0].label == "60"
    fitted.target_names_ = ("y",)
    assert "look unlike" in visible(fitted.report(inputs, np.append(Y[:60], 100.0)))


@pytest.mark.slow
def test_labels_and_several_targets_and_arrays():
    labels = np.array(["<low>", "high"])[(Y > 100).astype(int)]
    classifier = DVIPClassifier.paper(**SETTINGS).fit(X, labels)
    text = classifier.report(X, labels)
    shown = visible(text)
    right = int((classifier.predict(X) == labels).sum())
    counts = [int(n) for n in re.findall(r"<b>(\d+)</b></td>", text.split("taken for what")[1])[:2]]
    assert sum(counts) == right
    assert "&lt;low&gt;" in shown
    targets = np.column_stack([Y, -Y])
    both = DVIPRegressor.paper(**SETTINGS).fit(X, targets)
    assert visible(both.report(X, targets)).count("Left: an interval") == 2


def test_what_cannot_be_judged(model, tmp_path):
    with pytest.raises(ValueError, match="no rows"):
        model.report(TABLE[:0], Y[:0])
    with pytest.raises(ValueError, match="X has 3 rows, but y has 2"):
        model.report(TABLE[:3], Y[:2])
    with pytest.raises(ValueError, match=r"must end in \.html"):
        model.report(TABLE, Y, tmp_path / "page.pdf")
    (tmp_path / "f.html").mkdir()
    with pytest.raises(ValueError, match="is a folder"):
        model.report(TABLE, Y, tmp_path / "f.html")


BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)


@pytest.mark.skipif(BROWSER is None, reason="needs a browser: chromium")
@pytest.mark.parametrize("width", [500, 1200])
def test_nothing_is_wider_than_the_window(page, tmp_path, width):
    """A script asks the browser how wide the page is, and how large its pictures are."""
    script = (
        "<script>onload = () => document.title = [document.documentElement.scrollWidth, "
        "...[...document.images].map(image => image.naturalWidth)].join(' ')</script>"
    )
    measured = tmp_path / "measured.html"
    measured.write_text(page.read_text().replace("</body>", f"{script}</body>"))
    options = (
        *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
        *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
        *(f"--user-data-dir={tmp_path / 'user'}", f"--window-size={width},900", "--dump-dom"),
    )
    command = [BROWSER, *options, measured.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    found = re.search(r"<title>([\d ]+)</title>", done.stdout)
    page_width, *pictures = map(int, found[1].split())
    assert page_width <= width
    assert len(pictures) >= 4
    assert min(pictures) > 300
