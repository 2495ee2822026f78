"""QR decompositions of tall matrices, by blocks of rows.

Each block has a triangle of its own; the triangles below each other are a matrix again, with fewer
rows, until one task holds it. Q is then made from the last to the first of these: a block is
decomposed a second time, which is less than to write its own Q and to read it again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from jax import lax

from jaxchunk.array_api import _contraction, _views
from jaxchunk.array_api._build import DType
from jaxchunk.array_api._linalg_pieces import joined, part, settled
from jaxchunk.array_api._linalg_tasks import TASK_SHARE, Cost, Packing, task, task_bytes
from jaxchunk.array_api._values import Value
from jaxchunk.graph.node import Limits, Node

COST = Cost(("geqrf", "householder_product"), 1.0)

Times: TypeAlias = Callable[[Node | None], Node]
"""Gives Q, or Q times a matrix."""


def block_rows(columns: int, dtype: DType, limits: Limits) -> int:
    """Rows of a block: a multiple of the columns such that a task on as many again fits; 0 where twice them don't."""
    square = task_bytes(2 * columns * columns * dtype.itemsize, COST)
    most = limits.budget // TASK_SHARE // max(1, square) - 1
    return most * columns if most >= 2 else 0


def tall(node: Node, limits: Limits) -> bool:
    """Whether a matrix can be done by blocks of rows."""
    return block_rows(node.shape[-1], node.dtype, limits) > 0 and node.shape[-2] >= node.shape[-1]


def tsqr(node: Node, limits: Limits) -> tuple[Node, Times]:
    """R, and what gives Q or a product with it, of a matrix that is `tall`."""
    rows, columns = node.shape[-2:]
    size = block_rows(columns, node.dtype, limits)
    # Both times that a block is decomposed, it has to be the same to the last bit.
    node = settled(node)
    if rows < size + columns:
        q, r = qr_in_one_task(node, False, limits)
        return r, lambda right: q if right is None else _contraction.matmul(q, right)
    # Blocks of one size, as another axis of the stack, and what is left, which has to be tall as well.
    blocks, rest = divmod(rows, size)
    if 0 < rest < columns:
        blocks -= 1
    cut = blocks * size
    parts = [(_stacked(part(node, -2, 0, cut), blocks), True)] if blocks else []
    if cut < rows:
        parts.append((part(node, -2, cut, rows), False))
    triangles = [_triangle(block, limits) for block, _ in parts]
    flat = [_flat(t) if many else t for t, (_, many) in zip(triangles, parts, strict=True)]
    r, times = tsqr(joined(flat, -2), limits)

    def all_times(right: Node | None) -> Node:
        factors, at, products = times(right), 0, []
        for (block, many), triangle in zip(parts, flat, strict=True):
            own = part(factors, -2, at, at + triangle.shape[-2])
            at += triangle.shape[-2]
            product = _product(block, _stacked(own, blocks) if many else own, limits)
            products.append(_flat(product) if many else product)
        return joined(products, -2)

    return r, all_times


def _stacked(node: Node, blocks: int) -> Node:
    rows, columns = node.shape[-2:]
    return _views.reshape(node, (*node.shape[:-2], blocks, rows // blocks, columns))


def _flat(node: Node) -> Node:
    *stack, blocks, rows, columns = node.shape
    return _views.reshape(node, (*stack, blocks * rows, columns))


def _triangle(node: Node, limits: Limits) -> Node:
    def body(x: Value) -> Value:
        return lax.linalg.qr(x, full_matrices=False)[1]

    n = node.shape[-1]
    return task("qr.R", body, None, (node,), (n, n), node.dtype, limits, COST, flops=2.0 * n)


def _product(node: Node, right: Node, limits: Limits) -> Node:
    """Q of a block, times a matrix."""

    def body(x: Value, factor: Value) -> Value:
        q, _ = lax.linalg.qr(x, full_matrices=False)
        return dot(q, factor)

    core = (node.shape[-2], right.shape[-1])
    cost = Cost((*COST.libraries, "dot_general"), COST.copies)
    return task("qr.Q", body, None, (node, right), core, node.dtype, limits, cost, flops=4.0 * core[1])


def dot(a: Value, b: Value) -> Value:
    """Products of matrices."""
    stack = tuple(range(a.ndim - 2))
    numbers = (((a.ndim - 1,), (a.ndim - 2,)), (stack, stack))
    return lax.dot_general(a, b, numbers, precision=lax.Precision.HIGHEST, preferred_element_type=a.dtype)


def qr_in_one_task(node: Node, complete: bool, limits: Limits) -> tuple[Node, Node]:
    """Q and R of matrices that fit."""
    rows, columns = node.shape[-2:]
    k = rows if complete else min(rows, columns)
    packing = Packing.of((rows, k), (k, columns))

    def body(x: Value) -> Value:
        return packing.pack(*lax.linalg.qr(x, full_matrices=complete))

    packed = task("qr", body, complete, (node,), packing.shape, node.dtype, limits, COST, flops=4.0 * k)
    return packing.part(packed, 0), packing.part(packed, 1)
