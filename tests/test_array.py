"""The array object: what it says of itself, its operators, and how its values are asked for."""

from __future__ import annotations

import operator
import pickle
import subprocess
import sys
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jaxchunk.array_api as xp
from tests.helpers import arrays as a

BINARY = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow]
BITWISE = [operator.and_, operator.or_, operator.xor]
COMPARISONS = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]
INPLACE = [operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ifloordiv, operator.imod]


def test_attributes() -> None:
    x = xp.zeros((5, 6), dtype=xp.float32, chunks=(2, (1, 5)))
    assert (x.shape, x.ndim, x.size, x.dtype) == ((5, 6), 2, 30, np.dtype("float32"))
    assert (x.itemsize, x.nbytes) == (4, 120)
    assert x.chunks == ((2, 2, 1), (1, 5))
    assert (x.chunksize, x.numblocks) == ((2, 5), (3, 2))
    assert len(x) == 5
    assert (x.T.shape, x.T.chunks) == ((6, 5), ((1, 5), (2, 2, 1)))
    assert xp.zeros((2, 3, 4)).mT.shape == (2, 4, 3)


def test_attributes_that_need_axes() -> None:
    with pytest.raises(ValueError, match="mT needs"):
        _ = xp.zeros(3).mT
    with pytest.raises(ValueError, match="T is the transpose of a matrix"):
        _ = xp.zeros((2, 2, 2)).T
    with pytest.raises(TypeError, match="no length"):
        len(xp.asarray(1))


def test_repr_computes_nothing() -> None:
    x = xp.zeros((10**6, 10**6), chunks=(1000, 1000))
    assert repr(x + 1) == "<jaxchunk Array (1000000, 1000000) float64, chunks of (1000, 1000), 7.276 TiB, lazy>"
    assert repr(xp.asarray([1, 2])) == "<jaxchunk Array (2,) int64, 16 B, array in memory>"
    html = (x + 1)._repr_html_()
    assert "7.276 TiB" in html
    assert "<svg" in html
    assert xp.asarray(1)._repr_html_()
    assert "<svg" not in xp.zeros((0, 3))._repr_html_()
    assert xp.zeros((6, 4), chunks=(2, -1))._repr_html_().count("<line") == 2


# --- operators ---------------------------------------------------------------------------------


@given(st.data(), st.sampled_from(BINARY[:3] + COMPARISONS), a.shapes(max_dims=2))
def test_binary_operators_with_arrays(data: Any, op: Any, shape: tuple[int, ...]) -> None:
    dtype = data.draw(st.sampled_from(a.INTEGERS + a.REALS))
    (x, y), (u, v) = (data.draw(a.arrays((dtype,), shape=shape)) for _ in range(2))
    a.check(op(y, v), op(x, u))


@pytest.mark.parametrize("op", BINARY + COMPARISONS)
def test_binary_operators_with_scalars(op: Any) -> None:
    x = np.asarray([1.5, 2.0, 4.0], dtype="float32")
    y = xp.asarray(x, chunks=(2,))
    a.check(op(y, 2), op(x, np.float32(2)), ulps=2)
    a.check(op(2.0, y), op(np.float32(2), x), ulps=2)
    a.check(op(y, np.float64(2)), op(x.astype("float64"), 2.0), ulps=2)
    a.check(op(np.float64(2), y), op(2.0, x.astype("float64")), ulps=2)


@pytest.mark.parametrize("op", BITWISE)
def test_bitwise_operators(op: Any) -> None:
    x, u = np.asarray([12, 10], dtype="int8"), np.asarray([10, 3], dtype="int8")
    a.check(op(xp.asarray(x), xp.asarray(u)), op(x, u))
    a.check(op(3, xp.asarray(x)), op(np.int8(3), x))
    p = np.asarray([True, False])
    a.check(op(xp.asarray(p), True), op(p, True))
    a.check(xp.asarray(x) << 2, x << 2)
    a.check(xp.asarray(x) >> 1, x >> 1)


def test_unary_operators() -> None:
    x = np.asarray([1, -2], dtype="int32")
    y = xp.asarray(x)
    for op in (operator.neg, operator.pos, operator.abs, operator.invert):
        a.check(op(y), op(x))


