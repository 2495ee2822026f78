"""Moves of data against NumPy: bitwise equal whatever the cuts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jaxchunk.array_api as xp
from tests.helpers import arrays as a


@given(st.data(), a.arrays(("int64", "complex64", "bool")))
def test_permute_dims(data: Any, pair: Any) -> None:
    x, y = pair
    order = tuple(data.draw(st.permutations(range(x.ndim))))
    a.check(xp.permute_dims(y, order), np.transpose(x, order))


@given(st.data(), a.arrays(("int64",)))
def test_moveaxis(data: Any, pair: Any) -> None:
    x, y = pair
    source = data.draw(st.lists(st.integers(0, max(0, x.ndim - 1)), unique=True, max_size=x.ndim))
    target = data.draw(st.permutations(range(x.ndim)))[: len(source)]
    a.check(xp.moveaxis(y, tuple(source), tuple(target)), np.moveaxis(x, source, target))


@given(st.data(), a.arrays(("int64",)))
def test_expand_dims_and_back(data: Any, pair: Any) -> None:
    x, y = pair
    ndim = x.ndim + data.draw(st.integers(1, 3))
    axes = tuple(data.draw(st.permutations(range(ndim)))[: ndim - x.ndim])
    signed = tuple(axis - data.draw(st.sampled_from([0, ndim])) for axis in axes)
    expanded = xp.expand_dims(y, signed)
    a.check(expanded, np.expand_dims(x, axes))
    a.check(xp.squeeze(expanded, signed), x)


@given(st.data(), a.arrays(("int64",)))
def test_flip(data: Any, pair: Any) -> None:
    x, y = pair
    axis = data.draw(a.axes_of(x.ndim))
    a.check(xp.flip(y, axis=axis), np.flip(x, axis=axis))


@given(st.data(), a.shapes(max_dims=4))
def test_broadcasting(data: Any, shape: tuple[int, ...]) -> None:
    own = tuple(n if data.draw(st.booleans()) else 1 for n in shape)[data.draw(st.integers(0, len(shape))) :]
    x, y = data.draw(a.arrays(("int64",), shape=own))
    a.check(xp.broadcast_to(y, shape), np.broadcast_to(x, shape))
    other = xp.zeros(shape)
    first, second = xp.broadcast_arrays(y, other)
    assert isinstance(xp.broadcast_arrays(y), tuple)
    a.check(first, np.broadcast_to(x, shape))
    assert second.shape == shape
    assert xp.broadcast_shapes(own, shape) == shape


def test_a_broadcast_axis_is_cut_into_blocks() -> None:
    x = xp.broadcast_to(xp.zeros((2_000_000,)), (1000, 2_000_000))
    assert math.prod(x.chunksize) * 8 <= 2**24
    assert x.chunks[1] == xp.zeros((2_000_000,)).chunks[0]


@st.composite
def refactored(draw: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two shapes of one size."""
    factors = draw(st.lists(st.sampled_from([1, 2, 2, 3, 5]), max_size=5))

    def grouped(order: list[int]) -> tuple[int, ...]:
        shape: list[int] = []
        for n in order:
            if shape and draw(st.booleans()):
                shape[-1] *= n
            else:
                shape.append(n)
        return tuple(shape)

    return grouped(factors), grouped(draw(st.permutations(factors)))


@given(st.data(), refactored())
def test_reshape(data: Any, both: Any) -> None:
    old, new = both
    x, y = data.draw(a.arrays(("int64",), shape=old))
    result = xp.reshape(y, new)
    a.check(result, x.reshape(new))
    assert math.prod(result.chunksize) <= math.prod(y.chunksize)
    if new:
        which = data.draw(st.integers(0, len(new) - 1))
        assert xp.reshape(y, (*new[:which], -1, *new[which + 1 :])).shape == new
    a.check(xp.reshape(result[::-1] if new else result, old), (x.reshape(new)[::-1] if new else x).reshape(old))


def test_reshape_keeps_cuts_where_it_can() -> None:
    x = xp.zeros((12, 10), chunks=(5, -1))
    assert xp.reshape(x, (120,)).chunks == ((50, 50, 20),)
    assert xp.reshape(x, (12, 5, 2)).chunks == ((5, 5, 2), (5,), (2,))
    assert xp.reshape(xp.zeros(120, chunks=(50,)), (12, 10)).chunks == ((5, 5, 2), (10,))
    # Cut along the inner axis as well: no block may become as long as the merged axis.
    y = xp.zeros((20, 5, 9973), chunks=(20, 1, 191))
    assert max(xp.reshape(y, (20, -1)).chunks[1]) == 191


def test_reshape_of_nothing() -> None:
    x = xp.zeros((0, 3))
    assert xp.reshape(x, (3, 0, 2)).shape == (3, 0, 2)
    assert xp.reshape(x, (-1, 3)).shape == (0, 3)
    with pytest.raises(ValueError, match="don't fit"):
        xp.reshape(x, (0, -1))


