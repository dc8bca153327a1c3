"""Where inducing points start: the centres of the data that reach their layer."""

import warnings

import numpy as np
from jaxtyping import Float
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

__all__ = ["initial_inducing_points"]

# More rows than these move the centres little and cost time.
MAX_ROWS = 5_000


def initial_inducing_points(
    inputs: Float[np.ndarray, "rows inputs"], number: int
) -> Float[np.ndarray, "inputs inducing"]:
    """Centres of k-means, a function of the inputs alone; exactly `number` of them.

    Where there are fewer distinct rows, each is a point, and standard normal points, which are what
    scaled data look like, make up the number: the shapes of a model do not depend on its data.
    """
    random = np.random.default_rng(0)
    if len(inputs) > MAX_ROWS:
        inputs = inputs[random.choice(len(inputs), MAX_ROWS, replace=False)]
    distinct = np.unique(inputs, axis=0)
    if len(distinct) <= number:
        others = random.standard_normal((number - len(distinct), inputs.shape[1]))
        centres = np.concatenate([distinct, others])
    else:
        with warnings.catch_warnings():
            # Rows that differ by roundings alone: centres that coincide do no harm.
            warnings.simplefilter("ignore", ConvergenceWarning)
            centres = KMeans(number, n_init=1, random_state=0).fit(inputs).cluster_centers_
    return np.ascontiguousarray(centres.T.astype(inputs.dtype))
