"""Arrays made of positions: ranges, diagonals, triangles and grids of coordinates."""

from __future__ import annotations

import math
import operator
from typing import Any, Literal

import numpy as np
from jax import lax

from jaxchunk.array_api import _build, _views
from jaxchunk.array_api import _dtypes as dt
from jaxchunk.array_api._arguments import as_shape, need_array
from jaxchunk.array_api._array import Array
from jaxchunk.array_api._build import DType, Shape, convert
from jaxchunk.array_api._chunking import new_grid
from jaxchunk.array_api._creation import default_dtype
from jaxchunk.array_api._devices import Device, as_device
from jaxchunk.array_api._dtypes import DTypeLike
from jaxchunk.array_api._values import aligned
from jaxchunk.graph.grid import ChunksLike
from jaxchunk.graph.node import Node

_add, _mul, _select = aligned(lax.add), aligned(lax.mul), aligned(lax.select)
_eq, _le = aligned(lax.eq), aligned(lax.le)


def arange(
    start: int | float,
    /,
    stop: int | float | None = None,
    step: int | float = 1,
    *,
    dtype: DTypeLike | None = None,
    device: Device | str | None = None,
    chunks: ChunksLike | None = None,
) -> Array:
    """Evenly spaced values in [start, stop).

    Parameters
    ----------
    start, stop, step
        Python numbers; with one of them alone it is `stop`, and the values start at 0.
    dtype
        Of the result: int64 where all three are ints, else float64. Integers are exact at any
        length; floats are computed in float64.
    device
        Where to pin the array; None leaves it free.
    chunks
        How to cut it, as for `Array.rechunk`; by default blocks of at most 16 MiB.

    Raises
    ------
    ValueError
        For a step of 0, or fractions where the dtype is an integer one.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> xp.arange(2, 9, 3).compute()
    array([2, 5, 8])
    """
    first, end = (0, start) if stop is None else (start, stop)
    for name, value in (("start", first), ("stop", end), ("step", step)):
        if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
            raise TypeError(f"arange: {name} is a {type(value).__name__}; it takes a Python int or float")
    first, end, step = (operator.index(v) if hasattr(v, "__index__") else float(v) for v in (first, end, step))
    if step == 0:
        raise ValueError("arange: step is 0")
    wanted = default_dtype(first, end, step) if dtype is None else dt.as_dtype(dtype)
    if wanted.kind == "b":
        raise TypeError("arange: dtype is bool; it takes a numeric one")
    node = _range(first, step, _steps(first, end, step), wanted, chunks)
    return Array(_build.pinned(node, as_device(device)))


def _steps(first: int | float, end: int | float, step: int | float) -> int:
    """How many values there are from `first` in steps before `end`: exact for ints of any size."""
    if isinstance(first, int) and isinstance(end, int) and isinstance(step, int):
        return len(range(first, end, step))
    steps = (end - first) / step
    if not math.isfinite(steps):
        raise ValueError(f"arange: from {first} to {end} in steps of {step} there is no finite number of values")
    return max(0, math.ceil(steps))


def _range(first: Any, step: Any, length: int, dtype: DType, chunks: ChunksLike | None) -> Node:
    (axis,) = new_grid(chunks, (length,), dtype.itemsize)
    if dtype.kind in "iu":
        whole = int(first) == first and int(step) == step
        last = int(first) + int(step) * max(length - 1, 0)
        if not whole:
            raise ValueError(f"arange: start={first} and step={step} are no whole numbers, but the dtype is {dtype}")
        limits = np.iinfo(dtype)
        if length and not (limits.min <= min(first, last) and max(first, last) <= limits.max):
            raise OverflowError(f"arange: values from {first} to {last} are outside the range of {dtype}")
        # Modulo 2**bits: a step may be outside of the dtype's range where all the values are inside.
        inner = dtype
        first, step = (np.array(int(v) % 2**64, "uint64").astype(dtype)[()] for v in (first, step))
    else:
        inner = dt.float64
    operands = (_build.iota(length, axis), _build.constant(first, inner), _build.constant(step, inner))

    def body(position: Any, first: Any, step: Any) -> Any:
        return convert(_add(_mul(convert(position, inner), step), first), dtype)

    return _build.blockwise("arange", body, ("arange", dtype.str), operands, dtype)


