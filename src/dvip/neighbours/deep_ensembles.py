"""Deep ensembles: networks from different random starts, side by side.

Lakshminarayanan et al. 2017: each of M networks maximises

    Σ_n log p(y_n | f(x_n; w_i)) + log p(w_i)

alone, with the prior N(0, σ_p²/n) of a weight as weight decay, and the prediction is the mean of
their distributions. All are trained on the same rows, and in regression each network says how large
the noise is, as the paper has it. It is the layer of `repulsive.py` without a repulsion.
"""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from dvip.estimators.classification import DeepClassifier
from dvip.estimators.regression import DeepRegressor
from dvip.likelihoods import Likelihood
from dvip.neighbours.repulsive import NetworksEstimator

__all__ = ["DeepEnsembleClassifier", "DeepEnsembleRegressor"]


class _DeepEnsemble(NetworksEstimator):
    """The parameters of deep ensembles."""

    # Of the same parts of tables as in `repulsive.py`: 4.2 after 3,000 steps (at a rate of 0.002),
    # 0.26 after 800, 0.04 after 500 and 0.06 after 350; with ten times the rows -0.04 after 1,400,
    # -0.28 after 4,000 and -0.38 after 8,000. The paper has 40 passes over the rows, at a rate of
    # 0.1, here there are 125.
    _default_steps: ClassVar[tuple[int, int]] = (500, 20_000)

    def __init__(
        self,
        hidden: Sequence[int] = (50, 50),
        activation: str = "relu",
        n_networks: int = 5,
        prior_scale: float = 2.0,
        max_iter: int | None = None,
        batch_size: int = 100,
        learning_rate: float = 0.005,
        n_predictive_samples: int = 100,
        likelihood: str | Likelihood = "auto",
        n_members: int | None = None,
        validation_fraction: float | None = None,
        calibrate: bool = False,
        max_seconds: float | None = None,
        precision: str = "float32",
        random_state: int | np.random.RandomState | None = 0,
        verbose: bool = False,
    ):
        self._store(locals())


class DeepEnsembleRegressor(DeepRegressor, _DeepEnsemble):
    """Regression with several networks from different random starts: a deep ensemble.

    Inputs and targets are scaled inside. Predictions are mixtures over the networks.

    Parameters
    ----------
    hidden : sequence of int, default (50, 50)
        Widths of the network's hidden layers.
    activation : {"tanh", "relu", "silu", "sigmoid", "softplus", "cos"}, default "relu"
        Between its layers.
    n_networks : int, default 5
        How many networks there are. A prediction is best made of a multiple of them.
    prior_scale : float, default 2.0
        Standard deviation of the weights a priori, of those of a sum of n terms over √n: the
        smaller, the stronger the weight decay.
    max_iter : int, optional
        Training steps. By default 500 for up to 400 rows, then in proportion to the
        number of rows, up to 20,000.
    batch_size : int, default 100
        Rows a step.
    learning_rate : float, default 0.005
        Of Adam at the first step; it falls to zero along a cosine.
    n_predictive_samples : int, default 100
        The samples of a prediction: the components of the mixture.
    likelihood : str or Regression, default "auto"
        The noise of the data: a name, or an object of a class of your own. "auto" is Gaussian
        noise whose size depends on the inputs, "heteroscedastic". "gaussian" is noise of one size,
        "student-t" has heavy tails, "heteroscedastic-student-t" both; "log-normal" is for
        positive numbers, "poisson" and "negative-binomial" for counts.
    n_members : int, optional
        Train an ensemble of so many models, side by side; the prediction is the mean of their
        distributions. By default there is one model.
    validation_fraction : float, optional
        The share of the rows that is left out of the training to stop it when nothing improves
        any more and to keep the best. Each member of an ensemble leaves out another part.
    calibrate : bool, default False
        Whether to correct predictions by rows that were left out of the training:
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
    model_ : DeepModel or Ensemble
        The trained network and likelihood, or with `n_members` all of them.
    bound_history_ : array
        The mean of the objective over successive stretches of the training.
    calibration_ : Calibration
        How predictions are corrected, with `calibrate`.
    validation_scores_ : array of shape (scores, 3)
        Member, step and mean log-density of left-out rows, on the scale of the model.
    n_iter_ : int
        Training steps done.
    encoder_ : TableEncoder
        How a table became numbers; only where one was needed.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from dvip import DeepEnsembleRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = DeepEnsembleRegressor(hidden=(10,), max_iter=100).fit(X, y)
    >>> mean, std = model.predict(X[:5], return_std=True)
    >>> std.shape
    (5,)
    """

    def _default_likelihood(self) -> str:
        return "heteroscedastic"


class DeepEnsembleClassifier(DeepClassifier, _DeepEnsemble):
    """Classification with several networks from different random starts: a deep ensemble.

    Inputs are scaled inside. Probabilities are means over the networks.

    Parameters
    ----------
    hidden : sequence of int, default (50, 50)
        Widths of the network's hidden layers.
    activation : {"tanh", "relu", "silu", "sigmoid", "softplus", "cos"}, default "relu"
        Between its layers.
    n_networks : int, default 5
        How many networks there are. A prediction is best made of a multiple of them.
    prior_scale : float, default 2.0
        Standard deviation of the weights a priori, of those of a sum of n terms over √n: the
        smaller, the stronger the weight decay.
    max_iter : int, optional
        Training steps. By default 500 for up to 400 rows, then in proportion to the
        number of rows, up to 20,000.
    batch_size : int, default 100
        Rows a step.
    learning_rate : float, default 0.005
        Of Adam at the first step; it falls to zero along a cosine.
    n_predictive_samples : int, default 100
        The samples of a prediction: the components of the mixture.
    likelihood : {"auto", "probit", "robustmax", "softmax"} or Classification, default "auto"
        From units to classes: a name, an object such as `RobustMax(error=0.05)`, or one of a
        class of your own. "auto" is probit for two classes and softmax for more.
    n_members : int, optional
        Train an ensemble of so many models, side by side; the prediction is the mean of their
        distributions. By default there is one model.
    validation_fraction : float, optional
        The share of the rows that is left out of the training to stop it when nothing improves
        any more and to keep the best. Each member of an ensemble leaves out another part.
    calibrate : bool, default False
        Whether to correct predictions by rows that were left out of the training:
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
        The mean of the objective over successive stretches of the training.
    calibration_ : Calibration
        How predictions are corrected, with `calibrate`.
    validation_scores_ : array of shape (scores, 3)
        Member, step and mean log-density of left-out rows, on the scale of the model.
    n_iter_ : int
        Training steps done.
    encoder_ : TableEncoder
        How a table became numbers; only where one was needed.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dvip import DeepEnsembleClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = DeepEnsembleClassifier(hidden=(10,), max_iter=100).fit(X, y)
    >>> model.predict(X[:5]).shape
    (5,)
    """
