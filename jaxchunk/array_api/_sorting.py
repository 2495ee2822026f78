"""sort and argsort, for axes of any length.

An axis that fits in one task is sorted there. A longer one is cut into runs that are sorted one by
one and kept, in memory or on disk; then the exact places are found at which the runs have to be split
for each block of the result. Whoever reads a part of the result has it merged from what lies between
the splits. So data is read twice and written once besides the result. Where there are too many runs
to be merged at once, groups of them are merged first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jax import lax

from jaxchunk.array_api import _build, _views
from jaxchunk.array_api._arguments import as_axis, need_array
from jaxchunk.array_api._array import Array
from jaxchunk.array_api._build import DType, convert
from jaxchunk.array_api._order import decode, encode, key_dtype
from jaxchunk.graph.grid import Axis
from jaxchunk.graph.merges import Merge, Splits
from jaxchunk.graph.node import Composite, Limits, Node
from jaxchunk.graph.primitives import AxisMap, Blockwise, Work
from jaxchunk.plan.scratch import SORTED_BYTES, sort_entry

INT64 = np.dtype("int64")
# What sorting a run takes, in bytes for each byte of its rows: they are read, sorted and written.
_TASK = 8
# The share of the budget that a task may take that makes a run, or finds where runs are split: one half.
_SHARE = 2
_MOST_RUNS = 1024
# Rows from sample to sample, at least.
_NEAREST = 16


class Rows(NamedTuple):
    """How elements are sorted as rows of columns: the first ones order them, equal rows stay in order.

    Attributes
    ----------
    name, key
        Of the operation.
    dtype, columns, ordering
        Of a row, and how many of its columns order it.
    make
        From a block of elements and the positions along its axis to columns.
    taken, finish
        The columns that the result is made of, and how, once they are sorted.
    result
        The result's dtype.
    numbered
        Whether rows are made with positions.
    """

    name: str
    key: Hashable
    dtype: DType
    columns: int
    ordering: int
    make: Callable[..., tuple[Any, ...]]
    taken: tuple[int, ...]
    finish: Callable[..., Any]
    result: DType
    numbered: bool

    @property
    def nbytes(self) -> int:
        return self.columns * self.dtype.itemsize

    def work(self, length: int) -> Work:
        """What sorting so many rows takes below the compiler."""
        one = self.dtype.itemsize if self.columns == 1 else SORTED_BYTES
        return Work(sort_entry([self.dtype.kind] * self.columns), self.columns * one * length)

    def positions(self, axis: Axis) -> tuple[Node, ...]:
        """The positions along an axis as a second operand, where rows are made of them."""
        return (_build.iota(axis.length, axis),) if self.numbered else ()

    def sort(self, columns: tuple[Any, ...], axis: int) -> tuple[Any, ...]:
        """Columns of one block in order along an axis."""
        stable = self.columns > self.ordering
        return tuple(lax.sort(columns, dimension=axis, num_keys=self.ordering, is_stable=stable))


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
    if length * max(rows.nbytes, given) * _TASK <= limits.budget:
        return _at_once(node.operands, axis, rows)
    order = [*(a for a in range(node.ndim) if a != axis), axis]
    moved = [_views.permute(x, order) for x in node.operands]
    lanes = math.prod(moved[0].shape[:-1])
    result = _in_runs([_views.reshape(x, (lanes, length)) for x in moved], rows, limits)
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


# --- runs and their merging --------------------------------------------------------------------------


def _in_runs(lines: Sequence[Node], rows: Rows, limits: Limits) -> Node:
    """The result for lanes of (lanes, length)."""
    length, chunk = lines[0].shape[1], lines[0].grid[1].largest
    run = _run_length(length, chunk, rows, limits)
    node = _runs(lines, rows, run)
    block = _block_length(run, chunk, rows)
    while True:
        splits = _splits(length, rows, run, block, limits)
        fan = splits.fan
        node = _merged(node, rows, splits)
        run *= fan
        if run >= length:
            break
        node = _build.made("merged runs", node)
    columns = [_views.squeeze(_views.cut(node, 2, c, c + 1), [2]) for c in rows.taken]
    return _build.blockwise(f"{rows.name} result", rows.finish, rows.key, columns, rows.result)


def _run_length(length: int, chunk: int, rows: Rows, limits: Limits) -> int:
    """Rows of a run: as many as a task can sort, whole chunks or equal parts of one where that leaves a step."""
    most = max(256, limits.budget // (_SHARE * _TASK * rows.nbytes))
    parts = -(-chunk // most)
    near = [most // chunk * chunk] if parts == 1 else [chunk // k for k in range(parts, 2 * parts) if chunk % k == 0]
    run = next((n for n in near if len(_steps(n)) > 3), most // 256 * 256)
    return min(run, -(-length // 256) * 256)


def _block_length(run: int, chunk: int, rows: Rows) -> int:
    """Rows from split to split: a run's, or a part of it, in whole chunks or a part of one where there is such.

    Rows of several columns are put in order by way of copies, so blocks of them are smaller.
    """
    parts = [run // k for k in range(1 if rows.columns == 1 else 2, 9) if run % k == 0] or [run]
    return next((n for n in parts if n % chunk == 0 or chunk % n == 0), parts[0])


def _runs(lines: Sequence[Node], rows: Rows, run: int) -> Node:
    """(lanes, length, columns): each run of each lane, sorted in a task of its own."""
    lanes, length = lines[0].shape
    grid = (Axis.regular(lanes, 1), Axis.regular(length, run), Axis.regular(rows.columns, rows.columns))
    # A block has the elements in every column: its shape is the result's.
    wide = [_views.broadcast_to(_views.expand_dims(x, [2]), (lanes, length, rows.columns)) for x in lines]
    blocks = [_views.rechunk(node, grid) for node in wide]

    def body(*values: Any) -> Any:
        given = (*(lax.slice_in_dim(v, 0, 1, axis=2) for v in values[: len(blocks)]), *values[len(blocks) :])
        columns = rows.sort(rows.make(*given), 1)
        return columns[0] if len(columns) == 1 else lax.concatenate(columns, 2)

    operands = (*blocks, *rows.positions(grid[1]))
    op = Blockwise(
        "sorted runs",
        body,
        ("sorted runs", rows.key),
        blocks[0].shape,
        (*[(0, 1, 2)] * len(blocks), (1,))[: len(operands)],
        exact=True,
        flops=5 * math.log2(max(2, run)),
        primitives=(rows.work(run),),
        body_bytes=rows.nbytes * run,
    )
    return _build.make(op, operands, grid, rows.dtype)


def _splits(length: int, rows: Rows, run: int, block: int, limits: Limits) -> Splits:
    """How runs are merged: as many at once as leave room to find the splits in, between samples as near as can be."""
    fan, blocks = min(_MOST_RUNS, -(-length // run)), -(-length // block)
    while True:
        table = _TASK * INT64.itemsize * blocks * fan  # as the task that makes it has it
        for step in _steps(run):
            splits = Splits(run, fan, block, length, step, rows.ordering, rows.dtype.itemsize)
            lent, working, _ = splits.demand((1, blocks, fan), 8)
            if lent + working + table <= limits.budget // _SHARE:
                return splits
        if fan <= 2:
            return splits
        fan = -(-fan // 2)


def _merged(node: Node, rows: Rows, splits: Splits) -> Node:
    """Groups of runs merged."""
    lanes, length, _ = node.shape
    grid = (node.grid[0], Axis.regular(-(-length // splits.step), splits.run // splits.step), node.grid[2])
    every = _views.view("samples", node, [AxisMap(0), AxisMap(1, 0, splits.step), AxisMap(2)], grid)
    blocks = -(-length // splits.block)
    table = (Axis.regular(lanes, 1), Axis.regular(blocks, blocks), Axis.regular(splits.fan, splits.fan))
    starts = _build.made("splits", _build.make(splits, (node, every), table, INT64))
    merge = Merge(splits.run, splits.fan, splits.block, length, rows.ordering, rows.columns)
    return _build.make(merge, (node, starts), node.grid, node.dtype)


def _steps(run: int) -> list[int]:
    """The divisors of a run's length that leave neither too many samples of it nor too few."""
    return [n for n in range(_NEAREST, max(_NEAREST, 2 * math.isqrt(run)) + 1) if run % n == 0]


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
