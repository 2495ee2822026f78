"""Folds over a selection by a mask, without counting it: elements that aren't selected change nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import lax

from jaxchunk.array_api import _build
from jaxchunk.array_api import _reducers as reducers
from jaxchunk.array_api._build import DType, convert
from jaxchunk.array_api._pending import Selected
from jaxchunk.array_api._values import aligned
from jaxchunk.graph.grid import Box
from jaxchunk.graph.node import Node
from jaxchunk.graph.primitives import Guard, Reducer

_select = aligned(lax.select)


def fold_selected(reducer: Reducer, held: Selected, axes: Sequence[int], seen: DType, result: DType) -> Node:
    """A fold over axes, the selected one among them, each element seen as a dtype before."""
    values, mask = held.values, held.mask_like()
    if values.size == 0:
        node = _build.cast(values, seen)
        return _build.fold(reducer, (node,), axes, result)
    if isinstance(reducer, reducers.Moments):
        return _build.fold(reducer, (_build.cast(values, seen), mask), axes, result)
    (neutral,) = reducer.identity([seen])

    def body(x: Any, mask: Any) -> Any:
        x = convert(x, seen)
        return _select(mask, x, lax.full_like(x, neutral))

    key = ("selected", values.dtype.str, seen.str, reducer.key)
    folded = _build.fold(reducer, (values, mask), axes, result, body=body, key=key, bodied=seen)
    if isinstance(reducer, reducers.Simple) and reducer.start is None:
        return _guarded(folded, reducer.name, held)
    return folded


def count_selected(held: Selected, axes: Sequence[int], dtype: DType) -> Node:
    """How many elements such a fold is over, as a scalar of a dtype."""
    others = math.prod(held.values.shape[a] for a in axes if a)

    def body(n: Any) -> Any:
        return convert(lax.mul(n, lax.full_like(n, others)), dtype)

    return _build.blockwise("count", body, ("count", others, dtype.str), (_number(held),), dtype)


def _number(held: Selected) -> Node:
    return _build.fold(reducers.CountNonzero(), (held.found.mask,), (0,), reducers.INT64)


def _guarded(folded: Node, name: str, held: Selected) -> Node:
    """A run that finds nothing selected says so, where there is no result over no elements."""

    def check(tile: np.ndarray[Any, Any], box: Box) -> None:
        if not tile.all():
            raise ValueError(f"{name} of no elements: the mask selects none, so the array is empty")

    return _build.make(Guard(check, ("some", name)), (folded, _number(held)), folded.grid, folded.dtype)
