"""Regressors of dvip as probabilistic regressors of skpro, which sktime's forecasters build on."""

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.utils import check_random_state

from dvip.distributions import CountMixture, GaussianMixture, Predictive
from dvip.estimators.implicit_processes import DVIPRegressor

try:
    from skpro.distributions.base import BaseDistribution
    from skpro.regression.base import BaseProbaRegressor
except ImportError as error:
    raise ImportError('dvip.skpro needs skpro: pip install "dvip[skpro]".') from error

__all__ = ["PredictiveDistribution", "SkproRegressor"]

# So many standard deviations from the mean, E|Y - x| is |mean - x| to all digits.
FAR = 1e3


class SkproRegressor(BaseProbaRegressor):
    """A regressor of dvip as one of skpro.

    `fit`, `predict`, `predict_proba`, `predict_interval`, `predict_quantiles` and `predict_var` are
    those of every regressor of skpro.

    Parameters
    ----------
    estimator : regressor of dvip, optional
        `DVIPRegressor()` by default. It stays as it is: a copy is trained.

    Attributes
    ----------
    estimator_ : regressor of dvip
        The one that was trained.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from dvip import DVIPRegressor
    >>> from dvip.skpro import SkproRegressor
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> model = SkproRegressor(DVIPRegressor.paper(n_layers=1, max_iter=100)).fit(X, y)
    >>> model.predict_interval(X[:3], coverage=0.9).shape
    (3, 2)
    """

    _tags: ClassVar[dict[str, Any]] = {
        "authors": ["The dvip developers"],
        "capability:multioutput": True,
        "capability:missing": True,
        "X_inner_mtype": "pd_DataFrame_Table",
        "y_inner_mtype": "pd_DataFrame_Table",
    }

    def __init__(self, estimator: Any = None):
        self.estimator = estimator
        super().__init__()

    def _fit(self, X: pd.DataFrame, y: pd.DataFrame) -> "SkproRegressor":
        given = DVIPRegressor() if self.estimator is None else self.estimator
        if getattr(given, "task", None) != "regression":
            raise ValueError(
                f"estimator={given!r} must be a regressor of dvip, such as DVIPRegressor()."
            )
        values = y.to_numpy(dtype=float)
        values = values[:, 0] if values.shape[1] == 1 else values
        self.estimator_ = clone(given).fit(_named(X), values)
        return self

    def _predict(self, X: pd.DataFrame) -> pd.DataFrame:
        mean = self.estimator_.predict(_named(X)).reshape(len(X), -1)
        return pd.DataFrame(mean, index=X.index, columns=self._get_columns(method="predict"))

    def _predict_proba(self, X: pd.DataFrame) -> "PredictiveDistribution":
        return PredictiveDistribution(
            self.estimator_.predict_dist(_named(X)),
            index=X.index,
            columns=self._get_columns(method="predict"),
        )

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Parameters that skpro's own checks use: small models, quickly trained."""
        del parameter_set
        small = {"n_layers": 1, "n_prior_samples": 5, "max_iter": 20, "n_predictive_samples": 4}
        return [
            {"estimator": DVIPRegressor.paper(**small)},
            {"estimator": DVIPRegressor.paper(**small, likelihood="student-t")},
        ]


