"""Positive numbers: the logarithm of y has Gaussian noise."""

from typing import ClassVar

import numpy as np
from jaxtyping import Float

from dvip.distributions import LogNormalMixture
from dvip.likelihoods.gaussian import Gaussian

__all__ = ["LogNormal"]


class LogNormal(Gaussian):
    """log y_h = f_h + Gaussian noise: errors are in proportion to y."""

    takes_errors: ClassVar[bool] = False

    def initialise(self, num_outputs: int) -> "LogNormal":
        """The same noise for every target."""
        return LogNormal(Gaussian().initialise(num_outputs).log_variance)

    def transform(
        self, targets: Float[np.ndarray, "rows outputs"]
    ) -> Float[np.ndarray, "rows outputs"]:
        """Logarithms; an error where there is none."""
        impossible = np.argwhere(targets <= 0)
        if len(impossible):
            row, column = impossible[0]
            raise ValueError(
                f"y has values that are not positive, such as {targets[row, column]:g} in row "
                f"{row}, which have no logarithm: use likelihood='gaussian', or 'poisson' or "
                "'negative-binomial' for counts."
            )
        return np.log(targets)

    def inverse(
        self, transformed: Float[np.ndarray, "rows outputs"]
    ) -> Float[np.ndarray, "rows outputs"]:
        """Back from logarithms."""
        return np.exp(transformed)

    def predictive(  # type: ignore[override]
        self,
        mean: Float[np.ndarray, "rows units samples"],
        variance: Float[np.ndarray, "rows units samples"],
        offset: Float[np.ndarray, " outputs"],
        scale: Float[np.ndarray, " outputs"],
        errors: Float[np.ndarray, "rows outputs"] | None = None,
    ) -> LogNormalMixture:
        """The mixture of log y, seen as one of y."""
        return LogNormalMixture(super().predictive(mean, variance, offset, scale, errors))

    def function_values(
        self,
        values: Float[np.ndarray, "functions rows units"],
        offset: Float[np.ndarray, " outputs"],
        scale: Float[np.ndarray, " outputs"],
    ) -> Float[np.ndarray, "functions rows outputs"]:
        """The median of y where f has these values."""
        return np.exp(super().function_values(values, offset, scale))
