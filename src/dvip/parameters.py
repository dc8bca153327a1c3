"""Which arrays of a model are trained: all floating-point arrays that are not inside `Fixed`."""

from typing import Any, TypeVar

import equinox as eqx
import jax
from jaxtyping import PyTree

__all__ = ["Fixed", "combine", "split_trainable"]

Model = TypeVar("Model")


class Fixed(eqx.Module):
    """Arrays that belong to a model but are not trained: prior noise, projections."""

    value: PyTree


def _is_fixed(node: Any) -> bool:
    return isinstance(node, Fixed)


def split_trainable(model: Model) -> tuple[Model, Model]:
    """The model as two of the same structure: its trained arrays, and everything else.

    Each holds `None` where the other holds a leaf; `combine` puts them together again.
    """

    def trainable(node: Any) -> Any:
        if _is_fixed(node):
            return jax.tree.map(lambda _: False, node)
        return eqx.is_inexact_array(node)

    return eqx.partition(model, jax.tree.map(trainable, model, is_leaf=_is_fixed))


combine = eqx.combine
