"""Arrays made from a shape and a rule: they cost nothing until they are computed, whatever their size."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxchunk.array_api import _build, _views
from jaxchunk.array_api import _dtypes as dt
from jaxchunk.array_api._arguments import as_shape, need_array
from jaxchunk.array_api._array import Array
from jaxchunk.array_api._build import DType
from jaxchunk.array_api._chunking import new_grid
from jaxchunk.array_api._conversion import asarray
from jaxchunk.array_api._devices import Device, as_device
from jaxchunk.array_api._dtypes import DTypeLike
from jaxchunk.graph.grid import ChunksLike, normalize_chunks


def default_dtype(*scalars: Any) -> DType:
    """The default dtype for Python scalars: bool, int64, float64 or complex128."""
    for kind, name in ((complex, "complex floating"), (float, "real floating"), (int, "integral")):
        if any(isinstance(s, kind) and not isinstance(s, bool) for s in scalars):
            return dt.DEFAULT_DTYPES[name]
    return dt.DEFAULT_DTYPES["bool"]


def _filled(value: Any, shape: Any, dtype: DType, device: Any, chunks: ChunksLike | None) -> Array:
    grid = new_grid(chunks, as_shape(shape), dtype.itemsize)
    return Array(_build.pinned(_build.filled(value, dtype, grid), as_device(device)))


def full(
    shape: int | tuple[int, ...],
    fill_value: bool | int | float | complex,
    *,
    dtype: DTypeLike | None = None,
    device: Device | str | None = None,
    chunks: ChunksLike | None = None,
) -> Array:
    """An array of one value.

    Parameters
    ----------
    shape
        Its shape.
    fill_value
        A Python scalar, or a 0-dimensional array.
    dtype
        Its dtype; by default the one that a Python scalar of this kind stands for.
    device
        Where to pin it; None leaves it free.
    chunks
        How to cut it, as for `Array.rechunk`; by default blocks of at most 16 MiB.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> xp.full((2, 3), 7).compute()
    array([[7, 7, 7],
           [7, 7, 7]])
    """
    if isinstance(fill_value, Array | np.ndarray | np.generic):
        value = asarray(fill_value, dtype=dtype)
        if value.ndim:
            raise ValueError(f"full: fill_value has shape {value.shape}; it takes a scalar, and broadcast_to an array")
        node = value._node
        grid = new_grid(chunks, as_shape(shape), node.dtype.itemsize)
        node = _views.view("full", node, (), grid) if grid else node
        return Array(_build.pinned(node, as_device(device)))
    if not isinstance(fill_value, dt.Scalar):
        raise TypeError(f"full: fill_value is a {type(fill_value).__name__}; it takes a Python scalar")
    wanted = default_dtype(fill_value) if dtype is None else dt.as_dtype(dtype)
    if isinstance(fill_value, complex):
        dt.check_cast(dt.complex128, wanted)
    return _filled(fill_value, shape, wanted, device, chunks)


def zeros(
    shape: int | tuple[int, ...],
    *,
    dtype: DTypeLike | None = None,
    device: Device | str | None = None,
    chunks: ChunksLike | None = None,
) -> Array:
    """An array of zeros; parameters as for `full`, with float64 as the default dtype.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> xp.zeros(3).compute()
    array([0., 0., 0.])
    """
    return _filled(0, shape, dt.float64 if dtype is None else dt.as_dtype(dtype), device, chunks)


def ones(
    shape: int | tuple[int, ...],
    *,
    dtype: DTypeLike | None = None,
    device: Device | str | None = None,
    chunks: ChunksLike | None = None,
) -> Array:
    """An array of ones; parameters as for `full`, with float64 as the default dtype.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> xp.ones((2, 2), dtype=xp.int8).compute()
    array([[1, 1],
           [1, 1]], dtype=int8)
    """
    return _filled(1, shape, dt.float64 if dtype is None else dt.as_dtype(dtype), device, chunks)


def empty(
    shape: int | tuple[int, ...],
    *,
    dtype: DTypeLike | None = None,
    device: Device | str | None = None,
    chunks: ChunksLike | None = None,
) -> Array:
    """An array whose values don't matter: zeros, since here they are as cheap as any.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> xp.empty((2, 5)).shape
    (2, 5)
    """
    return zeros(shape, dtype=dtype, device=device, chunks=chunks)


def _like(
    value: Any, x: Array, dtype: DTypeLike | None, device: Device | str | None, chunks: ChunksLike | None
) -> Array:
    """One value in the shape of x, and with its dtype, device and cuts where no others are given."""
    node = x._node
    wanted = node.dtype if dtype is None else dt.as_dtype(dtype)
    grid = normalize_chunks(chunks, node.shape, wanted.itemsize, node.grid) if chunks is not None else node.grid
    place = node.device if device is None else as_device(device)
    return Array(_build.pinned(_build.filled(value, wanted, grid), place))


def full_like(
    x: Array,
    /,
    fill_value: bool | int | float | complex,
    *,
    dtype: DTypeLike | None = None,
    device: Device | str | None = None,
    chunks: ChunksLike | None = None,
) -> Array:
    """One value in the shape of another array; its dtype, device and chunks are x's where not given.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> xp.full_like(xp.zeros(3), 2).compute()
    array([2., 2., 2.])
    """
    need_array("full_like", x)
    if not isinstance(fill_value, dt.Scalar):
        raise TypeError(f"full_like: fill_value is a {type(fill_value).__name__}; it takes a Python scalar")
    if isinstance(fill_value, complex):
        dt.check_cast(dt.complex128, x.dtype if dtype is None else dt.as_dtype(dtype))
    return _like(fill_value, x, dtype, device, chunks)


def zeros_like(
    x: Array,
    /,
    *,
    dtype: DTypeLike | None = None,
    device: Device | str | None = None,
    chunks: ChunksLike | None = None,
) -> Array:
    """Zeros in the shape of another array; dtype, device and chunks are x's where not given.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> xp.zeros_like(xp.arange(3)).compute()
    array([0, 0, 0])
    """
    need_array("zeros_like", x)
    return _like(0, x, dtype, device, chunks)


def ones_like(
    x: Array,
    /,
    *,
    dtype: DTypeLike | None = None,
    device: Device | str | None = None,
    chunks: ChunksLike | None = None,
) -> Array:
    """Ones in the shape of another array; dtype, device and chunks are x's where not given.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> xp.ones_like(xp.arange(3)).compute()
    array([1, 1, 1])
    """
    need_array("ones_like", x)
    return _like(1, x, dtype, device, chunks)


def empty_like(
    x: Array,
    /,
    *,
    dtype: DTypeLike | None = None,
    device: Device | str | None = None,
    chunks: ChunksLike | None = None,
) -> Array:
    """Values that don't matter (zeros) in the shape of another array, as `zeros_like`.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> xp.empty_like(xp.ones((2, 1))).shape
    (2, 1)
    """
    need_array("empty_like", x)
    return _like(0, x, dtype, device, chunks)