@pytest.mark.parametrize("op", INPLACE)
def test_in_place_operators_change_the_object(op: Any) -> None:
    x = np.asarray([[1.5, 2.0], [3.0, 4.0]])
    y = xp.asarray(x)
    alias, view = y, y[0]
    result = op(y, 2)
    assert result is y
    a.check(alias, op(x.copy(), 2))
    a.check(view, x[0])


def test_in_place_operators_keep_shape_and_dtype() -> None:
    y = xp.asarray([1, 2])
    with pytest.raises(ValueError, match="in place on shape"):
        y += xp.zeros((2, 2), dtype=xp.int64)
    z = xp.asarray([1, 2], dtype=xp.int8)
    with pytest.raises(TypeError, match="in place on int8 would give int16"):
        z += xp.asarray([1, 2], dtype=xp.int16)
    a.check(y, np.asarray([1, 2]))
    a.check(z, np.asarray([1, 2], dtype="int8"))
    y <<= 1
    y |= 1
    a.check(y, np.asarray([3, 5]))


def test_matmul_operators() -> None:
    x = np.arange(4.0).reshape(2, 2)
    y = xp.asarray(x)
    a.check(y @ y, x @ x)
    with pytest.raises(TypeError, match="unsupported operand"):
        y @ 2
    with pytest.raises(TypeError, match="unsupported operand"):
        2 @ y
    y @= y
    a.check(y, x @ x)


def test_operators_leave_strangers_alone() -> None:
    class Stranger:
        def __radd__(self, other: Any) -> str:
            return "added"

    x = xp.asarray([1, 2])
    assert x + Stranger() == "added"
    assert (x == "a") is False
    assert (x != None) is True  # noqa: E711
    for other in ("a", None, [1, 2], np.asarray([1, 2]), jax.numpy.asarray([1, 2])):
        with pytest.raises(TypeError):
            x + other
        with pytest.raises(TypeError):
            other + x


def test_arrays_are_no_keys() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(xp.asarray(1))


# --- values ------------------------------------------------------------------------------------


def test_scalars() -> None:
    assert bool(xp.asarray(2)) is True
    assert int(xp.asarray(-2.7)) == -2
    assert float(xp.asarray(3)) == 3.0
    assert complex(xp.asarray(1.5)) == 1.5
    assert complex(xp.asarray(1 + 2j)) == 1 + 2j
    assert operator.index(xp.asarray(3, dtype=xp.uint8)) == 3
    assert type(float(xp.sum(xp.ones(3)))) is float
    assert [10, 20, 30][xp.asarray(1)] == 20


@pytest.mark.parametrize("convert", [int, float, complex, operator.index])
def test_scalars_have_no_axes(convert: Any) -> None:
    with pytest.raises(TypeError, match="0 axes"):
        convert(xp.asarray([1]))


def test_scalars_of_the_wrong_kind() -> None:
    with pytest.raises(ValueError, match="ambiguous"):
        bool(xp.asarray([True]))
    for convert in (int, float):
        with pytest.raises(TypeError, match="complex128"):
            convert(xp.asarray(1j))
    for value in (1.0, True):
        with pytest.raises(TypeError, match="operator.index"):
            operator.index(xp.asarray(value))
    with pytest.raises(ValueError, match="NaN"):
        int(xp.asarray(xp.nan))
    with pytest.raises(OverflowError):
        int(xp.asarray(xp.inf))


@given(a.arrays())
def test_numpy(pair: Any) -> None:
    x, y = pair
    a.check(y, x)
    np.testing.assert_array_equal(y.compute(), x)


def test_numpy_asks_for_dtype_and_copy() -> None:
    y = xp.asarray([1, 2])
    assert np.asarray(y, dtype="float32").dtype == np.float32
    assert np.array(y, copy=True).tolist() == [1, 2]
    with pytest.raises(ValueError, match="copy=False"):
        np.asarray(y + 1, copy=False)


def test_a_computed_array_is_the_users() -> None:
    y = xp.asarray([1, 2])
    values = y.compute()
    if values.flags.writeable:
        values[0] = 7
    assert y.compute().tolist() == [1, 2]


def test_iteration() -> None:
    y = xp.asarray([4, 5, 6], chunks=(2,))
    assert [int(v) for v in y] == [4, 5, 6]
    assert all(isinstance(v, xp.Array) and v.shape == () for v in y)
    rows = list(xp.zeros((2, 10**12), chunks=(1, 10**6)))
    assert [row.shape for row in rows] == [(10**12,)] * 2
    first, second = xp.asarray([1.5, 2.5])
    assert (float(first), float(second)) == (1.5, 2.5)
    with pytest.raises(TypeError, match="iterated"):
        iter(xp.asarray(1))


