"""What is asked of a trained model every day: intervals, quantiles, sets of labels, a page.

Each is computed for some rows at a time, so that memory does not grow with the table.
"""

import abc
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from sklearn.utils.validation import check_is_fitted

from dvip.distributions import Predictive

__all__ = ["LabelPredictions", "NumberPredictions", "PredictionSet"]

# Components of rows whose distributions are in memory at once.
COMPONENTS_AT_ONCE = 2**20
# What probabilities that add up to the coverage may lack by rounding.
ROUNDING = 1e-9


class Reporting:
    """The part of a model that tells all about itself, on a page."""

    def report(
        self,
        X: Any,
        y: Any,
        path: str | Path | None = None,
        *,
        noise_std: Any = None,
        training: tuple[Any, Any] | None = None,
        title: str | None = None,
    ) -> str:
        """One self-contained HTML page: how good the model is, what it learned, which rows to see.

        Parameters
        ----------
        X : array of shape (rows, inputs) or DataFrame
            Rows that the model has not seen, best of all; of more than 10,000, some are chosen.
        y : array of shape (rows,), for regressions also (rows, targets)
        path : str or Path, optional
            The .html file to write.
        noise_std : number, or array of shape (rows,) or of the shape of y, optional
            Known errors of the rows, as for `predict`.
        training : pair of X and y, optional
            The rows of the training, for the baselines; by default they are fitted to parts of X.
        title : str, optional

        Returns
        -------
        str
            The page.
        """
        # Which loads matplotlib.
        from dvip.report import check_page, findings_of, page_of, written_page

        check_is_fitted(self)
        if path is not None:
            check_page(path)
        given = {"noise_std": noise_std, "training": training, "title": title}
        page = page_of(findings_of(self, X, y, **given))
        if path is not None:
            written_page(path, page)
        return page


