"""Arrays from what others hold: Python scalars and lists, NumPy and JAX arrays, DLPack, buffers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from jaxchunk.array_api import _build, _views
from jaxchunk.array_api import _dtypes as dt
from jaxchunk.array_api._arguments import need_array
from jaxchunk.array_api._array import Array
from jaxchunk.array_api._build import DType
from jaxchunk.array_api._chunking import new_grid
from jaxchunk.array_api._devices import Device, as_device
from jaxchunk.array_api._dtypes import DTypeLike
from jaxchunk.graph.grid import ChunksLike, normalize_chunks
from jaxchunk.graph.node import Node
from jaxchunk.graph.primitives import Source
from jaxchunk.run.memory_array import MemoryArray

# Arrays of up to this size are copied when they are handed over: later changes don't show.
COPIED_BYTES = 2**20


def asarray(
    obj: Any,
    /,
    *,
    dtype: DTypeLike | None = None,
    device: Device | str | None = None,
    copy: bool | None = None,
    chunks: ChunksLike | None = None,
) -> Array:
    """Make an array of something that holds values.

    Parameters
    ----------
    obj
        An array of this library, which is given back as it is where nothing else is asked for; a
        Python scalar, or nested lists of scalars and arrays; a NumPy array; a `jax.Array`, used
        where it is on a CPU and copied to host memory from elsewhere, which pins the result to its
        device; an object with DLPack or the buffer protocol.
    dtype
        Of the result. By default that of `obj`, or for Python scalars the default of their kind.
    device
        Where to pin the array; by default it stays where `obj` is pinned, or free.
    copy
        True: values are copied now, whatever the size. False: they are never copied, ValueError if
        that can't be. None: NumPy arrays of up to 1 MiB are copied now; of a larger one the values
        are read tile by tile when something is computed from them, so don't change it before.
    chunks
        How to cut the array, as for `Array.rechunk`; by default blocks of at most 16 MiB.

    Returns
    -------
    Array

    Raises
    ------
    TypeError
        For dtypes that the namespace does not have (object, strings, dates) and values traced by JAX.
    ValueError
        For ragged lists, and where `copy=False` can't be.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> xp.asarray([[1, 2], [3, 4]]).compute()
    array([[1, 2],
           [3, 4]])
    """
    wanted, place = None if dtype is None else dt.as_dtype(dtype), as_device(device)
    if isinstance(obj, Array):
        node = obj._node
        same = (wanted is None or wanted == node.dtype) and (place is None or place == node.device)
        if copy is not True and same and chunks is None:
            return obj
    elif isinstance(obj, list | tuple) and (arrays := list(_arrays_in(obj))):
        if copy is False:
            raise ValueError("asarray: copy=False, but arrays in a list can only be copied")
        node = _stacked(obj, dt.result_type(*arrays) if wanted is None else wanted)
    else:
        values, where = _values(obj, wanted, copy)
        node = from_numpy(values, chunks, Device(*where) if where else None)
    if copy is False and place is not None and node.device not in (None, place):
        raise ValueError(f"asarray: copy=False, but the array is on {node.device}, not {place}")
    if wanted is not None and wanted != node.dtype:
        if copy is False:
            raise ValueError(f"asarray: copy=False, but the values are {node.dtype}, not {wanted}")
        dt.check_cast(node.dtype, wanted)
        node = _build.cast(node, wanted)
    if chunks is not None:
        node = _views.rechunk(node, normalize_chunks(chunks, node.shape, node.dtype.itemsize, node.grid))
    array = Array(node)
    return array if place is None else array.to_device(place)


def from_numpy(values: np.ndarray[Any, Any], chunks: ChunksLike | None = None, device: Device | None = None) -> Node:
    """The node of a NumPy array that nobody changes any more."""
    grid = new_grid(chunks, values.shape, values.dtype.itemsize)
    if values.ndim == 0:
        return _build.pinned(_build.constant(values[()], values.dtype), device)
    if values.size == 0:
        return _build.pinned(_build.filled(0, values.dtype, grid), device)
    return Node(Source(MemoryArray(values, grid)), (), grid, values.dtype, device)


def _values(
    obj: Any, dtype: DTypeLike | None, copy: bool | None
) -> tuple[np.ndarray[Any, Any], tuple[str, int] | None]:
    """The values of an object as a NumPy array, copied where they must be, and the device they're on."""
    where = None
    if isinstance(obj, np.ma.MaskedArray):
        raise TypeError(
            "asarray: a masked array would lose its mask; give x.filled(value), or x.data and numpy.ma.getmaskarray(x)"
        )
    if isinstance(obj, np.ndarray | np.generic):
        values, fresh = np.asarray(obj), isinstance(obj, np.generic)
    elif _is_jax(obj):
        values, where, fresh = _of_jax(obj, copy)
    elif isinstance(obj, dt.Scalar | list | tuple | range):
        if copy is False:
            raise ValueError(f"asarray: copy=False, but a {type(obj).__name__} can only be copied")
        values, fresh = _of_python(obj, dtype), True
    elif hasattr(obj, "__dlpack__"):
        values, fresh = _of_dlpack(obj, copy), copy is True
    else:
        values, fresh = _of_buffer(obj), False
    supported = dt.as_dtype(values.dtype)
    if values.dtype != supported:
        if copy is False:
            raise ValueError("asarray: copy=False, but the values are not in this machine's byte order")
        values, fresh = values.astype(supported), True
    if not fresh and copy is not False and (copy or (values.nbytes <= COPIED_BYTES and where is None)):
        values = values.copy()
    return values, where


