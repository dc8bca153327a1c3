"""A training that is stopped and goes on: the result is the same, bit for bit.

python examples/stop_and_resume.py
"""

import matplotlib.pyplot as plt
import numpy as np

from dvip import DVIPRegressor, load
from dvip.plots import BoundDisplay

random = np.random.default_rng(0)
X = random.uniform(-2, 2, size=(500, 3))
y = np.sin(2 * X[:, 0]) + X[:, 1] ** 2 + 0.1 * random.normal(size=500)


def fresh():
    """The same parameters, and the same seed, each time."""
    return DVIPRegressor(inference="vi", n_layers=2, max_iter=2_000, random_state=0)


def lights_out(steps, total, bound):
    """Stands for a lost machine, half way."""
    if steps >= total // 2:
        raise KeyboardInterrupt


options = {"checkpoint_dir": "checkpoints", "checkpoint_every": 500}
try:
    fresh().set_callbacks(lights_out).fit(X, y, **options)
except KeyboardInterrupt:
    print("stopped half way")

resumed = fresh().fit(X, y, **options, resume=True)
whole = fresh().fit(X, y)
same = np.array_equal(resumed.predict(X), whole.predict(X))
print(f"predictions are those of a training without a break: {same}")

resumed.save("model")
print(f"and those of the saved model: {np.array_equal(load('model').predict(X), whole.predict(X))}")

figure, axes = plt.subplots(figsize=(6, 3.4), layout="constrained")
BoundDisplay.from_estimator(resumed, ax=axes)
figure.savefig("bound.png", dpi=110)
