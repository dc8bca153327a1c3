"""scikit-learn's own checks, in full."""

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

from dvip import DeepGPClassifier, DeepGPRegressor, DVIPClassifier, DVIPRegressor, SIPRegressor

# One layer and large steps: the checks are about the interface, and want a fit that learns.
# Small batches: what is compiled depends on the size of the batch, not on that of the table.
QUICK = dict(n_layers=1, max_iter=200, batch_size=10, learning_rate=0.05, n_predictive_samples=5)
QUICK_SIP = dict(
    QUICK, learning_rate=0.02, max_iter=600, n_inducing=5, n_prior_samples=40, n_training_samples=5
)


@parametrize_with_checks([DVIPRegressor.paper(**QUICK)])
def test_sklearn_check(estimator, check):
    check(estimator)


OF_CLASSIFIERS = {
    check.func.__name__: (estimator, check)
    for estimator, check in estimator_checks_generator(DVIPClassifier.paper(**QUICK))
    if "class" in check.func.__name__
}


@pytest.mark.parametrize("name", OF_CLASSIFIERS)
def test_sklearn_check_of_classifiers(name):
    """What is asked of classifiers alone; all else is that of regressors."""
    estimator, check = OF_CLASSIFIERS[name]
    check(estimator)


# The same frame around other layers and likelihoods, which take long to compile.
OTHERS = [
    DVIPClassifier.paper(**QUICK),
    DeepGPRegressor(**QUICK, n_inducing=8),
    DeepGPClassifier(**QUICK, n_inducing=8),
    SIPRegressor(**QUICK_SIP),
]


@pytest.mark.slow
@parametrize_with_checks(OTHERS)
def test_sklearn_check_of_other_models(estimator, check):
    check(estimator)
