"""Arrays side by side: joined, taken apart, moved round, and repeated."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxchunk.array_api import _build, _gather, _views
from jaxchunk.array_api import _dtypes as dt
from jaxchunk.array_api import _reducers as reducers
from jaxchunk.array_api._arguments import as_axis, as_shape, need_array
from jaxchunk.array_api._array import Array
from jaxchunk.array_api._pending import Pending
from jaxchunk.array_api._scanners import CUMULATIVE_SUM
from jaxchunk.graph.grid import Axis
from jaxchunk.graph.node import Node
from jaxchunk.graph.repeats import Repeat

# --- joining and splitting ---------------------------------------------------------------------


def concat(arrays: tuple[Array, ...] | list[Array], /, *, axis: int | None = 0) -> Array:
    """Arrays one after another along an axis.

    Parameters
    ----------
    arrays
        At least one array; their shapes agree but for the axis, their dtypes promote.
    axis
        The axis to join along; None joins them flattened.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> xp.concat([xp.arange(3), xp.arange(2)]).compute()
    array([0, 1, 2, 0, 1])
    """
    nodes = _joined("concat", arrays)
    if axis is None:
        nodes = [_views.reshape(node, (node.size,)) for node in nodes]
    shape = nodes[0].shape
    along = as_axis("concat", 0 if axis is None else axis, len(shape))
    for node in nodes:
        if len(node.shape) != len(shape) or any(
            n != m for a, (n, m) in enumerate(zip(node.shape, shape, strict=True)) if a != along
        ):
            raise ValueError(f"concat: shapes {shape} and {node.shape} differ in more than axis {along}")
    return Array(_views.concat(nodes, along))


def stack(arrays: tuple[Array, ...] | list[Array], /, *, axis: int = 0) -> Array:
    """Arrays of one shape side by side along a new axis.

    Parameters
    ----------
    arrays
        At least one array; their dtypes promote.
    axis
        Where the new axis is in the result.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> xp.stack([xp.arange(2), xp.arange(2)], axis=1).compute()
    array([[0, 0],
           [1, 1]])
    """
    nodes = _joined("stack", arrays)
    shapes = {node.shape: None for node in nodes}
    if len(shapes) > 1:
        raise ValueError(f"stack: the arrays have shapes {' and '.join(map(str, shapes))}; they must agree")
    along = as_axis("stack", axis, nodes[0].ndim + 1)
    return Array(_views.concat([_views.expand_dims(node, [along]) for node in nodes], along))


def _joined(name: str, arrays: Any) -> list[Node]:
    """The nodes of arrays that are to be joined, in their common dtype."""
    if isinstance(arrays, Array) or not isinstance(arrays, Sequence):
        raise TypeError(f"{name}: arrays is a {type(arrays).__name__}; it takes a tuple or list of arrays")
    if not arrays:
        raise ValueError(f"{name}: arrays is empty; it takes at least one array")
    for i, x in enumerate(arrays):
        need_array(name, x, f"arrays[{i}]")
    dtype = dt.result_type(*arrays)
    return [_build.cast(x._node, dtype) for x in arrays]


def unstack(x: Array, /, *, axis: int = 0) -> tuple[Array, ...]:
    """The arrays that lie side by side along an axis, as views without it.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> [int(row) for row in xp.unstack(xp.asarray([4, 5]))]
    [4, 5]
    """
    need_array("unstack", x)
    along = as_axis("unstack", axis, x.ndim)
    before = (slice(None),) * along
    return tuple(x[(*before, i)] for i in range(x.shape[along]))


# --- repetition --------------------------------------------------------------------------------


def roll(x: Array, /, shift: int | tuple[int, ...], *, axis: int | tuple[int, ...] | None = None) -> Array:
    """Elements moved along axes; what leaves at the end comes in again at the start.

    Parameters
    ----------
    x
        An array.
    shift
        By how much, for each of the axes or for all of them.
    axis
        The axes to move along; None moves along the flattened array.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> xp.roll(xp.arange(5), 2).compute()
    array([3, 4, 0, 1, 2])
    """
    need_array("roll", x)
    shifts = tuple(operator.index(by) for by in (shift if isinstance(shift, Sequence) else (shift,)))
    if axis is None:
        if len(shifts) != 1:
            raise ValueError(f"roll: shift={shift!r} needs as many axes, but axis is None")
        node = _rolled(_views.reshape(x._node, (x.size,)), shifts[0], 0)
        return Array(_views.reshape(node, x.shape))
    axes = tuple(as_axis("roll", a, x.ndim) for a in (axis if isinstance(axis, Sequence) else (axis,)))
    if not isinstance(shift, Sequence):
        shifts *= len(axes)
    if len(shifts) != len(axes):
        raise ValueError(f"roll: {len(shifts)} shifts for {len(axes)} axes")
    node = x._node
    for by, along in zip(shifts, axes, strict=True):
        node = _rolled(node, by, along)
    return Array(node)


def _rolled(node: Node, shift: int, axis: int) -> Node:
    length = node.shape[axis]
    at = -shift % length if length else 0
    if at == 0:
        return node
    return _views.concat([_views.cut(node, axis, at, length), _views.cut(node, axis, 0, at)], axis)


def repeat(x: Array, repeats: int | Array, /, *, axis: int | None = None) -> Array:
    """Each element several times in a row.

    Parameters
    ----------
    x
        An array.
    repeats
        How many times, at least 0: an int, or integers in a one-dimensional array, one for each element
        along the axis or one for all of them.
    axis
        The axis to repeat along; None repeats the elements of the flattened array.

    Returns
    -------
    Array
        Lazy, of the dtype of `x`. Where `repeats` is an array, the length along the axis is summed up when it
        is first asked for, unless the counts are few and in memory.

    Raises
    ------
    TypeError
        For counts that aren't integers.
    ValueError
        For another number of counts than there are elements, and for negative ones: at once where they are
        few and in memory, else when they are summed up.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> xp.repeat(xp.asarray([1, 2]), 2).compute()
    array([1, 1, 2, 2])
    >>> xp.repeat(xp.asarray([7, 8, 9]), xp.asarray([2, 0, 1])).compute()
    array([7, 7, 9])
    """
    need_array("repeat", x)
    node = x._node if axis is not None else _views.reshape(x._node, (x.size,))
    along = as_axis("repeat", 0 if axis is None else axis, node.ndim)
    if isinstance(repeats, Array) and repeats.ndim:
        return Array(_repeated(node, repeats, along))
    if isinstance(repeats, Array) and repeats.dtype.kind not in "iu":
        raise TypeError(f"repeat: repeats has dtype {repeats.dtype}; it takes integers")
    return Array(_multiplied(node, {along: _times(operator.index(repeats))}, after=True))


def _times(count: int) -> int:
    if count < 0:
        raise ValueError(f"repeat: repeats={count}; it takes numbers of at least 0")
    return count


def _repeated(node: Node, repeats: Array, along: int) -> Node | Pending:
    """Elements along an axis as often as their counts say."""
    length = node.shape[along]
    if repeats.dtype.kind not in "iu":
        raise TypeError(f"repeat: repeats has dtype {repeats.dtype}; it takes integers")
    if repeats.shape not in ((1,), (length,)):
        raise ValueError(f"repeat: repeats has shape {repeats.shape}; it takes ({length},), as x has there, or (1,)")
    counts = _build.cast(repeats._node, dt.int64)
    known = _gather.known_values(repeats._node)
    if known is not None:
        _times(int(known.min(initial=0)))
        if known.size < length:
            return _multiplied(node, {along: int(known[0])}, after=True)
        if int(known.sum()) <= _gather.FEW:
            places = _gather.in_memory(np.repeat(np.arange(length), known))
            return _gather.take(node, _views.rechunk(places, (_cuts(node, along, places.size),)), along)
    if length == 0:
        return node

    def make() -> Node:
        total, least = _summed(counts)
        _times(least)
        if counts.size < length:
            return _multiplied(node, {along: total}, after=True)
        ends = _build.scan(CUMULATIVE_SUM, "cumulative_sum", counts, 0)
        grid = (*node.grid[:along], _cuts(node, along, total), *node.grid[along + 1 :])
        return _build.make(Repeat(along), (node, ends), grid, node.dtype)

    shape = (*node.shape[:along], None, *node.shape[along + 1 :])
    return Pending(node.dtype, shape, _build.common_device((node, counts)), make)


def _cuts(node: Node, axis: int, length: int) -> Axis:
    """A longer axis in blocks as long as the largest of the node's."""
    return Axis.regular(length, max(1, node.grid[axis].largest))


