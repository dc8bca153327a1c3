"""The pictures of docs/likelihoods.md: `python docs/figures/likelihoods.py`, a minute or two."""

from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np

from dvip import DVIPRegressor

FOLDER = Path(__file__).parent
RANDOM = np.random.default_rng(0)
X = np.sort(RANDOM.uniform(-3, 3, 200))
GRID = np.linspace(-3, 3, 200)
BLUE, GREY, BLACK = "#2166ac", "#999999", "#333333"


def wave(x):
    """The function behind most of the data."""
    return np.sin(1.5 * x) + 0.3 * x


def spread(x):
    """A noise that grows from left to right."""
    return 0.04 + 0.4 / (1 + np.exp(-2 * x))


TAILS = 0.12 * RANDOM.standard_t(2.2, size=X.size)
RATE = np.exp(1.2 + 0.9 * np.sin(1.3 * X))
# The name of each likelihood, the one that it is compared with, and data that it suits.
PICTURES = {
    "heteroscedastic": ("gaussian", wave(X) + spread(X) * RANDOM.normal(size=X.size)),
    "student-t": ("gaussian", wave(X) + TAILS),
    "heteroscedastic-student-t": ("heteroscedastic", wave(X) + 5 * spread(X) * TAILS),
    "log-normal": ("gaussian", np.exp(wave(X) + 0.4 * RANDOM.normal(size=X.size))),
    "poisson": ("gaussian", RANDOM.poisson(RATE).astype(float)),
    "negative-binomial": ("poisson", RANDOM.poisson(RATE * RANDOM.gamma(2, 0.5, X.size)) * 1.0),
}


def draw(ax, name, y):
    """Data, the median and 50 % and 90 % intervals of a model with that likelihood."""
    options = {"n_layers": 1, "n_prior_samples": 40, "max_iter": 3_000}
    model = DVIPRegressor.paper(likelihood=name, **options)
    distribution = model.fit(X[:, None], y).predict_dist(GRID[:, None])
    steps = {"step": "mid"} if name in ("poisson", "negative-binomial") else {}
    for p, opacity in ((0.9, 0.18), (0.5, 0.3)):
        ax.fill_between(GRID, *distribution.interval(p), color=BLUE, alpha=opacity, lw=0, **steps)
    style = {"drawstyle": "steps-mid"} if steps else {}
    ax.plot(GRID, distribution.quantile(0.5), color=BLUE, lw=1.5, **style)
    ax.plot(X, y, "o", color=BLACK, ms=2.2, mew=0, alpha=0.8)
    ax.set_title(name, fontsize=9, loc="left")


def main():
    """Writes a picture for each likelihood."""
    mpl.rcParams.update({"svg.hashsalt": "dvip", "axes.spines.top": False, "font.size": 8})
    mpl.rcParams["axes.spines.right"] = False
    for name, (other, y) in PICTURES.items():
        figure, axes = plt.subplots(1, 2, figsize=(7, 2.4), sharex=True, sharey=True)
        for ax, likelihood in zip(axes, (other, name), strict=True):
            draw(ax, likelihood, y)
        low, high = np.quantile(y, [0.0, 1.0])
        margin = 0.15 * (high - low)
        axes[0].set_ylim(low - margin, high + margin)
        figure.tight_layout()
        figure.savefig(FOLDER / f"{name}.png", dpi=110)
        plt.close(figure)


if __name__ == "__main__":
    main()
