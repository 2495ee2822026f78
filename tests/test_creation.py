"""Arrays from nothing and from other libraries."""

from __future__ import annotations

import array
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jaxchunk.array_api as xp
from tests.helpers import arrays as a

# --- one value ---------------------------------------------------------------------------------


@given(st.data(), a.shapes(), st.sampled_from(a.ALL))
def test_filled(data: Any, shape: tuple[int, ...], dtype: str) -> None:
    chunks = data.draw(a.chunkings(shape))
    a.check(xp.zeros(shape, dtype=np.dtype(dtype), chunks=chunks), np.zeros(shape, dtype))
    a.check(xp.ones(shape, dtype=np.dtype(dtype), chunks=chunks), np.ones(shape, dtype))
    x = xp.full(shape, 3, dtype=np.dtype(dtype), chunks=chunks)
    a.check(x, np.full(shape, 3, dtype))
    for like, value in ((xp.zeros_like, 0), (xp.ones_like, 1)):
        a.check(like(x), np.full(shape, value, dtype))
        assert like(x).chunks == x.chunks
    a.check(xp.full_like(x, 2, dtype=xp.float64, chunks="auto"), np.full(shape, 2.0))
    assert xp.empty(shape).shape == xp.empty_like(x).shape == shape


def test_default_dtypes() -> None:
    assert xp.zeros(2).dtype == xp.ones(2).dtype == xp.empty(2).dtype == xp.float64
    for value, dtype in ((True, xp.bool), (1, xp.int64), (1.0, xp.float64), (1j, xp.complex128)):
        assert xp.full(2, value).dtype == dtype
        assert xp.asarray(value).dtype == dtype
    assert xp.arange(3).dtype == xp.int64
    assert xp.arange(3.0).dtype == xp.linspace(0, 1, 3).dtype == xp.float64
    assert xp.linspace(0, 1j, 3).dtype == xp.complex128


def test_full_of_a_0_dimensional_array() -> None:
    a.check(xp.full((2, 2), xp.asarray(3) + 1), np.full((2, 2), 4))
    a.check(xp.full((), np.float32(2)), np.float32(2))
    with pytest.raises(ValueError, match="fill_value has shape"):
        xp.full(2, xp.zeros(2))


# --- positions ---------------------------------------------------------------------------------


@given(
    st.integers(-50, 50),
    st.none() | st.integers(-50, 50),
    st.integers(-7, 7).filter(bool),
    st.sampled_from(["int8", "int64", "float32", "float64", "complex64"]),
    st.sampled_from([None, 1, 3, 64]),
)
def test_arange_of_integers(start: int, stop: int | None, step: int, dtype: str, chunks: Any) -> None:
    if stop is None:
        start, step = abs(start), abs(step)
    expected = np.arange(0 if stop is None else start, start if stop is None else stop, step).astype(dtype)
    if stop is None:
        a.check(xp.arange(start, step=step, dtype=np.dtype(dtype), chunks=chunks), expected)
    else:
        a.check(xp.arange(start, stop, step, dtype=np.dtype(dtype), chunks=chunks), expected)


@given(st.floats(-10, 10), st.floats(-10, 10), st.floats(0.05, 2), st.booleans())
def test_arange_of_floats(start: float, stop: float, step: float, down: bool) -> None:
    step = -step if down else step
    # NumPy's own values drift: it takes the difference of its first two for the step.
    expected = start + step * np.arange(np.arange(start, stop, step).size)
    a.check(xp.arange(start, stop, step), expected, ulps=4, scale=10)


def test_arange_of_large_integers() -> None:
    x = xp.arange(2**63, 2**63 + 5, dtype=xp.uint64)
    assert np.asarray(x).tolist() == list(range(2**63, 2**63 + 5))
    x = xp.arange(-(2**63), 2**63 - 1, 2**62)
    assert np.asarray(x).tolist() == list(range(-(2**63), 2**63 - 1, 2**62))
    assert xp.arange(2**62 + 1, chunks=2**40).shape == (2**62 + 1,)
    x = xp.arange(250, 0, -50, dtype=xp.uint8)
    assert np.asarray(x).tolist() == [250, 200, 150, 100, 50]


