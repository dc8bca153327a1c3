"""A fitted regression as a model of BoTorch; `pip install "dvip[botorch]"` has what it needs.

A posterior of BoTorch is asked for joint samples at batches of rows. Here these are some functions
of the model's posterior, drawn once: as they are whole functions, samples at rows that are asked
for one after another belong together, and their derivatives lead an acquisition function uphill.
"""

from typing import Any

import numpy as np

try:
    import torch
    from botorch.models.ensemble import EnsembleModel
except ImportError as error:
    raise ImportError(
        'dvip.botorch needs torch and BoTorch: pip install "dvip[botorch]".'
    ) from error

__all__ = ["FunctionModel"]


class FunctionModel(EnsembleModel):
    """A fitted regression of dvip, as some functions of its posterior.

    Acquisition functions that sample, such as `qLogNoisyExpectedImprovement` and
    `qExpectedImprovement`, and `optimize_acqf` take it as a model.

    Parameters
    ----------
    model : regressor of dvip
        Fitted to arrays of numbers. With `precision="float64"` the derivatives are exact enough
        for the last steps of a climb.
    num_functions : int, default 256
        How many functions are drawn.
    random_state : int, RandomState or None, default 0
        The same number gives the same functions.
    """

    def __init__(self, model: Any, num_functions: int = 256, random_state: Any = 0):
        super().__init__()
        self._functions = model.sample_functions(num_functions, random_state)
        self._num_functions = num_functions
        self._num_outputs = int(np.prod(model.target_shape_))

    @property
    def batch_shape(self) -> torch.Size:
        """A model is one, not a batch of them."""
        return torch.Size([])

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        """Values of the functions.

        Parameters
        ----------
        X : tensor of shape (*batch, rows, inputs)

        Returns
        -------
        tensor of shape (*batch, functions, rows, targets)
        """
        rows = X.reshape(-1, X.shape[-1])
        values: Any = _Values.apply(rows, self._functions, self._num_outputs)
        values = values.reshape(self._num_functions, *X.shape[:-1], self._num_outputs)
        return values.movedim(0, -3)


class _Values(torch.autograd.Function):
    """Values of function draws at rows, and how they change with the rows."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, functions: Any, num_outputs: int) -> torch.Tensor:
        """Functions x rows x targets."""
        ctx.functions, ctx.num_outputs = functions, num_outputs
        ctx.save_for_backward(rows)
        values = functions(rows.detach().cpu().numpy())
        return rows.new_tensor(values.reshape(len(values), len(rows), num_outputs))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        """The derivative by the rows, from that by the values."""
        (rows,) = ctx.saved_tensors
        slopes = ctx.functions.gradient(rows.detach().cpu().numpy())
        slopes = slopes.reshape(len(slopes), len(rows), ctx.num_outputs, rows.shape[1])
        by_rows = np.einsum("frt,frti->ri", gradients[0].detach().cpu().numpy(), slopes)
        return rows.new_tensor(by_rows), None, None