def test_rechunk() -> None:
    x = xp.asarray(np.arange(24).reshape(4, 6))
    assert x.rechunk((3, 4)).chunks == ((3, 1), (4, 2))
    assert x.rechunk(2).chunks == ((2, 2), (2, 2, 2))
    assert x.rechunk({1: (1, 5)}).chunks == ((4,), (1, 5))
    assert x.rechunk((3, 4)).rechunk((None, -1)).chunks == ((3, 1), (6,))
    a.check(x.rechunk((3, 4)), np.arange(24).reshape(4, 6))
    for bad in (0, -2, (1,), (1, 2, 3), ((1, 2), 6), {2: 1}, "big"):
        with pytest.raises(ValueError, match="chunk"):
            x.rechunk(bad)
    with pytest.raises(TypeError, match="chunk"):
        x.rechunk((1.5, 2))


# --- other libraries ---------------------------------------------------------------------------


def test_namespace() -> None:
    x = xp.asarray(1)
    assert x.__array_namespace__() is xp
    assert x.__array_namespace__(api_version="2025.12") is xp
    assert xp.__array_api_version__ == "2025.12"
    with pytest.raises(ValueError, match="api_version"):
        x.__array_namespace__(api_version="2019.01")


def test_numpy_functions_are_refused() -> None:
    x = xp.asarray([1.0, 2.0])
    with pytest.raises(TypeError, match="use jaxchunk.array_api.mean"):
        np.mean(x)
    with pytest.raises(TypeError, match="numpy.asarray"):
        np.median(x)
    with pytest.raises(TypeError):
        np.sin(x)
    with pytest.raises(TypeError):
        np.asarray([1.0, 2.0]) * x
    assert isinstance(np.float64(2) * x, xp.Array)


def test_dlpack() -> None:
    x = xp.asarray([[1.0, 2.0]])
    assert np.from_dlpack(x + 1).tolist() == [[2.0, 3.0]]
    assert np.from_dlpack(x, copy=True).tolist() == [[1.0, 2.0]]
    assert jax.dlpack.from_dlpack(x).tolist() == [[1.0, 2.0]]
    assert int(x.__dlpack_device__()[0]) == 1
    assert x.__dlpack__() is not None
    with pytest.raises(ValueError, match="stream"):
        x.__dlpack__(stream=1)
    with pytest.raises(BufferError):
        x.__dlpack__(dl_device=(2, 0), max_version=(1, 0))


def test_devices() -> None:
    cpu, gpu = xp.Device("cpu"), xp.Device("gpu", 1)
    assert (repr(cpu), str(gpu)) == ("Device('cpu', 0)", "gpu:1")
    assert len({cpu, xp.Device("cpu", 0), gpu}) == 2
    assert pickle.loads(pickle.dumps(gpu)) == gpu
    x = xp.zeros(3)
    assert x.device == xp.__array_namespace_info__().default_device()
    y = x.to_device(gpu)
    assert y.device == gpu
    assert (y + x).device == gpu
    assert xp.sum(y[1:]).device == gpu
    assert xp.zeros_like(y).device == gpu
    assert y.to_device("cpu").device == cpu
    assert xp.zeros(3, device="gpu:1").device == gpu
    with pytest.raises(ValueError, match="different devices"):
        y + x.to_device(cpu)
    with pytest.raises(ValueError, match="platform 'abacus'"):
        x.to_device("abacus")
    with pytest.raises(TypeError, match="device is None"):
        x.to_device(None)
    with pytest.raises(ValueError, match="stream"):
        x.to_device(cpu, stream=1)


def test_making_arrays_does_not_start_jax() -> None:
    code = """
import jaxchunk.array_api as xp
from jax._src import xla_bridge
x = xp.zeros((3, 4), device="gpu:0") + 1
y = xp.sum(xp.asarray([1.0, 2.0]) * 2)[None].rechunk(1)
repr(x), y._repr_html_(), x[0].T if x.ndim == 1 else x.T
assert not xla_bridge.backends_are_initialized()
"""
    subprocess.run([sys.executable, "-c", code], check=True)
