"""NGBoost: boosted trees for the mean and the standard deviation of a Gaussian, as they come."""

import numpy as np
from ngboost import NGBRegressor

from dvip import GaussianMixture


class NGBoostRegressor:
    def __init__(self, n_estimators: int = 500):
        self.n_estimators = n_estimators

    def fit(self, X: np.ndarray, y: np.ndarray) -> "NGBoostRegressor":
        self.model_ = NGBRegressor(n_estimators=self.n_estimators, random_state=0, verbose=False)
        # Its trees take NumPy's global generator, whatever random_state is. (The same seed for
        # each of them would make them break ties alike, which changes the scores.)
        before = np.random.get_state()  # noqa: NPY002
        np.random.seed(0)  # noqa: NPY002
        try:
            self.model_.fit(X, y)
        finally:
            np.random.set_state(before)  # noqa: NPY002
        return self

    def predict_dist(self, X: np.ndarray) -> GaussianMixture:
        normal = self.model_.pred_dist(X)
        variance = np.square(normal.params["scale"])
        return GaussianMixture(normal.params["loc"][:, None], variance[:, None], np.array(0.0))
