"""Sums, extremes, means, variances and running sums."""

from __future__ import annotations

from jax import lax

from jaxchunk.array_api import _build, _views
from jaxchunk.array_api import _dtypes as dt
from jaxchunk.array_api import _reducers as reducers
from jaxchunk.array_api import _scanners as scanners
from jaxchunk.array_api._arguments import as_axes, as_axis, need_array
from jaxchunk.array_api._array import Array
from jaxchunk.array_api._build import DType, convert
from jaxchunk.array_api._dtypes import DTypeLike
from jaxchunk.array_api._pending import Selected
from jaxchunk.array_api._selected import count_selected, fold_selected
from jaxchunk.array_api._values import aligned
from jaxchunk.graph.grid import Axis
from jaxchunk.graph.node import Node
from jaxchunk.graph.primitives import Reducer

AxisArgument = int | tuple[int, ...] | None


def reduce(reducer: Reducer, x: Array, axis: AxisArgument, keepdims: bool, seen: DType, result: DType) -> Array:
    """Fold an array over axes, each element seen as another dtype before."""
    axes = as_axes(reducer.name, axis, x.ndim)
    selection = _selection(x, axes)
    if selection is not None:
        folded = fold_selected(reducer, selection, axes, seen, result)
    elif (node := x._node).dtype == seen:
        folded = _build.fold(reducer, (node,), axes, result)
    else:
        key = ("astype", seen.str)
        folded = _build.fold(reducer, (node,), axes, result, body=lambda v: convert(v, seen), key=key, bodied=seen)
    return Array(_views.expand_dims(folded, sorted(axes)) if keepdims else folded)


def _selection(x: Array, axes: tuple[int, ...]) -> Selected | None:
    """What x is a selection of, where a fold over axes needs no count of it."""
    return x._held if isinstance(x._held, Selected) and 0 in axes else None


def _sum_dtype(name: str, x: Array, dtype: DTypeLike | None) -> DType:
    """The dtype to add or multiply in: small integers and bools are widened to 64 bits."""
    need_array(name, x)
    if dtype is not None:
        wanted = dt.as_dtype(dtype)
        if wanted.kind == "b":
            raise TypeError(f"{name}: dtype is bool; it takes a numeric one")
        dt.check_cast(x.dtype, wanted)
        return wanted
    return {"b": dt.int64, "i": dt.int64, "u": dt.uint64}.get(x.dtype.kind, x.dtype)


def _real_dtype(name: str, x: Array) -> DType:
    """The dtype of means and variances: float64 for integers and bools."""
    need_array(name, x)
    return dt.float64 if x.dtype.kind in "biu" else x.dtype


def sum(x: Array, /, *, axis: AxisArgument = None, dtype: DTypeLike | None = None, keepdims: bool = False) -> Array:
    """The sum of elements over axes.

    Parameters
    ----------
    x
        An array.
    axis
        The axis or axes to sum over; None for all of them.
    dtype
        To add in and of the result. By default that of `x`; for integers and bools 64 bits wide.
    keepdims
        Whether the axes stay in the result, with size 1.

    Returns
    -------
    Array
        0 where there are no elements.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> xp.sum(xp.asarray([[1, 2], [3, 4]]), axis=0).compute()
    array([4, 6])
    """
    seen = _sum_dtype("sum", x, dtype)
    return reduce(reducers.SUM, x, axis, keepdims, seen, seen)


def prod(x: Array, /, *, axis: AxisArgument = None, dtype: DTypeLike | None = None, keepdims: bool = False) -> Array:
    """The product of elements over axes; parameters as for `sum`, and 1 where there are no elements.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> int(xp.prod(xp.arange(1, 6)))
    120
    """
    seen = _sum_dtype("prod", x, dtype)
    return reduce(reducers.PROD, x, axis, keepdims, seen, seen)


def _ordered(name: str, x: Array) -> DType:
    need_array(name, x)
    if x.dtype.kind == "c":
        raise TypeError(f"{name}: complex numbers have no order; take real, imag or abs of x first")
    return x.dtype


def max(x: Array, /, *, axis: AxisArgument = None, keepdims: bool = False) -> Array:
    """The largest element over axes; NaN where there is one.

    Parameters
    ----------
    x
        An array of a real dtype or bool.
    axis
        The axis or axes to search over; None for all of them.
    keepdims
        Whether the axes stay in the result, with size 1.

    Raises
    ------
    ValueError
        If there are no elements to choose from.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> xp.max(xp.asarray([[1, 5], [3, 4]]), axis=1).compute()
    array([5, 4])
    """
    dtype = _ordered("max", x)
    return reduce(reducers.MAX, x, axis, keepdims, dtype, dtype)


def min(x: Array, /, *, axis: AxisArgument = None, keepdims: bool = False) -> Array:
    """The smallest element over axes; NaN where there is one. Parameters and errors as for `max`.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> xp.min(xp.asarray([[1, 5], [3, 4]]), axis=1).compute()
    array([1, 3])
    """
    dtype = _ordered("min", x)
    return reduce(reducers.MIN, x, axis, keepdims, dtype, dtype)


