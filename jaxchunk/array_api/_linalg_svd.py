"""Nodes of singular values and vectors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from jax import lax

from jaxchunk.array_api import _build
from jaxchunk.array_api._build import DType
from jaxchunk.array_api._dtypes import real_of
from jaxchunk.array_api._linalg_arguments import identity, stack_of
from jaxchunk.array_api._linalg_pieces import adjoint_of
from jaxchunk.array_api._linalg_tasks import Cost, Packing, composite, expanded_once, fits, real_part, task
from jaxchunk.array_api._linalg_tsqr import tall, tsqr
from jaxchunk.array_api._values import Value
from jaxchunk.array_api._views import broadcast_to
from jaxchunk.graph.node import Limits, Node

COST = Cost(("svd",), 3.0)


def svd(node: Node, full: bool) -> tuple[Node, Node, Node]:
    """The nodes of U, S and Vh: with all singular vectors, or as many as there are singular values."""
    rows, columns = node.shape[-2:]
    k = min(rows, columns)
    shapes = ((rows, rows if full else k), (k,), (columns if full else k, columns))
    if k == 0:
        return _of_nothing(node, shapes)

    in_full, reduced = (expanded_once(partial(_svd, full=every)) for every in (True, False))

    def part(name: str, number: int, dtype: DType) -> Node:
        # Where all vectors of one side are asked for, the values and the others are those of the reduced form.
        whole = full and ((number == 0 and rows > columns) or (number == 2 and columns > rows))

        def expand(operands: Sequence[Node], limits: Limits) -> Node:
            (x,) = operands
            results = in_full if whole or (full and _fits(x, limits)) else reduced
            return results(x, limits)[number]

        return composite(name, full, (node,), stack_of(node, shapes[number], dtype), dtype, expand)

    return part("svd.U", 0, node.dtype), part("svd.S", 1, real_of(node.dtype)), part("svd.Vh", 2, node.dtype)


def _of_nothing(node: Node, shapes: Sequence[tuple[int, ...]]) -> tuple[Node, Node, Node]:
    """Of matrices without elements: every vector is singular, so the identity will do."""
    batch = node.shape[:-2]

    def vectors(shape: tuple[int, ...]) -> Node:
        if 0 in shape:
            return _build.filled(0, node.dtype, stack_of(node, shape, node.dtype))
        return broadcast_to(identity(node, shape[0], node.dtype), (*batch, *shape))

    values = _build.filled(0, real_of(node.dtype), stack_of(node, shapes[1], real_of(node.dtype)))
    return vectors(shapes[0]), _build.pinned(values, node.device), vectors(shapes[2])


def _svd(node: Node, limits: Limits, full: bool) -> tuple[Node, Node, Node]:
    if not full and not _fits(node, limits):
        if _reduces(node, limits):
            r, times = tsqr(node, limits)
            u, s, vh = _svd(r, limits, False)
            return times(u), s, vh
        if _reduces(adjoint_of(node), limits):
            v, s, uh = _svd(adjoint_of(node), limits, False)
            return adjoint_of(uh), s, adjoint_of(v)
    return _in_one_task(node, full, limits)


def _fits(node: Node, limits: Limits) -> bool:
    rows, columns = node.shape[-2:]
    k = min(rows, columns)
    return fits(node.dtype.itemsize * (rows * columns + k * (rows + columns + 1)), COST, limits)


def _reduces(node: Node, limits: Limits) -> bool:
    """Whether a tall matrix has a triangle that fits."""
    n = node.shape[-1]
    return tall(node, limits) and fits(4 * n * n * node.dtype.itemsize, COST, limits)


def _in_one_task(node: Node, full: bool, limits: Limits) -> tuple[Node, Node, Node]:
    rows, columns = node.shape[-2:]
    k = min(rows, columns)
    packing = Packing.of((rows, rows if full else k), (k,), (columns if full else k, columns))

    def body(x: Value) -> Value:
        u, s, vh = lax.linalg.svd(x, full_matrices=full)
        return packing.pack(u, s, vh)

    packed = task("svd", body, full, (node,), packing.shape, node.dtype, limits, COST)
    u, s, vh = (packing.part(packed, number) for number in range(3))
    return u, real_part(s), vh


def singular_values(node: Node) -> Node:
    """The node of the singular values alone."""
    dtype, k = real_of(node.dtype), min(node.shape[-2:])
    grid = stack_of(node, (k,), dtype)
    return composite("svdvals", None, (node,), grid, dtype, _values)


def _values(operands: Sequence[Node], limits: Limits) -> Node:
    (node,) = operands
    if not _fits(node, limits):
        for tall_one in (node, adjoint_of(node)):
            if _reduces(tall_one, limits):
                r, _ = tsqr(tall_one, limits)
                return _values_in_one_task(r, limits)
    return _values_in_one_task(node, limits)


def _values_in_one_task(node: Node, limits: Limits) -> Node:
    def body(x: Value) -> Value:
        return lax.linalg.svd(x, compute_uv=False)

    core = (min(node.shape[-2:]),)
    return task("svdvals", body, None, (node,), core, real_of(node.dtype), limits, COST)
