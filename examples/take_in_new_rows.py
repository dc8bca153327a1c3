"""New rows without a training: a deep model takes them in, beside one that is trained anew.

python examples/take_in_new_rows.py
"""

import time

import numpy as np

from dvip import DVIPRegressor

random = np.random.default_rng(0)
X = random.uniform(0, 10, size=(600, 2))
y = np.sin(X[:, 0]) * X[:, 1] + 0.1 * random.standard_normal(600)
test_X = random.uniform(0, 10, size=(500, 2))
test_y = np.sin(test_X[:, 0]) * test_X[:, 1]


def report(name, model, seconds):
    """The error of a model on rows that it never saw."""
    error = np.sqrt(np.mean(np.square(model.predict(test_X) - test_y)))
    print(f"{name:24} error {error:.3f}, {seconds:.2f} s")


model = DVIPRegressor(n_layers=2, n_prior_samples=50, inference="vi", max_iter=3000)
started = time.perf_counter()
model.fit(X[:300], y[:300])
report("fitted to 300 rows", model, time.perf_counter() - started)

model.condition_on(X[300:310], y[300:310])  # the first call compiles
for number in (310, 350, 600):
    started = time.perf_counter()
    taught = model.condition_on(X[300:number], y[300:number])
    report(f"{number - 300} more rows taken in", taught, time.perf_counter() - started)

started = time.perf_counter()
again = DVIPRegressor(n_layers=2, n_prior_samples=50, inference="vi", max_iter=3000).fit(X, y)
report("fitted to all 600 rows", again, time.perf_counter() - started)