def linspace(
    start: int | float | complex,
    stop: int | float | complex,
    /,
    num: int,
    *,
    dtype: DTypeLike | None = None,
    device: Device | str | None = None,
    endpoint: bool = True,
    chunks: ChunksLike | None = None,
) -> Array:
    """`num` evenly spaced values from start to stop.

    Parameters
    ----------
    start, stop
        The first and the last value, both met exactly.
    num
        How many there are.
    dtype
        A floating dtype; by default float64, or complex128 for complex ends.
    device
        Where to pin the array; None leaves it free.
    endpoint
        Whether `stop` is the last value; otherwise it would be the next after the last.
    chunks
        How to cut it, as for `Array.rechunk`; by default blocks of at most 16 MiB.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> xp.linspace(0, 1, 5).compute()
    array([0.  , 0.25, 0.5 , 0.75, 1.  ])
    """
    count = operator.index(num)
    if count < 0:
        raise ValueError(f"linspace: num={num}; it takes an int of at least 0")
    wanted = default_dtype(start, stop, 0.0) if dtype is None else dt.as_dtype(dtype)
    inner = default_dtype(start, stop, 0.0)
    dt.check_cast(inner, wanted)
    if wanted.kind == "b":
        raise TypeError("linspace: dtype is bool; it takes a numeric one")
    (axis,) = new_grid(chunks, (count,), wanted.itemsize)
    gaps = max(1, count - 1 if endpoint else count)
    first, end = inner.type(start), inner.type(stop)
    with np.errstate(over="ignore"):
        step = (end - first) / gaps
    if not np.isfinite(step):  # two finite numbers can be further apart than any finite number
        step = end / gaps - first / gaps
    last = count - 1 if endpoint and count > 1 else -1
    scalars = [_build.constant(v, inner) for v in (first, step, end)]
    operands = [_build.iota(count, axis), *scalars, _build.constant(last, dt.int64)]

    def body(position: Any, start: Any, step: Any, stop: Any, last: Any) -> Any:
        value = _add(_mul(convert(position, inner), step), start)
        value = _select(_eq(position, last), stop, value)
        return convert(lax.floor(value) if wanted.kind in "iu" else value, wanted)

    key = ("linspace", inner.str, wanted.str)
    return Array(_build.pinned(_build.blockwise("linspace", body, key, operands, wanted), as_device(device)))


def eye(
    n_rows: int,
    n_cols: int | None = None,
    /,
    *,
    k: int = 0,
    dtype: DTypeLike | None = None,
    device: Device | str | None = None,
    chunks: ChunksLike | None = None,
) -> Array:
    """A matrix with ones on one diagonal and zeros elsewhere.

    Parameters
    ----------
    n_rows, n_cols
        Its shape; square where `n_cols` is None.
    k
        Which diagonal: 0 the main one, positive ones above it, negative ones below.
    dtype
        By default float64.
    device
        Where to pin the array; None leaves it free.
    chunks
        How to cut it, as for `Array.rechunk`; by default blocks of at most 16 MiB.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> xp.eye(2, 3, k=1, dtype=xp.int64).compute()
    array([[0, 1, 0],
           [0, 0, 1]])
    """
    wanted = dt.float64 if dtype is None else dt.as_dtype(dtype)
    shape = as_shape((n_rows, n_rows if n_cols is None else n_cols))
    rows, columns = new_grid(chunks, shape, wanted.itemsize)
    operands = (_build.iota(shape[0], rows), _build.iota(shape[1], columns), _diagonal(k, shape))

    def body(row: Any, column: Any, k: Any) -> Any:
        return convert(_eq(column, _add(row, k)), wanted)

    node = _build.blockwise("eye", body, ("eye", wanted.str), operands, wanted, maps=((0,), (1,), ()), space=shape)
    return Array(_build.pinned(node, as_device(device)))


