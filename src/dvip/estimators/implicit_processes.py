"""Deep variational implicit processes as estimators."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from jaxtyping import PRNGKeyArray

from dvip.estimators.prior_functions import PriorFunctionsEstimator
from dvip.estimators.priors import Prior
from dvip.estimators.stacks import ChoosingClassifier, ChoosingRegressor
from dvip.kernels import EmpiricalKernel
from dvip.layers import Layer, SparseGPLayer, VIPLayer
from dvip.likelihoods import Likelihood

__all__ = ["DVIPClassifier", "DVIPRegressor"]


class _DVIP(PriorFunctionsEstimator):
    """The parameters of DVIP and its layers."""

    def __init__(
        self,
        n_layers: int | None = None,
        n_prior_samples: int | None = None,
        prior: Prior | Sequence[Prior] | None = None,
        alpha: float | None = None,
        max_iter: int | None = None,
        batch_size: int = 100,
        learning_rate: float | None = None,
        n_predictive_samples: int = 100,
        n_training_samples: int | None = None,
        n_units: int | Sequence[int] | None = None,
        input_propagation: bool | Sequence[bool] = True,
        shared_prior: bool | Sequence[bool] | None = None,
        fresh_noise: bool = False,
        n_inducing: int | None = None,
        likelihood: str | Likelihood = "auto",
        inference: str = "auto",
        n_members: int | None = None,
        validation_fraction: float | None = None,
        calibrate: bool | None = None,
        max_seconds: float | None = None,
        n_chains: int = 4,
        precision: str = "float32",
        random_state: int | np.random.RandomState | None = 0,
        verbose: bool = False,
    ):
        self._store(locals())

    @classmethod
    def paper(cls, n_layers: int = 3, **parameters: Any) -> Self:
        """The paper's setting, which nothing is chosen in: `dvip reproduce` uses it.

        Parameters
        ----------
        n_layers : int, default 3
        **parameters
            Others of the estimator, such as `max_iter`.

        Returns
        -------
        estimator
            Unfitted: variational inference with the ELBO, the constrained BNN prior, S = 20.
        """
        given = {**cls._paper, "inference": "vi", "calibrate": False}
        return cls(**{**given, "n_layers": n_layers, **parameters})

    def _make_layer(
        self, index: int, inputs: np.ndarray, num_units: int, key: PRNGKeyArray
    ) -> Layer:
        process, num_inputs = self._process_of(index, num_units), inputs.shape[1]
        num_samples, fresh_noise = int(self._num_prior_samples), bool(self.fresh_noise)
        if self.n_inducing is None:
            return VIPLayer.create(
                process,
                num_inputs,
                num_units,
                num_samples,
                q_scale=self._q_scale(index),
                fresh_noise=fresh_noise,
                key=key,
            )
        kernel = EmpiricalKernel.create(
            process, num_inputs, num_samples, fresh_noise=fresh_noise, key=key
        )
        return SparseGPLayer.create(
            kernel, inputs, num_units, int(self.n_inducing), q_scale=self._q_scale(index)
        )


class DVIPRegressor(ChoosingRegressor, _DVIP):
    """Regression with a deep variational implicit process.

    Inputs and targets are scaled inside. Predictions are mixtures.

    Parameters
    ----------
    n_layers : int, optional
        Layers. One is the paper's VIP; more make the predictive distribution non-Gaussian. By
        default they are chosen; with `inference="vi"` there are 3.
    n_prior_samples : int, optional
        S, the prior functions that a layer is a linear combination of: 20 by default, or what the
        candidates have, two at least for each target or class. More are more flexible; the cost of
        a step grows with its square. With inducing points, the functions that the prior's
        covariances are estimated from; the paper takes 2,000.
    prior : str, ImplicitProcess, or a sequence of them, optional
        The prior over functions: a name ("additive", "bnn", "constant", "conv", "gp", "linear",
        "monotone", "neural-sampler", "periodic", "recurrent", "warped-gp"), names put together
        such as "linear + periodic(period=1, on='time') + gp", an object such as
        `BayesianNeuralNetwork(hidden=(20, 20), activation="relu")`, `SimulatorPrior(function)` or
        `CurvePrior(grid, curves)`, one of your own class, or one for each layer. What reads
        images ("conv"), sequences ("recurrent"), named columns or their units is the prior of the
        first layer, and if given alone, later layers have "bnn". By default it is
        chosen; with `inference="vi"` it is "bnn".
    alpha : float from 0 to 1, optional
        Of the α-energy; 0 is the ELBO. The paper's VIP has one layer and 0.5. By default it is
        chosen; with `inference="vi"` it is 0.
    max_iter : int, optional
        Training steps. By default 1,500 to 48,000, by the number of rows. With `inference="vi"`
        50,000 for up to 2,000 rows, then as the square root of their number, up to 200,000. Of a
        sampled posterior the steps of each chain once it is tuned, by default 4,000.
    batch_size : int, default 100
        Rows a step.
    learning_rate : float, optional
        Of Adam at the first step; it falls to zero along a cosine. 0.01 by default, but half of it
        for wide networks.
    n_predictive_samples : int, default 100
        R, the samples propagated for a prediction: the components of the mixture.
    n_training_samples : int, optional
        Samples propagated in a training step. By default 3 for candidates of two layers; with
        `inference="vi"` 1, and 10 where the α-energy of several layers needs them.
    n_units : int or sequence of int, optional
        Units of each inner layer. By default as many as inputs, 30 at most.
    input_propagation : bool or sequence of bool, default True
        Whether an inner layer adds its input to its output (its leading principal components,
        where the layer is narrower than its input); one for all inner layers, or one for each.
        Around a layer that reads images or sequences nothing is propagated.
    shared_prior : bool or sequence of bool, optional
        Whether the units of a layer share their prior functions, or have their own, at a cost;
        one for all layers, or one for each. By default they share them, except in a
        convolutional layer, where units share the filters only.
    fresh_noise : bool, default False
        Whether prior functions are drawn anew at every training step.
    n_inducing : int, optional
        Inducing points of a layer: its posterior is then that of a sparse GP with the prior's
        covariances (the paper's VIP with inducing points). By default a layer has none: it is a
        linear combination of its prior functions.
    likelihood : str or Regression, default "auto"
        The noise of the data: a name, or an object of a class of your own. "auto" is Gaussian
        noise, "gaussian", and heavy-tailed for candidates of many rows. "heteroscedastic" is
        Gaussian noise whose size depends on the inputs, "student-t" has heavy tails,
        "heteroscedastic-student-t" both; "log-normal" is for positive numbers, "poisson" and
        "negative-binomial" for counts.
    inference : {"auto", "vi", "mcmc", "exact"}, default "auto"
        "auto": candidates are trained, each on all rows but some, and mixed by how probable they
        made the rows that they left out. They are a Gaussian process in closed form and deep
        models, by the number of rows; parameters that are given hold for all of them, and leave
        out those that they do not fit. "vi": one model with these parameters, by variational
        inference. "mcmc": the same model with its posterior sampled, coefficients, parameters of
        the prior and noise together, on all rows at every step; for up to a few thousand rows.
        "exact": the Gaussian process alone.
    n_members : int, optional
        Train an ensemble of so many models, side by side; the prediction is the mean of their
        distributions. By default up to 5; with `inference="vi"` there is one model.
    validation_fraction : float, optional
        The share of the rows that is left out of the training to stop it when nothing improves
        any more and to keep the best. Each member of an ensemble leaves out another part.
    calibrate : bool, optional
        Whether to correct the width of the distributions, and their tails, by rows that were left
        out of the training: `validation_fraction` of them or, if it is not given, a tenth, or of
        an ensemble all rows, each by one member. By default they are, where the likelihood
        allows it, but not with `inference="vi"`.
    max_seconds : float, optional
        How long `fit` may take; the training is shortened to it.
    n_chains : int, default 4
        With `inference="mcmc"`: the chains that sample, side by side.
    precision : {"float32", "float64"}, default "float32"
        Of all computations of the model.
    random_state : int, RandomState or None, default 0
        The same number gives the same model.
    verbose : bool, default False
        Whether to show a progress bar, and what was chosen; where there is no terminal, a line a
        minute.

    Attributes
    ----------
    parts_ : tuple of estimators
        With `inference="auto"`: the models that are mixed, each with the parameters it was trained
        with. They take scaled rows.
    choice_ : tuple of Judgement
        With `inference="auto"`, of each candidate: its name, the mean log-density of rows that it
        left out, and its weight in the mixture, which is 0 if it was not kept.
    neighbourhood_ : Neighbourhood
        With `inference="auto"`: some of the training rows, which `distance` measures from.
    model_ : DeepModel, Ensemble, SampledModel or ClosedFormGP
        The trained network and likelihood, with `n_members` all of them, with `inference="mcmc"`
        samples of them. Only where nothing was mixed: each of `parts_` has one.
    bound_history_ : array
        The mean of the bound over successive stretches of the training. Of `parts_`, if there are.
    diagnostics_ : Diagnostics
        How well chains have mixed, with `inference="mcmc"`.
    calibration_ : Calibration
        How predictions are corrected, with `calibrate`. `parts_` have their own besides.
    validation_scores_ : array of shape (scores, 3)
        Member, step and mean log-density of left-out rows, on the scale of the model.
    n_iter_ : int
        Training steps done; the most that a model had.
    input_shape_ : tuple of int
        The shape of one input, such as (28, 28) for images.
    encoder_ : TableEncoder
        How a table became numbers; only where one was needed.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from dvip import DVIPRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = DVIPRegressor(n_layers=1, max_iter=100).fit(X, y)
    >>> mean, std = model.predict(X[:5], return_std=True)
    >>> std.shape
    (5,)
    """


class DVIPClassifier(ChoosingClassifier, _DVIP):
    """Classification with a deep variational implicit process, with labels of any type.

    Inputs are scaled inside.

    Parameters
    ----------
    n_layers : int, optional
        Layers. One is the paper's VIP; more make the predictive distribution non-Gaussian. By
        default they are chosen; with `inference="vi"` there are 3.
    n_prior_samples : int, optional
        S, the prior functions that a layer is a linear combination of: 20 by default, or what the
        candidates have, two at least for each target or class. More are more flexible; the cost of
        a step grows with its square. With inducing points, the functions that the prior's
        covariances are estimated from; the paper takes 2,000.
    prior : str, ImplicitProcess, or a sequence of them, optional
        The prior over functions: a name ("additive", "bnn", "constant", "conv", "gp", "linear",
        "monotone", "neural-sampler", "periodic", "recurrent", "warped-gp"), names put together
        such as "linear + periodic(period=1, on='time') + gp", an object such as
        `BayesianNeuralNetwork(hidden=(20, 20), activation="relu")`, `SimulatorPrior(function)` or
        `CurvePrior(grid, curves)`, one of your own class, or one for each layer. What reads
        images ("conv"), sequences ("recurrent"), named columns or their units is the prior of the
        first layer, and if given alone, later layers have "bnn". By default it is
        chosen; with `inference="vi"` it is "bnn".
    alpha : float from 0 to 1, optional
        Of the α-energy; 0 is the ELBO. The paper's VIP has one layer and 0.5. By default it is
        chosen; with `inference="vi"` it is 0.
    max_iter : int, optional
        Training steps. By default 1,500 to 48,000, by the number of rows. With `inference="vi"`
        50,000 for up to 2,000 rows, then as the square root of their number, up to 200,000. Of a
        sampled posterior the steps of each chain once it is tuned, by default 4,000.
    batch_size : int, default 100
        Rows a step.
    learning_rate : float, optional
        Of Adam at the first step; it falls to zero along a cosine. 0.01 by default, but half of it
        for wide networks.
    n_predictive_samples : int, default 100
        R, the samples propagated for a prediction: the components of the mixture.
    n_training_samples : int, optional
        Samples propagated in a training step. By default 1, and with `inference="vi"` 10
        where the α-energy of several layers needs them.
    n_units : int or sequence of int, optional
        Units of each inner layer. By default as many as inputs, 30 at most.
    input_propagation : bool or sequence of bool, default True
        Whether an inner layer adds its input to its output (its leading principal components,
        where the layer is narrower than its input); one for all inner layers, or one for each.
        Around a layer that reads images or sequences nothing is propagated.
    shared_prior : bool or sequence of bool, optional
        Whether the units of a layer share their prior functions, or have their own, at a cost;
        one for all layers, or one for each. By default they share them, except in a
        convolutional layer, where units share the filters only.
    fresh_noise : bool, default False
        Whether prior functions are drawn anew at every training step.
    n_inducing : int, optional
        Inducing points of a layer: its posterior is then that of a sparse GP with the prior's
        covariances (the paper's VIP with inducing points). By default a layer has none: it is a
        linear combination of its prior functions.
    likelihood : {"auto", "probit", "robustmax", "softmax"} or Classification, default "auto"
        From units to classes: a name, an object such as `RobustMax(error=0.05)`, or one of a
        class of your own. "auto" is probit for two classes and softmax for more, or
        robust-max where nothing is chosen or sampled.
    inference : {"auto", "vi", "mcmc"}, default "auto"
        "auto": what is not given is chosen by the number of rows; several models are trained,
        each on all rows but some, and calibrated by those that they left out. "vi": one model
        with these parameters, by variational inference. "mcmc": its posterior is sampled.
    n_members : int, optional
        Train an ensemble of so many models, side by side; the prediction is the mean of their
        distributions. By default up to 5; with `inference="vi"` there is one model.
    validation_fraction : float, optional
        The share of the rows that is left out of the training to stop it when nothing improves
        any more and to keep the best. Each member of an ensemble leaves out another part.
    calibrate : bool, optional
        Whether to correct the probabilities by rows that were left out of the training:
        `validation_fraction` of them or, if it is not given, a tenth, or of an ensemble all rows,
        each by one member. By default they are, but not with `inference="vi"`.
    max_seconds : float, optional
        How long `fit` may take; the training is shortened to it.
    n_chains : int, default 4
        With `inference="mcmc"`: the chains that sample, side by side.
    precision : {"float32", "float64"}, default "float32"
        Of all computations of the model.
    random_state : int, RandomState or None, default 0
        The same number gives the same model.
    verbose : bool, default False
        Whether to show a progress bar, and what was chosen; where there is no terminal, a line a
        minute.

    Attributes
    ----------
    classes_ : array
        The labels, sorted.
    parts_ : tuple of estimators
        With `inference="auto"`: the models that are mixed, each with the parameters it was trained
        with. They take scaled rows.
    choice_ : tuple of Judgement
        With `inference="auto"`, of each candidate: its name, the mean log-density of rows that it
        left out, and its weight in the mixture, which is 0 if it was not kept.
    neighbourhood_ : Neighbourhood
        With `inference="auto"`: some of the training rows, which `distance` measures from.
    model_ : DeepModel, Ensemble or SampledModel
        The trained network and likelihood, with `n_members` all of them, with `inference="mcmc"`
        samples of them. Only where nothing was mixed: each of `parts_` has one.
    bound_history_ : array
        The mean of the bound over successive stretches of the training. Of `parts_`, if there are.
    diagnostics_ : Diagnostics
        How well chains have mixed, with `inference="mcmc"`.
    calibration_ : Calibration
        How predictions are corrected, with `calibrate`. `parts_` have their own besides.
    validation_scores_ : array of shape (scores, 3)
        Member, step and mean log-density of left-out rows, on the scale of the model.
    n_iter_ : int
        Training steps done; the most that a model had.
    input_shape_ : tuple of int
        The shape of one input, such as (28, 28) for images.
    encoder_ : TableEncoder
        How a table became numbers; only where one was needed.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dvip import DVIPClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = DVIPClassifier(n_layers=1, max_iter=100).fit(X, y)
    >>> model.predict(X[:5]).shape
    (5,)
    """