def _of_python(obj: Any, dtype: DTypeLike | None) -> np.ndarray[Any, Any]:
    """Scalars and nested sequences of them: ints become int64, and what doesn't fit is an error."""
    try:
        values = np.asarray(obj, dtype=dtype)
    except ValueError as error:
        raise ValueError(f"asarray: {error}") from None
    if dtype is not None:
        return values
    if values.dtype.kind == "f" and not _holds_float(obj):
        # No values at all; or integers for which NumPy found no common dtype but a floating one.
        return values if values.size == 0 else _of_integers(obj)
    return _of_integers(obj) if values.dtype.kind in "iuO" else values


def _of_integers(obj: Any) -> np.ndarray[Any, Any]:
    try:
        return np.asarray(obj, dt.int64)
    except OverflowError:
        raise OverflowError(
            "asarray: an integer is too large for int64; give dtype=uint64, or a floating one"
        ) from None
    except (TypeError, ValueError):
        raise TypeError(f"asarray: {obj!r:.80} holds other things than bools and numbers") from None


def _holds_float(obj: Any) -> bool:
    """Whether nested lists hold anything that is no integer, as most lists of floats show at once."""
    if isinstance(obj, list | tuple):
        return any(_holds_float(item) for item in obj)
    return not isinstance(obj, int | np.integer | range)


def _arrays_in(obj: Any) -> Iterator[Any]:
    """The arrays, this library's and JAX's, in nested lists."""
    if isinstance(obj, list | tuple):
        for item in obj:
            yield from _arrays_in(item)
    elif isinstance(obj, Array) or _is_jax(obj):
        yield obj


def _stacked(obj: Any, dtype: DType) -> Node:
    """Nested lists that hold arrays, as `stack` would join them."""
    if not isinstance(obj, list | tuple):
        return asarray(obj, dtype=dtype)._node
    nodes = [_views.expand_dims(_stacked(item, dtype), [0]) for item in obj]
    shapes = {node.shape: None for node in nodes}
    if len(shapes) != 1:
        raise ValueError(f"asarray: lists that hold arrays have items of one shape each, not {list(shapes)}")
    return _views.concat(nodes, 0)


def _is_jax(obj: Any) -> bool:
    """Whether an object is JAX's, told without importing JAX where nobody has."""
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(obj, jax.Array)


