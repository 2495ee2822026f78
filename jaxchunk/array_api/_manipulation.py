"""Other shapes and orders of the same elements; none of these computes or copies anything by itself."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

from jaxchunk.array_api import _build, _views
from jaxchunk.array_api import _dtypes as dt
from jaxchunk.array_api._arguments import as_axes, as_axis, as_shape, need_array
from jaxchunk.array_api._array import Array
from jaxchunk.array_api._build import Shape
from jaxchunk.graph.node import Node

__all__ = [
    "broadcast_arrays",
    "broadcast_shapes",
    "broadcast_to",
    "concat",
    "expand_dims",
    "flip",
    "moveaxis",
    "permute_dims",
    "repeat",
    "reshape",
    "roll",
    "squeeze",
    "stack",
    "tile",
    "unstack",
]


# --- broadcasting ------------------------------------------------------------------------------


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that arrays of these shapes broadcast to; ValueError where they don't.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> xp.broadcast_shapes((3, 1), (4,))
    (3, 4)
    """
    return _build.broadcast_shape(as_shape(shape) for shape in shapes)


def broadcast_to(x: Array, /, shape: tuple[int, ...]) -> Array:
    """The array repeated to a shape that it broadcasts to: a view.

    Parameters
    ----------
    x
        An array.
    shape
        The shape to give it: that of `x`, but for axes of size 1 and further axes in front.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> xp.broadcast_to(xp.asarray([1, 2]), (2, 2)).compute()
    array([[1, 2],
           [1, 2]])
    """
    need_array("broadcast_to", x)
    wanted = as_shape(shape)
    if _build.broadcast_shape((x.shape, wanted)) != wanted:
        raise ValueError(f"broadcast_to: x of shape {x.shape} doesn't broadcast to {wanted}")
    return Array(_views.broadcast_to(x._node, wanted))


def broadcast_arrays(*arrays: Array) -> tuple[Array, ...]:
    """The arrays, each repeated to the shape that they broadcast to together: views.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> [x.shape for x in xp.broadcast_arrays(xp.zeros((3, 1)), xp.zeros(4))]
    [(3, 4), (3, 4)]
    """
    for x in arrays:
        need_array("broadcast_arrays", x, "an argument")
    shape = _build.broadcast_shape(x.shape for x in arrays)
    return tuple(Array(_views.broadcast_to(x._node, shape)) for x in arrays)


# --- axes --------------------------------------------------------------------------------------


def permute_dims(x: Array, /, axes: tuple[int, ...]) -> Array:
    """The axes in another order: axis i of the result is axis `axes[i]` of `x`.

    Parameters
    ----------
    x
        An array.
    axes
        All of its axes, in the new order.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> xp.permute_dims(xp.zeros((2, 3, 4)), (2, 0, 1)).shape
    (4, 2, 3)
    """
    need_array("permute_dims", x)
    order = as_axes("permute_dims", tuple(axes), x.ndim, "axes")
    if len(order) != x.ndim:
        raise ValueError(f"permute_dims: axes={axes!r} names {len(order)} of the {x.ndim} axes")
    return Array(_views.permute(x._node, order))


def moveaxis(x: Array, source: int | tuple[int, ...], destination: int | tuple[int, ...], /) -> Array:
    """Axes at other positions; those that aren't named keep their order.

    Parameters
    ----------
    x
        An array.
    source, destination
        The axes to move, and where each of them goes.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> xp.moveaxis(xp.zeros((2, 3, 4)), 0, -1).shape
    (3, 4, 2)
    """
    need_array("moveaxis", x)
    sources, targets = (
        as_axes("moveaxis", axes, x.ndim, name) if axes is not None else ()
        for axes, name in ((source, "source"), (destination, "destination"))
    )
    if len(sources) != len(targets):
        raise ValueError(f"moveaxis: source names {len(sources)} axes, destination {len(targets)}")
    order = [axis for axis in range(x.ndim) if axis not in sources]
    for target, axis in sorted(zip(targets, sources, strict=True)):
        order.insert(target, axis)
    return Array(_views.permute(x._node, order))


