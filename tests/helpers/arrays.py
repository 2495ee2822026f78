"""Arrays for the namespace's tests: drawn at random beside the NumPy arrays that they stand for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

import jaxchunk.array_api as xp

BOOL = ("bool",)
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
REALS = ("float32", "float64")
COMPLEX = ("complex64", "complex128")
FLOATING = REALS + COMPLEX
NUMERIC = INTEGERS + FLOATING
ALL = BOOL + NUMERIC

_EPS = {"float32": 1.2e-7, "complex64": 1.2e-7, "float64": 2.3e-16, "complex128": 2.3e-16}


def evaluate(array: xp.Array) -> np.ndarray[Any, Any]:
    """The values of an array, by the library's own runtime."""
    return np.asarray(array)


def check(array: xp.Array, expected: Any, ulps: float = 0, scale: float | None = None) -> None:
    """Compare shape, dtype, cuts and values with what NumPy gives.

    `ulps` is the error that is let pass, in units of the dtype's precision times `scale`, which is
    the largest magnitude expected where it isn't given; 0 asks for equal values. NaN equals NaN.
    """
    expected = np.asarray(expected)
    assert isinstance(array, xp.Array)
    assert array.shape == expected.shape
    assert array.dtype == expected.dtype
    assert tuple(map(sum, array.chunks)) == array.shape
    assert all(all(sizes) for sizes in array.chunks)
    values = evaluate(array)
    assert values.shape == expected.shape
    assert values.dtype == expected.dtype
    if ulps == 0 or expected.dtype.kind not in "fc":
        np.testing.assert_array_equal(values, expected)
        return
    if scale is None:
        finite = np.abs(expected[np.isfinite(expected)])
        scale = float(finite.max(initial=0))
    np.testing.assert_allclose(values, expected, rtol=0, atol=ulps * scale * _EPS[expected.dtype.name])


@st.composite
def shapes(draw: Any, min_dims: int = 0, max_dims: int = 3, min_side: int = 0, max_side: int = 7) -> tuple[int, ...]:
    """A shape: axes of size 0 and 1 come up as often as all longer ones together."""
    ndim = draw(st.integers(min_dims, max_dims))
    sides = st.sampled_from([n for n in (0, 1, 2, 3, 5, max_side) if n >= min_side])
    return tuple(draw(sides) for _ in range(ndim))


@st.composite
def chunkings(draw: Any, shape: Sequence[int]) -> tuple[Any, ...]:
    """Chunks for a shape: whole axes, equal blocks, or blocks of any sizes."""
    chunks: list[Any] = []
    for n in shape:
        kind = draw(st.sampled_from(["whole", "equal", "any"]))
        if n < 2 or kind == "whole":
            chunks.append(-1)
        elif kind == "equal":
            chunks.append(draw(st.integers(1, n)))
        else:
            cuts = sorted(draw(st.sets(st.integers(1, n - 1), max_size=3)))
            chunks.append(tuple(b - a for a, b in zip([0, *cuts], [*cuts, n], strict=True)))
    return tuple(chunks)


def values(shape: Sequence[int], dtype: str, seed: int, special: bool = False) -> np.ndarray[Any, Any]:
    """Values of a dtype, small enough that sums and products of a few are exact in integers."""
    rng = np.random.default_rng(seed)
    kind = np.dtype(dtype).kind
    if kind == "b":
        return rng.random(shape) < 0.5
    if kind in "iu":
        return np.asarray(rng.integers(-5 if kind == "i" else 0, 6, shape)).astype(dtype)
    x = rng.standard_normal(shape)
    if kind == "c":
        x = x + 1j * rng.standard_normal(shape)
    if special and math.prod(shape):
        where = rng.random(shape) < 0.2
        x = np.where(where, rng.choice([np.nan, np.inf, -np.inf, 0.0, -0.0], shape), x)
    return np.asarray(x).astype(dtype)


@st.composite
def arrays(
    draw: Any,
    dtypes: Sequence[str] = ALL,
    shape: Any = None,
    special: bool = False,
    **limits: int,
) -> tuple[np.ndarray[Any, Any], xp.Array]:
    """A NumPy array and the same values as one of the library's, cut at random."""
    wanted = draw(shapes(**limits)) if shape is None else shape
    numpy = values(wanted, draw(st.sampled_from(list(dtypes))), draw(st.integers(0, 2**32 - 1)), special)
    return numpy, xp.asarray(numpy, chunks=draw(chunkings(wanted)))


@st.composite
def axes_of(draw: Any, ndim: int, none: bool = True) -> Any:
    """An `axis` argument: None, one axis or a tuple of some, counted from either end."""
    choices = [st.lists(st.integers(0, ndim - 1), unique=True, max_size=ndim).map(tuple)] if ndim else [st.just(())]
    if ndim:
        choices.append(st.integers(-ndim, ndim - 1))
        choices.append(st.lists(st.integers(0, ndim - 1), unique=True).map(lambda a: tuple(x - ndim for x in a)))
    if none:
        choices.append(st.none())
    return draw(st.one_of(choices))
