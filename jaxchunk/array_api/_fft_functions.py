"""The ten transforms: arguments checked, norms told apart, and the lines to transform named."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from jaxchunk.array_api import _build
from jaxchunk.array_api import _elementwise as ew
from jaxchunk.array_api._arguments import as_axes, as_axis, need_array
from jaxchunk.array_api._array import Array
from jaxchunk.array_api._fft_lines import Kind, Line
from jaxchunk.array_api._fft_transform import transform
from jaxchunk.graph.node import Node

Norm: TypeAlias = Literal["backward", "ortho", "forward"]

# The power of n that sums are multiplied by.
_FORWARD = {"backward": 0.0, "ortho": -0.5, "forward": -1.0}
_INVERSE = {"backward": -1.0, "ortho": -0.5, "forward": 0.0}


def fft(x: Array, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Array:
    """The discrete Fourier transform along one axis.

    Parameters
    ----------
    x
        An array of a complex dtype.
    n
        The length that the axis is cropped to, or padded to with zeros, before; None for as it is.
    axis
        The axis to transform, chunked or not.
    norm
        "backward": the sums as they are; "ortho": divided by the square root of n; "forward":
        divided by n. Inverse transforms undo the forward one of the same norm.

    Returns
    -------
    Array
        Lazy, of the dtype of `x` and its shape, but for n elements along the axis.

    Raises
    ------
    TypeError
        For dtypes that aren't complex.
    IndexError
        For an axis that `x` doesn't have.
    ValueError
        For an n below 1, an axis without elements, and an unknown norm.

    Notes
    -----
    A task transforms whole lines, as many as the budget holds, whatever the chunks are. For one line
    it takes some 4 times the line's bytes, and 12 times where n has a prime factor above 13. Where
    that is more than five eighths of the budget, the line is done in parts by way of intermediates
    on disk:

    - Where n has factors that fit, as a matrix: its columns are transformed, then its rows. The line
      is read and written three times in all; once more, where columns would cut the chunks of a
      store.
    - Else as a convolution of at least twice its length, by three such transforms.

    Rounding errors are of the order of the dtype's precision times log2(n), relative to the root
    mean square of the result.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> from jaxchunk.array_api.fft import fft
    >>> fft(xp.asarray([1, 0, 0, 1], dtype=xp.complex128)).compute()
    array([2.+0.j, 1.+1.j, 0.+0.j, 1.-1.j])
    """
    return _line("fft", "fft", x, n, axis, norm, _FORWARD)


def ifft(x: Array, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Array:
    """The inverse of `fft`; parameters, errors and memory as there.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> from jaxchunk.array_api.fft import ifft
    >>> ifft(xp.asarray([2, 1 + 1j, 0, 1 - 1j])).compute()
    array([1.+0.j, 0.+0.j, 0.+0.j, 1.+0.j])
    """
    return _line("ifft", "ifft", x, n, axis, norm, _INVERSE)


def rfft(x: Array, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Array:
    """The transform of real values along one axis: the half of `fft` that the other half follows from.

    Parameters
    ----------
    x
        An array of a real floating dtype.
    n, axis, norm
        As for `fft`.

    Returns
    -------
    Array
        Lazy, of the complex dtype of the same precision, with n // 2 + 1 elements along the axis.

    Raises
    ------
    TypeError
        For dtypes that aren't real floating.
    IndexError, ValueError
        As for `fft`.

    Notes
    -----
    Memory as for `fft`. A long line of even length is done as a complex one of half the length, of
    as many bytes as there are real ones; one of odd length as a complex one of twice as many.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> from jaxchunk.array_api.fft import rfft
    >>> rfft(xp.asarray([1.0, 0.0, 0.0, 1.0])).compute()
    array([2.+0.j, 1.+1.j, 0.+0.j])
    """
    return _line("rfft", "rfft", x, n, axis, norm, _FORWARD)


def irfft(x: Array, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Array:
    """The inverse of `rfft`, real.

    Parameters
    ----------
    x
        An array of a complex dtype. The imaginary parts of its first element and, for an even n, of
        element n // 2 count as zero.
    n
        The length of the *result* along the axis, which says whether it was even or odd: `x` is
        cropped or padded to n // 2 + 1. By default 2 * (m - 1) for the m elements that there are.
    axis, norm
        As for `fft`.

    Returns
    -------
    Array
        Lazy, of the real dtype of the same precision, with n elements along the axis.

    Raises
    ------
    TypeError
        For dtypes that aren't complex.
    IndexError, ValueError
        As for `fft`; one element and no n leave nothing to give.

    Notes
    -----
    Memory as for `rfft`.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> from jaxchunk.array_api.fft import irfft
    >>> irfft(xp.asarray([2, 1 + 1j, 0])).compute()
    array([1., 0., 0., 1.])
    """
    return _line("irfft", "irfft", x, n, axis, norm, _INVERSE)


def hfft(x: Array, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Array:
    """The transform, real, of values whose other half is their conjugates in reverse order.

    Parameters, errors and memory as for `irfft`: it is the same sums, with the sign of `fft` and
    its norms.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> from jaxchunk.array_api.fft import hfft
    >>> hfft(xp.asarray([1, 2 + 1j, 3 + 0j])).compute()
    array([ 8.,  0.,  0., -4.])
    """
    return _line("hfft", "irfft", ew.conj(Array(_checked("hfft", x, "irfft"))), n, axis, norm, _FORWARD)


def ihfft(x: Array, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Array:
    """The inverse of `hfft`; parameters, errors and memory as for `rfft`.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> from jaxchunk.array_api.fft import ihfft
    >>> ihfft(xp.asarray([8.0, 0.0, 0.0, -4.0])).compute()
    array([1.-0.j, 2.+1.j, 3.-0.j])
    """
    return ew.conj(_line("ihfft", "rfft", x, n, axis, norm, _INVERSE))


def fftn(
    x: Array, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: Norm = "backward"
) -> Array:
    """The discrete Fourier transform along several axes.

    Parameters
    ----------
    x
        An array of a complex dtype.
    s
        The lengths that the axes are cropped to, or padded to with zeros, before, in the order of
        `axes`, which have to be given too; -1 for as it is.
    axes
        The axes to transform, each once; None for all of them.
    norm
        As for `fft`; n is the product of all the lengths.

    Returns
    -------
    Array
        Lazy, of the dtype of `x` and its shape, but for the lengths of the axes.

    Raises
    ------
    TypeError
        For dtypes that aren't complex.
    IndexError
        For axes that `x` doesn't have.
    ValueError
        For an axis named twice, lengths that aren't as many as the axes or that come without axes, a
        length below 1, and an unknown norm.

    Notes
    -----
    Where the axes together are small, a task transforms them all at once. Else they are transformed
    one after another, each as by `fft`, by way of an intermediate in memory or on disk.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> from jaxchunk.array_api.fft import fftn
    >>> fftn(xp.asarray([[1, 2], [3, 4 + 0j]])).compute()
    array([[10.+0.j, -2.+0.j],
           [-4.+0.j,  0.+0.j]])
    """
    return _lines("fftn", "fft", x, s, axes, norm, _FORWARD)


def ifftn(
    x: Array, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: Norm = "backward"
) -> Array:
    """The inverse of `fftn`; parameters, errors and memory as there.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> from jaxchunk.array_api.fft import ifftn
    >>> ifftn(xp.asarray([[10, -2], [-4, 0j]])).compute()
    array([[1.+0.j, 2.+0.j],
           [3.+0.j, 4.+0.j]])
    """
    return _lines("ifftn", "ifft", x, s, axes, norm, _INVERSE)


def rfftn(
    x: Array, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: Norm = "backward"
) -> Array:
    """The transform of real values along several axes: `rfft` along the last of `axes`, `fft` along the others.

    Parameters and errors as for `fftn`, but that `x` has a real floating dtype and that there is at
    least one axis; memory as there. The result has s[-1] // 2 + 1 elements along the last axis.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> from jaxchunk.array_api.fft import rfftn
    >>> rfftn(xp.ones((2, 3))).compute()
    array([[6.+0.j, 0.+0.j],
           [0.+0.j, 0.+0.j]])
    """
    return _lines("rfftn", "rfft", x, s, axes, norm, _FORWARD)


def irfftn(
    x: Array, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: Norm = "backward"
) -> Array:
    """The inverse of `rfftn`, real: `ifft` along all of `axes` but the last, and there `irfft`.

    Parameters, errors and memory as for `fftn`, but that there is at least one axis. `s` has the
    lengths of the *result*; by default 2 * (m - 1) for the m elements along the last axis.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> from jaxchunk.array_api.fft import irfftn
    >>> irfftn(xp.asarray([[6, 0], [0, 0j]]), s=(2, 3), axes=(0, 1)).compute()
    array([[1., 1., 1.],
           [1., 1., 1.]])
    """
    return _lines("irfftn", "irfft", x, s, axes, norm, _INVERSE)


def _checked(name: str, x: Any, kind: Kind) -> Node:
    """The operand's node; a real one is complex to functions of complex arrays, as in NumPy."""
    need_array(name, x)
    takes, words = ("f", "real floating") if kind == "rfft" else ("cf", "floating")
    if x.dtype.kind not in takes:
        raise TypeError(f"{name} takes {words} dtypes, got {x.dtype}; convert the array with astype")
    return x._node if kind == "rfft" else _build.cast(x._node, np.result_type(x.dtype, np.complex64))


