"""Nodes of matrix products: contractions over an index space of all axes of both operands."""

from __future__ import annotations

from collections.abc import Sequence

from jaxchunk.array_api import _build, _views
from jaxchunk.array_api._build import DType, Map, Shape
from jaxchunk.array_api._dtypes import promote
from jaxchunk.array_api._reducers import Dot
from jaxchunk.graph.node import Node


def common_dtype(name: str, a: Node, b: Node) -> DType:
    """The dtype of a product of two numeric operands."""
    for node in (a, b):
        if node.dtype.kind == "b":
            raise TypeError(f"{name} takes numeric dtypes, not bool: convert the operands with astype")
    return promote(a.dtype, b.dtype)


def contract(
    name: str, a: Node, b: Node, left: Sequence[int], right: Sequence[int], space: Shape, axes: Sequence[int]
) -> Node:
    """Sums over axes of products of `a` and `b`, whose axes follow the axes `left` and `right` of the space.

    Axes of size 1 of an operand may meet a longer axis of the space.
    """
    dtype = common_dtype(name, a, b)
    maps: list[Map] = []
    operands = []
    for node, follows in ((a, left), (b, right)):
        node = _build.cast(node, dtype)
        maps.append(tuple(s if n == space[s] else None for n, s in zip(node.shape, follows, strict=True)))
        operands.append(node)
    followed = [tuple(sorted(axis for axis in m if axis is not None)) for m in maps]
    reducer = Dot(*followed)
    flops = 2.0 if dtype.kind != "c" else 8.0
    return _build.fold(reducer, operands, axes, dtype, maps=maps, space=space, flops=flops)


def matmul(a: Node, b: Node) -> Node:
    """The matrix product of two nodes of at least one axis, broadcast over all but the last two."""
    for name, node in (("x1", a), ("x2", b)):
        if node.ndim == 0:
            raise ValueError(f"matmul: {name} has 0 axes; it needs at least one (use * to multiply by a scalar)")
    inner_a, inner_b = a.shape[-1], b.shape[0 if b.ndim == 1 else -2]
    if inner_a != inner_b:
        raise ValueError(f"matmul: x1 of shape {a.shape} has {inner_a} columns, x2 of shape {b.shape} {inner_b} rows")
    vector_a, vector_b = a.ndim == 1, b.ndim == 1
    batch = _build.broadcast_shape((a.shape[:-2], b.shape[:-2]))
    rows = () if vector_a else (a.shape[-2],)
    columns = () if vector_b else (b.shape[-1],)
    # The space: batch axes, rows, the axis that is summed over, columns: neither operand's axes change places.
    space = (*batch, *rows, inner_a, *columns)
    n, summed = len(batch), len(batch) + len(rows)
    left = [*range(n - max(a.ndim - 2, 0), n), *([] if vector_a else [n]), summed]
    right = [*range(n - max(b.ndim - 2, 0), n), summed, *([] if vector_b else [summed + 1])]
    return contract("matmul", a, b, left, right, space, (summed,))


def tensordot(a: Node, b: Node, axes_a: Sequence[int], axes_b: Sequence[int]) -> Node:
    """Sums of products over pairs of axes; the result has a's other axes, then b's."""
    kept_a = [axis for axis in range(a.ndim) if axis not in axes_a]
    kept_b = [axis for axis in range(b.ndim) if axis not in axes_b]
    summed = tuple(a.shape[axis] for axis in axes_a)
    if not summed:
        # Nothing to sum: an outer product, by a summed axis of size 1.
        a, axes_a = _views.expand_dims(a, [a.ndim]), [a.ndim]
        b, axes_b = _views.expand_dims(b, [0]), [0]
        kept_b, summed = [axis + 1 for axis in kept_b], (1,)
    # Summed axes stand between the others, as they do in the operands of most calls: those are read as they lie.
    space = (*(a.shape[x] for x in kept_a), *summed, *(b.shape[x] for x in kept_b))
    first, second = len(kept_a), len(kept_a) + len(summed)
    where_a = {axis: i for i, axis in enumerate(kept_a)} | {axis: first + i for i, axis in enumerate(axes_a)}
    where_b = {axis: second + i for i, axis in enumerate(kept_b)} | {axis: first + i for i, axis in enumerate(axes_b)}
    left, right = [where_a[x] for x in range(a.ndim)], [where_b[x] for x in range(b.ndim)]
    return contract("tensordot", a, b, left, right, space, tuple(range(first, second)))
