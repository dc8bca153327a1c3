"""What others would predict: scikit-learn's models, with distributions, to compare with.

Each is fitted to rows of numbers and gives what the estimators of `dvip` give: a predictive
distribution of each row, or the probability of each class.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dvip.distributions import GaussianMixture, Predictive

__all__ = ["BASELINES", "Baseline", "class_baseline", "number_baseline"]

# What a fitted baseline is: from inputs to a distribution, or to probabilities.
Baseline = Callable[[np.ndarray], Any]
Fit = Callable[[np.ndarray, np.ndarray, int], Baseline]

# Rows that scikit-learn's Gaussian process is fitted to, whose time grows with their cube.
MAX_ROWS_OF_GP = 1_000
# The share of the rows that tells how wrong a model is that gives no distribution.
HELD_BACK = 0.2
# Classes of which a row has been seen at least.
SMALLEST_PROBABILITY = 1e-6


def _gaussian(mean: np.ndarray, std: np.ndarray) -> Predictive:
    means = np.asarray(mean, dtype=float)[:, None]
    variances = np.broadcast_to(np.square(np.asarray(std, dtype=float)), len(means))
    return GaussianMixture(means, variances[:, None].copy(), np.zeros(()))


def _constant(X: np.ndarray, y: np.ndarray, seed: int) -> Baseline:
    """Mean and standard deviation of y, whatever the inputs."""
    del X, seed
    mean, std = y.mean(), max(float(y.std(ddof=1)) if len(y) > 1 else 1.0, 1e-12)
    return lambda inputs: _gaussian(np.full(len(inputs), mean), np.full(len(inputs), std))


def _linear(X: np.ndarray, y: np.ndarray, seed: int) -> Baseline:
    """A line in each input, with the noise and the strength of the prior learned."""
    from sklearn.linear_model import BayesianRidge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    del seed
    centre, scale = y.mean(), y.std() or 1.0
    model = make_pipeline(StandardScaler(), BayesianRidge()).fit(X, (y - centre) / scale)

    def predicted(inputs: np.ndarray) -> Predictive:
        mean, std = model.predict(inputs, return_std=True)
        return _gaussian(centre + scale * mean, scale * std)

    return predicted


def _boosted(X: np.ndarray, y: np.ndarray, seed: int) -> Baseline:
    """Gradient-boosted trees; their error on rows held back is the standard deviation of all."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    order = np.random.default_rng(seed).permutation(len(y))
    held = order[: max(1, int(HELD_BACK * len(y)))]
    rest = np.setdiff1d(order, held)
    judged = HistGradientBoostingRegressor(random_state=seed).fit(X[rest], y[rest])
    std = max(float(np.sqrt(np.mean(np.square(judged.predict(X[held]) - y[held])))), 1e-12)
    model = HistGradientBoostingRegressor(random_state=seed).fit(X, y)
    return lambda inputs: _gaussian(model.predict(inputs), np.full(len(inputs), std))


def _process(X: np.ndarray, y: np.ndarray, seed: int) -> Baseline:
    """scikit-learn's Gaussian process, with a length for each input and noise."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
    from sklearn.preprocessing import StandardScaler

    chosen = np.random.default_rng(seed).permutation(len(y))[:MAX_ROWS_OF_GP]
    scaler = StandardScaler().fit(X[chosen])
    lengths = RBF(np.full(X.shape[1], np.sqrt(X.shape[1])), (1e-2, 1e3))
    kernel = ConstantKernel(1.0, (1e-3, 1e3)) * lengths + WhiteKernel(0.1, (1e-6, 1e1))
    model = GaussianProcessRegressor(kernel, normalize_y=True, random_state=seed)
    model.fit(scaler.transform(X[chosen]), y[chosen])
    return lambda inputs: _gaussian(*model.predict(scaler.transform(inputs), return_std=True))


def _of_classes(make: Callable[[int], Any]) -> Fit:
    """A classifier of scikit-learn, whose inputs are scaled."""

    def fit(X: np.ndarray, y: np.ndarray, seed: int) -> Baseline:
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        model = make_pipeline(StandardScaler(), make(seed)).fit(X, y)
        classes = np.unique(y)

        def probabilities(inputs: np.ndarray) -> np.ndarray:
            given = np.maximum(model.predict_proba(inputs), SMALLEST_PROBABILITY)
            assert given.shape[1] == len(classes)
            return given / given.sum(axis=1, keepdims=True)

        return probabilities

    return fit


def _frequencies(seed: int) -> Any:
    from sklearn.dummy import DummyClassifier

    del seed
    return DummyClassifier(strategy="prior")


def _logistic(seed: int) -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(max_iter=2_000, random_state=seed)


def _boosted_classes(seed: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(random_state=seed)


def _forest(seed: int) -> Any:
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(n_estimators=200, random_state=seed)


# By task and name; the first two are the simplest.
BASELINES: Mapping[str, Mapping[str, Fit]] = {
    "regression": {
        "mean of y": _constant,
        "linear": _linear,
        "gradient boosting": _boosted,
        "gaussian process": _process,
    },
    "classification": {
        "frequencies": _of_classes(_frequencies),
        "logistic": _of_classes(_logistic),
        "gradient boosting": _of_classes(_boosted_classes),
        "random forest": _of_classes(_forest),
    },
}


def number_baseline(name: str, X: np.ndarray, y: np.ndarray, seed: int = 0) -> Baseline:
    """A baseline of that name, fitted to numbers: inputs to predictive distributions."""
    return BASELINES["regression"][name](X, np.asarray(y, dtype=float), seed)


def class_baseline(name: str, X: np.ndarray, y: np.ndarray, seed: int = 0) -> Baseline:
    """A baseline of that name, fitted to labels: inputs to probabilities of the sorted classes."""
    return BASELINES["classification"][name](X, np.asarray(y), seed)
