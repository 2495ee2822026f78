"""Nodes of QR decompositions: in one task, by blocks of rows, or by panels.

By panels Q is a product of reflections, I - W Yᴴ with tall W and Y (Bischof and Van Loan, 1987). A
panel takes what all panels to its left do to it in two products, and is then decomposed by blocks of
rows, from which its reflections are recovered (Ballard et al., 2014): so that it may have as many
columns as square blocks in memory have, however long it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from jax import lax

from jaxchunk.array_api import _build, _contraction
from jaxchunk.array_api._build import DType
from jaxchunk.array_api._linalg_arguments import identity, stack_of
from jaxchunk.array_api._linalg_pieces import (
    adjoint_of,
    joined,
    part,
    settled,
    spans,
    suited,
    updated,
    zeros,
)
from jaxchunk.array_api._linalg_tasks import Cost, Packing, composite, expanded_once, fits, task
from jaxchunk.array_api._linalg_tsqr import COST, block_rows, qr_in_one_task, tall, tsqr
from jaxchunk.array_api._linalg_vectors import diagonal_of
from jaxchunk.array_api._values import Value
from jaxchunk.array_api._views import broadcast_to, concat
from jaxchunk.graph.grid import Axis
from jaxchunk.graph.node import Limits, Node

REFLECT = Cost(("triangular_solve",), 2.0)
# Lengths are rounded up to multiples of so many panels.
SIZES = 8


def qr(node: Node, complete: bool) -> tuple[Node, Node]:
    """The nodes of Q and R: with all columns of Q, or as many as the smaller side of the matrices."""
    rows, columns = node.shape[-2:]
    k = rows if complete else min(rows, columns)
    shapes = ((rows, k), (k, columns))
    if columns == 0 or rows == 0:
        empty = _build.filled(0, node.dtype, stack_of(node, shapes[1], node.dtype))
        if 0 in shapes[0]:
            return _build.filled(0, node.dtype, stack_of(node, shapes[0], node.dtype)), empty
        return broadcast_to(identity(node, rows, node.dtype), (*node.shape[:-2], *shapes[0])), empty

    results = expanded_once(lambda x, limits: _qr(x, complete, limits))

    def of(name: str, number: int) -> Node:
        def expand(operands: Sequence[Node], limits: Limits) -> Node:
            return results(operands[0], limits)[number]

        grid = stack_of(node, shapes[number], node.dtype)
        return composite(name, complete, (node,), grid, node.dtype, expand)

    return of("qr.Q", 0), of("qr.R", 1)


def _qr(node: Node, complete: bool, limits: Limits) -> tuple[Node, Node]:
    rows, columns = node.shape[-2:]
    k = rows if complete else min(rows, columns)
    if fits(node.dtype.itemsize * (rows * columns + rows * k + k * columns), COST, limits):
        return qr_in_one_task(node, complete, limits)
    if not complete and tall(node, limits):
        r, times = tsqr(node, limits)
        return times(None), r
    r, done = by_panels(node, k, limits)
    return done.columns(k), r


def by_panels(node: Node, k: int, limits: Limits) -> tuple[Node, Reflections]:
    """The first k rows of R, and Q as a product of reflections."""
    rows, columns = node.shape[-2:]
    width = _panel_width(node, limits)
    done = Reflections(node, width, limits)
    upper: list[Node] = []
    for start, stop in spans(min(rows, columns), width):
        rest = settled(done.applied(part(node, -1, start, stop)))
        triangle = done.add(part(rest, -2, start, rows))
        upper.append(joined([part(rest, -2, 0, start), triangle, zeros(node, k - stop, stop - start)], -2))
    if columns > rows:
        upper.append(done.applied(part(node, -1, rows, columns)))
    return joined(upper, -1), done


def _panel_width(node: Node, limits: Limits) -> int:
    """As many columns as leave room for blocks of rows that are at least twice as long."""
    low, high = 1, min(node.shape[-2:])
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if block_rows(middle, node.dtype, limits) else (low, middle - 1)
    return suited(low, node.grid[-1])


class Reflections:
    """The product of the panels' reflections so far: Q = I - W Yᴴ.

    Parameters
    ----------
    node
        The matrix that is decomposed.
    width
        Of its panels.

    Attributes
    ----------
    turns
        A column of numbers for each panel, the diagonal of its T: the reflections' determinants follow from them.
    """

    def __init__(self, node: Node, width: int, limits: Limits) -> None:
        self.node, self.limits = node, limits
        self.rows = node.shape[-2]
        self.turns: list[Node] = []
        self._y, self._w = _Panels(), _Panels()
        # Y and W are given in few sizes, so that few kernels do for all panels.
        self.step = SIZES * width

    def _padded(self) -> tuple[Node, Node]:
        """W and Y, with columns of zeros up to the next of few sizes."""
        made = self._y.width
        more = min(-made % self.step, max(0, min(self.node.shape[-2:]) - made))
        beside = zeros(self.node, self.rows, more)
        return self._w.joined(beside), self._y.joined(beside)

    def applied(self, x: Node) -> Node:
        """The adjoint of the product, times a matrix."""
        if not self.turns:
            return x
        w, y = self._padded()
        return updated(x, y, _contraction.matmul(adjoint_of(w), x))

    def adjoint(self) -> Node:
        """The adjoint of the product."""
        w, y = self._padded()
        return updated(identity(self.node, self.rows, self.node.dtype), y, adjoint_of(w))

    def columns(self, k: int) -> Node:
        """The first columns of the product."""
        w, y = self._padded()
        first = part(identity(self.node, self.rows, self.node.dtype), -1, 0, k)
        return updated(first, w, adjoint_of(part(y, -2, 0, k)))

    def add(self, rest: Node) -> Node:
        """Take in the reflections that make a panel, the lowest rows of some columns, triangular; that triangle."""
        node, (length, width) = self.node, rest.shape[-2:]
        start = self.rows - length
        # Rows of zeros below change nothing, and stay zeros in Q.
        r, times = tsqr(joined([rest, zeros(node, -length % self.step, width)], -2), self.limits)
        q = times(None)
        packing, packed = _recovered(part(q, -2, 0, width), r, self.limits)
        head, u, t, triangle = (packing.part(packed, number) for number in range(4))
        pieces = [zeros(node, start, width), head]
        if length > width:
            pieces.append(_divided(part(q, -2, width, length), u, self.limits))
        panel = joined(pieces, -2)
        # All earlier reflections of the new ones: Q (I - Y T Yᴴ) = Q - Q Y T Yᴴ.
        turned = panel
        if self.turns:
            w, y = self._padded()
            turned = updated(panel, w, _contraction.matmul(adjoint_of(y), panel))
        self._w.add(_contraction.matmul(turned, t))
        self._y.add(panel)
        self.turns.append(diagonal_of(t))
        return triangle


class _Panels:
    """Panels side by side: so many of them are one node, that what reads all of them has few operands."""

    def __init__(self) -> None:
        self.width = 0
        self._groups: list[Node] = []
        self._last: list[Node] = []

    def add(self, panel: Node) -> None:
        self.width += panel.shape[-1]
        self._last.append(panel)
        if len(self._last) == SIZES:
            self._groups.append(joined(self._last, -1))
            self._last = []

    def joined(self, beside: Node) -> Node:
        """All of them, and something beside them where it has any columns."""
        pieces = [*self._groups, *self._last, *([beside] if beside.shape[-1] else [])]
        return concat(pieces, beside.ndim - 1)


def _recovered(head: Node, r: Node, limits: Limits) -> tuple[Packing, Node]:
    """From the first rows of a panel's Q, and its R: Y's first rows, U with Q - S = Y U, T and S R, packed."""
    n = head.shape[-1]
    packing = Packing.of(*[(n, n)] * 4)

    def body(q: Value, triangle: Value) -> Value:
        y, u, signs = _signed_lu(q)
        unit = lax.add(_lower(y), lax.broadcast_in_dim(_eye(n, q.dtype), q.shape, (q.ndim - 2, q.ndim - 1)))
        across = lax.broadcast_in_dim(signs, q.shape, (*range(q.ndim - 2), q.ndim - 1))
        t = lax.linalg.triangular_solve(
            unit, lax.neg(lax.mul(u, across)), lower=True, unit_diagonal=True, transpose_a=True, conjugate_a=True
        )
        down = lax.broadcast_in_dim(signs, q.shape, tuple(range(q.ndim - 1)))
        return packing.pack(unit, u, t, lax.mul(triangle, down))

    core = packing.shape
    return packing, task("reflections", body, None, (head, r), core, head.dtype, limits, REFLECT, flops=float(n))


def _signed_lu(q: Value) -> tuple[Value, Value, Value]:
    """L and U in one, U, and S of Q - S = L U, for signs S that leave each pivot at least 1: none is sought."""
    n, stack = q.shape[-1], q.shape[:-2]
    position = lax.iota("int32", n)

    def step(i: Value, state: tuple[Value, Value]) -> tuple[Value, Value]:
        m, signs = state
        column = lax.dynamic_index_in_dim(m, i, m.ndim - 1, keepdims=False)
        row = lax.dynamic_index_in_dim(m, i, m.ndim - 2, keepdims=False)
        pivot = lax.dynamic_index_in_dim(row, i, row.ndim - 1, keepdims=True)
        size = lax.real(pivot) if q.dtype.kind == "c" else pivot
        sign = lax.select(lax.lt(size, lax.full_like(size, 0)), lax.full_like(pivot, 1), lax.full_like(pivot, -1))
        pivot = lax.sub(pivot, sign)
        here = lax.broadcast_in_dim(lax.eq(position, lax.convert_element_type(i, "int32")), (*stack, n), (len(stack),))
        below = lax.broadcast_in_dim(lax.gt(position, lax.convert_element_type(i, "int32")), (*stack, n), (len(stack),))
        wide = lax.broadcast_in_dim(pivot, (*stack, n), tuple(range(len(stack) + 1)))
        none = lax.full((*stack, n), 0, q.dtype)
        factors = lax.select(below, lax.div(column, wide), none)
        right = lax.select(below, row, none)
        outer = lax.mul(
            lax.broadcast_in_dim(factors, q.shape, tuple(range(q.ndim - 1))),
            lax.broadcast_in_dim(right, q.shape, (*range(q.ndim - 2), q.ndim - 1)),
        )
        m = lax.sub(m, outer)
        column = lax.select(below, factors, lax.select(here, wide, column))
        m = lax.dynamic_update_index_in_dim(m, column, i, m.ndim - 1)
        return m, lax.select(here, lax.broadcast_in_dim(sign, (*stack, n), tuple(range(len(stack) + 1))), signs)

    m, signs = lax.fori_loop(0, n, step, (q, lax.full((*stack, n), 0, q.dtype)))
    return m, _upper(m), signs


def _eye(n: int, dtype: DType) -> Value:
    rows, columns = (lax.broadcasted_iota("int32", (n, n), axis) for axis in (0, 1))
    return lax.convert_element_type(lax.eq(rows, columns), dtype)


def _lower(x: Value) -> Value:
    """What is below the diagonals."""
    rows, columns = (lax.broadcasted_iota("int32", x.shape, x.ndim - 2 + axis) for axis in (0, 1))
    return lax.select(lax.gt(rows, columns), x, lax.full_like(x, 0))


def _upper(x: Value) -> Value:
    """What is above the diagonals, and these."""
    rows, columns = (lax.broadcasted_iota("int32", x.shape, x.ndim - 2 + axis) for axis in (0, 1))
    return lax.select(lax.le(rows, columns), x, lax.full_like(x, 0))


def _divided(rows: Node, u: Node, limits: Limits) -> Node:
    """Rows times the inverse of a triangle, in blocks of one shape."""

    def body(x: Value, triangle: Value) -> Value:
        return lax.linalg.triangular_solve(triangle, x, lower=False)

    core = (rows.shape[-2], rows.shape[-1])
    cuts = (Axis.regular(core[0], core[1]), Axis.regular(core[1], core[1]))
    return task(
        "reflections",
        body,
        "below",
        (rows, u),
        core,
        rows.dtype,
        limits,
        REFLECT,
        follows=((0, 1), (None, None)),
        cuts=cuts,
        flops=float(core[1]),
    )
