"""Products of vectors, and what is read off a matrix's diagonal."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from jax import lax

from jaxchunk.array_api import _build, _statistical, _views
from jaxchunk.array_api import _reducers as reducers
from jaxchunk.array_api._arguments import need_array
from jaxchunk.array_api._array import Array
from jaxchunk.array_api._build import convert
from jaxchunk.array_api._dtypes import DTypeLike, promote, real_of
from jaxchunk.array_api._linalg_arguments import numeric, of_two_axes
from jaxchunk.array_api._linalg_tasks import composite
from jaxchunk.array_api._values import Value, aligned
from jaxchunk.graph.grid import AUTO_CHUNK_BYTES, Axis, auto_grid
from jaxchunk.graph.node import Limits, Node

_mul, _sub, _add = (aligned(f) for f in (lax.mul, lax.sub, lax.add))
_equal, _select = aligned(lax.eq), aligned(lax.select)

# A diagonal is read in as many pieces, so that no more than one part in so many of a matrix is read.
PIECES = 64
SHORTEST_PIECE = 256

_PARTS: tuple[tuple[str, Any], ...] = (("real", lax.real), ("imag", lax.imag))


def cross(x1: Array, x2: Array, /, *, axis: int = -1) -> Array:
    """Cross products of vectors of three elements.

    Parameters
    ----------
    x1, x2
        Numeric arrays that broadcast, and have 3 elements along the axis, both of them.
    axis
        Where the vectors lie, counted from the end: a negative int.

    Returns
    -------
    Array
        Of the shape that the two broadcast to. It is elementwise: it fuses with what comes before and after.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> xp.linalg.cross(xp.asarray([1, 0, 0]), xp.asarray([0, 1, 0])).compute()
    array([0, 0, 1])
    """
    a, b = numeric("cross", x1, "x1"), numeric("cross", x2, "x2")
    dtype, along = promote(a.dtype, b.dtype), operator.index(axis)
    for name, node in (("x1", a), ("x2", b)):
        if not -node.ndim <= along < 0:
            raise IndexError(f"cross: axis={axis}; for {name} of shape {node.shape} it is between -{node.ndim} and -1")
        if node.shape[along] != 3:
            raise ValueError(
                f"cross: {name} of shape {node.shape} has {node.shape[along]} elements along axis {axis}, not 3"
            )
    shape = _build.broadcast_shape((a.shape, b.shape))
    along += len(shape)
    # Each component of the two is an operand of its own, the same for all three of the result's.
    components = [_views.cut(n, along - len(shape) + n.ndim, i, i + 1) for n in (a, b) for i in range(3)]
    position = _build.iota(3)
    maps = [*(_build.broadcast_map(n.shape, shape) for n in components), (along,)]

    def body(a0: Value, a1: Value, a2: Value, b0: Value, b1: Value, b2: Value, i: Value) -> Value:
        def at(first: Value, second: Value, third: Value) -> Value:
            """Which of the three is the one for each component of the result."""
            last = _select(_equal(i, lax.full_like(i, 1)), second, third)
            chosen: Value = convert(_select(_equal(i, lax.full_like(i, 0)), first, last), dtype)
            return chosen

        crossed: Value = _sub(_mul(at(a1, a2, a0), at(b2, b0, b1)), _mul(at(a2, a0, a1), at(b1, b2, b0)))
        return crossed

    key = ("cross", a.dtype.str, b.dtype.str, along - len(shape))
    return Array(
        _build.blockwise("cross", body, key, [*components, position], dtype, maps=maps, space=shape, flops=9.0)
    )


def outer(x1: Array, x2: Array, /) -> Array:
    """The products of every element of one vector with every element of another.

    Parameters
    ----------
    x1, x2
        Numeric arrays of one axis.

    Returns
    -------
    Array
        With a row for each element of `x1`. It is elementwise, and computed where it is used.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> xp.linalg.outer(xp.asarray([1, 2]), xp.asarray([3, 4])).compute()
    array([[3, 4],
           [6, 8]])
    """
    nodes = a, b = numeric("outer", x1, "x1"), numeric("outer", x2, "x2")
    for name, node in zip(("x1", "x2"), nodes, strict=True):
        if node.ndim != 1:
            raise ValueError(f"outer: {name} of shape {node.shape} has {node.ndim} axes; it takes vectors, of one axis")
    dtype = promote(a.dtype, b.dtype)
    body = _build.after_cast(_mul, dtype)
    key = ("outer", a.dtype.str, b.dtype.str)
    shape = (a.size, b.size)
    node = _build.blockwise("outer", body, key, nodes, dtype, maps=((0,), (1,)), space=shape)
    if node.grid[0].largest * node.grid[1].largest * dtype.itemsize > AUTO_CHUNK_BYTES:
        node = _views.rechunk(node, auto_grid(shape, dtype.itemsize))
    return Array(node)


def diagonal(x: Array, /, *, offset: int = 0) -> Array:
    """The diagonals of matrices.

    Parameters
    ----------
    x
        An array of at least two axes; its last two are the matrices'.
    offset
        Which diagonal: 0 the main one, positive ones above it, negative ones below.

    Returns
    -------
    Array
        With one axis instead of the last two; it has length 0 where the offset is beyond the matrix.

    Notes
    -----
    Of a large matrix only blocks along the diagonal are read, about one part in 64 of it.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> xp.linalg.diagonal(xp.asarray([[1, 2], [3, 4]]), offset=1).compute()
    array([2])
    """
    need_array("diagonal", x)
    return Array(diagonal_of(of_two_axes("diagonal", x._node), operator.index(offset)))


def diagonal_of(node: Node, offset: int = 0) -> Node:
    """The diagonals of a node's matrices."""
    rows, columns = node.shape[-2:]
    top, left = max(0, -offset), max(0, offset)
    length = max(0, min(rows - top, columns - left))
    core = Axis.regular(length, max(1, min(a.largest for a in node.grid[-2:])))
    grid = (*node.grid[:-2], core)

    def expand(operands: Sequence[Node], limits: Limits) -> Node:
        size = max(SHORTEST_PIECE, -(-length // PIECES))
        pieces = []
        for start in range(0, length, size):
            stop = min(start + size, length)
            part = _views.cut(operands[0], node.ndim - 2, top + start, top + stop)
            pieces.append(_fold_out(_views.cut(part, node.ndim - 1, left + start, left + stop)))
        return _views.concat(pieces, node.ndim - 2)

    return composite("diagonal", offset, (node,), grid, node.dtype, expand)


def _fold_out(node: Node) -> Node:
    """The main diagonals of square matrices: of each row the one element that is on it."""
    if node.dtype.kind == "c":
        # There is no largest of complex numbers.
        parts = [
            _build.blockwise(name, part, (name, node.dtype.str), (node,), real_of(node.dtype)) for name, part in _PARTS
        ]
        first, second = (_fold_out(part) for part in parts)
        return _build.blockwise("complex", lax.complex, ("complex", first.dtype.str), (first, second), node.dtype)
    lowest = reducers.lowest(node.dtype)

    def body(x: Value, row: Value, column: Value) -> Value:
        return _select(_equal(row, column), x, lax.full_like(x, lowest))

    positions = [_build.iota(n, cuts) for n, cuts in zip(node.shape[-2:], node.grid[-2:], strict=True)]
    maps = (tuple(range(node.ndim)), (node.ndim - 2,), (node.ndim - 1,))
    # The largest of an element and of what is smaller than all: exact, for NaN and -0 as well.
    fold = reducers.ANY if node.dtype.kind == "b" else reducers.MAX
    operands = (node, *positions)
    key = ("diagonal", node.dtype.str)
    axes = (node.ndim - 1,)
    return _build.fold(
        fold, operands, axes, node.dtype, body=body, key=key, bodied=node.dtype, maps=maps, space=node.shape
    )


def trace(x: Array, /, *, offset: int = 0, dtype: DTypeLike | None = None) -> Array:
    """The sums of diagonals of matrices.

    Parameters
    ----------
    x
        A numeric array of at least two axes; its last two are the matrices'.
    offset
        Which diagonal: 0 the main one, positive ones above it, negative ones below.
    dtype
        To add in and of the result. By default that of `x`; for integers 64 bits wide.

    Returns
    -------
    Array
        Without the last two axes; 0 where the diagonal has no elements.

    Notes
    -----
    What is read is what `diagonal` reads.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> int(xp.linalg.trace(xp.asarray([[1, 2], [3, 4]])))
    5
    """
    node = of_two_axes("trace", numeric("trace", x))
    return _statistical.sum(Array(diagonal_of(node, operator.index(offset))), axis=-1, dtype=dtype)
