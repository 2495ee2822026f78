"""What goes with Fourier transforms: the frequencies of their coefficients, and zero frequency in the middle."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from jax import lax

from jaxchunk.array_api import _build
from jaxchunk.array_api import _dtypes as dt
from jaxchunk.array_api._arguments import as_axes, need_array
from jaxchunk.array_api._array import Array
from jaxchunk.array_api._build import convert
from jaxchunk.array_api._chunking import new_grid
from jaxchunk.array_api._devices import Device, as_device
from jaxchunk.array_api._dtypes import DTypeLike
from jaxchunk.array_api._joining import roll
from jaxchunk.array_api._values import aligned
from jaxchunk.graph.grid import ChunksLike

_div, _lt, _select, _sub = aligned(lax.div), aligned(lax.lt), aligned(lax.select), aligned(lax.sub)


def fftfreq(
    n: int,
    /,
    *,
    d: float = 1.0,
    dtype: DTypeLike | None = None,
    device: Device | str | None = None,
    chunks: ChunksLike | None = None,
) -> Array:
    """The frequencies of the coefficients of `fft`: 0, 1, … and then the negative ones, over n * d.

    Parameters
    ----------
    n
        How many points are transformed, at least 1.
    d
        The distance between them.
    dtype
        Of the result, a real floating one; float64 by default.
    device
        Where to pin the array; None leaves it free.
    chunks
        How to cut it, as for `Array.rechunk`; by default blocks of at most 16 MiB.

    Returns
    -------
    Array
        Of n elements, lazy: it takes no memory until it is used.

    Raises
    ------
    ValueError
        For an n below 1, and a d of 0.
    TypeError
        For a dtype that isn't real floating.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> from jaxchunk.array_api.fft import fftfreq
    >>> fftfreq(5, d=0.1).compute()
    array([ 0.,  2.,  4., -4., -2.])
    """
    return _frequencies("fftfreq", n, d, False, dtype, device, chunks)


def rfftfreq(
    n: int,
    /,
    *,
    d: float = 1.0,
    dtype: DTypeLike | None = None,
    device: Device | str | None = None,
    chunks: ChunksLike | None = None,
) -> Array:
    """The frequencies of the coefficients of `rfft`: 0, 1, … up to n // 2, over n * d.

    Parameters, errors and laziness as for `fftfreq`; the result has n // 2 + 1 elements.

    Examples
    --------
    >>> from jaxchunk.array_api.fft import rfftfreq
    >>> rfftfreq(5, d=0.1).compute()
    array([0., 2., 4.])
    """
    return _frequencies("rfftfreq", n, d, True, dtype, device, chunks)


def _frequencies(name: str, n: Any, d: Any, half: bool, dtype: Any, device: Any, chunks: ChunksLike | None) -> Array:
    points = operator.index(n)
    if points < 1:
        raise ValueError(f"{name}: n={n}; there is at least 1 point")
    width = points * float(d)
    if width == 0:
        raise ValueError(f"{name}: d={d}; points have a distance other than 0")
    wanted = dt.float64 if dtype is None else dt.as_dtype(dtype)
    if wanted.kind != "f":
        raise TypeError(f"{name}: dtype={wanted}; frequencies have a real floating dtype")
    size = points // 2 + 1 if half else points
    (axis,) = new_grid(chunks, (size,), wanted.itemsize)
    # From here on frequencies are negative; where only half of them are asked for none is.
    first = size if half else (points + 1) // 2
    scalars = (_build.constant(v, dt.int64) for v in (first, points))
    operands = (_build.iota(size, axis), *scalars, _build.constant(width, dt.float64))

    def body(position: Any, first: Any, points: Any, width: Any) -> Any:
        signed = _select(_lt(position, first), position, _sub(position, points))
        return convert(_div(convert(signed, dt.float64), width), wanted)

    node = _build.blockwise("fftfreq", body, ("fftfreq", wanted.str), operands, wanted)
    return Array(_build.pinned(node, as_device(device)))


def fftshift(x: Array, /, *, axes: int | Sequence[int] | None = None) -> Array:
    """The coefficients in the order of their frequencies: zero goes from the front to the middle.

    Parameters
    ----------
    x
        An array of a floating dtype.
    axes
        The axes to shift along; None for all of them.

    Returns
    -------
    Array
        Of the same shape and dtype. Elements only move, and where it is read from a store or used
        in arithmetic they do so as they are read.

    Raises
    ------
    TypeError
        For dtypes that aren't floating.
    IndexError, ValueError
        For axes that `x` doesn't have, and one that is named twice.

    Examples
    --------
    >>> from jaxchunk.array_api.fft import fftfreq, fftshift
    >>> fftshift(fftfreq(4)).compute()
    array([-0.5 , -0.25,  0.  ,  0.25])
    """
    return _shifted("fftshift", x, axes, lambda n: n // 2)


def ifftshift(x: Array, /, *, axes: int | Sequence[int] | None = None) -> Array:
    """The inverse of `fftshift`: from the middle back to the front.

    Parameters and errors as for `fftshift`, from which it differs for odd lengths.

    Examples
    --------
    >>> from jaxchunk.array_api.fft import fftfreq, fftshift, ifftshift
    >>> ifftshift(fftshift(fftfreq(5, d=0.2))).compute()
    array([ 0.,  1.,  2., -2., -1.])
    """
    return _shifted("ifftshift", x, axes, lambda n: -(n // 2))


def _shifted(name: str, x: Array, axes: Any, by: Any) -> Array:
    need_array(name, x)
    if x.dtype.kind not in "fc":
        raise TypeError(f"{name} takes floating dtypes, got {x.dtype}; convert the array with astype")
    along = as_axes(name, axes, x.ndim, "axes")
    return roll(x, tuple(by(x.shape[a]) for a in along), axis=along) if along else x
