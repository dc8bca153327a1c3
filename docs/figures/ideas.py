"""The pictures of docs/ideas.md: `python docs/figures/ideas.py [NAME ...]`, some minutes."""

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from dvip import DVIPRegressor, SimulatorPrior

FOLDER = Path(__file__).parent
BLUE, PALE, GREY, BLACK = "#1f5f99", "#a9cbe6", "#8a8a90", "#1b1b1e"
GRID = np.linspace(-3, 3, 300)


def panels(number, height=2.9, **options):
    """A figure and its axes."""
    figure = Figure(figsize=(10.5, height), layout="constrained")
    axes = figure.subplots(1, number, **options)
    for panel in axes:
        panel.spines[["top", "right"]].set_visible(False)
        panel.set(xlim=(GRID[0], GRID[-1]), xlabel="x")
    return figure, axes


def band(panel, model, rows=None):
    """Mean and 90 % intervals of a fitted model, and its rows."""
    predicted = model.predict_dist(GRID[:, None])
    panel.fill_between(GRID, *predicted.interval(0.9), color=PALE, lw=0)
    panel.plot(GRID, predicted.mean, color=BLUE, lw=1.8)
    if rows is not None:
        panel.plot(*rows, ".", color=BLACK, ms=4)


def oscillation(inputs, rng):
    """A swing that comes to rest."""
    time = inputs[:, 0] + 3
    height, period, damping = rng.normal(1, 0.3), rng.uniform(1.3, 2.2), rng.uniform(0.1, 0.5)
    return height * np.exp(-damping * time) * np.cos(2 * np.pi * time / period)


def few_rows():
    """Rows of a wave, with a gap."""
    random = np.random.default_rng(0)
    x = np.sort(np.concatenate([random.uniform(-2.8, -0.8, 30), random.uniform(1, 2.6, 30)]))
    return x, np.sin(3.5 * x) + 0.3 * x + 0.12 * random.normal(size=x.size)


def processes():
    """What an implicit process is: functions that can be drawn."""
    figure, axes = panels(4)
    priors = {
        "a network with random weights": "bnn",
        "a Gaussian process": "gp",
        "a line, a season and the rest": "linear + periodic(period=1) + gp",
        "a simulator": SimulatorPrior(oscillation),
    }
    for panel, (title, prior) in zip(axes, priors.items(), strict=True):
        model = DVIPRegressor(prior=prior, inference="vi", n_layers=1)
        draws = model.sample_prior_functions(6, GRID[:, None], random_state=1)
        panel.plot(GRID, draws.T, lw=1.2)
        panel.set_title(title, loc="left", size=10)
    return figure


def layer():
    """What a layer does: combines the functions of its prior."""
    figure, axes = panels(3, sharey=True)
    rows = few_rows()
    options = {"inference": "vi", "n_layers": 1, "n_prior_samples": 100, "max_iter": 6_000}
    model = DVIPRegressor(prior="gp", random_state=0, **options).fit(rows[0][:, None], rows[1])
    draws = model.sample_prior_functions(12, GRID[:, None], random_state=0)
    axes[0].plot(GRID, draws.T, lw=0.9, alpha=0.8)
    axes[0].set_title("1. functions of the prior", loc="left", size=10)
    functions = model.sample_functions(12, random_state=0)(GRID[:, None])
    axes[1].plot(GRID, functions.T, color=BLUE, lw=0.8, alpha=0.7)
    axes[1].plot(*rows, ".", color=BLACK, ms=4)
    axes[1].set_title("2. combinations that agree with the rows", loc="left", size=10)
    band(axes[2], model, rows)
    axes[2].set_title("3. the prediction, with noise", loc="left", size=10)
    axes[0].set_ylim(-4, 4)
    return figure


def depth():
    """Why deep: layers with the same prior, more of them."""
    random = np.random.default_rng(0)
    x = np.sort(random.uniform(-3, 3, 200))

    def truth(x):
        return np.where(x < 0, 0.4 * np.sin(1.2 * x), np.sin(5 * x))

    y = truth(x) + 0.1 * random.normal(size=x.size)
    figure, axes = panels(3, sharey=True)
    for panel, number in zip(axes, (1, 2, 3), strict=True):
        model = DVIPRegressor.paper(n_layers=number, prior="gp", max_iter=6_000)
        model.fit(x[:, None], y)
        band(panel, model, (x, y))
        error = np.sqrt(np.mean(np.square(model.predict(GRID[:, None]) - truth(GRID))))
        title = "one layer" if number == 1 else f"{number} layers"
        panel.set_title(f"{title}: error {error:.2f}", loc="left", size=10)
    return figure


def alpha():
    """Why α: rows that scatter more in one place, and noise that is the same everywhere."""
    random = np.random.default_rng(0)

    def rows(number):
        x = np.sort(random.uniform(-3, 3, number))
        scatter = 0.06 + 0.5 / (1 + np.exp(-5 * x))
        return x, np.sin(1.5 * x) + scatter * random.normal(size=number)

    (x, y), (new_x, new_y) = rows(300), rows(2_000)
    figure, axes = panels(2, height=3.2, sharey=True)
    for panel, value in zip(axes, (0.0, 1.0), strict=True):
        model = DVIPRegressor.paper(
            n_layers=2, alpha=value, n_training_samples=5, max_iter=6_000, random_state=0
        ).fit(x[:, None], y)
        band(panel, model, (x, y))
        predicted = model.predict_dist(new_x[:, None])
        low, high = predicted.interval(0.9)
        inside = (low < new_y) & (new_y < high)
        shares = f"{inside[new_x < 0].mean():.0%} and {inside[new_x > 0].mean():.0%}"
        score = -predicted.log_prob(new_y).mean()
        title = f"α = {value:g}: NLL {score:.2f}, {shares} of new rows inside"
        panel.set_title(title, loc="left", size=10)
    return figure


def overview():
    """The picture of the README: what is asked of a model, in one line of code each."""
    rows = few_rows()
    model = DVIPRegressor(inference="exact").fit(rows[0][:, None], rows[1])
    figure, axes = panels(2, height=3.2, sharey=True)
    predicted = model.predict_dist(GRID[:, None])
    for coverage, opacity in ((0.9, 0.5), (0.5, 0.9)):
        interval = predicted.interval(coverage)
        axes[0].fill_between(GRID, *interval, color=PALE, alpha=opacity, lw=0)
    axes[0].plot(GRID, predicted.mean, color=BLUE, lw=1.8)
    axes[0].plot(*rows, ".", color=BLACK, ms=5)
    axes[0].set_title(
        "model.predict_dist(X).interval([0.5, 0.9])", loc="left", size=10, family="monospace"
    )
    functions = model.sample_functions(10, random_state=0)(GRID[:, None])
    axes[1].plot(GRID, functions.T, color=BLUE, lw=0.9, alpha=0.7)
    axes[1].plot(*rows, ".", color=BLACK, ms=5)
    axes[1].set_title("model.sample_functions(10)(X)", loc="left", size=10, family="monospace")
    return figure


PICTURES = {
    "overview": overview,
    "ideas-processes": processes,
    "ideas-layer": layer,
    "ideas-depth": depth,
    "ideas-alpha": alpha,
}

if __name__ == "__main__":
    for name in sys.argv[1:] or PICTURES:
        PICTURES[name]().savefig(FOLDER / f"{name}.png", dpi=110)