class NumberPredictions(Reporting, abc.ABC):
    """The part of a regressor that answers with numbers, besides `predict`."""

    n_predictive_samples: int
    target_shape_: tuple[int, ...]

    @abc.abstractmethod
    def _scaled(self, X: Any) -> np.ndarray:
        """Inputs for prediction, validated and scaled."""

    @abc.abstractmethod
    def _errors_at(self, noise_std: Any, num_rows: int) -> np.ndarray | None:
        """Known errors of rows to predict, where there are some."""

    @abc.abstractmethod
    def _distribution(
        self, inputs: np.ndarray, errors: np.ndarray | None = None, num_samples: int | None = None
    ) -> Predictive:
        """What is predicted for scaled inputs."""

    def predict_interval(self, X: Any, coverage: float = 0.9, noise_std: Any = None) -> np.ndarray:
        """The central interval that holds y with a probability, for each row.

        Parameters
        ----------
        X : array of shape (rows, inputs) or DataFrame
        coverage : float, default 0.9
            The probability, strictly between 0 and 1.
        noise_std : number, or array of shape (rows,) or of the shape of y, optional
            The error that a measurement of each row has, as for `predict`.

        Returns
        -------
        array of shape (rows, 2), of several targets (rows, targets, 2)
            Lower and upper end.

        Examples
        --------
        >>> from sklearn.datasets import load_diabetes
        >>> from dvip import DVIPRegressor
        >>> X, y = load_diabetes(return_X_y=True)
        >>> model = DVIPRegressor(inference="exact").fit(X[:100], y[:100])
        >>> model.predict_interval(X[:3], coverage=0.5).shape
        (3, 2)
        """
        if np.ndim(coverage) or not _is_probability(coverage):
            raise ValueError(
                f"coverage={coverage!r} must be one number strictly between 0 and 1, such as 0.9."
            )
        return self.predict_quantiles(X, [(1 - coverage) / 2, (1 + coverage) / 2], noise_std)

    def predict_quantiles(
        self, X: Any, quantiles: Sequence[float] | np.ndarray, noise_std: Any = None
    ) -> np.ndarray:
        """The values that y stays below with these probabilities, for each row.

        Parameters
        ----------
        X : array of shape (rows, inputs) or DataFrame
        quantiles : sequence of float
            Probabilities, strictly between 0 and 1.
        noise_std : number, or array of shape (rows,) or of the shape of y, optional
            The error that a measurement of each row has, as for `predict`.

        Returns
        -------
        array of shape (rows, quantiles), of several targets (rows, targets, quantiles)
            In the order in which the quantiles were given.
        """
        levels = np.asarray(quantiles)
        if levels.ndim != 1 or not levels.size or not all(map(_is_probability, levels)):
            raise ValueError(
                f"quantiles={quantiles!r} must be a sequence of numbers strictly between 0 and 1, "
                "such as [0.05, 0.5, 0.95]."
            )
        return self._asked(X, noise_std, lambda part: np.moveaxis(part.quantile(levels), 0, -1))

    def predict_var(self, X: Any, noise_std: Any = None) -> np.ndarray:
        """The predictive variance of y, the square of what `predict(X, return_std=True)` gives.

        Parameters
        ----------
        X : array of shape (rows, inputs) or DataFrame
        noise_std : number, or array of shape (rows,) or of the shape of y, optional
            The error that a measurement of each row has, as for `predict`.

        Returns
        -------
        array of shape (rows,) or (rows, targets)
            `predict_dist(X).variance_parts()` says how much of it is noise.
        """
        return self._asked(X, noise_std, lambda part: part.variance)

    def _asked(
        self, X: Any, noise_std: Any, question: Callable[[Predictive], np.ndarray]
    ) -> np.ndarray:
        """What a question to the distributions of all rows gives, some of them at a time."""
        inputs = self._scaled(X)
        errors = self._errors_at(noise_std, len(inputs))
        number = self.n_predictive_samples * int(np.prod(self.target_shape_))
        step = max(1, COMPONENTS_AT_ONCE // number)
        answers = [
            question(self._distribution(inputs[rows], None if errors is None else errors[rows]))
            for rows in _slices(len(inputs), step)
        ]
        return np.concatenate(answers)


def _slices(num_rows: int, step: int) -> Iterator[slice]:
    """All rows, `step` at a time; an empty one where there are none."""
    for start in range(0, max(1, num_rows), step):
        yield slice(start, start + step)


def _is_probability(given: Any) -> bool:
    is_number = isinstance(given, int | float | np.number) and not isinstance(given, bool)
    return is_number and bool(0 < given < 1)


@dataclass(frozen=True, eq=False, repr=False)
class PredictionSet:
    """Labels that together hold a probability, for each row: as few of them as possible.

    Attributes
    ----------
    mask : array of bool, of shape (rows, classes)
        Which classes are in the set.
    probabilities : array of shape (rows, classes)
        What `predict_proba` gives.
    classes : array of shape (classes,)
        The labels, in the order of the columns.

    Examples
    --------
    >>> import numpy as np
    >>> from dvip import PredictionSet
    >>> probabilities = np.array([[0.7, 0.25, 0.05], [0.95, 0.05, 0.0]])
    >>> sets = PredictionSet.of(probabilities, np.array(["cat", "dog", "owl"]), 0.9)
    >>> [labels.tolist() for labels in sets]
    [['cat', 'dog'], ['cat']]
    >>> sets.contains(["dog", "dog"])
    array([ True, False])
    """

    mask: Bool[np.ndarray, "rows classes"]
    probabilities: Float[np.ndarray, "rows classes"]
    classes: np.ndarray

    @classmethod
    def of(cls, probabilities: np.ndarray, classes: np.ndarray, coverage: float) -> "PredictionSet":
        """The smallest sets whose probabilities add up to `coverage` or more."""
        order = np.argsort(-probabilities, axis=1, kind="stable")
        ordered = np.take_along_axis(probabilities, order, axis=1)
        # A class is needed where those before it are not enough.
        before = np.cumsum(ordered, axis=1) - ordered
        mask = np.zeros(probabilities.shape, dtype=bool)
        np.put_along_axis(mask, order, before < coverage - ROUNDING, axis=1)
        return cls(mask, probabilities, np.asarray(classes))

    @property
    def sizes(self) -> np.ndarray:
        """How many labels each set has."""
        return self.mask.sum(axis=1)

    def contains(self, y: Iterable[Any]) -> Bool[np.ndarray, " rows"]:
        """Whether the label of each row is in its set; the mean is the observed coverage."""
        labels = np.asarray(y).tolist() if hasattr(y, "dtype") else list(y)
        if len(labels) != len(self):
            raise ValueError(f"There are {len(labels):,} labels for {len(self):,} sets.")
        places = {label: place for place, label in enumerate(self.classes.tolist())}
        found = [
            places.get(getattr(label, "item", lambda given=label: given)()) for label in labels
        ]
        rows = zip(self.mask, found, strict=True)
        return np.array([place is not None and bool(row[place]) for row, place in rows], dtype=bool)

    def __len__(self) -> int:
        return len(self.mask)

    def __getitem__(self, row: int) -> np.ndarray:
        """The labels of a row, the most probable first."""
        inside = np.flatnonzero(self.mask[row])
        order = np.argsort(-self.probabilities[row, inside], kind="stable")
        return self.classes[inside[order]]

    def __repr__(self) -> str:
        mean = f", {self.sizes.mean():.3g} labels each" if len(self) else ""
        return f"PredictionSet({len(self):,} rows{mean})"


class LabelPredictions(Reporting, abc.ABC):
    """The part of a classifier that answers with more than the most probable class."""

    classes_: np.ndarray

    @abc.abstractmethod
    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class."""

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """The logarithm of the probability of each class.

        Parameters
        ----------
        X : array of shape (rows, inputs) or DataFrame

        Returns
        -------
        array of shape (rows, classes)
            In the order of `classes_`; minus infinity where a probability is zero.
        """
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def predict_set(self, X: Any, coverage: float = 0.9) -> PredictionSet:
        """For each row, the fewest labels that together hold a probability.

        Parameters
        ----------
        X : array of shape (rows, inputs) or DataFrame
        coverage : float, default 0.9
            The probability, strictly between 0 and 1.

        Returns
        -------
        PredictionSet
            `sets[0]` are the labels of the first row, the most probable first; `sets.mask` says it
            for all rows and classes, `sets.contains(y)` whether labels are in their sets.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dvip import DVIPClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> model = DVIPClassifier.paper(n_layers=1, max_iter=100).fit(X, y)
        >>> model.predict_set(X, coverage=0.99).mask.shape
        (150, 3)
        """
        if not _is_probability(coverage):
            raise ValueError(
                f"coverage={coverage!r} must be one number strictly between 0 and 1, such as 0.9."
            )
        return PredictionSet.of(self.predict_proba(X), self.classes_, coverage)
