"""all, any, diff, and what the namespace says about itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jaxchunk.array_api as xp
from tests.helpers import arrays as a


@given(st.data(), a.arrays(special=True), st.booleans(), st.sampled_from(["all", "any"]))
def test_all_and_any(data: Any, pair: Any, keepdims: bool, name: str) -> None:
    x, y = pair
    axis = data.draw(a.axes_of(x.ndim))
    a.check(getattr(xp, name)(y, axis=axis, keepdims=keepdims), getattr(np, name)(x, axis=axis, keepdims=keepdims))


@given(st.data(), a.arrays(min_dims=1), st.integers(0, 3))
def test_diff(data: Any, pair: Any, n: int) -> None:
    x, y = pair
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    sides, numpy_sides = {}, {}
    for side in ("prepend", "append"):
        if data.draw(st.booleans()):
            shape = list(x.shape)
            shape[axis] = data.draw(st.integers(0, 3))
            numpy_sides[side], sides[side] = data.draw(a.arrays((x.dtype.name,), shape=tuple(shape)))
    joined = [numpy_sides[side] for side in ("prepend", "append") if side in numpy_sides]
    joined.insert(1 if "prepend" in numpy_sides else 0, x)
    expected = np.diff(np.concatenate(joined, axis=axis), axis=axis, n=n)
    a.check(xp.diff(y, axis=axis, n=n, **sides), expected, ulps=16)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: xp.diff(x, n=-1), ValueError, "at least 0"),
        (lambda x: xp.diff(xp.asarray(1)), IndexError, "0 axes"),
        (lambda x: xp.diff(x, prepend=xp.zeros((3, 1))), ValueError, "prepend of shape"),
        (lambda x: xp.diff(x, append=xp.zeros((2, 1), dtype=xp.int8)), TypeError, "append has dtype int8"),
        (lambda x: xp.all(x, axis=5), IndexError, "out of bounds"),
        (lambda x: xp.any(3), TypeError, "jaxchunk array"),
    ],
)
def test_bad_arguments(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(xp.zeros((2, 3)))


def test_inspection() -> None:
    info = xp.__array_namespace_info__()
    assert info.capabilities() == {
        "boolean indexing": True,
        "data-dependent shapes": True,
        "max dimensions": 64,
    }
    assert info.default_device() in info.devices()
    assert isinstance(info.devices(), tuple)
    assert info.default_dtypes() == {
        "real floating": xp.float64,
        "complex floating": xp.complex128,
        "integral": xp.int64,
        "indexing": xp.int64,
    }
    assert len(info.dtypes()) == 13
    assert info.dtypes(kind="bool") == {"bool": xp.bool}
    assert set(info.dtypes(kind=("real floating", "bool"))) == {"float32", "float64", "bool"}
    with pytest.raises(ValueError, match="kind"):
        info.dtypes(kind="strings")
    for device in info.devices():
        assert xp.zeros(2, device=device).device == device


def test_everything_exported_is_there() -> None:
    for name in xp.__all__:
        assert getattr(xp, name) is not None or name == "newaxis"
    assert xp.newaxis is None
