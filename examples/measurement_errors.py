"""Measurements with known errors: precise rows count for more.

Some rows were measured ten times better than the others. `noise_std` says so, and the noise that
is learned is what the known errors do not explain.

    python examples/measurement_errors.py
"""

import matplotlib.pyplot as plt
import numpy as np

from dvip import DVIPRegressor

random = np.random.default_rng(1)
x = np.sort(random.uniform(-3, 3, 70))
errors = random.choice([0.08, 0.8], 70, p=[0.4, 0.6])
y = np.sin(2 * x) + errors * random.normal(size=70)
grid = np.linspace(-3, 3, 200)

figure, axes = plt.subplots(1, 2, figsize=(10, 3.6), sharey=True, layout="constrained")
titles = ("one noise for all rows", "errors are known")
for panel, noise_std, title in zip(axes, (None, errors), titles, strict=True):
    model = DVIPRegressor(inference="vi", n_layers=1, prior="gp", max_iter=2_000)
    predicted = model.fit(x[:, None], y, noise_std=noise_std).predict_dist(grid[:, None])
    half = 1.645 * np.sqrt(predicted.variance_parts().function)
    error = np.sqrt(np.mean(np.square(predicted.mean - np.sin(2 * grid))))
    print(f"{title}: error of the function {error:.3f}, its 90 % interval ±{half.mean():.3f}")
    panel.fill_between(
        grid, predicted.mean - half, predicted.mean + half, color="#a9cbe6", lw=0, label="90 %"
    )
    panel.plot(grid, predicted.mean, color="#1f5f99", lw=2, label="mean")
    panel.plot(grid, np.sin(2 * grid), "--", color="grey", lw=1, label="truth")
    panel.errorbar(x, y, errors, fmt=".", color="black", ms=3, elinewidth=0.4)
    panel.set(title=title, xlabel="x", ylim=(-3, 3))
axes[0].legend(frameon=False, ncols=3, loc="lower left")
figure.savefig("errors.png", dpi=110)
