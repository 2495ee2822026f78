"""Nodes of systems of equations with triangular matrices, block by block."""

from __future__ import annotations

from jax import lax

from jaxchunk.array_api._linalg_pieces import block, joined, part, side, spans, updated
from jaxchunk.array_api._linalg_tasks import Cost, task, whole_axes
from jaxchunk.array_api._values import Value
from jaxchunk.graph.grid import Axis
from jaxchunk.graph.node import Limits, Node

COST = Cost(("triangular_solve",), 1.0)


def back_substituted(triangles: Node, right: Node, limits: Limits) -> Node:
    """Solutions with upper triangular matrices, from the last block of rows to the first.

    Each takes what all below it have to give in one product, and is written once.
    """
    n = right.shape[-2]
    size = side(right.dtype, 3, COST, limits, triangles.grid[-1])
    solved: list[Node] = []
    for start, stop in reversed(spans(n, size)):
        rest = part(right, -2, start, stop)
        if solved:
            rest = updated(rest, block(triangles, (start, stop), (stop, n)), joined(solved, -2))
        corner = block(triangles, (start, stop), (start, stop))
        solved.insert(0, _by_columns(corner, rest, size, limits))
    return joined(solved, -2)


def _by_columns(corner: Node, right: Node, width: int, limits: Limits) -> Node:
    """Some columns at a time, with all of a triangle."""

    def body(triangle: Value, b: Value) -> Value:
        return lax.linalg.triangular_solve(triangle, b, left_side=True, lower=False)

    core = (right.shape[-2], right.shape[-1])
    cuts = (*whole_axes(core[:1]), Axis.regular(core[1], width))
    follows = ((None, None), (0, 1))
    operands = (corner, right)
    return task(
        "substitute",
        body,
        None,
        operands,
        core,
        right.dtype,
        limits,
        COST,
        follows=follows,
        cuts=cuts,
        flops=float(core[0]),
    )
