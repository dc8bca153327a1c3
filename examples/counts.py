"""Counts: a likelihood of whole numbers beside Gaussian noise.

Rates vary from less than one to sixteen, and counts vary more than Poisson's distribution has it.
Gaussian noise gives every row the same width, and makes negative counts possible.

    python examples/counts.py
"""

import matplotlib.pyplot as plt
import numpy as np

from dvip import DVIPRegressor

random = np.random.default_rng(0)


def counted(x):
    """Counts whose rate has a scatter of its own."""
    rate = np.exp(1.2 + 1.6 * np.sin(1.3 * x))
    return random.poisson(rate * random.gamma(4, 1 / 4, size=x.size)).astype(float)


x, new_x = np.sort(random.uniform(-3, 3, 200)), random.uniform(-3, 3, 1_000)
y, new_y = counted(x), counted(new_x)
grid = np.linspace(-3, 3, 200)

figure, axes = plt.subplots(1, 2, figsize=(10, 3.6), sharey=True, layout="constrained")
for panel, name in zip(axes, ("gaussian", "negative-binomial"), strict=True):
    model = DVIPRegressor(
        likelihood=name, prior="gp", inference="vi", n_layers=1, n_prior_samples=40, max_iter=2_000
    ).fit(x[:, None], y)
    low, high = model.predict_dist(new_x[:, None]).interval(0.9)
    inside = np.mean((low <= new_y) & (new_y <= high))
    crps = model.predict_dist(new_x[:, None]).crps(new_y).mean()
    print(
        f"{name}: CRPS {crps:.3f}, 90 % intervals hold {inside:.0%}, the lowest is {low.min():.1f}"
    )
    predicted = model.predict_dist(grid[:, None])
    panel.fill_between(grid, *predicted.interval(0.9), color="#a9cbe6", lw=0, step="mid")
    panel.plot(grid, predicted.mean, color="#1f5f99", lw=2)
    panel.plot(x, y, ".", color="black", ms=4)
    panel.axhline(0, color="grey", lw=0.6)
    panel.set(title=name, xlabel="x")
figure.savefig("counts.png", dpi=110)
