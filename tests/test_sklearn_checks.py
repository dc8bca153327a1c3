"""scikit-learn's own checks, in full."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from dvip import DVIPClassifier, DVIPRegressor, SIPRegressor

# One layer and large steps: the checks are about the interface, and want a fit that learns.
# Small batches: what is compiled depends on the size of the batch, not on that of the table.
QUICK = dict(n_layers=1, max_iter=200, batch_size=10, learning_rate=0.05, n_predictive_samples=5)
QUICK_SIP = dict(QUICK, n_inducing=5, n_prior_samples=20, n_training_samples=5)


@parametrize_with_checks(
    [DVIPRegressor(**QUICK), DVIPClassifier(**QUICK), SIPRegressor(**QUICK_SIP)]
)
def test_sklearn_check(estimator, check):
    check(estimator)
