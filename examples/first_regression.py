"""A first regression: a curve, its intervals, and what is known in a gap.

Where there are no rows the intervals widen: the noise is the same, but the function is in doubt.
The default needs no settings.

    python examples/first_regression.py
"""

import matplotlib.pyplot as plt
import numpy as np

from dvip import DVIPRegressor
from dvip.plots import FunctionDrawsDisplay, PredictionDisplay

random = np.random.default_rng(0)
x = np.concatenate([random.uniform(0, 4, 60), random.uniform(6, 10, 60)])
y = np.sin(1.5 * x) + 0.3 * x + 0.2 * random.normal(size=x.size)

model = DVIPRegressor().fit(x[:, None], y)

new = np.array([[2.0], [5.0], [9.0]])
intervals = model.predict_interval(new, coverage=0.9)
noise, function = model.predict_dist(new).variance_parts()
doubts = function / (noise + function)
for row, (low, high), doubt in zip(new[:, 0], intervals, doubts, strict=True):
    print(
        f"x = {row:g}: 90 % between {low:.2f} and {high:.2f}, {doubt:.0%} of the variance is doubt"
    )

figure, axes = plt.subplots(1, 2, figsize=(10, 3.6), sharey=True, layout="constrained")
grid = np.linspace(-1, 11, 200)[:, None]
PredictionDisplay.from_estimator(model, grid, ax=axes[0])
axes[0].plot(x, y, ".", color="black", ms=4)
axes[0].set(xlabel="x", ylabel="y")
FunctionDrawsDisplay.from_estimator(model, grid, n_functions=8, ax=axes[1])
axes[1].plot(x, y, ".", color="black", ms=4)
axes[1].set(title="functions that agree with the rows", xlabel="x", ylabel="")
figure.savefig("regression.png", dpi=110)