def expand_dims(x: Array, /, axis: int | tuple[int, ...]) -> Array:
    """New axes of size 1.

    Parameters
    ----------
    x
        An array.
    axis
        Where the new axes are in the result.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> xp.expand_dims(xp.zeros((2, 3)), (0, -1)).shape
    (1, 2, 3, 1)
    """
    need_array("expand_dims", x)
    axes = tuple(axis) if isinstance(axis, Sequence) else (axis,)
    return Array(_views.expand_dims(x._node, as_axes("expand_dims", axes, x.ndim + len(axes))))


def squeeze(x: Array, /, axis: int | tuple[int, ...]) -> Array:
    """The array without some axes of size 1.

    Parameters
    ----------
    x
        An array.
    axis
        The axes to leave out; ValueError where one has another size.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> xp.squeeze(xp.zeros((1, 3, 1)), 0).shape
    (3, 1)
    """
    need_array("squeeze", x)
    if axis is None:
        raise TypeError("squeeze: axis is None; it takes an int or a tuple of ints")
    axes = as_axes("squeeze", axis, x.ndim)
    long = [a for a in axes if x.shape[a] != 1]
    if long:
        raise ValueError(f"squeeze: axis {long[0]} of shape {x.shape} has size {x.shape[long[0]]}; only size 1 can go")
    return Array(_views.squeeze(x._node, axes))


def flip(x: Array, /, *, axis: int | tuple[int, ...] | None = None) -> Array:
    """The elements in reverse order along axes; all of them where `axis` is None.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> xp.flip(xp.asarray([[1, 2], [3, 4]]), axis=0).compute()
    array([[3, 4],
           [1, 2]])
    """
    need_array("flip", x)
    return Array(_views.flip(x._node, as_axes("flip", axis, x.ndim)))


def reshape(x: Array, /, shape: tuple[int, ...], *, copy: bool | None = None) -> Array:
    """The same elements, in row-major order, under another shape.

    Parameters
    ----------
    x
        An array.
    shape
        A shape of the same size. One entry may be -1, for what is left.
    copy
        Accepted for the standard's sake: arrays are values here, so no copy is ever seen.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> xp.reshape(xp.arange(6), (2, -1)).compute()
    array([[0, 1, 2],
           [3, 4, 5]])
    """
    need_array("reshape", x)
    return Array(_views.reshape(x._node, _inferred(shape, x)))


def _inferred(shape: Any, x: Array) -> Shape:
    """A shape argument of `reshape` with its -1 filled in."""
    entries = list(shape) if isinstance(shape, Sequence) else [shape]
    known = as_shape([n for n in entries if n != -1])
    size, rest = math.prod(known), len(entries) - len(known)
    if rest > 1:
        raise ValueError(f"reshape: shape={shape!r} has {rest} entries of -1; there can be one")
    fits = size == x.size if rest == 0 else size > 0 and x.size % size == 0
    if not fits:
        raise ValueError(f"reshape: x of shape {x.shape} has {x.size} elements, which don't fit shape={shape!r}")
    return tuple(x.size // size if n == -1 else operator.index(n) for n in entries)


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
        How many times, an int of at least 0.
    axis
        The axis to repeat along; None repeats the elements of the flattened array.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> xp.repeat(xp.asarray([1, 2]), 2).compute()
    array([1, 1, 2, 2])
    """
    need_array("repeat", x)
    if isinstance(repeats, Array) and (repeats.ndim or repeats.dtype.kind not in "iu"):
        raise TypeError("repeat: repeats is an array, which is not available yet; it takes an int")
    times = operator.index(repeats)
    if times < 0:
        raise ValueError(f"repeat: repeats={times}; it takes an int of at least 0")
    node = x._node if axis is not None else _views.reshape(x._node, (x.size,))
    along = as_axis("repeat", 0 if axis is None else axis, node.ndim)
    return Array(_multiplied(node, {along: times}, after=True))


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