@given(
    st.floats(-1e3, 1e3),
    st.floats(-1e3, 1e3),
    st.integers(0, 20),
    st.booleans(),
    st.sampled_from(["float32", "float64", "complex128"]),
    st.sampled_from([None, 1, 3]),
)
def test_linspace(start: float, stop: float, num: int, endpoint: bool, dtype: str, chunks: Any) -> None:
    got = xp.linspace(start, stop, num, dtype=np.dtype(dtype), endpoint=endpoint, chunks=chunks)
    a.check(got, np.linspace(start, stop, num, endpoint=endpoint).astype(dtype), ulps=4, scale=1e3)
    values = a.evaluate(got)
    if num:
        assert values[0] == np.asarray(start, dtype)
    if num > 1 and endpoint:
        assert values[-1] == np.asarray(stop, dtype)


def test_linspace_between_the_ends_of_the_range() -> None:
    largest = float(np.finfo("float64").max)
    assert np.asarray(xp.linspace(-largest, largest, 3)).tolist() == [-largest, 0.0, largest]
    a.check(xp.linspace(0, 1j, 3), np.linspace(0, 1j, 3), ulps=2)


@given(st.data(), st.integers(0, 6), st.none() | st.integers(0, 6), st.integers(-7, 7), st.sampled_from(a.ALL))
def test_eye(data: Any, rows: int, columns: int | None, k: int, dtype: str) -> None:
    expected = np.eye(rows, columns, k=k, dtype=dtype)
    chunks = data.draw(a.chunkings(expected.shape))
    a.check(xp.eye(rows, columns, k=k, dtype=np.dtype(dtype), chunks=chunks), expected)


@given(a.arrays(min_dims=2, special=True), st.integers(-7, 7), st.sampled_from(["tril", "triu"]))
def test_triangles(pair: Any, k: int, name: str) -> None:
    x, y = pair
    a.check(getattr(xp, name)(y, k=k), getattr(np, name)(x, k=k))


@given(st.data(), st.integers(0, 3), st.sampled_from(["xy", "ij"]))
def test_meshgrid(data: Any, count: int, indexing: Any) -> None:
    pairs = [data.draw(a.arrays(("float32",), min_dims=1, max_dims=1)) for _ in range(count)]
    got = xp.meshgrid(*(y for _, y in pairs), indexing=indexing)
    assert isinstance(got, tuple)
    for x, y in zip(np.meshgrid(*(x for x, _ in pairs), indexing=indexing), got, strict=True):
        a.check(y, x)


# --- what others hold --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("obj", "dtype"),
    [
        (True, "bool"),
        ([1, 2], "int64"),
        ([[1, 2.5], [3, 4]], "float64"),
        ([True, 2], "int64"),
        ([1, 2j], "complex128"),
        ([], "float64"),
        ([[], []], "float64"),
        (range(3), "int64"),
        (((1, 2), (3, 4)), "int64"),
        (np.float32(1.5), "float32"),
        (array.array("i", [1, 2]), "int32"),
        (memoryview(b"ab"), "uint8"),
        (bytearray(b"ab"), "uint8"),
        (np.arange(6, dtype=">i4").reshape(2, 3)[::-1, ::2], "int32"),
    ],
)
def test_asarray(obj: Any, dtype: str) -> None:
    expected = np.frombuffer(obj, "uint8") if isinstance(obj, memoryview | bytearray) else np.asarray(obj)
    a.check(xp.asarray(obj), expected.astype(dtype))
    a.check(xp.asarray(obj, dtype=xp.complex64), expected.astype("complex64"))


