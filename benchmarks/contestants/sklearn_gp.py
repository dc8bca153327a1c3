"""scikit-learn's exact GP: squared exponential with a length scale for each input, white noise."""

import warnings
from collections.abc import Callable
from functools import partial

import numpy as np
from scipy.linalg import cho_solve, cholesky, lapack
from scipy.optimize import minimize
from scipy.spatial.distance import cdist
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.preprocessing import StandardScaler

from dvip import GaussianMixture

JITTER = 1e-10  # scikit-learn's


class ExactGPRegressor:
    """Its time grows with the cube of the rows: of a longer table it sees `max_rows` at random."""

    def __init__(self, max_rows: int = 2_000, optimise: bool = True):
        self.max_rows = max_rows
        self.optimise = optimise

    def fit(self, X: np.ndarray, y: np.ndarray) -> "ExactGPRegressor":
        rows = np.random.default_rng(0).permutation(len(X))[: self.max_rows]
        self.scaler_ = StandardScaler().fit(X)
        inputs = self.scaler_.transform(X[rows])
        scaled = (y[rows] - y[rows].mean()) / (y[rows].std() or 1.0)
        kernel = ConstantKernel() * RBF(np.ones(X.shape[1]), (1e-2, 1e3)) + WhiteKernel(0.1)
        self.model_ = GaussianProcessRegressor(
            kernel,
            alpha=JITTER,
            normalize_y=True,
            optimizer=partial(_optimise, inputs, scaled) if self.optimise else None,
            random_state=0,
        )
        with warnings.catch_warnings():
            # An input that does not matter takes its length scale to the bound.
            warnings.simplefilter("ignore", ConvergenceWarning)
            self.model_.fit(inputs, y[rows])
        return self

    def predict_dist(self, X: np.ndarray) -> GaussianMixture:
        mean, std = self.model_.predict(self.scaler_.transform(X), return_std=True)
        return GaussianMixture(mean[:, None], np.square(std)[:, None], np.array(0.0))


def _optimise(
    inputs: np.ndarray, targets: np.ndarray, slow: Callable, theta: np.ndarray, bounds: np.ndarray
) -> tuple[np.ndarray, float]:
    """What scikit-learn does, without its array of rows x rows x inputs: minutes on wide tables."""
    del slow
    objective = partial(negative_evidence, inputs, targets)
    found = minimize(objective, theta, jac=True, method="L-BFGS-B", bounds=bounds)
    return found.x, float(found.fun)


def negative_evidence(
    inputs: np.ndarray, targets: np.ndarray, theta: np.ndarray
) -> tuple[float, np.ndarray]:
    """Of the logarithms of the variance, the length scales and the noise; with its gradient."""
    variance, *scales, noise = np.exp(theta)
    scaled = inputs / scales
    smooth = variance * np.exp(-0.5 * cdist(scaled, scaled, "sqeuclidean"))
    try:
        factor = cholesky(smooth + (noise + JITTER) * np.eye(len(inputs)), lower=True)
    except np.linalg.LinAlgError:
        return np.inf, np.zeros_like(theta)
    weights = cho_solve((factor, True), targets)
    evidence = -0.5 * targets @ weights - np.log(np.diag(factor)).sum()
    evidence -= 0.5 * len(inputs) * np.log(2 * np.pi)
    lower = np.tril(lapack.dpotri(factor, lower=1)[0])
    inverse = lower + np.tril(lower, -1).T
    by_covariance = 0.5 * (np.outer(weights, weights) - inverse)
    # The sum over pairs of rows of a number for each times their squared distance along an input.
    pairs = by_covariance * smooth
    by_scales = 2 * (pairs.sum(axis=1) @ scaled**2 - np.sum(scaled * (pairs @ scaled), axis=0))
    gradient = [pairs.sum(), *by_scales, noise * np.trace(by_covariance)]
    return -evidence, -np.array(gradient)
