"""CatBoost: boosted trees for the mean and the variance of a Gaussian, stopped on held-out rows."""

import numpy as np
from catboost import CatBoostRegressor

from dvip import GaussianMixture

# Trees without a better score of the held-out rows, before training stops.
PATIENCE = 50


class CatBoostUncertainty:
    """A tenth of the rows, at random, says when to stop."""

    def __init__(self, iterations: int = 1_000):
        self.iterations = iterations

    def fit(self, X: np.ndarray, y: np.ndarray) -> "CatBoostUncertainty":
        order = np.random.default_rng(0).permutation(len(X))
        held_out, kept = np.split(order, [max(1, len(X) // 10)])
        self.model_ = CatBoostRegressor(
            loss_function="RMSEWithUncertainty",
            iterations=self.iterations,
            early_stopping_rounds=PATIENCE,
            random_seed=0,
            thread_count=1,
            verbose=False,
            allow_writing_files=False,
        )
        self.model_.fit(X[kept], y[kept], eval_set=(X[held_out], y[held_out]))
        return self

    def predict_dist(self, X: np.ndarray) -> GaussianMixture:
        mean, variance = self.model_.predict(X, prediction_type="RMSEWithUncertainty").T
        return GaussianMixture(mean[:, None], variance[:, None], np.array(0.0))
