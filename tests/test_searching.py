"""where, argmax, argmin and count_nonzero against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jaxchunk.array_api as xp
from tests.helpers import arrays as a


@given(st.data(), a.shapes(), st.sampled_from(a.ALL))
def test_where(data: Any, shape: tuple[int, ...], dtype: str) -> None:
    own = tuple(n if data.draw(st.booleans()) else 1 for n in shape)
    (c, condition), (x, y), (u, v) = (
        data.draw(a.arrays(kinds, shape=s)) for kinds, s in ((a.BOOL, own), ((dtype,), shape), ((dtype,), own))
    )
    a.check(xp.where(condition, y, v), np.where(c, x, u))
    scalar = False if dtype == "bool" else 2
    a.check(xp.where(condition, y, scalar), np.where(c, x, np.asarray(scalar, dtype)))
    a.check(xp.where(condition, scalar, y), np.where(c, np.asarray(scalar, dtype), x))


def test_where_promotes() -> None:
    condition = xp.asarray([True, False])
    assert xp.where(condition, xp.zeros(2, dtype=xp.int8), xp.zeros(2, dtype=xp.uint8)).dtype == xp.int16
    assert xp.where(condition, xp.zeros(2, dtype=xp.float32), 1j).dtype == xp.complex64


@given(
    st.data(),
    a.arrays(a.BOOL + a.INTEGERS + a.REALS, special=True),
    st.booleans(),
    st.sampled_from(["argmax", "argmin"]),
)
def test_arg_extremes(data: Any, pair: Any, keepdims: bool, name: str) -> None:
    x, y = pair
    axis = data.draw(st.none() | st.integers(-x.ndim, x.ndim - 1)) if x.ndim else None
    try:
        expected = getattr(np, name)(x, axis=axis, keepdims=keepdims)
    except ValueError:
        with pytest.raises(ValueError, match=f"{name} of no elements"):
            getattr(xp, name)(y, axis=axis, keepdims=keepdims)
        return
    a.check(getattr(xp, name)(y, axis=axis, keepdims=keepdims), expected)


def test_the_first_of_equals() -> None:
    x = np.zeros((50, 70))
    x[[3, 20, 20], [60, 0, 1]] = 1
    assert int(xp.argmax(xp.asarray(x, chunks=(7, 9)))) == 3 * 70 + 60
    assert int(xp.argmin(xp.asarray(-x, chunks=(50, 9)))) == 3 * 70 + 60
    x[40, 40] = x[30, 69] = np.nan
    assert int(xp.argmax(xp.asarray(x, chunks=(7, 9)))) == 30 * 70 + 69
    assert int(xp.argmax(xp.full((3, 4), -xp.inf, chunks=2))) == 0
    assert int(xp.argmin(xp.full(5, 2**63 - 1, chunks=2))) == 0


@pytest.mark.parametrize("shape", [(300_000,), (700, 500), (3, 400, 300)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_one_nan_among_many(shape: tuple[int, ...], dtype: str) -> None:
    x = a.values(shape, dtype, seed=0)
    y = xp.asarray(x, chunks=tuple(n // 2 + 1 for n in shape))
    for name in ("max", "min", "argmax", "argmin"):
        a.check(getattr(xp, name)(y), getattr(np, name)(x))
    for place in (0, 17, x.size // 2 + 1, x.size - 1):
        x.flat[place] = np.nan
        y = xp.asarray(x, chunks=tuple(n // 2 + 1 for n in shape), copy=True)
        assert np.isnan(float(xp.max(y)))
        assert np.isnan(float(xp.min(y)))
        assert int(xp.argmax(y)) == int(xp.argmin(y)) == place
        a.check(xp.argmax(y, axis=-1), np.argmax(x, axis=-1))
        a.check(xp.max(y, axis=0), np.max(x, axis=0))
        x.flat[place] = 0


@given(st.data(), a.arrays(special=True), st.booleans())
def test_count_nonzero(data: Any, pair: Any, keepdims: bool) -> None:
    x, y = pair
    axis = data.draw(a.axes_of(x.ndim))
    a.check(xp.count_nonzero(y, axis=axis, keepdims=keepdims), np.count_nonzero(x, axis=axis, keepdims=keepdims))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: xp.where(x, x, x), TypeError, "condition has dtype float64"),
        (lambda x: xp.where(x > 0, 1, 2), TypeError, "both no arrays"),
        (lambda x: xp.where(x > 0, x, np.zeros(3)), TypeError, "numpy.ndarray"),
        (lambda x: xp.where(x > 0, x, xp.zeros(4)), ValueError, "broadcast"),
        (lambda x: xp.where(x > 0, x, xp.zeros(3, dtype=xp.int64)), TypeError, "promote"),
        (lambda x: xp.argmax(x, axis=2), IndexError, "out of bounds"),
        (lambda x: xp.argmax(x, axis=(0, 1)), TypeError, "an axis is an int"),
        (lambda x: xp.argmin(xp.astype(x, xp.complex64)), TypeError, "no order"),
        (lambda x: xp.count_nonzero([1]), TypeError, "jaxchunk array"),
    ],
)
def test_bad_arguments(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(xp.zeros((2, 3)))