def _power(name: str, norm: Any, powers: dict[str, float]) -> float:
    if not isinstance(norm, str) or norm not in powers:
        raise ValueError(f"{name}: norm={norm!r}; it is 'backward', 'ortho' or 'forward'")
    return powers[norm]


def _length(name: str, kind: Kind, have: int, n: Any, argument: str) -> int:
    """How many points are transformed; by default those that there are."""
    if n is None:
        length = 2 * (have - 1) if kind == "irfft" else have
        if length < 1:
            raise ValueError(f"{name}: an axis of length {have} gives {length} points; {argument}= gives other lengths")
        return length
    try:
        length = operator.index(n)
    except TypeError:
        raise TypeError(f"{name}: {argument}={n!r}; a length is an int") from None
    if length < 1:
        raise ValueError(f"{name}: {argument}={n}; there is at least 1 point to transform")
    return length


def _line(name: str, kind: Kind, x: Any, n: Any, axis: Any, norm: Any, powers: dict[str, float]) -> Array:
    node = _checked(name, x, kind)
    along, power = as_axis(name, axis, x.ndim), _power(name, norm, powers)
    return Array(transform(node, [Line(kind, along, _length(name, kind, x.shape[along], n, "n"), power)]))


def _lines(name: str, kind: Kind, x: Any, s: Any, axes: Any, norm: Any, powers: dict[str, float]) -> Array:
    node = _checked(name, x, kind)
    power = _power(name, norm, powers)
    if s is not None and axes is None:
        raise ValueError(f"{name}: s={s!r} without axes; give the axes that these are the lengths of")
    along = as_axes(name, axes, x.ndim, "axes")
    sizes = [None] * len(along) if s is None else [None if n == -1 else n for n in s]
    if len(sizes) != len(along):
        raise ValueError(f"{name}: s={s!r} has {len(sizes)} lengths, but there are {len(along)} axes")
    if not along:
        if kind in ("rfft", "irfft"):
            raise ValueError(f"{name}: there are no axes to transform; it takes at least one")
        return Array(node)
    kinds: list[Kind] = ["ifft" if kind == "irfft" else "fft" if kind == "rfft" else kind] * len(along)
    kinds[-1] = kind
    lines = [
        Line(k, a, _length(name, k, x.shape[a], n, "s"), power) for k, a, n in zip(kinds, along, sizes, strict=True)
    ]
    # The real side comes first where it is transformed, and last where it is what comes out.
    return Array(transform(node, lines if kind == "irfft" else lines[::-1]))
