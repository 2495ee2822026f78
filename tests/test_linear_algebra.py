"""Matrix products against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jaxchunk.array_api as xp
from tests.helpers import arrays as a

SIDES = st.sampled_from([0, 1, 2, 3, 6])


@given(st.data(), SIDES, SIDES, SIDES, st.sampled_from(a.NUMERIC), a.shapes(max_dims=2, max_side=3))
def test_matmul(data: Any, i: int, j: int, k: int, dtype: str, batch: tuple[int, ...]) -> None:
    shapes = [
        ((k,), (k,)),
        ((k,), (*batch, k, j)),
        ((*batch, i, k), (k,)),
        ((*batch, i, k), (*(n if data.draw(st.booleans()) else 1 for n in batch), k, j)),
        ((i, k), (*batch, k, j)),
    ]
    left, right = data.draw(st.sampled_from(shapes))
    (x, y), (u, v) = (data.draw(a.arrays((dtype,), shape=shape)) for shape in (left, right))
    a.check(xp.matmul(y, v), np.matmul(x, u), ulps=8, scale=10)
    a.check(y @ v, np.matmul(x, u), ulps=8, scale=10)


@given(st.data(), st.sampled_from(a.NUMERIC), a.shapes(max_dims=3, max_side=3), a.shapes(max_dims=2, max_side=3))
def test_tensordot(data: Any, dtype: str, left: tuple[int, ...], right: tuple[int, ...]) -> None:
    n = data.draw(st.integers(0, len(left)))
    pairs = data.draw(st.permutations(range(len(left))))[:n]
    places = data.draw(st.permutations(range(len(right) + n)))[:n]
    shape = list(right)
    for place, axis in sorted(zip(places, pairs, strict=True)):
        shape.insert(place, left[axis])
    (x, y), (u, v) = (data.draw(a.arrays((dtype,), shape=tuple(s))) for s in (left, shape))
    axes = (tuple(pairs), tuple(places))
    a.check(xp.tensordot(y, v, axes=axes), np.tensordot(x, u, axes=axes), ulps=50, scale=10)


def test_tensordot_by_number() -> None:
    x, u = np.arange(24).reshape(2, 3, 4), np.arange(12).reshape(3, 4)
    y, v = xp.asarray(x, chunks=(1, 2, 3)), xp.asarray(u, chunks=2)
    for n, other in ((0, u), (1, u.T), (2, u)):
        w = v.T if n == 1 else v
        a.check(xp.tensordot(y, w, axes=n), np.tensordot(x, other, axes=n))
    a.check(xp.tensordot(y, v), np.tensordot(x, u))


@given(st.data(), st.sampled_from(a.NUMERIC), a.shapes(min_dims=1))
def test_vecdot(data: Any, dtype: str, shape: tuple[int, ...]) -> None:
    axis = data.draw(st.integers(-len(shape), -1))
    other = list(shape[data.draw(st.integers(0, len(shape) + axis)) :])
    (x, y), (u, v) = (data.draw(a.arrays((dtype,), shape=tuple(s))) for s in (shape, other))
    expected = np.sum(np.conj(x) * u, axis=axis, dtype=x.dtype)
    a.check(xp.vecdot(y, v, axis=axis), expected, ulps=50, scale=10)


def test_products_promote() -> None:
    x, y = xp.ones((2, 2), dtype=xp.int8), xp.ones((2, 2), dtype=xp.uint8)
    assert xp.matmul(x, y).dtype == xp.tensordot(x, y).dtype == xp.vecdot(x, y).dtype == xp.int16
    z = xp.ones((2, 2), dtype=xp.float32) @ xp.ones((2, 2), dtype=xp.complex128)
    a.check(z, np.full((2, 2), 2, "complex128"))


def test_a_long_contraction_in_many_blocks() -> None:
    x = np.random.default_rng(0).standard_normal((40, 3000)).astype("float32")
    y = xp.asarray(x, chunks=(13, 170))
    exact = x.astype("float64") @ x.astype("float64").T
    np.testing.assert_allclose(a.evaluate(y @ y.T), exact, atol=2e-3)


@given(a.arrays(("int64",), min_dims=2))
def test_matrix_transpose(pair: Any) -> None:
    x, y = pair
    a.check(xp.matrix_transpose(y), np.swapaxes(x, -1, -2))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: xp.matmul(x, x), ValueError, "3 columns"),
        (lambda x: xp.matmul(x, xp.asarray(1.0)), ValueError, "x2 has 0 axes"),
        (lambda x: xp.matmul(x, xp.zeros((3, 3), dtype=xp.int64)), TypeError, "promote"),
        (lambda x: xp.matmul(x > 0, (x > 0).T), TypeError, "bool"),
        (lambda x: xp.matmul(x, np.zeros((3, 3))), TypeError, "x2 is a ndarray"),
        (lambda x: xp.matmul(xp.zeros((2, 2, 3)), xp.zeros((3, 3, 2))), ValueError, "broadcast"),
        (lambda x: xp.tensordot(x, x, axes=((0,), (1,))), ValueError, "lengths"),
        (lambda x: xp.tensordot(x, x, axes=3), ValueError, "axes=3"),
        (lambda x: xp.tensordot(x, x, axes=((0,), (1,), (2,))), ValueError, "two sequences"),
        (lambda x: xp.tensordot(x, x, axes=((0, 0), (0, 1))), ValueError, "twice"),
        (lambda x: xp.vecdot(x, x, axis=1), IndexError, "between -2 and -1"),
        (lambda x: xp.vecdot(x, xp.zeros(2)), ValueError, "length 3 and x2 2"),
        (lambda x: xp.matrix_transpose(xp.zeros(3)), ValueError, "at least 2"),
    ],
)
def test_bad_arguments(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(xp.zeros((2, 3)))
