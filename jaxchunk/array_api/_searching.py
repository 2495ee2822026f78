"""Choosing and finding: where, argmax, argmin, count_nonzero."""

from __future__ import annotations

import math
from typing import Any

from jax import lax

from jaxchunk.array_api import _build, _views
from jaxchunk.array_api import _dtypes as dt
from jaxchunk.array_api import _reducers as reducers
from jaxchunk.array_api._apply import as_node, refuse_foreign
from jaxchunk.array_api._arguments import as_axis, need_array
from jaxchunk.array_api._array import Array
from jaxchunk.array_api._build import convert
from jaxchunk.array_api._dtypes import Scalar
from jaxchunk.array_api._statistical import AxisArgument, reduce
from jaxchunk.array_api._values import aligned

_select = aligned(lax.select)


def where(condition: Array, x1: Array | Scalar, x2: Array | Scalar, /) -> Array:
    """Elements of one array where a condition holds, and of another elsewhere.

    Parameters
    ----------
    condition
        A bool array.
    x1, x2
        Arrays that broadcast with the condition and promote to a common dtype; one of them may be
        a Python scalar.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> x = xp.asarray([3, -1, 2])
    >>> xp.where(x > 0, x, 0).compute()
    array([3, 0, 2])
    """
    need_array("where", condition, "condition")
    if condition.dtype != dt.bool_:
        raise TypeError(f"where: condition has dtype {condition.dtype}; it takes bool, such as x != 0 gives")
    refuse_foreign("where", (x1, x2))
    if dt.dtype_of(x1) is None and dt.dtype_of(x2) is None:
        raise TypeError("where: x1 and x2 are both no arrays; make an array of one with asarray")
    dtype = dt.result_type(x1, x2)
    first, second = as_node(x1, dtype), as_node(x2, dtype)

    def body(condition: Any, first: Any, second: Any) -> Any:
        return _select(condition, convert(first, dtype), convert(second, dtype))

    key = ("where", first.dtype.str, second.dtype.str, dtype.str)
    return Array(_build.blockwise("where", body, key, (condition._node, first, second), dtype))


def argmax(x: Array, /, *, axis: int | None = None, keepdims: bool = False) -> Array:
    """Where the largest element is: the first one of equals. NaN counts as larger than all others.

    Parameters
    ----------
    x
        An array of a real dtype or bool.
    axis
        The axis to search along; None for the position in the flattened array.
    keepdims
        Whether the axes stay in the result, with size 1.

    Returns
    -------
    Array
        Of dtype int64.

    Raises
    ------
    ValueError
        If there are no elements to choose from.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> int(xp.argmax(xp.asarray([1, 5, 5])))
    1
    """
    return _arg_extreme(True, x, axis, keepdims)


def argmin(x: Array, /, *, axis: int | None = None, keepdims: bool = False) -> Array:
    """Where the smallest element is: the first one of equals. NaN counts as smaller than all others.

    Parameters, result and errors as for `argmax`.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> xp.argmin(xp.asarray([[4, 2], [1, 1]]), axis=1).compute()
    array([1, 0])
    """
    return _arg_extreme(False, x, axis, keepdims)


def _arg_extreme(largest: bool, x: Array, axis: int | None, keepdims: bool) -> Array:
    name = "argmax" if largest else "argmin"
    need_array(name, x)
    if x.dtype.kind == "c":
        raise TypeError(f"{name}: complex numbers have no order; take real, imag or abs of x first")
    node = x._node if x.ndim else _views.expand_dims(x._node, [0])
    axes = tuple(range(node.ndim)) if axis is None else (as_axis(name, axis, x.ndim),)
    strides = tuple(math.prod(node.shape[a] for a in axes[i + 1 :]) for i in range(len(axes)))
    positions = [_build.iota(node.shape[a], node.grid[a]) for a in axes]
    maps = [tuple(range(node.ndim)), *((a,) for a in axes)]
    reducer = reducers.ArgExtreme(largest, strides)
    found = _build.fold(reducer, (node, *positions), axes, dt.int64, maps=maps)
    return Array(_views.expand_dims(found, axes) if keepdims and x.ndim else found)


def count_nonzero(x: Array, /, *, axis: AxisArgument = None, keepdims: bool = False) -> Array:
    """How many elements over axes are not zero.

    Parameters
    ----------
    x
        An array.
    axis
        The axis or axes to count over; None for all of them.
    keepdims
        Whether the axes stay in the result, with size 1.

    Returns
    -------
    Array
        Of dtype int64.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> int(xp.count_nonzero(xp.asarray([0, 3, 0, 7])))
    2
    """
    need_array("count_nonzero", x)
    return reduce(reducers.CountNonzero(), x, axis, keepdims, dt.bool_, dt.int64)
