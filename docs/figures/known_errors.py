"""Draws known-errors.png of likelihoods.md: the same rows without and with their known errors."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from dvip import DVIPRegressor

random = np.random.default_rng(1)
x = np.sort(random.uniform(-3, 3, 60))
errors = random.choice([0.08, 1.0], 60, p=[0.4, 0.6])
y = np.sin(2 * x) + errors * random.normal(size=60)
grid = np.linspace(-3, 3, 300)
truth = np.sin(2 * grid)
precise = errors < 0.5

figure = Figure(figsize=(10, 3.9), layout="constrained")
panels = figure.subplots(1, 2, sharey=True)
for axes, noise_std, title in zip(
    panels,
    (None, errors),
    ("one noise for all rows", "the errors of the rows are known"),
    strict=True,
):
    model = DVIPRegressor.paper(n_layers=1, prior="gp", max_iter=2000, random_state=0)
    predicted = model.fit(x[:, None], y, noise_std=noise_std).predict_dist(grid[:, None])
    mean, half = predicted.mean, 1.645 * np.sqrt(predicted.variance_parts().function)
    band = {"color": "#a9cbe6", "lw": 0, "label": "90 % interval of the function"}
    axes.fill_between(grid, mean - half, mean + half, **band)
    axes.plot(grid, truth, color="#6b6b70", ls="--", lw=1.3, label="truth")
    axes.plot(grid, mean, color="#1f5f99", lw=2.2, label="mean")
    axes.plot(x[precise], y[precise], "o", color="#1b1b1e", ms=4.5, mew=0, label="error 0.08")
    rough = {"fmt": "o", "color": "#d1495b", "ms": 3.5, "mew": 0, "elinewidth": 0.6, "alpha": 0.7}
    axes.errorbar(x[~precise], y[~precise], errors[~precise], **rough, label="error 1")
    rmse = np.sqrt(np.mean(np.square(mean - truth)))
    axes.set_title(f"{title}: RMSE {rmse:.2f}", loc="left", size=11)
    axes.set(xlim=(-3, 3), ylim=(-3.2, 3.2), xlabel="x")
    axes.spines[["top", "right"]].set_visible(False)
panels[0].set_ylabel("y")
handles = panels[0].get_legend_handles_labels()
figure.legend(*handles, loc="outside lower center", ncols=5, frameon=False)
figure.savefig(Path(__file__).with_name("known-errors.png"), dpi=110)
