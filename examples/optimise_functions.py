"""Regrets of dvip, random search and any BoTorch: `python examples/optimise_functions.py`."""

from importlib.util import find_spec

import numpy as np

from dvip.optimise import Optimisation

A = "10 3 17 3.5 1.7 8 .05 10 17 .1 8 14 3 3.5 1.7 10 17 8 17 8 .05 10 .1 14"
P = "1312 1696 5569 124 8283 5886 2329 4135 8307 3736 1004 9991 2348 1451 3522 2883 3047 6650 "
P += "4047 8828 8732 5743 1091 381"
A, P = (np.array(text.split(), float).reshape(4, 6) for text in (A, P))


def branin(x):
    bowl = x[1] - 5.1 / (4 * np.pi**2) * x[0] ** 2 + 5 / np.pi * x[0] - 6
    return bowl**2 + 10 * (1 - 1 / (8 * np.pi)) * np.cos(x[0]) + 10


def hartmann(x):
    return -np.exp(-np.sum(A * (x - P / 1e4) ** 2, axis=1)) @ [1.0, 1.2, 3.0, 3.2]


def ackley(x):
    far = np.exp(-0.2 * np.sqrt(np.mean(x**2)))
    return 20 + np.e - 20 * far - np.exp(np.mean(np.cos(2 * np.pi * x)))


def with_botorch(bounds, function, number=60):
    """The least value that a Gaussian process of BoTorch with qLogNEI finds."""
    import torch
    from botorch import acquisition, fit_gpytorch_mll, models, optim
    from gpytorch.mlls import ExactMarginalLogLikelihood as Evidence

    low, high = torch.tensor(bounds, dtype=torch.double).T
    X, cube = torch.rand(10, len(low)).double(), torch.stack([0 * low, 0 * low + 1])
    while True:
        y = torch.tensor([[function(row)] for row in (low + X * (high - low)).numpy()]).double()
        if len(y) >= number:
            return float(y.min())
        model = models.SingleTaskGP(X, -y)
        fit_gpytorch_mll(Evidence(model.likelihood, model))
        promise = acquisition.qLogNoisyExpectedImprovement(model, X)
        X = torch.cat([X, optim.optimize_acqf(promise, cube, 1, 5, raw_samples=128)[0]])


for function, bounds, minimum in (
    (branin, [(-5, 10), (0, 15)], 0.397887),
    (hartmann, [(0, 1)] * 6, -3.322368),
    (ackley, [(-32.768, 32.768)] * 5, 0.0),
):
    search = Optimisation(bounds)
    for _ in range(60):
        row = search.suggest()
        search.observe(row, [function(row[0])])
    at_random = np.random.default_rng(0).uniform(*np.transpose(bounds), (60, len(bounds)))
    found = [search.best.value, min(map(function, at_random))]
    found += [with_botorch(bounds, function)] if find_spec("botorch") else []
    print(function.__name__, *(f"{value - minimum:.4f}" for value in found), flush=True)
