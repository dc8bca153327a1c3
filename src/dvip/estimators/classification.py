"""Classification: any labels, probit for two classes, robust-max for more."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.preprocessing import LabelEncoder
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, column_or_1d

from dvip.estimators.base import DeepEstimator
from dvip.estimators.checkpointing import checkpoint_folder
from dvip.estimators.scaling import merge_duplicates
from dvip.likelihoods import CLASSIFICATION_LIKELIHOODS, Classification, Likelihood
from dvip.objectives import DeepModel
from dvip.precision import precision
from dvip.prediction import class_probabilities

__all__ = ["DeepClassifier"]


class DeepClassifier(ClassifierMixin, DeepEstimator):
    """A deep model of class labels."""

    likelihood: str | Classification
    classes_: np.ndarray
    model_: DeepModel[Classification]

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        checkpoint_dir: str | Path | None = None,
        checkpoint_every: int | None = None,
        resume: bool = False,
    ) -> "DeepClassifier":
        """Trains the model.

        Parameters
        ----------
        X : array or DataFrame of shape (rows, inputs)
            With a prior that reads images or sequences also (rows, height, width),
            (rows, height, width, channels) or (rows, length, channels).
        y : array of shape (rows,)
            Labels of any type.
        sample_weight : array of shape (rows,), optional
            How many times each row counts; a weight of 2 is the same as the row twice.
        checkpoint_dir : path, optional
            Folder for checkpoints, of which the last three are kept. Ctrl-C and SIGTERM then take
            effect only when one more is written.
        checkpoint_every : int, optional
            Steps between two of them; by default there is one a minute.
        resume : bool, default False
            Go on from the newest checkpoint, if there is one. All else must be as it was, and the
            result is that of a training without the break, bit for bit.
        """
        checkpoints = checkpoint_folder(checkpoint_dir, checkpoint_every, resume)
        X, y = self._validated(X, y)
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        encoder = LabelEncoder().fit(y[weights > 0])
        self.classes_ = encoder.classes_
        if len(self.classes_) < 2:
            raise ValueError(
                f"The labels have one class only ({self.classes_[0]!r}); a classifier needs at "
                "least two classes."
            )
        X, y, weights = X[weights > 0], y[weights > 0], weights[weights > 0]
        codes = encoder.transform(y).astype(np.float64)[:, None]
        inputs, targets, weights = merge_duplicates(X, codes, weights)
        self._fit_input_scaler(inputs, weights)
        self._train(inputs, targets, weights, checkpoints)
        return self

    def _likelihood(self) -> tuple[Likelihood, int]:
        num_classes = len(self.classes_)
        likelihood = self.likelihood
        if isinstance(likelihood, str):
            name = likelihood
            if name == "auto":
                name = "probit" if num_classes == 2 else "robustmax"
            if name not in CLASSIFICATION_LIKELIHOODS:
                known = ", ".join(("auto", *CLASSIFICATION_LIKELIHOODS))
                raise ValueError(f"likelihood={name!r} is not known; choose from {known}.")
            likelihood = CLASSIFICATION_LIKELIHOODS[name]()
        if not isinstance(likelihood, Classification):
            raise ValueError(
                f"likelihood={likelihood!r} is neither a name nor a Classification object."
            )
        return likelihood, likelihood.num_latents(num_classes)

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class, in the order of `classes_`."""
        inputs = self._scaled(X)
        with precision(self.precision):
            probabilities = class_probabilities(
                self.model_.network, self.model_.likelihood, inputs, self._sample_noise()
            )
        probabilities = probabilities.astype(float)
        return probabilities / probabilities.sum(axis=1, keepdims=True)

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class."""
        most_probable = self.predict_proba(X).argmax(axis=1)
        return self.classes_[most_probable]

    def sample_functions(self, n: int, random_state: Any = None) -> Callable[[Any], np.ndarray]:
        """n whole latent functions from the posterior: f(X) -> (n, rows, units).

        Two classes have one unit, whose sign decides; several have one unit a class, of which the
        largest decides.
        """
        return self._draw_latent(n, random_state)
