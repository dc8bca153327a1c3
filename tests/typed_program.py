"""A user's program that is not run: `mypy` checks that the types of `dvip` say what is meant."""

from typing import assert_type

import numpy as np

import dvip
from dvip import (
    ArraySource,
    DVIPClassifier,
    DVIPRegressor,
    GaussianMixture,
    Predictive,
    Source,
    load,
    open_source,
)

X, y = np.zeros((4, 2)), np.zeros(4)
model = DVIPRegressor(n_layers=2, prior="bnn", random_state=0)
assert_type(model.fit(X, y), DVIPRegressor)
assert_type(DVIPRegressor.paper(n_layers=1), DVIPRegressor)
assert_type(model.predict_dist(X), Predictive)
lower, upper = model.predict_dist(X).interval(0.9)
median: np.ndarray = model.predict_dist(X).quantile(0.5)
noise, function = model.predict_dist(X).variance_parts()
probabilities: np.ndarray = DVIPClassifier().fit(X, y).predict_proba(X)
mixture = GaussianMixture(X, X, np.ones(()))
assert_type(mixture.target(0), GaussianMixture)

assert_type(open_source("rows.parquet", target="y"), Source)
model.fit(ArraySource(X, y)).save("model")
loaded = load("model")
version: str = dvip.__version__

# What is wrong is found: these would be errors without the comment, and it is one where they are
# none.
DVIPRegressor(n_layer=2)  # type: ignore[call-arg]
open_source("rows.parquet", targets="y")  # type: ignore[call-arg]
mixture.interval("wide")  # type: ignore[arg-type]
