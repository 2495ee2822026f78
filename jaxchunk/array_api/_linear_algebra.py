"""Matrix products and transposes."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from jax import lax

from jaxchunk.array_api import _build, _contraction
from jaxchunk.array_api import _reducers as reducers
from jaxchunk.array_api._arguments import as_axes, need_array
from jaxchunk.array_api._array import Array
from jaxchunk.array_api._build import convert
from jaxchunk.array_api._values import aligned

_mul = aligned(lax.mul)


def matmul(x1: Array, x2: Array, /) -> Array:
    """The matrix product, over stacks of matrices where there are more than two axes.

    Parameters
    ----------
    x1, x2
        Numeric arrays of at least one axis. A 1-dimensional one is a row on the left and a column
        on the right. Axes before the last two broadcast.

    Raises
    ------
    ValueError
        Where the columns of `x1` aren't as many as the rows of `x2`, or an operand has no axes.

    Notes
    -----
    Sums are accumulated in the result's dtype. The partial products are folded: the memory it takes
    doesn't grow with the number of blocks along the summed axis.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> xp.matmul(xp.asarray([[1, 2], [3, 4]]), xp.asarray([1, 1])).compute()
    array([3, 7])
    """
    need_array("matmul", x1, "x1")
    need_array("matmul", x2, "x2")
    return Array(_contraction.matmul(x1._node, x2._node))


def matrix_transpose(x: Array, /) -> Array:
    """The last two axes exchanged: a view.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> xp.matrix_transpose(xp.zeros((5, 2, 3))).shape
    (5, 3, 2)
    """
    need_array("matrix_transpose", x)
    return x.mT


def tensordot(x1: Array, x2: Array, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Array:
    """Sums of products over pairs of axes.

    Parameters
    ----------
    x1, x2
        Numeric arrays.
    axes
        The axes of each that are summed over, in pairs; an int n stands for the last n of `x1` with
        the first n of `x2`, in order.

    Returns
    -------
    Array
        With the other axes of `x1`, then those of `x2`.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> x = xp.ones((2, 3, 4))
    >>> xp.tensordot(x, x, axes=((0, 1), (0, 1))).compute()[0]
    array([6., 6., 6., 6.])
    """
    need_array("tensordot", x1, "x1")
    need_array("tensordot", x2, "x2")
    if isinstance(axes, Sequence):
        if len(axes) != 2:
            raise ValueError(f"tensordot: axes={axes!r}; an int, or two sequences of axes")
        first, second = as_axes("tensordot", axes[0], x1.ndim), as_axes("tensordot", axes[1], x2.ndim)
    else:
        n = operator.index(axes)
        if not 0 <= n <= min(x1.ndim, x2.ndim):
            raise ValueError(f"tensordot: axes={n}, but the arrays have {x1.ndim} and {x2.ndim} axes")
        first, second = tuple(range(x1.ndim - n, x1.ndim)), tuple(range(n))
    lengths = [x1.shape[a] for a in first], [x2.shape[a] for a in second]
    if lengths[0] != lengths[1]:
        raise ValueError(f"tensordot: the axes to sum over have lengths {lengths[0]} in x1 and {lengths[1]} in x2")
    return Array(_contraction.tensordot(x1._node, x2._node, first, second))


def vecdot(x1: Array, x2: Array, /, *, axis: int = -1) -> Array:
    """Dot products of vectors along an axis; of complex ones, the first is conjugated.

    Parameters
    ----------
    x1, x2
        Numeric arrays that broadcast, with the same length along the axis.
    axis
        The axis to sum over, counted from the end: a negative int.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> xp.vecdot(xp.asarray([[1, 2], [3, 4]]), xp.asarray([1, 1])).compute()
    array([3, 7])
    """
    need_array("vecdot", x1, "x1")
    need_array("vecdot", x2, "x2")
    along = operator.index(axis)
    for name, x in (("x1", x1), ("x2", x2)):
        if not -x.ndim <= along < 0:
            raise IndexError(f"vecdot: axis={axis}; for {name} with {x.ndim} axes it lies between -{x.ndim} and -1")
    if x1.shape[along] != x2.shape[along]:
        raise ValueError(f"vecdot: along axis {axis}, x1 has length {x1.shape[along]} and x2 {x2.shape[along]}")
    dtype = _contraction.common_dtype("vecdot", x1._node, x2._node)

    def body(a: Any, b: Any) -> Any:
        a, b = convert(a, dtype), convert(b, dtype)
        return _mul(lax.conj(a) if dtype.kind == "c" else a, b)

    operands = (x1._node, x2._node)
    space = _build.broadcast_shape(node.shape for node in operands)
    key = ("vecdot", *(node.dtype.str for node in operands))
    axes = (len(space) + along,)
    node = _build.fold(reducers.SUM, operands, axes, dtype, body=body, key=key, bodied=dtype, space=space, flops=2.0)
    return Array(node)
