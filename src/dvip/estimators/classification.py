"""Classification: any labels, probit for two classes, robust-max for more."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

import jax.numpy as jnp
import numpy as np
import pandas as pd
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from dvip.batches import ArrayData
from dvip.calibration import (
    Calibration,
    LeftOutClasses,
    best_log_likelihood,
    fit_temperature,
    tempered,
)
from dvip.estimators.base import DeepEstimator
from dvip.estimators.inputs import as_pandas
from dvip.estimators.predictions import LabelPredictions
from dvip.function_draws import Draws
from dvip.likelihoods import Classification
from dvip.objectives import DeepModel, Ensemble
from dvip.prediction import Model, class_probabilities, members_of, sample_noises
from dvip.runtime import derived_seed, precision
from dvip.sampled import SampledModel
from dvip.sources import LabelTargets
from dvip.sources.records import RowsContent
from dvip.training import Data

__all__ = ["DeepClassifier"]

# Samples propagated for a score while training.
SAMPLES_OF_SCORE = 16


class DeepClassifier(ClassifierMixin, DeepEstimator, LabelPredictions):
    """A deep model of class labels."""

    task: ClassVar[str] = "classification"

    classes_: np.ndarray
    model_: DeepModel[Classification] | Ensemble[Classification] | SampledModel[Classification]

    def _default_likelihood(self) -> str:
        if len(self.classes_) == 2:
            return "probit"
        return "softmax" if self._without_variance else "robustmax"

    @property
    def _num_outputs(self) -> int:
        return len(self.classes_)

    def _read_targets(self, y: Any, *, first: bool, classes: Any = None) -> np.ndarray:
        """The place of each label among the classes, rows x 1."""
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        if first:
            self._keep_classes(np.unique(y if classes is None else np.asarray(classes)))
        unknown = np.setdiff1d(y, self.classes_)
        if len(unknown):
            raise ValueError(f"y has labels that are none of the classes: {unknown[:5].tolist()}.")
        return np.searchsorted(self.classes_, y).astype(np.float64)[:, None]

    def _keep_classes(self, classes: np.ndarray) -> None:
        if len(classes) < 2:
            raise ValueError(
                f"The labels have one class only ({classes.tolist()[0]!r}); a classifier needs at "
                "least two classes."
            )
        self.classes_ = classes

    def _scale_targets(self, targets: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
        """Labels have no scale."""
        return targets

    def _read_training_rows(
        self, X: Any, y: Any, *, reset: bool = True, **options: Any
    ) -> tuple[np.ndarray, np.ndarray]:
        y = as_pandas(y)
        _check_labels(y)
        return super()._read_training_rows(X, y, reset=reset, **options)

    def _stream_targets(self) -> LabelTargets:
        return LabelTargets()

    def _note_stream_targets(
        self, content: RowsContent
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        assert content.labels is not None  # they are those of `_stream_targets`
        self._keep_classes(np.unique(content.labels))
        return np.zeros(1), np.ones(1), self.classes_

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Trains on these rows, each once, and goes on from there at the next call.

        The scales of inputs, and where the model starts, are those of the first call: let it have
        some thousand rows. Steps are of `batch_size` rows, at a constant `learning_rate`;
        `n_samples_seen_`, the rows of all calls, is the N of the bound.

        Parameters
        ----------
        X : array of shape (rows, inputs) or DataFrame
        y : array of shape (rows,)
        classes : array, at the first call
            Which labels there will be.
        sample_weight : array of shape (rows,), optional
            How many times each row counts.

        Returns
        -------
        self
        """
        first = not hasattr(self, "model_")
        if first and classes is None:
            raise ValueError("classes must be passed on the first call to partial_fit.")
        if first and not isinstance(classes, str):
            _check_labels(classes, "classes")
        if (
            not first
            and classes is not None
            and not np.array_equal(np.unique(classes), self.classes_)
        ):
            raise ValueError(f"classes={classes!r} are not those of the first call.")
        return self._partial_fit(X, y, sample_weight, classes)

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class.

        Parameters
        ----------
        X : array of shape (rows, inputs) or DataFrame

        Returns
        -------
        array of shape (rows, classes)
            In the order of `classes_`.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dvip import DVIPClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> model = DVIPClassifier(n_layers=1, max_iter=100).fit(X, y)
        >>> model.predict_proba(X[:2]).shape
        (2, 3)
        """
        return self._probabilities(self._scaled(X))

    def _probabilities(self, inputs: np.ndarray, num_samples: int | None = None) -> np.ndarray:
        """What is predicted for scaled inputs, calibrated."""
        return self._calibrated(self._predicted(inputs, members_of(self.model_), num_samples))

    def _calibrated(self, probabilities: np.ndarray) -> np.ndarray:
        if hasattr(self, "calibration_"):
            return tempered(probabilities, self.calibration_.temperature)
        return probabilities

    def _predicted(
        self,
        inputs: np.ndarray,
        models: Sequence[Model[Classification]],
        num_samples: int | None = None,
    ) -> np.ndarray:
        """What these models predict for scaled inputs, before it is calibrated."""
        seeds = [derived_seed(self.seed_, index) for index in range(len(models))]
        with precision(self.precision):
            noises = sample_noises(models, num_samples or self.n_predictive_samples, seeds)
            probabilities = class_probabilities(models, inputs, noises).astype(float)
        probabilities /= probabilities.sum(axis=1, keepdims=True)
        return probabilities

    def _score_of(self, model: DeepModel, rows: Any) -> float:
        probabilities = self._predicted(rows.inputs, [model], SAMPLES_OF_SCORE)
        return best_log_likelihood(probabilities, rows.targets[:, 0].astype(int), rows.weights)

    def _fitted_calibration(self, data: Data) -> Calibration:
        return fit_temperature(self._left_outs(data), len(members_of(self.model_)))

    def _left_outs(self, data: Data) -> list[LeftOutClasses]:
        """Left-out rows with what was predicted for them, stretch by stretch."""
        models, left_out = members_of(self.model_), []
        for without, rows in self._left_out_rows(data):
            judged = [models[index] for index in without]
            others = [model for index, model in enumerate(models) if index not in without]
            left_out.append(
                LeftOutClasses(
                    self._predicted(rows.inputs, judged),
                    rows.targets[:, 0].astype(int),
                    rows.weights,
                    len(judged),
                    [self._predicted(rows.inputs, [model]) for model in others],
                )
            )
        return left_out

    def _strata(self, data: Data) -> np.ndarray | None:
        """Classes, where they are in memory."""
        return data.targets[:, 0] if isinstance(data, ArrayData) else None

    def _check_divided(self, training: Data) -> None:
        if isinstance(training, ArrayData) and len(np.unique(training.targets)) < 2:
            raise ValueError(
                "The rows that a member is to be trained on are all of one class: use fewer "
                "members, a smaller validation_fraction, or more rows of the other classes."
            )

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class.

        Parameters
        ----------
        X : array of shape (rows, inputs) or DataFrame

        Returns
        -------
        array of shape (rows,)
        """
        most_probable = self.predict_proba(X).argmax(axis=1)
        return self.classes_[most_probable]

    def sample_functions(self, n: int, random_state: Any = None) -> Callable[[Any], np.ndarray]:
        """n whole latent functions from the posterior.

        Parameters
        ----------
        n : int
        random_state : int, RandomState or None
            The same number gives the same functions.

        Returns
        -------
        function of X
            f(X) -> (n, rows, units). Two classes have one unit, whose sign decides; several have
            one unit a class, of which the largest decides.
        """
        draws = self._draw(n, random_state)
        return lambda X: draws(self._scaled(X))

    def sample_probabilities(self, n: int, random_state: Any = None) -> Callable[[Any], np.ndarray]:
        """The probabilities of the classes under n whole functions from the posterior.

        Parameters
        ----------
        n : int
        random_state : int, RandomState or None
            The same number gives the same functions.

        Returns
        -------
        function of X
            f(X) -> (n, rows, classes), the same functions each time. How they differ is what is not
            known of the probabilities; their mean is about what `predict_proba` gives.
        """
        draws = self._draw(n, random_state)
        first = getattr(self, "parts_", (self,))[0]
        likelihood = members_of(first.model_)[0].likelihood

        def probabilities(X: Any) -> np.ndarray:
            latent = draws(self._scaled(X))
            with precision(self.precision):
                values = jnp.moveaxis(jnp.asarray(latent), 2, 0)
                found = likelihood.class_probabilities(values, jnp.zeros_like(values))
            given = np.moveaxis(np.asarray(found, dtype=float), 0, 2)
            given = given / given.sum(axis=2, keepdims=True)
            return self._calibrated(given.reshape(-1, given.shape[2])).reshape(given.shape)

        return probabilities

    def _draw_values(self, n: int, seed: int) -> Draws:
        return self._draw_latent(n, seed)


def _check_labels(y: Any, name: str = "y") -> None:
    """Raises an error if labels are missing, or of types that do not compare."""
    if not isinstance(y, list | tuple | pd.Series | np.ndarray) or np.ndim(y) != 1:
        return  # scikit-learn looks at what else can be labels
    if getattr(y, "dtype", None) in ("bool", "int", "float"):
        return
    labels = list(y)
    missing = np.array([label is None or label is pd.NA or label != label for label in labels])
    if missing.any():
        raise ValueError(
            f"{name} has no label in row {int(missing.argmax()) + 1}: fill it, or remove the row."
        )
    kinds = {"text" if isinstance(label, str) else "numbers" for label in labels}
    if len(kinds) > 1:
        raise ValueError(
            f"{name} has labels of several types, numbers and text: make all of them text."
        )
