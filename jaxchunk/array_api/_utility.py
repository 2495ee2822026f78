"""Tests over axes, and differences along one."""

from __future__ import annotations

import operator

from jaxchunk.array_api import _dtypes as dt
from jaxchunk.array_api import _reducers as reducers
from jaxchunk.array_api import _views
from jaxchunk.array_api._arguments import as_axis, need_array
from jaxchunk.array_api._array import Array
from jaxchunk.array_api._elementwise import not_equal, subtract
from jaxchunk.array_api._statistical import AxisArgument, reduce


def all(x: Array, /, *, axis: AxisArgument = None, keepdims: bool = False) -> Array:
    """Whether all elements over axes are true, that is not zero.

    Parameters
    ----------
    x
        An array; NaN counts as true.
    axis
        The axis or axes to test over; None for all of them.
    keepdims
        Whether the axes stay in the result, with size 1.

    Returns
    -------
    Array
        Of dtype bool; true where there are no elements.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> bool(xp.all(xp.asarray([1, 2, 0])))
    False
    """
    need_array("all", x)
    return reduce(reducers.ALL, x, axis, keepdims, dt.bool_, dt.bool_)


def any(x: Array, /, *, axis: AxisArgument = None, keepdims: bool = False) -> Array:
    """Whether any element over axes is true, that is not zero; parameters as for `all`.

    It is false where there are no elements.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> xp.any(xp.asarray([[0, 0], [0, 1]]), axis=1).compute()
    array([False,  True])
    """
    need_array("any", x)
    return reduce(reducers.ANY, x, axis, keepdims, dt.bool_, dt.bool_)


def diff(
    x: Array, /, *, axis: int = -1, n: int = 1, prepend: Array | None = None, append: Array | None = None
) -> Array:
    """Differences between neighbours along an axis, taken n times.

    Parameters
    ----------
    x
        An array of at least one axis and a numeric dtype; of bools, neighbours are compared.
    axis
        The axis to go along.
    n
        How many times, at least 0. The axis becomes that much shorter.
    prepend, append
        Arrays of the dtype of `x` to put before and after it, of its shape but for the axis.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> xp.diff(xp.asarray([1, 4, 9, 16])).compute()
    array([3, 5, 7])
    """
    need_array("diff", x)
    times = operator.index(n)
    if times < 0:
        raise ValueError(f"diff: n={n}; it takes an int of at least 0")
    along = as_axis("diff", axis, x.ndim)
    parts = [x._node]
    for name, other in (("prepend", prepend), ("append", append)):
        if other is None:
            continue
        need_array("diff", other, name)
        if other.dtype != x.dtype:
            raise TypeError(f"diff: {name} has dtype {other.dtype}, x has {x.dtype}")
        if _without(other.shape, along) != _without(x.shape, along) or other.ndim != x.ndim:
            raise ValueError(f"diff: {name} of shape {other.shape} doesn't fit x of shape {x.shape} along axis {along}")
        parts.insert(0 if name == "prepend" else len(parts), other._node)
    node = _views.concat(parts, along)
    step = not_equal if x.dtype == dt.bool_ else subtract
    for _ in range(times):
        length = node.shape[along]
        later, earlier = (_views.cut(node, along, lo, max(lo, length - 1 + lo)) for lo in (1, 0))
        if length == 0:
            break
        node = step(Array(later), Array(earlier))._node
    return Array(node)


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return shape[:axis] + shape[axis + 1 :]