def tril(x: Array, /, *, k: int = 0) -> Array:
    """The lower triangle of a matrix, or of each in a stack: zeros above diagonal k.

    Parameters
    ----------
    x
        An array of at least two axes.
    k
        The highest diagonal that is kept: 0 is the main one, positive ones are above it.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> xp.tril(xp.ones((3, 3), dtype=xp.int64)).compute()
    array([[1, 0, 0],
           [1, 1, 0],
           [1, 1, 1]])
    """
    return _triangle("tril", x, k)


def triu(x: Array, /, *, k: int = 0) -> Array:
    """The upper triangle of a matrix, or of each in a stack: zeros below diagonal k.

    Parameters
    ----------
    x
        An array of at least two axes.
    k
        The lowest diagonal that is kept: 0 is the main one, positive ones are above it.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> xp.triu(xp.ones((3, 3), dtype=xp.int64), k=1).compute()
    array([[0, 1, 1],
           [0, 0, 1],
           [0, 0, 0]])
    """
    return _triangle("triu", x, k)


def _diagonal(k: int, shape: Shape) -> Node:
    """Which diagonal of a matrix, as a node: an int of any size, since past its edges all are alike."""
    return _build.constant(max(-shape[0], min(operator.index(k), shape[1])), dt.int64)


def _triangle(name: str, x: Array, k: int) -> Array:
    need_array(name, x)
    node, n = x._node, x.ndim
    if n < 2:
        raise ValueError(f"{name}: x has {n} axes; it takes a matrix or a stack of them")
    rows, columns = _build.iota(x.shape[-2], node.grid[-2]), _build.iota(x.shape[-1], node.grid[-1])
    operands = (node, rows, columns, _diagonal(k, x.shape[-2:]))

    def body(value: Any, row: Any, column: Any, k: Any) -> Any:
        edge = _add(row, k)
        kept = _le(column, edge) if name == "tril" else _le(edge, column)
        return _select(kept, value, lax.full_like(value, 0))

    maps = (tuple(range(n)), (n - 2,), (n - 1,), ())
    return Array(_build.blockwise(name, body, name, operands, x.dtype, maps=maps, space=x.shape))


def meshgrid(*arrays: Array, indexing: Literal["xy", "ij"] = "xy") -> tuple[Array, ...]:
    """Grids of coordinates: each 1-dimensional array repeated along the axes of the others.

    Parameters
    ----------
    *arrays
        1-dimensional arrays of one dtype.
    indexing
        "ij": axis i of the results belongs to array i. "xy": the first two axes are exchanged, as
        for the columns and rows of a picture.

    Returns
    -------
    tuple of Array
        As many as there are arrays, of as many axes; views, so that they take no memory.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> x, y = xp.meshgrid(xp.arange(3), xp.arange(2))
    >>> x.compute()
    array([[0, 1, 2],
           [0, 1, 2]])
    """
    if indexing not in ("xy", "ij"):
        raise ValueError(f"meshgrid: indexing={indexing!r}; it is 'xy' or 'ij'")
    for x in arrays:
        need_array("meshgrid", x, "an argument")
        if x.ndim != 1:
            raise ValueError(f"meshgrid: an argument has shape {x.shape}; it takes 1-dimensional arrays")
    if len({x.dtype for x in arrays}) > 1:
        raise ValueError(f"meshgrid: the arrays have dtypes {', '.join(str(x.dtype) for x in arrays)}; they must agree")
    order = list(range(len(arrays)))
    if indexing == "xy" and len(arrays) > 1:
        order[:2] = [1, 0]
    shape = tuple(arrays[i].shape[0] for i in order)
    results = []
    for i, x in enumerate(arrays):
        others = [axis for axis in range(len(arrays)) if order[axis] != i]
        results.append(Array(_views.broadcast_to(_views.expand_dims(x._node, others), shape)))
    return tuple(results)
