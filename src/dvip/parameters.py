"""Which arrays of a model are trained, and by what.

All floating-point arrays that are not inside `Fixed` are trained: those inside `Auxiliary` by a
loss of their own, all others by the bound.
"""

from typing import Any, TypeVar

import equinox as eqx
import jax
from jaxtyping import PyTree

__all__ = [
    "Auxiliary",
    "Fixed",
    "combine",
    "constant_auxiliary",
    "constant_but_auxiliary",
    "split_trainable",
]

Model = TypeVar("Model")


class Fixed(eqx.Module):
    """Arrays that belong to a model but are not trained: prior noise, projections."""

    value: PyTree


class Auxiliary(eqx.Module):
    """Arrays that the bound is estimated with but not optimised over, such as a classifier's."""

    value: PyTree


def constant_auxiliary(model: Model) -> Model:
    """The model, where gradients do not reach what is auxiliary: the way the bound sees it."""
    return _constant_where(model, auxiliary=True)


def constant_but_auxiliary(model: Model) -> Model:
    """The model, where gradients reach only what is auxiliary: the way its own loss sees it."""
    return _constant_where(model, auxiliary=False)


def _constant_where(model: Model, auxiliary: bool) -> Model:
    def constant(node: Any) -> Any:
        kept = _is_auxiliary(node) != auxiliary or not jax.tree.leaves(
            eqx.filter(node, eqx.is_array)
        )
        return node if kept else jax.lax.stop_gradient(node)

    return jax.tree.map(constant, model, is_leaf=_is_auxiliary)


def _is_auxiliary(node: Any) -> bool:
    return isinstance(node, Auxiliary)


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
