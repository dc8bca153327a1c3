"""Which rows to measure: those that the model asks for, beside rows at random.

Most of the candidates are alike, as in a log of ordinary days; what is to be known is everywhere.

    python examples/choose_measurements.py
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np

from dvip import DVIPRegressor

warnings.simplefilter("ignore")  # of rows far from the others: that is what it is about
random = np.random.default_rng(0)
usual = 0.5 + 0.05 * random.standard_normal((360, 3))
candidates = np.concatenate([usual, random.uniform(0, 1, size=(140, 3))])
places = random.uniform(0, 1, size=(1000, 3))


def truth(rows):
    return np.sin(3 * rows[:, 0]) + 2 * np.square(rows[:, 1] - 0.5) + rows[:, 1] * rows[:, 2]


def measured(rows):
    return truth(rows) + 0.02 * random.standard_normal(len(rows))


def asked_for(model, rows, number):
    """Rows that reduce the variance of the function most, none of them twins."""
    return model.suggest_rows(rows, number).rows


def at_random(model, rows, number):
    return random.choice(len(rows), number, replace=False)


def errors(choose, rounds=5, number=6):
    """The error everywhere, before each round of measurements."""
    known = list(range(10))
    values, errors = measured(candidates[known]), []
    for _ in range(rounds):
        model = DVIPRegressor(inference="exact").fit(candidates[known], values)
        errors.append(np.sqrt(np.mean(np.square(model.predict(places) - truth(places)))))
        left = np.setdiff1d(np.arange(len(candidates)), known)
        new = left[choose(model, candidates[left], number)]
        known, values = [*known, *new], np.append(values, measured(candidates[new]))
    return errors


for name, choose in (("asked for", asked_for), ("at random", at_random)):
    found = errors(choose)
    print(name, " ".join(f"{error:.3f}" for error in found))
    plt.plot([10, 16, 22, 28, 34], found, "o-", label=name)
plt.gca().set(xlabel="rows measured", ylabel="error everywhere", ylim=(0, None))
plt.legend()
plt.savefig("errors.png", dpi=80)