def test_asarray_of_an_array() -> None:
    x = xp.asarray([1, 2])
    assert xp.asarray(x) is x
    assert xp.asarray(x, dtype=xp.int64) is x
    y = xp.asarray(x, copy=True)
    assert y is not x
    y += 1
    assert np.asarray(x).tolist() == [1, 2]
    assert xp.asarray(x, dtype=xp.float32).dtype == xp.float32
    assert xp.asarray(x, chunks=1).chunks == ((1, 1),)
    with pytest.raises(ValueError, match="copy=False"):
        xp.asarray(x, dtype=xp.float32, copy=False)


def test_asarray_of_lists_of_arrays() -> None:
    x = xp.asarray([1, 2], dtype=xp.int8)
    a.check(xp.asarray([[x[0], 5], [x[1], 6]]), np.asarray([[1, 5], [2, 6]], "int8"))
    a.check(xp.asarray([x, x + 1], dtype=xp.float32), np.asarray([[1, 2], [2, 3]], "float32"))
    a.check(xp.asarray((x, jax.numpy.ones(2, "int16"))), np.asarray([[1, 2], [1, 1]], "int16"))
    with pytest.raises(ValueError, match="copy=False"):
        xp.asarray([x], copy=False)


def test_small_arrays_are_copied_and_large_ones_read_when_computed() -> None:
    small, large = np.zeros(10), np.zeros(200_000)
    x, y, z = xp.asarray(small), xp.asarray(large), xp.asarray(large, copy=True)
    never = xp.asarray(small, copy=False)
    small[0] = large[0] = 1
    assert [float(v[0]) for v in (x, y, z, never)] == [0, 1, 0, 1]
    with pytest.raises(ValueError, match="copy=False"):
        xp.asarray([1, 2], copy=False)
    with pytest.raises(ValueError, match="byte order"):
        xp.asarray(np.zeros(3, ">f8"), copy=False)


def test_lookalikes_are_never_one() -> None:
    sums = [float(xp.sum(xp.asarray(np.full(1000, i)))) for i in range(20)]
    assert sums == [1000 * i for i in range(20)]
    first, second = xp.asarray([1.0, 2.0]), (xp.asarray([10.0, 20.0]) + 1).persist()
    a.check(first + second, np.asarray([12.0, 23.0]))


def test_jax_arrays() -> None:
    x = jax.numpy.arange(6.0).reshape(2, 3)
    y = xp.asarray(x, chunks=(1, 2))
    a.check(y, np.asarray(x))
    assert y.device == xp.Device("cpu", 0)
    with pytest.raises(TypeError, match="outside jit"):
        jax.jit(lambda v: xp.asarray(v))(x)
    with pytest.raises(TypeError, match="bfloat16"):
        xp.asarray(x.astype("bfloat16"))
    with pytest.raises(TypeError, match="key_data"):
        xp.asarray(jax.random.key(0))
    z = jax.numpy.zeros(3)
    z.delete()
    with pytest.raises(ValueError, match="deleted"):
        xp.asarray(z)


def test_dlpack() -> None:
    class Exporter:
        def __init__(self, x: Any) -> None:
            self.x = x

        def __dlpack__(self, **arguments: Any) -> Any:
            return self.x.__dlpack__(**arguments)

        def __dlpack_device__(self) -> Any:
            return self.x.__dlpack_device__()

    x = np.arange(4)
    a.check(xp.from_dlpack(Exporter(x)), x)
    a.check(xp.asarray(Exporter(x)), x)
    a.check(xp.from_dlpack(xp.asarray(x), copy=True), x)
    assert xp.from_dlpack(x, device=xp.Device("cpu")).device == xp.Device("cpu")
    with pytest.raises(AttributeError, match="__dlpack__"):
        xp.from_dlpack([1, 2])