@given(st.data(), a.arrays(a.INTEGERS, min_dims=1))
def test_concat(data: Any, pair: Any) -> None:
    x, y = pair
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    parts = [(x, y)]
    for _ in range(data.draw(st.integers(0, 2))):
        shape = list(x.shape)
        shape[axis] = data.draw(st.integers(0, 4))
        parts.append(data.draw(a.arrays((x.dtype.name,), shape=tuple(shape))))
    expected = np.concatenate([x for x, _ in parts], axis=axis)
    a.check(xp.concat([y for _, y in parts], axis=axis), expected)
    a.check(xp.concat(tuple(y for _, y in parts), axis=None), np.concatenate([x.ravel() for x, _ in parts]))


def test_concat_promotes_and_keeps_cuts() -> None:
    x, y = xp.zeros(5, dtype=xp.int8, chunks=(2,)), xp.ones(4, dtype=xp.uint8, chunks=(3,))
    z = xp.concat([x, y])
    assert z.dtype == xp.int16
    assert z.chunks == ((2, 2, 1, 3, 1),)


@given(st.data(), a.arrays(("int64",)))
def test_stack_and_unstack(data: Any, pair: Any) -> None:
    x, y = pair
    axis = data.draw(st.integers(-x.ndim - 1, x.ndim))
    stacked = xp.stack([y, -y], axis=axis)
    a.check(stacked, np.stack([x, -x], axis=axis))
    first, second = xp.unstack(stacked, axis=axis)
    a.check(first, x)
    a.check(second, -x)


@given(st.data(), a.arrays(("int64",)))
def test_roll(data: Any, pair: Any) -> None:
    x, y = pair
    axis = data.draw(a.axes_of(x.ndim))
    shift: Any = data.draw(st.integers(-9, 9))
    if isinstance(axis, tuple) and data.draw(st.booleans()):
        shift = tuple(data.draw(st.integers(-9, 9)) for _ in axis)
    expected = x if axis == () else np.roll(x, shift, axis=axis)
    a.check(xp.roll(y, shift, axis=axis), expected)


@given(st.data(), a.arrays(("int64",)), st.integers(0, 3))
def test_repeat(data: Any, pair: Any, times: int) -> None:
    x, y = pair
    axis = data.draw(st.none() | st.integers(-x.ndim, x.ndim - 1)) if x.ndim else None
    a.check(xp.repeat(y, times, axis=axis), np.repeat(x, times, axis=axis))


@given(a.arrays(("int64",), max_dims=2), st.lists(st.integers(0, 3), max_size=3).map(tuple))
def test_tile(pair: Any, times: tuple[int, ...]) -> None:
    x, y = pair
    a.check(xp.tile(y, times), np.tile(x, times))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: xp.permute_dims(x, (0,)), ValueError, "names 1 of the 2 axes"),
        (lambda x: xp.permute_dims(x, (0, 0)), ValueError, "twice"),
        (lambda x: xp.permute_dims(x, (0, 2)), IndexError, "axes=2 is out of bounds"),
        (lambda x: xp.moveaxis(x, 0, (0, 1)), ValueError, "source names 1 axes, destination 2"),
        (lambda x: xp.expand_dims(x, 3), IndexError, "out of bounds"),
        (lambda x: xp.expand_dims(x, (0, 0)), ValueError, "twice"),
        (lambda x: xp.squeeze(x, 0), ValueError, "axis 0 of shape"),
        (lambda x: xp.squeeze(x, None), TypeError, "axis is None"),
        (lambda x: xp.reshape(x, (4,)), ValueError, "6 elements"),
        (lambda x: xp.reshape(x, (-1, -1)), ValueError, "2 entries of -1"),
        (lambda x: xp.reshape(x, (-2, -3)), ValueError, "at least 0"),
        (lambda x: xp.broadcast_to(x, (3,)), ValueError, "doesn't broadcast"),
        (lambda x: xp.broadcast_to(x, (2, 4)), ValueError, "broadcast"),
        (lambda x: xp.broadcast_shapes((2,), (3,)), ValueError, "broadcast"),
        (lambda x: xp.concat([]), ValueError, "arrays is empty"),
        (lambda x: xp.concat(x), TypeError, "tuple or list"),
        (lambda x: xp.concat([x, np.zeros((2, 3))]), TypeError, r"arrays\[1\]"),
        (lambda x: xp.concat([x, xp.zeros((2, 4))]), ValueError, "differ in more than axis 0"),
        (lambda x: xp.concat([x, xp.zeros(3)]), ValueError, "differ"),
        (lambda x: xp.concat([x, xp.zeros((2, 3), dtype=xp.int64)]), TypeError, "promote"),
        (lambda x: xp.stack([x, xp.zeros((2, 4))]), ValueError, "must agree"),
        (lambda x: xp.roll(x, (1, 2)), ValueError, "axis is None"),
        (lambda x: xp.roll(x, (1, 2), axis=0), ValueError, "2 shifts for 1 axes"),
        (lambda x: xp.repeat(x, -1), ValueError, "at least 0"),
        (lambda x: xp.tile(x, (-1,)), ValueError, "at least 0"),
        (lambda x: xp.flip(np.zeros(3)), TypeError, "jaxchunk array"),
    ],
)
def test_bad_arguments(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(xp.zeros((2, 3)))
