"""A first classifier: probabilities, and sets of labels where one label would be a guess.

python examples/first_classifier.py
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_blobs

from dvip import DVIPClassifier

middles = [(0, 0), (2.2, 0.5), (0.8, 2)]
X, number = make_blobs(300, centers=middles, cluster_std=0.8, random_state=0)
y = np.array(["red", "green", "blue"])[number]

model = DVIPClassifier(n_layers=1, max_iter=1_000, random_state=0).fit(X[:200], y[:200])

test_X, test_y = X[200:], y[200:]
print(f"right: {np.mean(model.predict(test_X) == test_y):.0%} of 100 new rows")
sets = model.predict_set(test_X, coverage=0.9)
sizes = np.array([len(sets[row]) for row in range(len(test_X))])
print(f"sets that hold the label: {sets.contains(test_y).mean():.0%}, asked for 90 % or more")
for size in (1, 2, 3):
    print(f"rows with a set of {size}: {np.sum(sizes == size)}")
unsure = np.argmax(sizes)
print(f"the first of the largest sets: {', '.join(sets[unsure])}")

side = np.linspace(-2.5, 5, 120)
grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
surest = model.predict_proba(grid).max(axis=1).reshape(120, 120)
figure, axes = plt.subplots(figsize=(5.6, 4.4), layout="constrained")
shades = axes.contourf(side, side, surest, levels=np.linspace(0.3, 1, 8), cmap="Greys_r")
figure.colorbar(shades, label="probability of the most probable label")
for label in ("red", "green", "blue"):
    axes.plot(*X[y == label].T, "o", color=f"tab:{label}", ms=4, mec="white", mew=0.5, label=label)
axes.legend(loc="lower right", frameon=True)
figure.savefig("classes.png", dpi=110)
