"""Other shapes and orders of the same elements: views, and reshapes, which compute nothing by themselves."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

from jaxchunk.array_api import _build, _views
from jaxchunk.array_api._arguments import as_axes, as_shape, need_array
from jaxchunk.array_api._array import Array
from jaxchunk.array_api._build import Shape

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
