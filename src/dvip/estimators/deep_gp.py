"""Deep Gaussian processes as estimators; one layer with inducing points is the sparse GP."""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
from jaxtyping import PRNGKeyArray
from sklearn.exceptions import ConvergenceWarning

from dvip.estimators.base import DeepEstimator
from dvip.estimators.classification import DeepClassifier
from dvip.estimators.ensembles import seconds_left
from dvip.estimators.regression import DeepRegressor
from dvip.estimators.resumption import training_identity
from dvip.kernels import RBF
from dvip.layers import (
    ImplicitGPLayer,
    Layer,
    RandomFeaturesLayer,
    SampledGPLayer,
    SparseGPLayer,
)
from dvip.likelihoods import Likelihood
from dvip.runtime import precision
from dvip.training import CheckpointFolder, Data, TrainingSettings, placement
from dvip.training.placement import ALONE

__all__ = ["DeepGPClassifier", "DeepGPRegressor"]

INITIAL_VARIANCE = 1.0


# Samples that are kept of a chain, and how well its halves have to agree.
NUM_KEPT, MAX_R_HAT = 100, 1.2
# Training steps of an implicit posterior, the fewest and the most; and in each of them, the samples
# that are propagated.
STEPS_OF_IMPLICIT, SAMPLES_OF_IMPLICIT = (4_000, 20_000), 2
# Where the scale of an implicit posterior starts at most, and over which share of the training its
# KL gains weight: samples of wide ones tell little, and all would be noise.
SCALE_OF_IMPLICIT, WARM_UP_OF_IMPLICIT = 0.1, 0.2


