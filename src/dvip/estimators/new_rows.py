"""What a regression does with rows that come after its training: takes them in, asks for more."""

import copy
import numbers
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from dvip.active_learning import most_telling
from dvip.batches import Batch
from dvip.conditioning import conditioned, why_not_conditioned
from dvip.estimators.base import DeepEstimator
from dvip.objectives import Ensemble
from dvip.prediction import members_of, sample_noises
from dvip.runtime import derived_seed, precision

__all__ = ["NewRows", "SuggestedRows"]

# Functions that covariances of rows are estimated from.
NUM_FUNCTIONS = 256


class SuggestedRows(NamedTuple):
    """Which rows to measure: the numbers of rows, and what each would reduce.

    A reduction is that of the mean variance of the function over all candidates, as a share of what
    it is now, given that the rows before it are measured, too.
    """

    rows: np.ndarray
    reductions: np.ndarray


class NewRows(DeepEstimator):
    """The part of a regression that deals with further rows."""

    def condition_on(
        self, X: Any, y: Any, sample_weight: Any = None, noise_std: Any = None
    ) -> Self:
        """A model that has taken in further rows, without a training, in milliseconds.

        The posterior of the last layer given these rows, too, in closed form; of one layer and of
        a Gaussian process (`inference="exact"`) it is the exact one. Inner layers, prior functions,
        kernels, noise, scales, the weights of a mixture and its calibration stay as they are: where
        many rows came in, or very different ones, `fit` all of them again. For Gaussian noise,
        Student's t, log-normal noise and noise that depends on the inputs.

        Parameters
        ----------
        X : array of shape (rows, inputs) or DataFrame
            Rows that the model has not seen; what it has seen would count twice.
        y : array of shape (rows,) or (rows, targets)
        sample_weight : array of shape (rows,), optional
            How many times each row counts.
        noise_std : number, or array of shape (rows,) or of the shape of y, optional
            The known error of each row, where the model was fitted with such.

        Returns
        -------
        estimator
            A new one; this one is unchanged.

        Examples
        --------
        >>> import numpy as np
        >>> from dvip import DVIPRegressor
        >>> X = np.linspace(0, 5, 30)[:, None]
        >>> model = DVIPRegressor(inference="exact").fit(X, np.sin(X[:, 0]))
        >>> more = model.condition_on([[5.5], [6.0]], np.sin([5.5, 6.0]))
        >>> bool(more.predict([[6.0]], return_std=True)[1] < model.predict([[6.0]], True)[1])
        True
        """
        check_is_fitted(self)
        self._check_takes_in()
        taught = copy.copy(self)
        if len(self.input_shape_) > 1:
            X = self._as_rows_of_the_same_shape(X)
        X, y = taught._read_training_rows(X, y, reset=False, **self._y_options)
        taught.input_shape_ = self.input_shape_
        weights = self._checked_weights(sample_weight, X)
        targets = taught._read_targets(y, first=False)
        errors = taught._read_errors(noise_std, y, first=False)
        if errors is not None:
            targets = np.hstack([targets, errors])
        scaled = (taught._scale_inputs(X, None), taught._scale_targets(targets, None), weights)
        rows: Any = [array[weights > 0].astype(self.precision) for array in scaled]
        taught._take_in(Batch(*rows))
        return taught

    def _check_takes_in(self) -> None:
        """Raises an error, which says what to do, if no closed form is known."""
        reason = why_not_conditioned(members_of(self.model_)[0])
        if reason is not None:
            raise ValueError(
                f"This {type(self).__name__} cannot take in rows in closed form: {reason}. Fit all "
                "rows again, or use partial_fit, which goes on after inference='vi'."
            )

    def _take_in(self, rows: Batch) -> None:
        """Replaces the model by one that knows further rows, which are scaled."""
        models: Any = members_of(self.model_)
        with precision(self.precision):
            seeds = [derived_seed(self.seed_, index) for index in range(len(models))]
            noises: Any = sample_noises(models, self.n_predictive_samples, seeds)
            pairs = zip(models, noises, strict=True)
            taught: Any = tuple(conditioned(model, rows, noise) for model, noise in pairs)
        self.model_ = Ensemble(taught) if isinstance(self.model_, Ensemble) else taught[0]
        self.n_samples_seen_ += len(rows.inputs)
        self._optimiser = None

    def suggest_rows(self, X: Any, k: int = 1, random_state: Any = 0) -> SuggestedRows:
        """Which of these rows to measure next, to learn most about all of them.

        Chosen one after another are rows whose measurement reduces the mean variance of the
        function over all candidates most, by the covariances of function draws: a row beside one
        that is chosen already tells little more. Needs 2 kB of memory for each row.

        Parameters
        ----------
        X : array of shape (rows, inputs) or DataFrame
            The candidates; a row that is there several times counts as often.
        k : int, default 1
            How many to choose.
        random_state : int, RandomState or None, default 0
            Of the function draws.

        Returns
        -------
        SuggestedRows
            `rows`, numbers of rows of X, and `reductions`, shares of the mean variance.

        Examples
        --------
        >>> import numpy as np
        >>> from dvip import DVIPRegressor
        >>> X = np.concatenate([np.linspace(0, 4, 30), [8.0]])[:, None]
        >>> model = DVIPRegressor(inference="exact").fit(X[:30], np.sin(X[:30, 0]))
        >>> model.suggest_rows(X, 1).rows
        array([30])
        """
        check_is_fitted(self)
        inputs = self._scaled(X)
        if not isinstance(k, numbers.Integral) or not 1 <= k <= len(inputs):
            raise ValueError(
                f"k={k!r} must be a whole number from 1 to {len(inputs)}, the number of rows."
            )
        values = self._draw(NUM_FUNCTIONS, random_state)(inputs)
        noise: Any = np.concatenate(
            [part.variance_parts().noise for part in self._pieces(inputs, None)]
        ).reshape(len(inputs), -1)
        targets = range(values.shape[2])
        rows, reductions = most_telling(
            [values[..., target].astype(float) for target in targets],
            [noise[:, target] for target in targets],
            int(k),
        )
        return SuggestedRows(np.array(rows), np.array(reductions))

    def _pieces(self, inputs: np.ndarray, errors: np.ndarray | None) -> Any:
        """What is predicted, for some rows after others."""
        raise NotImplementedError  # of a regression
