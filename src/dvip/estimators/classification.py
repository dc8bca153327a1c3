"""Classification: any labels, probit for two classes, robust-max for more."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, column_or_1d

from dvip.estimators.base import DeepEstimator
from dvip.estimators.preparation import fit_rows_once
from dvip.estimators.scales import merge_duplicates
from dvip.estimators.serialisation import checkpoint_folder
from dvip.estimators.undoing import undone_on_failure
from dvip.likelihoods import CLASSIFICATION_LIKELIHOODS, Classification, Likelihood
from dvip.objectives import DeepModel
from dvip.prediction import class_probabilities
from dvip.runtime import precision
from dvip.sources import LabelTargets
from dvip.sources.records import RowsContent
from dvip.training import CheckpointFolder

__all__ = ["DeepClassifier"]


class DeepClassifier(ClassifierMixin, DeepEstimator):
    """A deep model of class labels."""

    likelihood: str | Classification
    classes_: np.ndarray
    model_: DeepModel[Classification]

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        checkpoint_dir: str | Path | None = None,
        checkpoint_every: int | None = None,
        resume: bool = False,
    ) -> "DeepClassifier":
        """Trains the model.

        Parameters
        ----------
        X : array or DataFrame of shape (rows, inputs), or Source
            With a prior that reads images or sequences also (rows, height, width),
            (rows, height, width, channels) or (rows, length, channels). A source, such as
            `open_source` gives, brings its labels and need not fit in memory.
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

        If an error or Ctrl-C ends it, the estimator is as it was before, except after
        `TrainingDiverged`, which keeps the last finite model.
        """
        with checkpoint_folder(checkpoint_dir, checkpoint_every, resume) as checkpoints:
            return self._fit(X, y, sample_weight, checkpoints)

    def _fit_arrays(
        self, X: Any, y: Any, sample_weight: Any, checkpoints: CheckpointFolder | None
    ) -> None:
        X, y, weights = self._checked(X, y, sample_weight)
        X, y, weights = X[weights > 0], y[weights > 0], weights[weights > 0]
        self._keep_classes(np.unique(y))
        inputs, targets, weights = merge_duplicates(X, self._codes(y), weights)
        self._fit_input_scaler(inputs, weights)
        self._train(inputs, targets, weights, checkpoints)

    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None
    ) -> "DeepClassifier":
        """Trains on these rows, each once, and goes on from there at the next call.

        The first call says in `classes` which labels there will be. The scales of inputs, and where
        the model starts, are those of the first call: let it have some thousand rows. Steps are of
        `batch_size` rows, at a constant `learning_rate`; `n_samples_seen_`, the rows of all calls,
        is the N of the bound.
        """
        with undone_on_failure(self):
            first = self._start_partial_fit()
            X, y, weights = self._checked(X, y, sample_weight, reset=first)
            if first and classes is None:
                raise ValueError("classes must be passed on the first call to partial_fit.")
            if first:
                self._keep_classes(np.unique(np.asarray(classes)))
                self._fit_input_scaler(X, weights)
            elif classes is not None and not np.array_equal(np.unique(classes), self.classes_):
                raise ValueError(f"classes={classes!r} are not those of the first call.")
            fit_rows_once(self, self.input_scaler_.transform(X), self._codes(y), weights)
        return self

    def _checked(
        self, X: Any, y: Any, sample_weight: Any, **options: Any
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Inputs, labels and weights, validated."""
        X, y = self._validated(X, y, **options)
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        return X, y, weights

    def _keep_classes(self, classes: np.ndarray) -> None:
        if len(classes) < 2:
            label = classes[0] if len(classes) else None
            raise ValueError(
                f"The labels have one class only ({label!r}); a classifier needs at least two "
                "classes."
            )
        self.classes_ = classes

    def _codes(self, y: np.ndarray) -> np.ndarray:
        """The place of each label among the classes, rows x 1."""
        unknown = np.setdiff1d(y, self.classes_)
        if len(unknown):
            raise ValueError(f"y has labels that are none of the classes: {unknown[:5].tolist()}.")
        return np.searchsorted(self.classes_, y).astype(np.float64)[:, None]

    def _stream_targets(self) -> LabelTargets:
        return LabelTargets()

    def _note_stream_targets(
        self, content: RowsContent
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The classes of a source; labels have no scale."""
        assert content.labels is not None  # they are those of `_stream_targets`
        self._keep_classes(np.unique(content.labels))
        return np.zeros(1), np.ones(1), self.classes_

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
