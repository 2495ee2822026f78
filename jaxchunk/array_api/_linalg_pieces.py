"""Matrices put together from blocks that exist on their own, and taken apart again.

A blocked algorithm goes over parts of what it has made so far. Parts are looked for in the blocks
that a matrix was put together from, so that what is read are blocks, however often a matrix was
joined and cut. Axes are -2, rows, and -1, columns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from jax import lax

from jaxchunk.array_api import _build, _contraction, _views
from jaxchunk.array_api._build import DType
from jaxchunk.array_api._linalg_tasks import TASK_SHARE, Cost, task_bytes
from jaxchunk.array_api._values import aligned
from jaxchunk.graph.grid import Axis, auto_grid
from jaxchunk.graph.node import Limits, Node
from jaxchunk.graph.primitives import Concat
from jaxchunk.plan.build import is_elementwise
from jaxchunk.plan.fuse import bases

_sub = aligned(lax.sub)


def part(node: Node, axis: int, start: int, stop: int) -> Node:
    """The rows, or columns, from `start` up to `stop`."""
    along = node.ndim + axis
    op = node.op
    if start == stop or (start, stop) == (0, node.shape[along]) or not isinstance(op, Concat) or node.value is not None:
        return _views.cut(node, along, start, stop)
    if op.axis != along:
        return joined([part(operand, axis, start, stop) for operand in node.operands], op.axis - node.ndim)
    pieces, at = [], 0
    for operand, size in zip(node.operands, op.sizes, strict=True):
        first, last = max(start, at), min(stop, at + size)
        if first < last:
            pieces.append(part(operand, axis, first - at, last - at))
        at += size
    return joined(pieces, axis)


def block(node: Node, rows: tuple[int, int], columns: tuple[int, int]) -> Node:
    """The rows and columns between two bounds each."""
    return part(part(node, -2, *rows), -1, *columns)


def joined(nodes: Sequence[Node], axis: int) -> Node:
    """Matrices below each other, or side by side: pieces of pieces are pieces; those without elements go."""
    pieces: list[Node] = []
    for node in nodes:
        op = node.op
        if isinstance(op, Concat) and op.axis == node.ndim + axis and node.value is None:
            pieces += node.operands
        elif node.shape[axis]:
            pieces.append(node)
    return _views.concat(pieces or nodes[:1], nodes[0].ndim + axis)


def grid_of_blocks(rows: Sequence[Sequence[Node]]) -> Node:
    """A matrix from rows of blocks."""
    return joined([joined(row, -1) for row in rows], -2)


def settled(node: Node) -> Node:
    """The same node, but that it is computed once where it would be computed wherever it is used.

    What is put together from pieces are arrays that exist, so two pieces of it will do.
    """
    rows = node.shape[-2]
    if rows < 2 or not any(is_elementwise(base) and base.value is None for base in bases(node)):
        return node
    along = node.ndim - 2
    return _views.concat([_views.cut(node, along, 0, rows // 2), _views.cut(node, along, rows // 2, rows)], along)


def zeros(like: Node, rows: int, columns: int) -> Node:
    """A stack of zero matrices beside a node's: a broadcast scalar, which costs nothing."""
    grid = (*like.grid[:-2], *auto_grid((rows, columns), like.dtype.itemsize))
    return _build.pinned(_build.filled(0, like.dtype, grid), like.device)


def updated(node: Node, left: Node, right: Node) -> Node:
    """What is left of a matrix after a product is taken from it."""
    product = _contraction.matmul(left, right)
    return _build.blockwise("update", _sub, ("update", node.dtype.str), (node, product), node.dtype)


def adjoint_of(node: Node) -> Node:
    """The conjugate transposes of a node's matrices."""
    turned = _views.permute(node, [*range(node.ndim - 2), node.ndim - 1, node.ndim - 2])
    return conjugated(turned)


def conjugated(node: Node) -> Node:
    """The complex conjugates; the node itself where it is real."""
    if node.dtype.kind != "c":
        return node
    return _build.blockwise("conj", lax.conj, ("conj", node.dtype.str), (node,), node.dtype)


def spans(length: int, size: int) -> list[tuple[int, int]]:
    """The bounds of blocks of a size, the last one shorter where needed."""
    return [(start, min(start + size, length)) for start in range(0, length, size)]


def side(dtype: DType, matrices: int, cost: Cost, limits: Limits, like: Axis) -> int:
    """The side of square blocks such that a task on some of them fits; of the size of chunks, where these suit."""
    room = limits.budget // TASK_SHARE
    most = math.isqrt(max(1, room * 1024 // task_bytes(1024 * matrices * dtype.itemsize, cost)))
    return suited(most, like)


def suited(most: int, like: Axis) -> int:
    """A size of at most `most`, at least half of it: a multiple or a part of chunks where there is one."""
    chunk = max(1, like.largest)
    if chunk <= most:
        return min(like.length, most - most % chunk)
    parts = -(-chunk // most)
    even = next((k for k in range(parts, 2 * parts + 1) if chunk % k == 0), None)
    return most if even is None else chunk // even


def strip(length: int, dtype: DType, cost: Cost, limits: Limits, like: Axis, beside: int = 0) -> int:
    """How many columns of a length fit in a task, twice, beside so many bytes; 0 where there is no room at all."""
    room = limits.budget // TASK_SHARE
    most = room * 1024 // max(1, task_bytes(1024 * (2 * length * dtype.itemsize), cost))
    if beside:
        most = max(0, room - task_bytes(beside, cost)) * 1024 // task_bytes(1024 * 2 * length * dtype.itemsize, cost)
    return suited(min(most, like.length), like) if most else 0