@given(a.arrays(special=True), st.sampled_from(a.ALL))
def test_astype(pair: Any, dtype: str) -> None:
    x, y = pair
    if x.dtype.kind == "c" and np.dtype(dtype).kind not in "cb":
        with pytest.raises(TypeError, match="complex"):
            xp.astype(y, np.dtype(dtype))
        return
    if x.dtype.kind in "fc" and np.dtype(dtype).kind in "iu":
        # What isn't finite, or is negative where that can't be, becomes some integer.
        x, y = np.abs(np.where(np.isfinite(x), x, 1)), xp.abs(xp.where(xp.isfinite(y), y, 1.0))
    with np.errstate(all="ignore"):
        a.check(xp.astype(y, np.dtype(dtype)), x.astype(dtype))


def test_astype_copies() -> None:
    x = xp.zeros(3)
    assert xp.astype(x, xp.float64, copy=False) is x
    assert xp.astype(x, xp.float64) is not x
    assert xp.astype(x, xp.float32, device="cpu").device == xp.Device("cpu")


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: xp.zeros(-1), ValueError, "at least 0"),
        (lambda: xp.zeros((2, 1.5)), TypeError, "tuple of ints"),
        (lambda: xp.zeros(2, dtype="float32"), TypeError, "dtype"),
        (lambda: xp.zeros(2, dtype=np.float16), TypeError, "not supported"),
        (lambda: xp.zeros((2, 2), chunks=(2,)), ValueError, "entries"),
        (lambda: xp.zeros(4, chunks=0), ValueError, "at least 1"),
        (lambda: xp.zeros(4, device=3), TypeError, "device"),
        (lambda: xp.full(2, "a"), TypeError, "fill_value"),
        (lambda: xp.full(2, 1j, dtype=xp.float64), TypeError, "complex"),
        (lambda: xp.full_like(np.zeros(2), 1), TypeError, "jaxchunk array"),
        (lambda: xp.arange(0, 3, 0), ValueError, "step is 0"),
        (lambda: xp.arange("3"), TypeError, "start|stop"),
        (lambda: xp.arange(0, 3, 0.5, dtype=xp.int64), ValueError, "whole numbers"),
        (lambda: xp.arange(300, dtype=xp.uint8), OverflowError, "outside the range of uint8"),
        (lambda: xp.arange(0, xp.inf), ValueError, "finite"),
        (lambda: xp.arange(3, dtype=xp.bool), TypeError, "bool"),
        (lambda: xp.linspace(0, 1, -1), ValueError, "at least 0"),
        (lambda: xp.linspace(0, 1j, 3, dtype=xp.float64), TypeError, "complex"),
        (lambda: xp.tril(xp.zeros(3)), ValueError, "matrix"),
        (lambda: xp.meshgrid(xp.zeros((2, 2))), ValueError, "1-dimensional"),
        (lambda: xp.meshgrid(xp.zeros(2), xp.zeros(2, dtype=xp.int8)), ValueError, "must agree"),
        (lambda: xp.meshgrid(xp.zeros(2), indexing="yx"), ValueError, "indexing"),
        (lambda: xp.asarray([[1, 2], [3]]), ValueError, "asarray"),
        (lambda: xp.asarray([2**70]), OverflowError, "int64"),
        (lambda: xp.asarray([2**63]), OverflowError, "uint64"),
        (lambda: xp.asarray(["a"]), TypeError, "not supported|bools and numbers"),
        (lambda: xp.asarray([None]), TypeError, "bools and numbers"),
        (lambda: xp.asarray(np.asarray(["2020-01-01"], "datetime64[D]")), TypeError, "datetime64"),
        (lambda: xp.asarray(np.asarray([1, "a"], object)), TypeError, "object"),
        (lambda: xp.asarray([xp.zeros(2), xp.zeros(3)]), ValueError, "items of one shape"),
        (lambda: xp.asarray([xp.zeros(2), xp.zeros(2, dtype=xp.int8)]), TypeError, "promote"),
        (lambda: xp.asarray({"a": 1}), TypeError, "dict"),
        (lambda: xp.asarray([1j], dtype=xp.float64), TypeError, "complex|float"),
    ],
)
def test_bad_arguments(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