def _of_jax(obj: Any, copy: bool | None) -> tuple[np.ndarray[Any, Any], tuple[str, int] | None, bool]:
    """A JAX array's values: its own memory on a CPU, a copy of them elsewhere; and its device."""
    import jax

    if isinstance(obj, jax.core.Tracer):
        raise TypeError("asarray: a value traced by JAX has no elements yet; call jaxchunk outside jit, vmap and grad")
    if not isinstance(obj.dtype, np.dtype):
        raise TypeError(f"asarray: dtype {obj.dtype}; for random keys use jax.random.key_data first")
    if obj.is_deleted():
        raise ValueError("asarray: the jax.Array was deleted or donated")
    dt.as_dtype(np.dtype(obj.dtype))
    devices = list(obj.devices())
    if len(devices) > 1:
        raise ValueError(f"asarray: the jax.Array lies on {len(devices)} devices; put it on one with jax.device_put")
    device = devices[0]
    if copy is False and device.platform != "cpu":
        raise ValueError(f"asarray: copy=False, but the jax.Array lies on {device}, not in host memory")
    return np.asarray(obj), (device.platform, device.id), device.platform != "cpu"


def _of_dlpack(obj: Any, copy: bool | None) -> np.ndarray[Any, Any]:
    return np.from_dlpack(obj, device="cpu", copy=copy)


def _of_buffer(obj: Any) -> np.ndarray[Any, Any]:
    """Whatever else NumPy can read without making objects of it."""
    if type(obj).__module__.partition(".")[0] == "zarr":
        raise TypeError("asarray: a Zarr array would be read whole; jaxchunk.from_zarr reads it chunk by chunk")
    try:
        return np.asarray(memoryview(obj))
    except TypeError:
        values = np.asarray(obj)
    if values.dtype.kind == "O":
        raise TypeError(f"asarray: can't make an array of a {type(obj).__name__}")
    return values


def astype(x: Array, dtype: DTypeLike, /, *, copy: bool = True, device: Device | str | None = None) -> Array:
    """The elements as another dtype.

    Parameters
    ----------
    x
        An array.
    dtype
        The dtype to convert to. Complex numbers can't become real ones.
    copy
        Whether the result is another array even where there is nothing to convert.
    device
        Where to pin the result; by default it stays where `x` is.

    Notes
    -----
    Floats are cut off towards zero to become integers; what is out of the integers' range, or NaN,
    becomes some value.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> xp.astype(xp.asarray([1.7, -1.7]), xp.int32).compute()
    array([ 1, -1], dtype=int32)
    """
    need_array("astype", x)
    return asarray(x, dtype=dtype, device=device, copy=copy or None)


def from_dlpack(x: Any, /, *, device: Device | str | None = None, copy: bool | None = None) -> Array:
    """Make an array of one of another library that has `__dlpack__`.

    Parameters
    ----------
    x
        The array.
    device
        Where to pin the result; by default it stays where `x` is pinned, or free.
    copy
        True: values are copied now. False: never, also where that takes BufferError. None: as for
        `asarray`, of up to 1 MiB, or where they aren't in host memory.

    Raises
    ------
    AttributeError
        If `x` has no `__dlpack__` method.
    BufferError
        If its memory can't be exported to the host; if `copy=False` can't be.
    TypeError
        For dtypes that the namespace does not have.

    Examples
    --------
    >>> import numpy as np
    >>> import jaxchunk.array_api as xp
    >>> xp.from_dlpack(np.arange(3)).compute()
    array([0, 1, 2])
    """
    if not (hasattr(x, "__dlpack__") and hasattr(x, "__dlpack_device__")):
        raise AttributeError(f"from_dlpack: a {type(x).__name__} has no __dlpack__; use asarray")
    place = as_device(device)
    try:
        known = isinstance(x, Array) or _is_jax(x)
        return asarray(x if known else _of_dlpack(x, copy), device=place, copy=copy)
    except ValueError as error:  # how asarray refuses
        raise BufferError(str(error)) from None