def mean(x: Array, /, *, axis: AxisArgument = None, keepdims: bool = False) -> Array:
    """The arithmetic mean over axes.

    Parameters
    ----------
    x
        An array.
    axis
        The axis or axes to average over; None for all of them.
    keepdims
        Whether the axes stay in the result, with size 1.

    Returns
    -------
    Array
        Of the dtype of `x`, or float64 for integers and bools; NaN where there are no elements.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> float(xp.mean(xp.arange(5)))
    2.0
    """
    dtype = _real_dtype("mean", x)
    total = reduce(reducers.SUM, x, axis, keepdims, dtype, dtype)._node
    axes = as_axes("mean", axis, x.ndim)
    selection = _selection(x, axes)
    if selection is not None:
        number = count_selected(selection, axes, dtype)
        return Array(_build.blockwise("divide", _div, ("divide", dtype.str), (total, number), dtype))
    count = 1
    for a in axes:
        count *= x.shape[a]
    return Array(divided(total, count))


def divided(node: Node, divisor: int | float) -> Node:
    """A floating node divided by a number."""
    return _build.blockwise(
        "divide", _div, ("divide", node.dtype.str), (node, _build.constant(divisor, node.dtype)), node.dtype
    )


_div = aligned(lax.div)


def var(x: Array, /, *, axis: AxisArgument = None, correction: float = 0.0, keepdims: bool = False) -> Array:
    """The variance over axes: the mean squared deviation from the mean, in one pass.

    Parameters
    ----------
    x
        An array of a real dtype.
    axis
        The axis or axes to take it over; None for all of them.
    correction
        Taken from the number of elements to make the divisor: 0 for a whole population, 1 for a sample.
    keepdims
        Whether the axes stay in the result, with size 1.

    Returns
    -------
    Array
        Of the dtype of `x`, or float64 for integers and bools; NaN where the divisor isn't positive.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> float(xp.var(xp.asarray([1.0, 2.0, 3.0]), correction=1))
    1.0
    """
    return _moments("var", x, axis, correction, keepdims)


def std(x: Array, /, *, axis: AxisArgument = None, correction: float = 0.0, keepdims: bool = False) -> Array:
    """The standard deviation over axes: the square root of `var`, with its parameters.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> float(xp.std(xp.asarray([1.0, 3.0])))
    1.0
    """
    return _moments("std", x, axis, correction, keepdims)


def _moments(name: str, x: Array, axis: AxisArgument, correction: float, keepdims: bool) -> Array:
    dtype = _real_dtype(name, x)
    if dtype.kind == "c":
        raise TypeError(f"{name}: x has dtype {dtype}; it takes a real one")
    if isinstance(correction, bool) or not isinstance(correction, int | float):
        raise TypeError(f"{name}: correction is a {type(correction).__name__}; it takes an int or a float")
    moments = reducers.Moments(float(correction), name == "std")
    return reduce(moments, x, axis, keepdims, dtype, dtype)


def cumulative_sum(
    x: Array, /, *, axis: int | None = None, dtype: DTypeLike | None = None, include_initial: bool = False
) -> Array:
    """The running sum along an axis.

    Parameters
    ----------
    x
        An array of at least one axis.
    axis
        The axis to go along; it may be left out where there is only one.
    dtype
        To add in and of the result. By default that of `x`; for integers and bools 64 bits wide.
    include_initial
        Whether to begin with a 0, which makes the axis longer by one.

    Notes
    -----
    Sums of float32 are carried from block to block in float64: they don't drift on long axes.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> xp.cumulative_sum(xp.asarray([1, 2, 3])).compute()
    array([1, 3, 6])
    """
    return _cumulative(scanners.CUMULATIVE_SUM, x, axis, dtype, include_initial)


def cumulative_prod(
    x: Array, /, *, axis: int | None = None, dtype: DTypeLike | None = None, include_initial: bool = False
) -> Array:
    """The running product along an axis; parameters as for `cumulative_sum`, with 1 as the initial value.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> xp.cumulative_prod(xp.asarray([1, 2, 3]), include_initial=True).compute()
    array([1, 1, 2, 6])
    """
    return _cumulative(scanners.CUMULATIVE_PROD, x, axis, dtype, include_initial)


def _cumulative(
    scanner: scanners.Running, x: Array, axis: int | None, dtype: DTypeLike | None, include_initial: bool
) -> Array:
    name = scanner.name
    seen = _sum_dtype(name, x, dtype)
    if axis is None:
        if x.ndim != 1:
            raise ValueError(f"{name}: axis has to be given for an array with {x.ndim} axes")
        axis = 0
    along = as_axis(name, axis, x.ndim)
    node = _build.scan(scanner, name, _build.cast(x._node, seen), along)
    if include_initial:
        grid = (*node.grid[:along], Axis.regular(1, 1), *node.grid[along + 1 :])
        node = _views.concat([_build.filled(scanner.first, seen, grid), node], along)
    return Array(node)