class _DeepGP(DeepEstimator):
    """The parameters of deep GPs and their layers."""

    n_inducing: int
    inference: str
    features: str
    posterior: str

    _counts: ClassVar[tuple[str, ...]] = (*DeepEstimator._counts, "n_inducing")
    _default_steps: ClassVar[tuple[int, int]] = (10_000, 50_000)
    _choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "features": ("inducing", "random"),
        "posterior": ("gaussian", "implicit"),
    }

    def __init__(
        self,
        n_layers: int = 3,
        n_inducing: int = 100,
        alpha: float = 0.0,
        max_iter: int | None = None,
        batch_size: int = 100,
        learning_rate: float = 0.01,
        n_predictive_samples: int = 100,
        n_training_samples: int | None = None,
        n_units: int | Sequence[int] | None = None,
        input_propagation: bool | Sequence[bool] = True,
        likelihood: str | Likelihood = "auto",
        inference: str = "vi",
        features: str = "inducing",
        posterior: str = "gaussian",
        n_members: int | None = None,
        validation_fraction: float | None = None,
        calibrate: bool = False,
        max_seconds: float | None = None,
        precision: str = "float32",
        random_state: int | np.random.RandomState | None = 0,
        verbose: bool = False,
    ):
        self._store(locals())

    # What sampling has no use for, and what to do about it.
    _not_sampled: ClassVar[Mapping[str, str]] = {
        name: reason for name, reason in DeepEstimator._not_sampled.items() if name != "n_inducing"
    }

    @property
    def _without_variance(self) -> bool:
        return False  # that of a layer given its values at inducing points is left

    @property
    def _makes_sampled_model(self) -> bool:
        return False  # the layers hold the samples

    def check_parameters(self) -> None:
        """Raises an error, which says what to do, unless the parameters make sense."""
        for name, possible in self._choices.items():
            value = getattr(self, name)
            if not (isinstance(value, str) and value in possible):
                known = ", ".join(possible)
                raise ValueError(f"{name}={value!r} is not known: use one of {known}.")
        if self.features == "random" and self.posterior == "implicit":
            raise ValueError(
                "posterior='implicit' is that of values at inducing points: use "
                "features='inducing', or posterior='gaussian'."
            )
        super().check_parameters()
        if self.inference == "mcmc" and (self.features, self.posterior) != ("inducing", "gaussian"):
            raise ValueError(
                "inference='mcmc' samples values at inducing points: leave out features and "
                "posterior, or use inference='vi'."
            )

    def _steps_by_default(self) -> tuple[int, int]:
        return STEPS_OF_IMPLICIT if self.posterior == "implicit" else self._default_steps

    def _train_on(
        self, data: Data, inputs: np.ndarray, checkpoints: CheckpointFolder | None = None
    ) -> None:
        if self.inference == "mcmc":
            self._sample_values(data, inputs, checkpoints)
        else:
            super()._train_on(data, inputs, checkpoints)

    def _sample_values(
        self, data: Data, inputs: np.ndarray, checkpoints: CheckpointFolder | None
    ) -> None:
        """Samples the values at inducing points, on batches."""
        from dvip.training.stochastic_hmc import ChainSettings, sample_values

        if placement() is not ALONE:
            raise ValueError("inference='mcmc' is for one process: start one, or use 'vi'.")
        steps = self._num_steps(data.num_rows)
        settings = ChainSettings(
            steps,
            int(self.batch_size),
            float(self._learning_rate),
            int(self.n_training_samples or 1),
            self.seed_,
        )
        identity = {} if checkpoints is None else training_identity(self, data.fingerprint())
        self.n_samples_seen_, self._optimiser = data.num_rows, None
        with precision(self.precision), self._progress(steps) as report:
            result = sample_values(
                self.build_model(inputs),
                data,
                settings,
                report,
                checkpoints,
                identity,
                max_seconds=seconds_left(self.max_seconds, self._started),
            )
        self.model_, self.diagnostics_, self.bound_history_ = result
        self.n_iter_ = result.diagnostics.num_steps
        for name in ("calibration_", "validation_scores_"):
            self.__dict__.pop(name, None)
        if not self.diagnostics_.r_hat <= MAX_R_HAT:
            warnings.warn(
                f"Early and late samples do not agree (R̂ {self.diagnostics_.r_hat:.2f}, at best "
                f"1): give more steps, such as max_iter={3 * self.n_iter_}.",
                ConvergenceWarning,
                stacklevel=5,
            )

    def _settings(self, max_iter: int) -> TrainingSettings:
        settings = super()._settings(max_iter)
        if self.posterior != "implicit":
            return settings
        number = self.n_training_samples or SAMPLES_OF_IMPLICIT
        return replace(settings, num_samples=int(number), kl_warm_up=WARM_UP_OF_IMPLICIT)

    def _make_layer(
        self, index: int, inputs: np.ndarray, num_units: int, key: PRNGKeyArray
    ) -> Layer:
        num_inputs, number = inputs.shape[1], int(self.n_inducing)
        # Scaled inputs are about √(2 inputs) apart.
        lengthscale = math.sqrt(num_inputs)
        q_scale = self._q_scale(index)
        if self.features == "random":
            return RandomFeaturesLayer.create(
                num_inputs,
                num_units,
                -(-number // 2),  # a cosine and a sine each
                variance=INITIAL_VARIANCE,
                lengthscale=lengthscale,
                q_scale=q_scale,
                key=key,
            )
        kernel = RBF.create(num_inputs, INITIAL_VARIANCE, lengthscale)
        if self.inference == "mcmc":
            return SampledGPLayer.create(kernel, inputs, num_units, number, NUM_KEPT)
        if self.posterior == "implicit":
            q_scale = min(q_scale, SCALE_OF_IMPLICIT)
            return ImplicitGPLayer.create(
                kernel, inputs, num_units, number, q_scale=q_scale, key=key
            )
        return SparseGPLayer.create(kernel, inputs, num_units, number, q_scale=q_scale)


class DeepGPRegressor(DeepRegressor, _DeepGP):
    """Regression with a deep Gaussian process, doubly stochastic, with inducing points.

    Every layer has an RBF kernel with a length-scale for each input, which its units share. Inputs
    and targets are scaled inside. Predictions are mixtures.

    Parameters
    ----------
    n_layers : int, default 3
        Layers. One is the sparse GP; more make the predictive distribution non-Gaussian.
    n_inducing : int, default 100
        Inducing points of a layer, shared by its units. More are more flexible; the cost of a
        step grows with the square, of a large number with the cube. With `features="random"`: the
        random features of a layer, cosines and sines together.
    alpha : float from 0 to 1, default 0.0
        Of the α-energy; 0 is the ELBO. The paper's VIP has one layer and 0.5.
    max_iter : int, optional
        Training steps. By default 10,000 for up to 2,000 rows, then as the square root of the
        number of rows, up to 50,000; of an implicit posterior four tenths of that.
    batch_size : int, default 100
        Rows a step.
    learning_rate : float, default 0.01
        Of Adam at the first step; it falls to zero along a cosine.
    n_predictive_samples : int, default 100
        R, the samples propagated for a prediction: the components of the mixture.
    n_training_samples : int, optional
        Samples propagated in a training step. By default 1, 2 of an implicit posterior,
        and 10 where the α-energy of several layers needs them.
    n_units : int or sequence of int, optional
        Units of each inner layer. By default as many as inputs, 30 at most.
    input_propagation : bool or sequence of bool, default True
        Whether an inner layer adds its input to its output (its leading principal components,
        where the layer is narrower than its input); one for all inner layers, or one for each.
        Around a layer that reads images or sequences nothing is propagated.
    likelihood : str or Regression, default "auto"
        The noise of the data: a name, or an object of a class of your own. "auto" is Gaussian
        noise, "gaussian". "heteroscedastic" is Gaussian noise whose size depends on the inputs,
        "student-t" has heavy tails, "heteroscedastic-student-t" both; "log-normal" is for
        positive numbers, "poisson" and "negative-binomial" for counts.
    inference : {"vi", "mcmc"}, default "vi"
        Variational inference, or samples of the values at inducing points by stochastic-gradient
        Hamiltonian Monte Carlo (Havasi et al. 2018): kernels, inducing points and noise are
        trained along in the first two thirds of the steps, and a hundred samples are kept.
    features : {"inducing", "random"}, default "inducing"
        What a layer is made of: values at inducing points, or weights of random Fourier features
        of its kernel (Cutajar et al. 2017), which need no inverse of a matrix.
    posterior : {"gaussian", "implicit"}, default "gaussian"
        Of the values at inducing points: a Gaussian, or an implicit distribution, which a network
        makes of noise and whose divergence from the prior a classifier estimates (Yu et al. 2019).
    n_members : int, optional
        Train an ensemble of so many models, side by side; the prediction is the mean of their
        distributions. By default there is one model.
    validation_fraction : float, optional
        The share of the rows that is left out of the training to stop it when nothing improves
        any more and to keep the best. Each member of an ensemble leaves out another part.
    calibrate : bool, default False
        Whether to correct the width of the distributions, and their tails, by rows that were left
        out of the training: `validation_fraction` of them or, if it is not given, a tenth, or of
        an ensemble all rows, each by one member.
    max_seconds : float, optional
        How long `fit` may take; the training is shortened to it.
    precision : {"float32", "float64"}, default "float32"
        Of all computations of the model.
    random_state : int, RandomState or None, default 0
        The same number gives the same model.
    verbose : bool, default False
        Whether to show a progress bar; where there is no terminal, a line a minute.

    Attributes
    ----------
    model_ : DeepModel or Ensemble
        The trained network and likelihood, or with `n_members` all of them.
    bound_history_ : array
        The mean of the bound over successive stretches of the training; of `inference="mcmc"`,
        of the log-density.
    diagnostics_ : Diagnostics
        How well the chain has mixed, with `inference="mcmc"`.
    calibration_ : Calibration
        How predictions are corrected, with `calibrate`.
    validation_scores_ : array of shape (scores, 3)
        Member, step and mean log-density of left-out rows, on the scale of the model.
    n_iter_ : int
        Training steps done.
    input_shape_ : tuple of int
        The shape of one input, such as (28, 28) for images.
    encoder_ : TableEncoder
        How a table became numbers; only where one was needed.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from dvip import DeepGPRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = DeepGPRegressor(n_layers=1, max_iter=100).fit(X, y)
    >>> mean, std = model.predict(X[:5], return_std=True)
    >>> std.shape
    (5,)
    """


class DeepGPClassifier(DeepClassifier, _DeepGP):
    """Classification with a deep Gaussian process, with labels of any type.

    Inputs are scaled inside.

    Parameters
    ----------
    n_layers : int, default 3
        Layers. One is the sparse GP; more make the predictive distribution non-Gaussian.
    n_inducing : int, default 100
        Inducing points of a layer, shared by its units. More are more flexible; the cost of a
        step grows with the square, of a large number with the cube. With `features="random"`: the
        random features of a layer, cosines and sines together.
    alpha : float from 0 to 1, default 0.0
        Of the α-energy; 0 is the ELBO. The paper's VIP has one layer and 0.5.
    max_iter : int, optional
        Training steps. By default 10,000 for up to 2,000 rows, then as the square root of the
        number of rows, up to 50,000; of an implicit posterior four tenths of that.
    batch_size : int, default 100
        Rows a step.
    learning_rate : float, default 0.01
        Of Adam at the first step; it falls to zero along a cosine.
    n_predictive_samples : int, default 100
        R, the samples propagated for a prediction: the components of the mixture.
    n_training_samples : int, optional
        Samples propagated in a training step. By default 1, 2 of an implicit posterior,
        and 10 where the α-energy of several layers needs them.
    n_units : int or sequence of int, optional
        Units of each inner layer. By default as many as inputs, 30 at most.
    input_propagation : bool or sequence of bool, default True
        Whether an inner layer adds its input to its output (its leading principal components,
        where the layer is narrower than its input); one for all inner layers, or one for each.
        Around a layer that reads images or sequences nothing is propagated.
    likelihood : {"auto", "probit", "robustmax", "softmax"} or Classification, default "auto"
        From units to classes: a name, an object such as `RobustMax(error=0.05)`, or one of a
        class of your own. "auto" is probit for two classes and robust-max for more.
    inference : {"vi", "mcmc"}, default "vi"
        Variational inference, or samples of the values at inducing points by stochastic-gradient
        Hamiltonian Monte Carlo (Havasi et al. 2018): kernels, inducing points and noise are
        trained along in the first two thirds of the steps, and a hundred samples are kept.
    features : {"inducing", "random"}, default "inducing"
        What a layer is made of: values at inducing points, or weights of random Fourier features
        of its kernel (Cutajar et al. 2017), which need no inverse of a matrix.
    posterior : {"gaussian", "implicit"}, default "gaussian"
        Of the values at inducing points: a Gaussian, or an implicit distribution, which a network
        makes of noise and whose divergence from the prior a classifier estimates (Yu et al. 2019).
    n_members : int, optional
        Train an ensemble of so many models, side by side; the prediction is the mean of their
        distributions. By default there is one model.
    validation_fraction : float, optional
        The share of the rows that is left out of the training to stop it when nothing improves
        any more and to keep the best. Each member of an ensemble leaves out another part.
    calibrate : bool, default False
        Whether to correct the probabilities by rows that were left out of the training:
        `validation_fraction` of them or, if it is not given, a tenth, or of an ensemble all rows,
        each by one member.
    max_seconds : float, optional
        How long `fit` may take; the training is shortened to it.
    precision : {"float32", "float64"}, default "float32"
        Of all computations of the model.
    random_state : int, RandomState or None, default 0
        The same number gives the same model.
    verbose : bool, default False
        Whether to show a progress bar; where there is no terminal, a line a minute.

    Attributes
    ----------
    classes_ : array
        The labels, sorted.
    model_ : DeepModel or Ensemble
        The trained network and likelihood, or with `n_members` all of them.
    bound_history_ : array
        The mean of the bound over successive stretches of the training; of `inference="mcmc"`,
        of the log-density.
    diagnostics_ : Diagnostics
        How well the chain has mixed, with `inference="mcmc"`.
    calibration_ : Calibration
        How predictions are corrected, with `calibrate`.
    validation_scores_ : array of shape (scores, 3)
        Member, step and mean log-density of left-out rows, on the scale of the model.
    n_iter_ : int
        Training steps done.
    input_shape_ : tuple of int
        The shape of one input, such as (28, 28) for images.
    encoder_ : TableEncoder
        How a table became numbers; only where one was needed.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dvip import DeepGPClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = DeepGPClassifier(n_layers=1, max_iter=100).fit(X, y)
    >>> model.predict(X[:5]).shape
    (5,)
    """
