"""sort and argsort, for axes of any length.

An axis that fits in one task is sorted there; a longer one is cut into runs, which are merged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import lax

from jaxchunk.array_api import _build, _views
from jaxchunk.array_api._arguments import as_axis, need_array
from jaxchunk.array_api._array import Array
from jaxchunk.array_api._build import DType, convert
from jaxchunk.array_api._merging import INT64, TASK, Rows, in_runs
from jaxchunk.array_api._order import decode, encode, key_dtype
from jaxchunk.graph.node import Composite, Limits, Node
from jaxchunk.graph.primitives import Blockwise


def values_of(dtype: DType, descending: bool) -> Rows:
    """Elements themselves: equal ones are the same, but for zeros, of which negative ones come first."""

    def make(x: Any) -> tuple[Any, ...]:
        return (encode(x, descending, signed_zeros=True),)

    def finish(keys: Any) -> Any:
        return decode(keys, dtype, descending)

    return Rows("sort", ("sort", dtype.str, descending), key_dtype(dtype), 1, 1, make, (0,), finish, dtype, False)


def positions_of(dtype: DType, descending: bool, length: int) -> Rows:
    """Positions in the order of their elements: packed with the keys into one integer where both go in."""
    key = ("argsort", dtype.str, descending)
    if dtype.itemsize <= 4 and length < 2**31:

        def packed(x: Any, positions: Any) -> tuple[Any, ...]:
            keys = convert(encode(x, descending), INT64)
            # Shifted, the first bit of an unsigned key of 4 bytes would be a sign.
            if dtype == np.dtype("uint32"):
                keys = lax.sub(keys, lax.full_like(keys, 2**31))
            shifted = lax.shift_left(keys, lax.full_like(keys, 32))
            return (lax.bitwise_or(shifted, lax.broadcast_in_dim(positions, keys.shape, range(keys.ndim))),)

        def unpacked(rows: Any) -> Any:
            return lax.bitwise_and(rows, lax.full_like(rows, 2**32 - 1))

        return Rows("argsort", (*key, "packed"), INT64, 1, 1, packed, (0,), unpacked, INT64, True)

    def pairs(x: Any, positions: Any) -> tuple[Any, ...]:
        keys = encode(x, descending)
        if dtype == np.dtype("uint64"):
            keys = lax.bitcast_convert_type(lax.bitwise_xor(keys, lax.full_like(keys, 2**63)), INT64)
        return convert(keys, INT64), lax.broadcast_in_dim(positions, keys.shape, range(keys.ndim))

    return Rows("argsort", key, INT64, 2, 1, pairs, (1,), lambda positions: positions, INT64, True)


def complex_of(dtype: DType) -> Rows:
    """Complex elements by real part, then imaginary part; equal ones are the same."""
    part = np.dtype(f"float{dtype.itemsize * 4}")

    def make(x: Any) -> tuple[Any, ...]:
        return encode(lax.real(x)), encode(lax.imag(x))

    def finish(real: Any, imaginary: Any) -> Any:
        return lax.complex(decode(real, part), decode(imaginary, part))

    return Rows("sort", ("sort", dtype.str), key_dtype(part), 2, 2, make, (0, 1), finish, dtype, False)


def complex_positions(dtype: DType) -> Rows:
    """Positions in that order."""

    def make(x: Any, positions: Any) -> tuple[Any, ...]:
        real, imaginary = convert(encode(lax.real(x)), INT64), convert(encode(lax.imag(x)), INT64)
        return real, imaginary, lax.broadcast_in_dim(positions, real.shape, range(real.ndim))

    return Rows("argsort", ("argsort", dtype.str), INT64, 3, 2, make, (2,), lambda positions: positions, INT64, True)


def placed() -> Rows:
    """Of (places, values), both int64: the values in the order of their places, all of which are different."""

    def make(places: Any, values: Any) -> tuple[Any, ...]:
        return places, values

    return Rows("place", ("place",), INT64, 2, 1, make, (1,), lambda values: values, INT64, False)


def ordered(nodes: Sequence[Node], axis: int, rows: Rows) -> Node:
    """The result of sorting along an axis the rows that are made of nodes of one shape."""
    key = (rows.key, axis)
    op = Composite(rows.name, key, lambda n, limits: _expand(n, axis, rows, limits))
    return _build.make(op, nodes, nodes[0].grid, rows.result)


def _expand(node: Node, axis: int, rows: Rows, limits: Limits) -> Node:
    length = node.shape[axis]
    given = sum(x.dtype.itemsize for x in node.operands)
    if length * max(rows.nbytes, given) * TASK <= limits.budget:
        return _at_once(node.operands, axis, rows)
    order = [*(a for a in range(node.ndim) if a != axis), axis]
    moved = [_views.permute(x, order) for x in node.operands]
    lanes = math.prod(moved[0].shape[:-1])
    result = in_runs([_views.reshape(x, (lanes, length)) for x in moved], rows, limits)
    result = _views.reshape(result, moved[0].shape)
    return _views.rechunk(_views.permute(result, [order.index(a) for a in range(node.ndim)]), node.grid)


def _at_once(nodes: Sequence[Node], axis: int, rows: Rows) -> Node:
    """Whole lines along the axis, each within one task.

    Columns are nodes of their own, as each is an array of the kernel's: so they are counted, however
    many lines a task has.
    """
    x = nodes[0]
    along = tuple(range(x.ndim))
    given = (*nodes, *rows.positions(x.grid[axis]))
    maps = (*[along] * len(nodes), (axis,))[: len(given)]

    def column(number: int) -> Node:
        op = Blockwise("keys", lambda *values: rows.make(*values)[number], (rows.key, axis, number), x.shape, maps)
        return _build.make(op, given, x.grid, rows.dtype)

    def body(*columns: Any) -> Any:
        columns = rows.sort(columns, axis)
        return rows.finish(*(columns[c] for c in rows.taken))

    op = Blockwise(
        rows.name,
        body,
        (rows.key, axis),
        x.shape,
        (along,) * rows.columns,
        whole=(axis,),
        flops=5 * math.log2(max(2, x.shape[axis])),
        primitives=(rows.work(x.shape[axis]),),
    )
    return _build.make(op, [column(c) for c in range(rows.columns)], x.grid, rows.result)


# --- the functions -----------------------------------------------------------------------------------


def sort(x: Array, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Array:
    """Elements in order along an axis.

    Parameters
    ----------
    x
        An array of a real dtype, or bool.
    axis
        The axis to sort along.
    descending
        Whether the largest comes first.
    stable
        Equal elements can't be told apart, so both values give the same.

    Returns
    -------
    Array
        Lazy, of the shape and dtype of `x`. NaN comes last in both directions; zeros of both signs are
        equal, and those of one sign stay together.

    Notes
    -----
    An axis that doesn't fit in one task is sorted out of core: what is sorted is written once, to memory
    or disk, beside the result.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> xp.sort(xp.asarray([3, 1, 2]), descending=True).compute()
    array([3, 2, 1])
    """
    axis = _sortable("sort", x, axis)
    return x if x.ndim == 0 else Array(ordered([x._node], axis, values_of(x.dtype, descending)))


def argsort(x: Array, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Array:
    """Positions along an axis in the order of their elements.

    Parameters
    ----------
    x
        An array of a real dtype, or bool.
    axis
        The axis to sort along.
    descending
        Whether the largest comes first.
    stable
        Equal elements always stay in their order, NaN among each other too.

    Returns
    -------
    Array
        Lazy, int64, of the shape of `x`.

    Notes
    -----
    As for `sort`; what is written on the way are 8 bytes an element, or 16 for elements of 8 bytes.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> xp.argsort(xp.asarray([3.0, 1.0, 2.0])).compute()
    array([1, 2, 0])
    """
    axis = _sortable("argsort", x, axis)
    if x.ndim == 0:
        return Array(_build.filled(0, INT64, ()))
    return Array(ordered([x._node], axis, positions_of(x.dtype, descending, x.shape[axis])))


def _sortable(name: str, x: Any, axis: int) -> int:
    need_array(name, x)
    if x.dtype.kind == "c":
        raise TypeError(f"{name}: complex numbers have no order; take real, imag or abs of x first")
    return as_axis(name, axis, max(1, x.ndim))
