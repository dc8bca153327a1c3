"""Functions of the posterior of a regression, in the units of the user."""

from typing import Any

import numpy as np

from dvip.function_draws import Draws

__all__ = ["SampledFunctions"]


class SampledFunctions:
    """Whole functions from a posterior: the same functions at any X, call after call.

    `sample_functions` of a regression makes them.
    """

    def __init__(self, model: Any, draws: Draws):
        self._model, self._draws = model, draws

    def __call__(self, X: Any) -> np.ndarray:
        """The value of each function at each row.

        Parameters
        ----------
        X : array of shape (rows, inputs) or DataFrame

        Returns
        -------
        array of shape (n, rows) or (n, rows, targets)
            What y would be without noise.
        """
        values = self._draws(self._model._scaled(X))
        return values.reshape(*values.shape[:2], *self._model.target_shape_)

    def gradient(self, X: Any) -> np.ndarray:
        """The derivative of each function by each input, at each row.

        Parameters
        ----------
        X : array of shape (rows, inputs) or DataFrame

        Returns
        -------
        array of shape (n, rows, inputs) or (n, rows, targets, inputs)
            In units of y for each unit of an input. Images and sequences keep their shape. The
            inputs of a table that was encoded are the columns of `encoder_`, such as one for each
            category.

        Examples
        --------
        >>> import numpy as np
        >>> from dvip import DVIPRegressor
        >>> X = np.linspace(0, 6, 40)[:, None]
        >>> model = DVIPRegressor(inference="exact").fit(X, np.sin(X[:, 0]))
        >>> functions = model.sample_functions(3, random_state=0)
        >>> bool(np.allclose(functions.gradient(X[10:12]), np.cos(X[10:12, 0])[:, None], atol=0.1))
        True
        """
        model = self._model
        slopes = self._draws.gradient(model._scaled(X)) / model.input_scaler_.scale
        return slopes.reshape(*slopes.shape[:2], *model.target_shape_, *model.input_shape_)
