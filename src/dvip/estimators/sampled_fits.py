"""Fits by sampling: what can be sampled, and from rows to samples of the posterior."""

import warnings
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from dvip.batches import ArrayData
from dvip.estimators.builder import check_count
from dvip.estimators.ensembles import EnsembleBuilder, seconds_left
from dvip.estimators.resumption import training_identity
from dvip.runtime import precision
from dvip.training import CheckpointFolder, Data, placement
from dvip.training.diagnostics import Diagnostics
from dvip.training.placement import ALONE

__all__ = ["SamplingBuilder"]

# Steps of each chain where `max_iter` is not given.
DEFAULT_STEPS = 4_000


class SamplingBuilder(EnsembleBuilder):
    """The part of an estimator that samples its posterior rather than approximate it."""

    # A kind of model that does not take them has these.
    inference: str = "vi"
    n_chains: int = 4

    # What `inference` may be.
    _inferences: ClassVar[tuple[str, ...]] = ("vi", "mcmc")

    # Fitted attributes.
    diagnostics_: Diagnostics
    n_iter_: int
    n_samples_seen_: int
    bound_history_: np.ndarray
    _started: float
    _optimiser: Any

    # What sampling has no use for, and what to do about it.
    _not_sampled: ClassVar[Mapping[str, str]] = {
        "n_members": "chains take the place of members",
        "validation_fraction": "chains use all rows, and none is left out",
        "calibrate": "no rows are left out to calibrate by",
        "fresh_noise": "prior functions are drawn once",
        "n_inducing": "coefficients of prior functions are sampled, not values at inducing points",
        "alpha": "the posterior itself is sampled, whatever an objective's α",
    }

    @property
    def _without_variance(self) -> bool:
        """Whether a sample of the model has no variance left, so that a step has no gradient."""
        return self.inference == "mcmc"

    @property
    def _makes_sampled_model(self) -> bool:
        """Whether what is fitted is a `SampledModel`."""
        return self.inference == "mcmc"

    def check_parameters(self) -> None:
        """Raises an error, which says what to do, unless the parameters make sense."""
        super().check_parameters()
        if not (isinstance(self.inference, str) and self.inference in self._inferences):
            possible = ", ".join(self._inferences)
            raise ValueError(f"inference={self.inference!r} is not known: use one of {possible}.")
        check_count("n_chains", self.n_chains)
        if self.inference == "mcmc":
            self._check_can_be_sampled()
        if self._without_variance:
            self._check_gradient_of_likelihood()

    def _check_can_be_sampled(self) -> None:
        for name, reason in self._not_sampled.items():
            value = getattr(self, name, None)
            if value:
                raise ValueError(
                    f"{name}={value!r} is not for inference='mcmc': {reason}. Leave it out, or "
                    "use inference='vi'."
                )

    def _check_gradient_of_likelihood(self) -> None:
        given = self.likelihood
        if isinstance(given, str) and given == "auto":
            return
        likelihood = self._likelihood_of(given)
        if not likelihood.has_gradient:
            otherwise = ", or inference='vi'" if self.inference == "mcmc" else ""
            raise ValueError(
                f"likelihood={given!r} has no gradient to learn by where units have no variance: "
                f"use 'softmax'{otherwise}."
            )

    def _check_not_sampled(self) -> None:
        """Raises an error where rows come in parts."""
        if self.inference == "mcmc":
            raise ValueError(
                "partial_fit visits rows once, inference='mcmc' all of them at every step: use "
                "fit, or inference='vi'."
            )

    def _sample_on(self, data: Data, checkpoints: CheckpointFolder | None) -> None:
        """Samples the posterior given scaled data."""
        from dvip.training.sampling import SamplingSettings, sample_posterior, total_steps

        if not isinstance(data, ArrayData):
            raise ValueError(
                "inference='mcmc' needs all rows in memory, not a source that streams: read them "
                "into memory, or use inference='vi'."
            )
        if placement() is not ALONE:
            raise ValueError(
                "inference='mcmc' is for one process, which runs its chains side by side: start "
                "one, or use inference='vi'."
            )
        steps = int(self.max_iter or DEFAULT_STEPS)
        settings = SamplingSettings(steps, int(self.n_chains), self.seed_)
        identity = {} if checkpoints is None else training_identity(self, data.fingerprint())
        self.n_samples_seen_, self._optimiser = data.num_rows, None
        with precision(self.precision):
            model = self.build_model(data.inputs)
            num_steps = total_steps(model, settings)
        with precision(self.precision), self._progress(num_steps) as report:
            result = sample_posterior(
                model,
                data,
                settings,
                report,
                checkpoints,
                identity,
                max_seconds=seconds_left(self.max_seconds, self._started),
            )
        self.model_ = result.model
        self.diagnostics_ = result.diagnostics
        self.n_iter_, self.bound_history_ = result.diagnostics.num_steps, result.history
        for name in ("calibration_", "validation_scores_"):
            self.__dict__.pop(name, None)
        self._warn_if_not_sampled(steps)

    def _warn_if_not_sampled(self, max_iter: int) -> None:
        advice = self.diagnostics_.advice()
        if self.max_seconds is not None and self.n_iter_ < max_iter:
            ended = f"max_seconds={self.max_seconds} ended the chains early."
            advice = ended if advice is None else f"{ended} {advice}"
        if advice is not None:
            warnings.warn(advice, ConvergenceWarning, stacklevel=6)
