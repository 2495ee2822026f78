"""Nodes of Cholesky decompositions: in one task, or by panels."""

from __future__ import annotations

from collections.abc import Sequence

from jax import lax

from jaxchunk.array_api._linalg_checks import definite
from jaxchunk.array_api._linalg_pieces import (
    adjoint_of,
    block,
    joined,
    part,
    side,
    spans,
    updated,
    zeros,
)
from jaxchunk.array_api._linalg_tasks import Cost, composite, fits, task
from jaxchunk.array_api._values import Value
from jaxchunk.graph.grid import Axis
from jaxchunk.graph.node import Limits, Node

COST = Cost(("cholesky",), 1.0)
SOLVE = Cost(("triangular_solve",), 1.0)


def cholesky(node: Node, upper: bool) -> Node:
    """The lower factor of Hermitian matrices, of which the lower half is read; or its adjoint."""

    def expand(operands: Sequence[Node], limits: Limits) -> Node:
        (x,) = operands
        n = x.shape[-1]
        if fits(2 * n * n * x.dtype.itemsize, COST, limits):
            return _in_one_task(x, limits, upper)
        lower = _by_panels(x, limits)
        return adjoint_of(lower) if upper else lower

    return composite("cholesky", upper, (node,), node.grid, node.dtype, expand)


def _in_one_task(node: Node, limits: Limits, upper: bool = False, columns: tuple[int, int] | None = None) -> Node:
    """The factors of matrices; `columns` are those of the matrix they are part of."""

    def body(x: Value) -> Value:
        factor = lax.linalg.cholesky(x, symmetrize_input=False)
        return adjoint(factor) if upper else factor

    n = node.shape[-1]
    factors = task("cholesky", body, upper, (node,), (n, n), node.dtype, limits, COST, flops=n / 3)
    return definite(factors, columns)


def adjoint(x: Value) -> Value:
    """The conjugate transposes of matrices."""
    turned = lax.transpose(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))
    return lax.conj(turned) if x.dtype.kind == "c" else turned


def _by_panels(node: Node, limits: Limits) -> Node:
    """Left-looking: a panel takes what all panels to its left have to give in one product, and is written once."""
    n = node.shape[-1]
    size = side(node.dtype, 3, SOLVE, limits, node.grid[-1])
    panels: list[list[Node]] = []
    for start, stop in spans(n, size):
        rest = block(node, (start, n), (start, stop))
        if panels:
            left = joined(
                [part(panel[-1], -2, panel[-1].shape[-2] - (n - start), panel[-1].shape[-2]) for panel in panels], -1
            )
            rest = updated(rest, left, adjoint_of(part(left, -2, 0, stop - start)))
        corner = _in_one_task(part(rest, -2, 0, stop - start), limits, columns=(start, stop))
        panel = [zeros(node, start, stop - start), corner]
        if stop < n:
            panel.append(_below(part(rest, -2, stop - start, n - start), corner, size, limits))
        panels.append(panel)
    return joined([joined(panel, -2) for panel in panels], -1)


def _below(rows: Node, corner: Node, size: int, limits: Limits) -> Node:
    """What a panel has below its triangle, in blocks of one shape."""

    def body(x: Value, triangle: Value) -> Value:
        return lax.linalg.triangular_solve(triangle, x, lower=True, transpose_a=True, conjugate_a=x.dtype.kind == "c")

    core = (rows.shape[-2], rows.shape[-1])
    cuts = (Axis.regular(core[0], size), Axis.regular(core[1], core[1]))
    follows = ((0, 1), (None, None))
    return task(
        "cholesky",
        body,
        "below",
        (rows, corner),
        core,
        rows.dtype,
        limits,
        SOLVE,
        follows=follows,
        cuts=cuts,
        flops=core[1],
    )
