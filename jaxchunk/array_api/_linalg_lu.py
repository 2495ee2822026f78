"""Nodes of what an elimination gives: determinants and solutions.

A matrix that fits in one task is decomposed with partial pivoting: L and U in each other's empty
places, a column that tells which row of the matrix each row was, and one that is 1 where rows were
swapped, as one n × (n + 2) matrix. A larger one is decomposed by panels as `_linalg_qr` does it: pivots
would be sought in panels as long as the matrix, of which memory holds but a few columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax import lax

from jaxchunk.array_api import _build, _views
from jaxchunk.array_api._build import convert
from jaxchunk.array_api._linalg_arguments import identity, stack_of
from jaxchunk.array_api._linalg_checks import regular, regular_triangle
from jaxchunk.array_api._linalg_norms import norm_of
from jaxchunk.array_api._linalg_pieces import strip
from jaxchunk.array_api._linalg_qr import Reflections, by_panels
from jaxchunk.array_api._linalg_tasks import Cost, composite, fits, task, whole_axes
from jaxchunk.array_api._linalg_triangular import back_substituted
from jaxchunk.array_api._linalg_vectors import diagonal_of
from jaxchunk.array_api._values import Value, aligned
from jaxchunk.graph.grid import Axis
from jaxchunk.graph.node import Limits, Node

FACTOR = Cost(("lu",), 1.0)
SOLVE = Cost(("triangular_solve",), 1.0)

_mul = aligned(lax.mul)


def _fits(node: Node, limits: Limits) -> bool:
    return fits(2 * node.shape[-1] * (node.shape[-1] + 2) * node.dtype.itemsize, FACTOR, limits)


def _factored(node: Node, limits: Limits) -> Node:
    """The decompositions of matrices that fit."""

    def body(x: Value) -> Value:
        lu, pivots, order = lax.linalg.lu(x)
        swapped = lax.ne(pivots, lax.broadcasted_iota(pivots.dtype, pivots.shape, pivots.ndim - 1))
        beside = (lax.expand_dims(convert(column, x.dtype), (x.ndim - 1,)) for column in (order, swapped))
        return lax.concatenate([lu, *beside], x.ndim - 1)

    n = node.shape[-1]
    return task("lu", body, None, (node,), (n, n + 2), node.dtype, limits, FACTOR, flops=float(n))


# --- determinants ------------------------------------------------------------------------------


def pivots(node: Node) -> Node:
    """Numbers whose product is the determinant: n for each n × n matrix."""

    def expand(operands: Sequence[Node], limits: Limits) -> Node:
        (x,) = operands
        n = x.shape[-1]
        if not _fits(x, limits):
            r, done = by_panels(x, n, limits)
            turns = _views.concat(done.turns, x.ndim - 2)
            turns = _build.blockwise("turn", _turn, ("turn", x.dtype.str), (turns,), x.dtype)
            return _product(diagonal_of(r), turns)
        packed = _factored(x, limits)
        swapped = _views.squeeze(_views.cut(packed, x.ndim - 1, n + 1, n + 2), [x.ndim - 1])
        sign = _build.blockwise("sign", _sign, ("sign of swaps", x.dtype.str), (swapped,), x.dtype)
        return _product(diagonal_of(_views.cut(packed, x.ndim - 1, 0, n)), sign)

    grid = stack_of(node, (node.shape[-1],), node.dtype)
    return composite("pivots", None, (node,), grid, node.dtype, expand)


def _product(a: Node, b: Node) -> Node:
    return _build.blockwise("multiply", _mul, ("multiply", a.dtype.str), (a, b), a.dtype)


def _sign(swapped: Value) -> Value:
    return lax.sub(lax.full_like(swapped, 1), lax.mul(swapped, lax.full_like(swapped, 2)))


def _turn(t: Value) -> Value:
    """The determinant of a reflection with T = t: -t / conj(t)."""
    if t.dtype.kind != "c":
        return lax.full_like(t, -1)
    return lax.neg(lax.div(t, lax.conj(t)))


# --- solutions ---------------------------------------------------------------------------------


def solve(node: Node, right: Node) -> Node:
    """The solutions of systems of equations; one for each column of `right`. A run refuses singular matrices."""

    def expand(operands: Sequence[Node], limits: Limits) -> Node:
        a, b = operands
        if _fits(a, limits):
            return _solved(regular(_factored(a, limits)), b, limits)
        r, done = _by_regular_panels(a, limits)
        return back_substituted(r, done.applied(b), limits)

    outer = [_build.filled(0, x.dtype, x.grid[:-2]) for x in (node, right)]
    batch = _build.broadcast_shape(x.shape for x in outer)
    stack = _build.mapped_grid(outer, [_build.broadcast_map(x.shape, batch) for x in outer], batch)
    grid = (*stack, node.grid[-2], right.grid[-1])
    return composite("solve", None, (node, right), grid, right.dtype, expand)


def inverse(node: Node) -> Node:
    """The inverses of matrices: solutions for all columns of the identity. A run refuses singular ones."""
    eye = _views.rechunk(identity(node, node.shape[-1], node.dtype), node.grid[-2:])

    def expand(operands: Sequence[Node], limits: Limits) -> Node:
        (a,) = operands
        if _fits(a, limits):
            return _solved(regular(_factored(a, limits)), eye, limits)
        r, done = _by_regular_panels(a, limits)
        return back_substituted(r, done.adjoint(), limits)

    return composite("inv", None, (node,), node.grid, node.dtype, expand)


def _by_regular_panels(node: Node, limits: Limits) -> tuple[Node, Reflections]:
    """R and Q, of which a run refuses the first where it is singular to working precision."""
    r, done = by_panels(node, node.shape[-1], limits)
    return regular_triangle(r, diagonal_of(r), norm_of(r, (r.ndim - 2,), 2.0, False)), done


def _solved(factors: Node, right: Node, limits: Limits) -> Node:
    """Some columns at a time, with all of a decomposition."""
    n, columns = right.shape[-2:]

    def body(packed: Value, b: Value) -> Value:
        lu = lax.slice_in_dim(packed, 0, n, axis=packed.ndim - 1)
        y = rows_at(b, lax.slice_in_dim(packed, n, n + 1, axis=packed.ndim - 1))
        y = lax.linalg.triangular_solve(lu, y, left_side=True, lower=True, unit_diagonal=True)
        return lax.linalg.triangular_solve(lu, y, left_side=True, lower=False)

    width = max(1, strip(n, right.dtype, SOLVE, limits, right.grid[-1], beside=n * (n + 2) * right.dtype.itemsize))
    cuts = (*whole_axes((n,)), Axis.regular(columns, width))
    operands, follows = (factors, right), ((None, None), (0, 1))
    core, dtype = (n, columns), right.dtype
    return task("solve", body, None, operands, core, dtype, limits, SOLVE, follows=follows, cuts=cuts, flops=2.0 * n)


def rows_at(x: Value, order: Value) -> Value:
    """The rows of matrices in another order, each of a stack in its own, from a column of a decomposition."""
    stack = tuple(range(x.ndim - 2))
    numbers = lax.GatherDimensionNumbers(
        offset_dims=(x.ndim - 1,),
        collapsed_slice_dims=(x.ndim - 2,),
        start_index_map=(x.ndim - 2,),
        operand_batching_dims=stack,
        start_indices_batching_dims=stack,
    )
    index: Any = lax.convert_element_type(lax.real(order) if order.dtype.kind == "c" else order, "int32")
    return lax.gather(x, index, numbers, (*(1 for _ in stack), 1, x.shape[-1]), mode="clip")