def _summed(counts: Node) -> tuple[int, int]:
    """The sum of counts and the least of them; computed, in one run."""
    from jaxchunk.plan.api import compute_nodes

    folds = [_build.fold(reducer, (counts,), (0,), dt.int64) for reducer in (reducers.SUM, reducers.MIN)]
    total, least = compute_nodes(folds)
    return int(total), int(least)


def tile(x: Array, repetitions: tuple[int, ...], /) -> Array:
    """The whole array several times along each axis.

    Parameters
    ----------
    x
        An array.
    repetitions
        How many times for each axis, the last one's last. Where there are more entries than axes,
        new axes are put in front; where there are fewer, the first axes are not repeated.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> xp.tile(xp.asarray([1, 2]), (2, 2)).compute()
    array([[1, 2, 1, 2],
           [1, 2, 1, 2]])
    """
    need_array("tile", x)
    times = as_shape(repetitions)
    node = _views.expand_dims(x._node, list(range(len(times) - x.ndim)))
    first = node.ndim - len(times)
    return Array(_multiplied(node, {first + i: n for i, n in enumerate(times)}, after=False))


def _multiplied(node: Node, times: dict[int, int], after: bool) -> Node:
    """Axes made longer: each element (after) or the whole axis several times, by a broadcast axis beside it."""
    result = tuple(n * times.get(axis, 1) for axis, n in enumerate(node.shape))
    wide: list[int] = []
    new: list[int] = []
    for axis, n in enumerate(node.shape):
        count = times.get(axis, 1)
        pair = [(n, False)] if count == 1 else [(n, False), (count, True)] if after else [(count, True), (n, False)]
        for size, added in pair:
            if added:
                new.append(len(wide))
            wide.append(size)
    return _views.reshape(_views.broadcast_to(_views.expand_dims(node, new), tuple(wide)), result)
