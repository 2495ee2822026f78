"""Folds and running folds against NumPy, over dtypes, shapes and cuts; and the folds' own algebra."""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jaxchunk.array_api as xp
from jaxchunk.array_api import _reducers as reducers
from tests.helpers import arrays as a

WIDE = {"b": np.dtype("int64"), "i": np.dtype("int64"), "u": np.dtype("uint64")}


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """NumPy warns of means over nothing, on which the library answers NaN."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


def wide(x: np.ndarray) -> np.ndarray:
    return x.astype(WIDE.get(x.dtype.kind, x.dtype))


@given(st.data(), a.arrays(), st.booleans())
def test_sum(data: Any, pair: Any, keepdims: bool) -> None:
    x, y = pair
    axis = data.draw(a.axes_of(x.ndim))
    expected = np.sum(wide(x), axis=axis, keepdims=keepdims)
    a.check(xp.sum(y, axis=axis, keepdims=keepdims), expected, ulps=x.size, scale=10)


@given(st.data(), a.arrays(), st.booleans())
def test_prod(data: Any, pair: Any, keepdims: bool) -> None:
    x, y = pair
    axis = data.draw(a.axes_of(x.ndim))
    with quiet():
        expected = np.prod(wide(x), axis=axis, keepdims=keepdims)
    a.check(xp.prod(y, axis=axis, keepdims=keepdims), expected, ulps=2 * x.size)


@pytest.mark.parametrize("name", ["sum", "prod"])
def test_dtype_is_that_to_add_in(name: str) -> None:
    x = xp.asarray([100, 100], dtype=xp.int8)
    assert getattr(xp, name)(x).dtype == xp.int64
    assert getattr(xp, name)(x, dtype=xp.int8).dtype == xp.int8
    assert getattr(xp, name)(x, dtype=xp.float32).dtype == xp.float32
    assert int(xp.sum(x)) == 200
    assert int(xp.sum(x, dtype=xp.int8)) == -56
    with pytest.raises(TypeError, match="bool"):
        getattr(xp, name)(x, dtype=xp.bool)
    with pytest.raises(TypeError, match="complex"):
        getattr(xp, name)(xp.asarray([1j]), dtype=xp.float64)


@given(st.data(), a.arrays(a.BOOL + a.INTEGERS + a.REALS, special=True), st.booleans(), st.sampled_from(["max", "min"]))
def test_extremes(data: Any, pair: Any, keepdims: bool, name: str) -> None:
    x, y = pair
    axis = data.draw(a.axes_of(x.ndim))
    try:
        expected = getattr(np, name)(x, axis=axis, keepdims=keepdims)
    except ValueError:
        with pytest.raises(ValueError, match=f"{name} of no elements"):
            getattr(xp, name)(y, axis=axis, keepdims=keepdims)
        return
    a.check(getattr(xp, name)(y, axis=axis, keepdims=keepdims), expected)


@given(st.data(), a.arrays(), st.booleans())
def test_mean(data: Any, pair: Any, keepdims: bool) -> None:
    x, y = pair
    axis = data.draw(a.axes_of(x.ndim))
    with quiet():
        expected = np.mean(x, axis=axis, keepdims=keepdims)
    a.check(xp.mean(y, axis=axis, keepdims=keepdims), expected, ulps=x.size, scale=10)


@given(
    st.data(),
    a.arrays(a.BOOL + a.INTEGERS + a.REALS),
    st.booleans(),
    st.sampled_from(["var", "std"]),
    st.sampled_from([0, 1, 0.5, 3, 1000]),
)
def test_moments(data: Any, pair: Any, keepdims: bool, name: str, correction: float) -> None:
    x, y = pair
    axis = data.draw(a.axes_of(x.ndim))
    kept = x.astype("float64") if x.dtype.kind in "biu" else x
    with quiet():
        expected = np.asarray(getattr(np, name)(kept, axis=axis, keepdims=keepdims, ddof=correction))
    count = x.size // max(1, expected.size) if x.size else 0
    if count <= correction:
        expected = np.full_like(expected, np.nan)
    # A standard deviation of nearly 0 has the square root of the variance's error.
    ulps, scale = (32, 50) if name == "var" else (3e5 if kept.dtype == "float64" else 5e3, 10)
    a.check(getattr(xp, name)(y, axis=axis, keepdims=keepdims, correction=correction), expected, ulps, scale)


def test_variance_of_a_small_deviation_from_a_large_mean() -> None:
    rng = np.random.default_rng(0)
    x = (1e6 + rng.standard_normal(20_000)).astype("float32")
    exact = float(np.var(x.astype("float64")))
    assert float(xp.var(xp.asarray(x, chunks=(777,)))) == pytest.approx(exact, rel=1e-3)


@given(
    st.data(),
    a.arrays(min_dims=1, special=True),
    st.booleans(),
    st.sampled_from(["cumulative_sum", "cumulative_prod"]),
)
def test_cumulative(data: Any, pair: Any, initial: bool, name: str) -> None:
    x, y = pair
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    with quiet():
        expected = getattr(np, name)(wide(x), axis=axis, include_initial=initial)
    got = getattr(xp, name)(y, axis=axis, include_initial=initial)
    if x.dtype.kind == "c":
        # Where infinities and NaN meet, the parts of a complex product depend on the order taken.
        finite = np.isfinite(expected)
        values = a.evaluate(got)
        assert values.dtype == expected.dtype
        np.testing.assert_allclose(values[finite], expected[finite], rtol=1e-4)
    else:
        largest = np.abs(expected[np.isfinite(expected)]).max(initial=10)
        a.check(got, expected, ulps=64, scale=float(largest))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "complex64"])
@pytest.mark.parametrize("axis", [0, 1])
def test_cumulative_of_long_axes(dtype: str, axis: int) -> None:
    x = a.values((48, 330), dtype, seed=1)
    y = xp.asarray(x, chunks=(16, 160))
    expected = np.cumulative_sum(wide(x).astype("complex128" if dtype == "complex64" else wide(x).dtype), axis=axis)
    a.check(xp.cumulative_sum(y, axis=axis), expected.astype(wide(x).dtype), ulps=8)
    if dtype == "float64":
        x[20, 100], x[30, 200], x[40, 300] = np.inf, np.nan, -np.inf
        y = xp.asarray(x, chunks=(16, 160))
        a.check(xp.cumulative_sum(y, axis=axis), np.cumulative_sum(x, axis=axis), ulps=32, scale=100)


def test_cumulative_takes_an_axis() -> None:
    with pytest.raises(ValueError, match="axis has to be given"):
        xp.cumulative_sum(xp.zeros((2, 2)))
    with pytest.raises(ValueError, match="axis has to be given"):
        xp.cumulative_sum(xp.asarray(1.0))
    with pytest.raises(IndexError, match="axis=2 is out of bounds"):
        xp.cumulative_prod(xp.zeros((2, 2)), axis=2)


def test_a_running_sum_does_not_drift() -> None:
    x = xp.full((3_000_000,), 0.1, dtype=xp.float32, chunks=(100_000,))
    total = xp.cumulative_sum(x)
    assert total.chunks == x.chunks
    values = a.evaluate(total)
    exact = np.arange(1, 3_000_001) * float(np.float32(0.1))
    np.testing.assert_allclose(values, exact, rtol=1e-6)
    steps = np.diff(values[99_990:100_010].astype("float64"))
    assert np.all(np.abs(steps - 0.1) <= 0.01)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: xp.sum(x, axis=2), IndexError, "axis=2 is out of bounds"),
        (lambda x: xp.sum(x, axis=(0, -2)), ValueError, "twice"),
        (lambda x: xp.sum(x, axis="0"), TypeError, "an axis is an int"),
        (lambda x: xp.max(xp.astype(x, xp.complex64)), TypeError, "no order"),
        (lambda x: xp.var(xp.astype(x, xp.complex64)), TypeError, "real"),
        (lambda x: xp.std(x, correction="1"), TypeError, "correction"),
        (lambda x: xp.mean(np.zeros(3)), TypeError, "jaxchunk array"),
        (lambda x: xp.min(xp.zeros((0, 3)), axis=0), ValueError, "min of no elements"),
    ],
)
def test_bad_arguments(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(xp.zeros((2, 3)))


# --- the folds' algebra: any cut, any order of joining, and lanes left over --------------------


def reducer_cases() -> list[Any]:
    def arg(largest: bool) -> Any:
        return reducers.ArgExtreme(largest, (7, 1)), lambda x: (np.argmax if largest else np.argmin)(x)

    return [
        pytest.param(reducers.SUM, np.sum, id="sum"),
        pytest.param(reducers.PROD, np.prod, id="prod"),
        pytest.param(reducers.MAX, np.max, id="max"),
        pytest.param(reducers.MIN, np.min, id="min"),
        pytest.param(reducers.Moments(0.0, False), np.var, id="var"),
        pytest.param(reducers.Moments(1.0, True), lambda x: np.std(x, ddof=1), id="std"),
        pytest.param(*arg(True), id="argmax"),
        pytest.param(*arg(False), id="argmin"),
    ]


@pytest.mark.parametrize(("reducer", "numpy"), reducer_cases())
@pytest.mark.parametrize("lanes", [False, True])
@given(seed=st.integers(0, 999), special=st.booleans(), rows=st.lists(st.integers(1, 4), min_size=1, max_size=3))
def test_pieces_join_in_any_order(reducer: Any, numpy: Any, lanes: bool, seed: int, special: bool, rows: Any) -> None:
    x = a.values((sum(rows), 7), "float64", seed, special)
    with quiet():
        expected = numpy(x)
    order = np.random.default_rng(seed).permutation(len(rows) + 1)
    with jax.enable_x64(True):
        dtypes = [x.dtype]
        nothing = tuple(
            np.full((1, 7 if lanes else 1), value, dtype)
            for value, dtype in zip(reducer.identity(dtypes), reducer.state_dtypes(dtypes), strict=True)
        )
        states = [nothing]
        for start, count in zip(itertools.accumulate([0, *rows[:-1]]), rows, strict=True):
            piece = jax.numpy.asarray(x[start : start + count])
            operands = [piece]
            if reducer.name.startswith("arg"):
                operands += [np.arange(start, start + count)[:, None], np.arange(7)[None, :]]
            state = reducer.lift(tuple(map(jax.numpy.asarray, operands)), (0,) if lanes else (0, 1))
            states.append(state)
        state = states[order[0]]
        for i in order[1:]:
            state = reducer.combine(tuple(map(jax.numpy.asarray, state)), tuple(map(jax.numpy.asarray, states[i])))
        if lanes:
            whole = [np.broadcast_to(s, (1, 7)) for s in state]
            state = tuple(jax.numpy.asarray(s[:, :1]) for s in whole)
            for lane in range(1, 7):
                state = reducer.combine(state, tuple(jax.numpy.asarray(s[:, lane : lane + 1]) for s in whole))
        result = np.asarray(reducer.finish(state)).reshape(())
    np.testing.assert_allclose(result, expected, rtol=1e-12)