class PredictiveDistribution(BaseDistribution):
    """A predictive distribution of dvip as one of skpro: rows of `index`, a column for each target.

    Parameters
    ----------
    predictive : Predictive
        What `predict_dist` gives. That of one row, without an index, is a single distribution.
    targets : list of int, optional
        Which of its targets; all by default.
    index, columns : pandas.Index, optional
        The names of rows and targets.

    Examples
    --------
    >>> import numpy as np
    >>> from dvip import GaussianMixture
    >>> from dvip.skpro import PredictiveDistribution
    >>> normal = GaussianMixture(np.zeros((2, 1)), np.zeros((2, 1)), np.ones(()))
    >>> PredictiveDistribution(normal, columns=["y"]).quantile(0.975).round(2)
          y
      0.975
    0  1.96
    1  1.96
    """

    _tags: ClassVar[dict[str, Any]] = {
        "authors": ["The dvip developers"],
        "capabilities:approx": ["pdfnorm", "energy"],
        "capabilities:exact": ["mean", "var", "pdf", "log_pdf", "pmf", "log_pmf", "cdf", "ppf"],
        "distr:measuretype": "continuous",
        "distr:paramtype": "nonparametric",
    }

    def __init__(
        self,
        predictive: Predictive,
        targets: list[int] | None = None,
        index: Any = None,
        columns: Any = None,
    ):
        self.predictive, self.targets = predictive, targets
        num_rows = predictive.shape[0]
        if len(predictive.shape) == 2:  # of one target, without an axis for it
            self._marginals = [predictive]
        else:
            chosen = range(predictive.shape[1]) if targets is None else targets
            self._marginals = [predictive.target(position) for position in chosen]
        single = num_rows == 1 and len(self._marginals) == 1 and index is None and columns is None
        if not single:
            index = pd.RangeIndex(num_rows) if index is None else index
            columns = pd.RangeIndex(len(self._marginals)) if columns is None else columns
        super().__init__(index=index, columns=columns)
        if isinstance(predictive, CountMixture):
            self.set_tags(**{"distr:measuretype": "discrete"})

    def _by_column(self, function: Callable[..., np.ndarray], *given: Any) -> Any:
        """`function` of the distribution of each column, and of that column of what is given."""
        shape = (self.predictive.shape[0], len(self._marginals))
        arrays = [np.broadcast_to(np.asarray(array, dtype=float), shape) for array in given]
        values = [
            function(marginal, *(array[:, column] for array in arrays))
            for column, marginal in enumerate(self._marginals)
        ]
        return np.column_stack(values) if self.ndim else values[0][0]

    def _mean(self) -> Any:
        return self._by_column(lambda marginal: marginal.mean)

    def _var(self) -> Any:
        return self._by_column(lambda marginal: marginal.variance)

    def _log_pdf(self, x: Any) -> Any:
        return self._by_column(lambda marginal, y: marginal.log_prob(y), x)

    def _pdf(self, x: Any) -> Any:
        return np.exp(self._log_pdf(x))

    # Of counts, these are what `log_prob` gives.
    _log_pmf, _pmf = _log_pdf, _pdf

    def _cdf(self, x: Any) -> Any:
        return self._by_column(lambda marginal, y: marginal.cdf(y), x)

    def _ppf(self, p: Any) -> Any:
        return self._by_column(_quantiles, p)

    def _energy_self(self) -> Any:
        return self._summed(self._by_column(_spread))

    def _energy_x(self, x: Any) -> Any:
        # The CRPS is E|Y - x| - E|Y - Y'| / 2.
        return self._summed(
            self._by_column(lambda marginal, y: marginal.crps(y) + _spread(marginal) / 2, x)
        )

    def _summed(self, energy: Any) -> Any:
        """Over the targets, as skpro has it."""
        return energy.sum(axis=1, keepdims=True) if self.ndim else energy

    def _sample(self, n_samples: int | None = None) -> Any:
        """Draws with the random numbers of `np.random`; targets of a row belong together."""
        number = 1 if n_samples is None else n_samples
        draws = self.predictive.sample(number, check_random_state(None))
        draws = draws.reshape(*draws.shape[:2], -1)
        if self.targets is not None:
            draws = draws[..., self.targets]
        if not self.ndim:
            return draws[0, 0, 0] if n_samples is None else pd.DataFrame(draws[:, 0])
        if n_samples is None:
            return pd.DataFrame(draws[0], index=self.index, columns=self.columns)
        frames = [pd.DataFrame(draw, index=self.index, columns=self.columns) for draw in draws]
        return pd.concat(frames, keys=range(n_samples))

    def _subset(self, rows: Any, columns: Any) -> tuple[Predictive, list[int] | None]:
        """The distribution of some rows and the positions of some targets."""
        predictive = self.predictive
        if rows is not None:
            predictive = predictive[rows]
        if columns is None or len(predictive.shape) == 2:
            return predictive, self.targets
        positions = np.arange(predictive.shape[1]) if self.targets is None else self.targets
        return predictive, np.atleast_1d(np.asarray(positions)[columns]).tolist()

    def _iloc(self, rowidx: Any = None, colidx: Any = None) -> "PredictiveDistribution":
        if rowidx is not None and colidx is not None and np.ndim(rowidx) == np.ndim(colidx) == 0:
            return self._iat(rowidx, colidx)
        rows = None if rowidx is None else np.atleast_1d(np.arange(len(self))[rowidx])
        columns = None if colidx is None else np.atleast_1d(np.arange(self.shape[1])[colidx])
        predictive, targets = self._subset(rows, columns)
        return PredictiveDistribution(
            predictive,
            targets,
            index=self.index if rows is None else self.index.take(rows),
            columns=self.columns if columns is None else self.columns.take(columns),
        )

    def _iat(self, rowidx: Any = None, colidx: Any = None) -> "PredictiveDistribution":
        if rowidx is None or colidx is None:
            raise ValueError("iat needs a row and a column.")
        return PredictiveDistribution(*self._subset(rowidx, colidx))

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Parameters that skpro's own checks use: rows and targets, and a single distribution."""
        del parameter_set
        means = np.arange(12.0).reshape(3, 2, 2)
        mixture = GaussianMixture(means, np.full((3, 2, 2), 0.5), np.full(2, 0.1))
        single = GaussianMixture(np.array([[0.0, 1.0]]), np.ones((1, 2)), np.array(0.1))
        rows, targets = pd.Index([1, 2, 5]), pd.Index(["a", "b"])
        return [
            {"predictive": mixture, "index": rows, "columns": targets},
            {"predictive": mixture.target(0)},
            {"predictive": single},
        ]


def _named(X: pd.DataFrame) -> pd.DataFrame:
    """With names that are text: skpro has numbers among them, too."""
    return X.set_axis(X.columns.astype(str), axis=1)


def _quantiles(marginal: Predictive, p: np.ndarray) -> np.ndarray:
    """The quantile of each row at a probability of its own."""
    values = np.where(p <= 0, -np.inf, np.where(p >= 1, np.inf, np.nan))
    for level in np.unique(p[(p > 0) & (p < 1)]):
        rows = np.flatnonzero(p == level)
        values[rows] = marginal[rows].quantile(float(level))
    return values


def _spread(marginal: Predictive) -> np.ndarray:
    """E|Y - Y'|, from the CRPS of a value that is far away."""
    mean = marginal.mean
    far = mean + FAR * marginal.std
    return 2 * (far - mean - marginal.crps(far))
